"""Client: the broker for a program that waits for each answer.

    client.publish(...)  -->  Session  -->  Transport  -->  broker

The rules of the conversation are the session's; here is only the waiting: for the answer, and for the
broker to come back.  A call either returns what the broker said or raises a WakeqError that says what to
try.  One client may be shared between threads, whose calls then go one after the other; a long `wait` is
better on its own client.
"""

import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from wakeq.client.message import Body, Message, bytes_of_body
from wakeq.client.patience import Patience
from wakeq.client.session import Answer, Event, NotTheProtocol, Session, Ticket, repeatable
from wakeq.client.transport import DEFAULT_ADDRESS, Transport, default_address
from wakeq.protocol.errors import BadField, BrokerUnreachable, Disconnected, WakeqError
from wakeq.protocol.wire import worker as wire

__all__ = ["DEFAULT_ADDRESS", "Client"]

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0  # a broker that says nothing for so long is hung
RECONNECT_FOR_S = 10.0  # how long a call outlives its broker


class Silent(Disconnected):
    """The peer is connected and says nothing: hung, or no broker."""


class Closed(Disconnected):
    """Our own side ended it."""


AnyReply = TypeVar("AnyReply", bound=wire.Reply)


class Client:
    """A connection to a broker, made again by itself when it breaks."""

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
    ) -> None:
        """Connect to `address`, HOST:PORT; else to WAKEQ_BROKER, else to 127.0.0.1:2601."""
        self.address = address or default_address()
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._reconnect_for_s = reconnect_for_s
        self._session = Session(secrets.token_hex(16))
        self._transport: Transport | None = None
        self._outcomes: dict[Ticket, wire.Reply | WakeqError] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._connect()

    @property
    def broker_version(self) -> str:
        return self._session.greeting.version if self._session.greeting else ""

    def close(self) -> None:
        """End the connection, also under a call that waits; the client is of no use afterwards."""
        self._closed = True
        if transport := self._transport:
            transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # Messages ---------------------------------------------------------------------------------------------

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Publish one message (text, bytes, or what JSON can say) and return its uid; spans are seconds.

        It is stored when this returns, and once, even if the connection broke in between.  `id` does the same
        over restarts of the publisher, for 15 minutes.
        """
        text, encoding = wire.text_of(bytes_of_body(body))
        command = wire.Pub(
            qname=queue,
            message=text,
            enc=encoding,
            delay=delay,
            timeout=timeout,
            expires=expires,
            priority=priority,
            headers=dict(headers) if headers else None,
            id=id or None,
        )
        uid = self._request(command, wire.Ok).uid
        if uid is None:
            raise _unexpected("PUB", "no uid")
        return uid

    def publish_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> list[str]:
        """Publish all of them or none, in one step, and return the uids in the same order."""
        items = [_item(body) for body in bodies]
        if not items:
            return []
        command = wire.Pub(
            qname=queue,
            messages=items,
            delay=delay,
            timeout=timeout,
            expires=expires,
            priority=priority,
            headers=dict(headers) if headers else None,
            id=id or None,
        )
        return self._request(command, wire.Ok).uids or []

    def fetch(self, queue: str, *, wait: float = 0) -> Message | None:
        """The next message, ours until its timeout; None if there is none within `wait` seconds.

        Without `wait` a queue that does not exist is QueueNotFound; with it, it is waited for.
        """
        reply = self._fetch(wire.Fet(qname=queue, wait=float(wait)))
        if isinstance(reply, wire.Msg):
            return self._message(queue, reply)
        return self._message(queue, reply.messages[0]) if isinstance(reply, wire.Msgs) else None

    def fetch_many(self, queue: str, count: int, *, wait: float = 0) -> list[Message]:
        """Up to `count` messages; an empty list if there is none within `wait` seconds."""
        reply = self._fetch(wire.Fet(qname=queue, count=count, wait=float(wait)))
        if isinstance(reply, wire.Msg):
            return [self._message(queue, reply)]
        return [self._message(queue, one) for one in reply.messages] if isinstance(reply, wire.Msgs) else []

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Sequence[tuple[str, Body]] = ()) -> bool:
        """The messages are done with; `then` is published in the same step.  False: one was gone."""
        followups = [_followup(target, body) for target, body in then] or None
        command = wire.Ack(qname=queue, publish=followups, **_which(uids, lease))
        return _all_known(self._request(command, wire.Okack))

    def ack_many(self, messages: Sequence[Message]) -> bool:
        """Messages of one queue are done with, each by its own lease, in one step."""
        if len({message.queue for message in messages}) > 1:
            raise BadField("these messages are of several queues; acknowledge each queue's own")
        if not messages:
            return True
        command = wire.Ack(
            qname=messages[0].queue,
            uids=[message.uid for message in messages],
            leases=[message.lease for message in messages],
        )
        return _all_known(self._request(command, wire.Okack))

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: str | None = None,
    ) -> bool:
        """Give messages back, to be delivered after `delay` seconds, or as the queue's retry policy says."""
        command = wire.Nack(qname=queue, delay=delay, error=error, **_which(uids, lease))
        return _all_known(self._request(command, wire.Oknack))

    def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> bool:
        """Keep messages for `timeout` seconds from now, or for the timeout they were delivered with."""
        command = wire.Touch(qname=queue, timeout=timeout, **_which(uids, lease))
        return _all_known(self._request(command, wire.Oktouch))

    # Queues -----------------------------------------------------------------------------------------------

    def queues(self, prefix: str = "") -> list[dict[str, Any]]:
        """Every queue whose name begins with `prefix`, with what the broker says of it."""
        return self._request(wire.List(prefix=prefix), wire.Queues).queues

    def stats(self, queue: str | None = None) -> dict[str, Any]:
        """Counts and policies of a queue; of the whole node for None."""
        return self._request(wire.Stats(qname=queue), wire.StatsReply).stats

    def peek(self, queue: str, count: int = 10, *, state: str = "ready") -> list[dict[str, Any]]:
        """Look at the next messages in a state (ready, delayed, leased, any), changing nothing."""
        command = wire.Peek(qname=queue, count=count, state=state)  # type: ignore[arg-type]
        return self._request(command, wire.Peeked).messages

    def create_queue(self, queue: str, **policies: Any) -> None:
        """Make a queue with these policies; QueueExists if there is one."""
        self._request(wire.Create(qname=queue, **_policies(policies)), wire.Okcreate)

    def update_queue(self, queue: str, **policies: Any) -> None:
        """Change the named policies of a queue; None sets one back to its default."""
        self._request(wire.Update(qname=queue, **_policies(policies)), wire.Okupdate)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with all that is in it."""
        self._request(wire.Drop(qname=queue), wire.Okdrop)

    def purge(self, queue: str) -> int:
        """Delete all messages of a queue and return how many there were."""
        return self._request(wire.Purge(qname=queue), wire.Purged).count

    def ping(self) -> None:
        """Return when the broker has answered."""
        self._request(wire.Ping(), wire.Pong)

    # The waiting ------------------------------------------------------------------------------------------

    def _fetch(self, command: wire.Fet) -> wire.Reply:
        with self._lock:
            if command.wait > 0:  # a subscriber's fetch waits for a queue that does not exist yet
                self._session.subscribe(command.qname)
            return self._answered(command, self._answer_timeout_s + command.wait)

    def _request(self, command: wire.Command, kind: type[AnyReply]) -> AnyReply:
        with self._lock:
            reply = self._answered(command, self._answer_timeout_s)
        if not isinstance(reply, kind):
            raise _unexpected(type(command).__name__.upper(), type(reply).__name__.lower())
        return reply

    def _answered(self, command: wire.Command, timeout_s: float) -> wire.Reply:
        """Ask, and wait for the answer through as many connections as it takes."""
        if not repeatable(command) and self._transport and not self._transport.alive():
            self._drop()  # better to find out before it is in doubt whether the command arrived
        ticket = self._session.ask(command)
        try:
            outcome = self._persistently(command, ticket, timeout_s)
        except BaseException:  # its answer may still come, and nobody would wait for it
            self._session.forget(ticket)
            self._drop()
            raise
        if isinstance(outcome, WakeqError):
            raise outcome
        return outcome

    def _persistently(self, command: wire.Command, ticket: Ticket, timeout_s: float) -> wire.Reply | WakeqError:
        patience = Patience(self._reconnect_for_s)
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                self._connect()
                patience.renew()
                return self._waited(ticket, until_s)
            except (Silent, Closed, NotTheProtocol):
                raise
            except (Disconnected, BrokerUnreachable):
                self._drop()
                if ticket in self._outcomes:  # it must not be repeated
                    return self._outcomes.pop(ticket)
                if not patience.pause():
                    raise
            if isinstance(command, wire.Fet) and command.wait:  # wait only for what is left of it
                left_s = max(0.0, until_s - self._answer_timeout_s - time.monotonic())
                self._session.amend(ticket, msgspec.structs.replace(command, wait=left_s))
            else:
                until_s = time.monotonic() + timeout_s

    def _waited(self, ticket: Ticket, until_s: float) -> wire.Reply | WakeqError:
        while ticket not in self._outcomes:
            self._exchange(until_s)
        return self._outcomes.pop(ticket)

    def _connect(self) -> None:
        """Have a connection, greeted by the broker."""
        if self._closed:
            raise Closed("this client was closed; make another one")
        if self._transport is not None:
            return
        self._transport = Transport(self.address, timeout_s=self._connect_timeout_s)
        try:
            self._session.connected()
            until_s = time.monotonic() + self._connect_timeout_s
            while self._session.greeting is None:
                self._exchange(until_s)
        except BaseException:
            self._drop()
            raise

    def _exchange(self, until_s: float) -> None:
        """Send what is to be sent and take what comes next."""
        assert self._transport is not None
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise Silent(f"{self.address} accepted the connection and does not answer; is it a wakeq worker port?")
        if data := self._session.bytes_to_send():
            self._transport.send(data, timeout_s=left_s)
        if received := self._transport.receive(timeout_s=left_s):
            self._keep(self._session.receive(received))

    def _drop(self) -> None:
        """End the connection; what must not be repeated is answered by that."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
            self._keep(self._session.disconnected())

    def _keep(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Answer):  # a blocking client never sleeps, so it is not woken
                self._outcomes[event.ticket] = event.outcome

    def _message(self, queue: str, one: wire.Msg | wire.Delivery) -> Message:
        return Message(
            queue=queue,
            uid=one.uid,
            body=wire.bytes_of(one),
            lease=one.lease,
            delivery=one.error_count + 1,
            priority=one.priority,
            headers=one.headers or {},
            settler=self,
        )


def _item(body: Body) -> str | wire.Item:
    text, encoding = wire.text_of(bytes_of_body(body))
    return text if encoding is None else wire.Item(message=text, enc=encoding)


def _followup(queue: str, body: Body) -> wire.Followup:
    text, encoding = wire.text_of(bytes_of_body(body))
    return wire.Followup(qname=queue, message=text, enc=encoding)


def _which(uids: tuple[str, ...], lease: str | None) -> dict[str, Any]:
    """The fields that name messages: one, with its lease, or many."""
    if not uids:
        raise BadField("no uid; name at least one message")
    if len(uids) == 1:
        return {"uid": uids[0], "lease": lease}
    if lease is not None:
        raise BadField("a lease belongs to one message; name one uid, or no lease")
    return {"uids": list(uids)}


def _all_known(reply: wire.Okack | wire.Oknack | wire.Oktouch) -> bool:
    """Whether the broker knew every message of a command for one or many."""
    return reply.known and not reply.unknown


def _policies(policies: dict[str, Any]) -> dict[str, Any]:
    """The policies as the command's fields."""
    known = set(wire.Policies.__struct_fields__) - {"qname", "cmd_id"}
    for name in policies:
        if name not in known:
            raise BadField(f"{name} is no policy; there are {', '.join(sorted(known))}")
    if isinstance(policies.get("retry"), Mapping):
        try:
            policies["retry"] = msgspec.convert(policies["retry"], wire.Retry)
        except msgspec.ValidationError as error:
            raise BadField(f"retry: {error}; it takes backoff, base, max and jitter") from None
    return policies


def _unexpected(verb: str, what: str) -> Disconnected:
    return NotTheProtocol(f"the broker answered {verb} with {what}; is it older than this client?")
