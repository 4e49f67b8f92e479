"""Requests: the command that each call of a client sends, and how the broker's reply to it is read.

    arguments  -->  Request(command, read)          reply  -->  read  -->  the result of the call

Both clients are built on this, so that a call means the same in each. Pure: it builds commands and reads replies. It
raises BadField for arguments that cannot be sent and the typed error of a refusal. It never waits and knows no
connection.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from wakeq.client.arguments.spans import Span, delay_until, seconds
from wakeq.client.message import Body, Reason, Received, Then, bytes_of_body, plain_text, text_of_reason
from wakeq.client.session import WrongProtocol, error_of
from wakeq.protocol.errors import BadField, MessageNotFound, StaleLease
from wakeq.protocol.wire.worker import codec as wire

T = TypeVar("T")
AnyReply = TypeVar("AnyReply", bound=wire.Reply)
AnyMessage = TypeVar("AnyMessage", bound=Received)

# The length at which a value is cut when an error quotes it.
SHOWN_CHARS_MAX = 60

MessageMaker: TypeAlias = Callable[[str, "wire.Msg | wire.Delivery"], AnyMessage]


class Request(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A command, and the function that reads its reply."""

    command: wire.Command
    read: Callable[[wire.Reply], T]


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome for many messages, by uid. True if the broker accepted every one of them."""

    done: Sequence[str] = ()
    # These messages no longer exist.
    unknown: Sequence[str] = ()
    # The leases of these messages had timed out; other workers may have them now.
    stale: Sequence[str] = ()

    def __bool__(self) -> bool:
        return not self.unknown and not self.stale


# Messages -------------------------------------------------------------------------------------------------


class PublishOptions(msgspec.Struct, frozen=True, gc=False):
    """How to publish."""

    delay: Span
    timeout: Span | None
    expires: Span
    priority: int
    headers: Mapping[str, str] | None
    id: str | None
    # The moment when the message is due, in place of a delay.
    at: datetime | None = None

    def fields(self) -> dict[str, Any]:
        """Return the options as fields of a command."""
        return {
            "delay": delay_until(self.delay, self.at),
            "timeout": seconds("timeout", self.timeout),
            "expires": seconds("expires", self.expires),
            "priority": self.priority,
            "headers": _headers(self.headers) if self.headers else None,
            "id": self.id or None,
        }


class NackOptions(msgspec.Struct, frozen=True, gc=False):
    """How messages are returned to the queue."""

    delay: Span | None
    error: Reason | None
    failed: bool
    dead: bool
    exhausted: bool = False

    def fields(self) -> dict[str, Any]:
        """Return the options as fields of a command."""
        delay = seconds("delay", self.delay)
        error = None if self.error is None else text_of_reason(self.error)
        fields = {"delay": delay, "error": error, "failed": self.failed, "dead": self.dead}
        return fields | ({"exhausted": True} if self.exhausted else {})


def publish(queue: str, body: Body, options: PublishOptions) -> Request[str]:
    """Publish one message; the result is its uid."""
    text, encoding = _text_of(body)
    return Request(wire.Pub(qname=queue, message=text, enc=encoding, **options.fields()), _read_uid)


def publish_many(queue: str, bodies: Sequence[Body], options: PublishOptions) -> Request[list[str]]:
    """Publish a batch; the result is the list of uids, in the same order."""
    items = [body if type(body) is str else _item(body) for body in bodies]
    return Request(
        wire.Pub(qname=queue, messages=items, **options.fields()), lambda reply: expect(reply, wire.Ok).uids or []
    )


def list_of_bodies(bodies: Iterable[Body]) -> list[Body]:
    """Return the bodies of a batch. A single text is refused: its characters would be published."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping) or not isinstance(bodies, Iterable):
        raise BadField(f"{_shown(bodies)} is not a batch; give publish_many a list of bodies, or publish one body")
    return list(bodies)


def fetch(
    queue: str, wait: Span, make: MessageMaker[AnyMessage], timeout: Span | None = None
) -> Request[AnyMessage | None]:
    """Fetch the next message, or None."""

    def read(reply: wire.Reply) -> AnyMessage | None:
        if isinstance(reply, wire.Msg):
            return make(queue, reply)
        expect(reply, wire.Nomsg)
        return None

    return Request(wire.Fet(qname=queue, wait=_wait(wait), timeout=seconds("timeout", timeout)), read)


def fetch_many(
    queue: str, count: int, wait: Span, make: MessageMaker[AnyMessage], timeout: Span | None = None
) -> Request[list[AnyMessage]]:
    """Fetch up to `count` messages."""

    def read(reply: wire.Reply) -> list[AnyMessage]:
        if isinstance(reply, wire.Msgs):
            return [make(queue, one) for one in reply.messages]
        expect(reply, wire.Nomsg)
        return []

    return Request(wire.Fet(qname=queue, count=count, wait=_wait(wait), timeout=seconds("timeout", timeout)), read)


def delivered_fields(queue: str, one: "wire.Msg | wire.Delivery") -> dict[str, Any]:
    """Return the fields of a Message for a delivery."""
    fields: dict[str, Any] = {
        "queue": queue,
        "uid": one.uid,
        "body": wire.bytes_of(one),
        "lease": one.lease,
        "delivery": one.error_count + 1,
        "failures": one.error_count if one.failures is None else one.failures,
        "priority": one.priority,
    }
    if one.headers:
        fields["headers"] = one.headers
    return fields


def ack(queue: str, uids: Sequence[str], lease: str | None, then: Then) -> Request[bool]:
    """Acknowledge messages, and publish `then` in the same step."""
    followups = [one if isinstance(one, wire.Followup) else _followup(one) for one in then] or None
    return Request(wire.Ack(qname=queue, publish=followups, **_message_fields(uids, lease)), _read_known)


def nack(queue: str, uids: Sequence[str], lease: str | None, ending: NackOptions) -> Request[bool]:
    """Return messages to the queue."""
    return Request(wire.Nack(qname=queue, **ending.fields(), **_message_fields(uids, lease)), _read_known)


def touch(queue: str, uids: Sequence[str], lease: str | None, timeout: Span | None) -> Request[bool]:
    """Extend leases."""
    return Request(
        wire.Touch(qname=queue, timeout=seconds("timeout", timeout), **_message_fields(uids, lease)), _read_known
    )


def ack_many(messages: Sequence[Received]) -> Request[Settled]:
    """Acknowledge messages, each with its own lease."""
    return Request(wire.Ack(**_leased_fields(messages)), lambda reply: _read_settled(reply, messages))


def nack_many(messages: Sequence[Received], ending: NackOptions) -> Request[Settled]:
    """Return messages to the queue, each with its own lease."""
    return Request(
        wire.Nack(**ending.fields(), **_leased_fields(messages)), lambda reply: _read_settled(reply, messages)
    )


def touch_many(messages: Sequence[Received], timeout: Span | None) -> Request[Settled]:
    """Extend leases, each with its own token."""
    command = wire.Touch(timeout=seconds("timeout", timeout), **_leased_fields(messages))
    return Request(command, lambda reply: _read_settled(reply, messages))


# Workers --------------------------------------------------------------------------------------------------


def subscribe(queue: str) -> Request[None]:
    """Subscribe to a queue."""
    return Request(wire.Sub(qname=queue), _accept(wire.Oksub))


def unsubscribe(queue: str) -> Request[None]:
    """End the subscription."""
    return Request(wire.Uns(qname=queue), _accept(wire.Okuns))


def sleep(queue: str) -> Request[None]:
    """Ask to be woken when the queue has a message."""
    return Request(wire.Islp(qname=queue, wake="ready"), _accept(wire.Okslp))


# Queues ---------------------------------------------------------------------------------------------------


def queues(prefix: str) -> Request[list[dict[str, Any]]]:
    """List the queues."""
    return Request(wire.List(prefix=prefix), lambda reply: expect(reply, wire.Queues).queues)


def stats(queue: str | None) -> Request[dict[str, Any]]:
    """Get the counts and policies of a queue, or the figures of the node."""
    return Request(wire.Stats(qname=queue), lambda reply: expect(reply, wire.StatsReply).stats)


def cluster(do: str, node: int | None, address: str) -> Request[dict[str, Any]]:
    """Show or change the cluster."""
    command = wire.Cluster(do=do, node=node, address=address)  # type: ignore[arg-type]  # the broker checks it
    return Request(command, lambda reply: expect(reply, wire.ClusterReply).cluster)


def peek(queue: str, count: int, state: str) -> Request[list[dict[str, Any]]]:
    """Look at messages without changing anything."""
    command = wire.Peek(qname=queue, count=count, state=state)  # type: ignore[arg-type]  # the broker checks it
    return Request(command, lambda reply: expect(reply, wire.Peeked).messages)


def create_queue(queue: str, policies: dict[str, Any]) -> Request[None]:
    """Create a queue."""
    return Request(wire.Create(qname=queue, **_policies(policies)), _accept(wire.Okcreate))


def update_queue(queue: str, policies: dict[str, Any]) -> Request[None]:
    """Change policies of a queue."""
    return Request(wire.Update(qname=queue, **_policies(policies)), _accept(wire.Okupdate))


def delete_queue(queue: str) -> Request[None]:
    """Delete a queue and its messages."""
    return Request(wire.Drop(qname=queue), _accept(wire.Okdrop))


def purge(queue: str) -> Request[int]:
    """Delete all messages of a queue; the result is their number."""
    return Request(wire.Purge(qname=queue), lambda reply: expect(reply, wire.Purged).count)


def hello(command: wire.Hello) -> Request[None]:
    """Say who the client is."""
    return Request(command, _accept(wire.HelloReply))


def ping() -> Request[None]:
    """Ask for a sign of life."""
    return Request(wire.Ping(), _accept(wire.Pong))


# Arguments ------------------------------------------------------------------------------------------------


def _wait(span: Span) -> float:
    """Return how long a fetch waits."""
    wait_s = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(wait_s, int | float) and 0 <= wait_s < float("inf"):
        return float(wait_s)
    raise BadField(f"wait is {span!r}; give seconds or a timedelta, 0 or more (at most an hour at a time)")


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers whose names and values are text that can be sent."""
    for name, value in headers.items():
        for text in (name, value):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise BadField(f"header {_shown(name)}: {_shown(text)} is {kind}, and headers are text: give a str")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise BadField(f"header {name!r} cannot be sent as UTF-8 ({error}); encode it first") from None
    return {plain_text(name): plain_text(value) for name, value in headers.items()}


def _shown(value: object) -> str:
    """Return a value as an error quotes it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _text_of(body: Body) -> tuple[str, Any]:
    return (plain_text(body), None) if isinstance(body, str) else wire.text_of(bytes_of_body(body))


def _item(body: Body) -> str | wire.Item:
    text, encoding = _text_of(body)
    return text if encoding is None else wire.Item(message=text, enc=encoding)


def _followup(pair: tuple[str, Body]) -> wire.Followup:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise BadField(f"{_shown(pair)} is not a follow-up; `then` takes a list of (queue, body) pairs")
    queue, body = pair
    text, encoding = _text_of(body)
    return wire.Followup(qname=queue, message=text, enc=encoding)


def _message_fields(uids: Sequence[str], lease: str | None) -> dict[str, Any]:
    """Return the fields that name messages: one with its lease, or several."""
    if not uids:
        raise BadField("no uid; name at least one message")
    if wrong := next((uid for uid in uids if not isinstance(uid, str)), None):
        raise BadField(f"{_shown(wrong)} is not a uid; give the text that publish returned, or message.uid")
    if len(uids) == 1:
        return {"uid": uids[0], "lease": lease}
    if lease is not None:
        raise BadField("a lease belongs to one message; name one uid, or no lease")
    return {"uids": list(uids)}


def _leased_fields(messages: Sequence[Received]) -> dict[str, Any]:
    """Return the fields that name leased messages, each with its lease."""
    if len({message.queue for message in messages}) != 1:
        raise BadField("these messages are from several queues; make one call for each queue")
    return {
        "qname": messages[0].queue,
        "uids": [message.uid for message in messages],
        "leases": [message.lease for message in messages],
    }


def _policies(policies: dict[str, Any]) -> dict[str, Any]:
    """Return policies as fields of a command."""
    known = set(wire.Policies.__struct_fields__) - {"qname", "cmd_id"}
    for name in policies:
        if name not in known:
            raise BadField(f"{name} is not a policy; the policies are {', '.join(sorted(known))}")
    if not isinstance(policies.get("retry"), Mapping):
        return policies
    try:
        return {**policies, "retry": msgspec.convert(policies["retry"], wire.Retry)}
    except msgspec.ValidationError as error:
        raise BadField(f"retry: {error}; it takes backoff, base, max and jitter") from None


# Replies --------------------------------------------------------------------------------------------------


def expect(reply: wire.Reply, kind: type[AnyReply]) -> AnyReply:
    """Return the reply if it is of this kind. Raise a refusal as its error."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, wire.Nok):
        raise error_of(reply)
    received, expected = type(reply).__name__.lower(), kind.__name__.lower()
    raise WrongProtocol(f"the broker answered {received} instead of {expected}; is it older than this client?")


def _accept(kind: type[AnyReply]) -> Callable[[wire.Reply], None]:
    """Return a reader for a reply that carries nothing but its kind."""

    def read(reply: wire.Reply) -> None:
        expect(reply, kind)

    return read


def _read_uid(reply: wire.Reply) -> str:
    uid = expect(reply, wire.Ok).uid
    if uid is None:
        raise WrongProtocol("the broker published a message and gave no uid; is it older than this client?")
    return uid


def _read_known(reply: wire.Reply) -> bool:
    """Return whether the broker knew every message."""
    if isinstance(reply, (wire.Okack, wire.Oknack, wire.Oktouch)):
        return reply.known and not reply.unknown
    # An ACK with follow-ups is refused as a whole, and nothing was done.
    if isinstance(reply, wire.Nok) and reply.err == MessageNotFound.code:
        return False
    expect(reply, wire.Okack)
    return True


def _read_settled(reply: wire.Reply, messages: Sequence[Received]) -> Settled:
    """Return which messages were done, unknown or stale."""
    unknown = getattr(reply, "unknown", None) or ()
    if isinstance(reply, wire.Nok) and reply.err == StaleLease.code and reply.stale:
        return Settled(reply.uids or (), unknown, reply.stale)
    _read_known(reply)
    missing = set(unknown)
    return Settled([one.uid for one in messages if one.uid not in missing], unknown)
