"""Client: the broker for a program that waits for each answer.

    client.publish(...)  -->  Request  -->  Caller  -->  broker

A call returns the broker's answer, or raises a WakeqError whose text says what to try. Threads may share one client:
no call waits for the call of another thread, not even for a fetch that waits. A forked child may use the client, too:
it gets a connection of its own. Anything that takes more than one line belongs in requests.py or caller.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from wakeq.client import requests
from wakeq.client.arguments.spans import Span
from wakeq.client.caller import Caller
from wakeq.client.connection import Connection, Tls, Token, dial, tls_context, token_source
from wakeq.client.message import Body, Message, Reason, Then
from wakeq.client.redrive import Redriven, Steps, redrive
from wakeq.client.requests import Settled
from wakeq.client.route import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    DEFAULT_ADDRESS,
    RECONNECT_FOR_S,
    Timeouts,
    default_address,
)
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

__all__ = ["DEFAULT_ADDRESS", "Client"]

T = TypeVar("T")


class Client:
    """A connection to a broker; the client reconnects by itself when it breaks."""

    # Calls wait for the broker, so they are refused in a thread that runs an event loop.
    _waits = True

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: Token = None,
        tls: Tls = None,
    ) -> None:
        """Connect to `address`: HOST:PORT, or several separated by commas; default WAKEQ_BROKER, else 127.0.0.1:2601.

        `token` identifies the program, a path names its file; default WAKEQ_TOKEN or the file WAKEQ_TOKEN_FILE. `tls`
        is True, a file of authorities to trust, or an SSLContext; default WAKEQ_TLS. Raises BrokerUnreachable if no
        broker answers.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._connect_timeout_s = connect_timeout_s
        self._context = tls_context(tls)
        self._caller = Caller(
            address or default_address(), timeouts, self._dial, token_source(token), waits=self._waits
        )

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self._caller.address

    @property
    def broker_version(self) -> str:
        """The version that the broker named in its greeting."""
        return self._caller.broker_version

    def close(self) -> None:
        """Close the client. Calls that still wait raise Disconnected; later calls do so, too."""
        self._caller.close()

    def __enter__(self) -> Self:
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
        delay: Span = 0,
        at: datetime | None = None,
        timeout: Span | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Publish one message (text, bytes, or a JSON value) and return its uid.

        Spans are seconds, perhaps with a fraction, or a timedelta; `at` is the moment when the message is due, with a
        time zone, in place of `delay`. When this returns the message is stored, exactly once, even if the connection
        broke in between. An `id` does the same across restarts of the publisher, for 15 minutes.
        """
        options = requests.PublishOptions(delay, timeout, expires, priority, headers, id, at)
        return self._caller.call(requests.publish(queue, body, options))

    def publish_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: Span = 0,
        at: datetime | None = None,
        timeout: Span | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> list[str]:
        """Publish all messages or none, in one step, and return their uids in the same order."""
        options = requests.PublishOptions(delay, timeout, expires, priority, headers, id, at)
        batch = requests.list_of_bodies(bodies)
        return self._caller.call(requests.publish_many(queue, batch, options)) if batch else []

    def fetch(self, queue: str, *, wait: Span = 0, timeout: Span | None = None) -> Message | None:
        """Return the next message, or None if there is none within `wait` seconds.

        Its lease lasts for `timeout` seconds, by default for the timeout of the message. Without `wait` a queue that
        does not exist raises QueueNotFound; with `wait` the call waits for the queue, too.
        """
        return self._caller.call(requests.fetch(queue, wait, self._message, timeout))

    def fetch_many(self, queue: str, count: int, *, wait: Span = 0, timeout: Span | None = None) -> list[Message]:
        """Return up to `count` messages, or an empty list if there is none within `wait` seconds."""
        return self._caller.call(requests.fetch_many(queue, count, wait, self._message, timeout))

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        """Acknowledge messages, and publish `then` in the same step. False: one of them was gone."""
        return self._caller.call(requests.ack(queue, uids, lease, then))

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: Span | None = None,
        lease: str | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> bool:
        """Return messages to the queue, to be redelivered after `delay` seconds, or by the queue's retry policy.

        With `failed=False` this counts as no failure. With `dead=True` they become dead letters now; `exhausted=True`
        records as the reason that no retries are left. False: one of them was gone.
        """
        ending = requests.NackOptions(delay, error, failed, dead, exhausted)
        return self._caller.call(requests.nack(queue, uids, lease, ending))

    def touch(self, queue: str, *uids: str, timeout: Span | None = None, lease: str | None = None) -> bool:
        """Extend leases to `timeout` seconds from now, or by the timeout of the delivery."""
        return self._caller.call(requests.touch(queue, uids, lease, timeout))

    def ack_many(self, messages: Sequence[Message]) -> Settled:
        """Acknowledge messages of one queue, each with its own lease, in one step."""
        return self._caller.call(requests.ack_many(messages)) if messages else Settled()

    def nack_many(
        self,
        messages: Sequence[Message],
        *,
        delay: Span | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        """Return messages of one queue to it, each with its own lease, in one step."""
        ending = requests.NackOptions(delay, error, failed, dead, exhausted)
        return self._caller.call(requests.nack_many(messages, ending)) if messages else Settled()

    def touch_many(self, messages: Sequence[Message], *, timeout: Span | None = None) -> Settled:
        """Extend the leases of messages of one queue, in one step."""
        return self._caller.call(requests.touch_many(messages, timeout)) if messages else Settled()

    # Subscriptions ----------------------------------------------------------------------------------------------

    def subscribe(self, queue: str) -> None:
        """Subscribe to a queue, which need not exist yet, on this connection and on all later ones."""
        self._caller.call(requests.subscribe(queue))

    def unsubscribe(self, queue: str) -> None:
        """End the subscription to a queue."""
        self._caller.call(requests.unsubscribe(queue))

    # Queues -----------------------------------------------------------------------------------------------

    def queues(self, prefix: str = "") -> list[dict[str, Any]]:
        """Return the queues whose names begin with `prefix`, with their counts."""
        return self._caller.call(requests.queues(prefix))

    def stats(self, queue: str | None = None) -> dict[str, Any]:
        """Return the counts and policies of a queue, or with None the figures of the node."""
        return self._caller.call(requests.stats(queue))

    def cluster(self, do: str = "status", *, node: int | None = None, address: str = "") -> dict[str, Any]:
        """Return the state of the cluster; or transfer, add, remove or snapshot (docs/operations/cluster.md)."""
        return self._caller.call(requests.cluster(do, node, address))

    def peek(self, queue: str, count: int = 10, *, state: str = "ready") -> list[dict[str, Any]]:
        """Return the next messages in a state (ready, delayed, leased, any) without changing anything."""
        return self._caller.call(requests.peek(queue, count, state))

    def create_queue(self, queue: str, **policies: Any) -> None:
        """Create a queue with these policies; QueueExists if there is one."""
        self._caller.call(requests.create_queue(queue, policies))

    def update_queue(self, queue: str, **policies: Any) -> None:
        """Change the named policies of a queue; None resets a policy to its default."""
        self._caller.call(requests.update_queue(queue, policies))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and all of its messages."""
        self._caller.call(requests.delete_queue(queue))

    def purge(self, queue: str) -> int:
        """Delete all messages of a queue and return their number."""
        return self._caller.call(requests.purge(queue))

    def redrive(
        self,
        queue: str,
        count: int | None = None,
        *,
        to: str | None = None,
        anywhere: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Redriven:
        """Move dead letters, up to `count` or all that are ready now, back to their queues of origin, or to `to`.

        Each leaves `queue` in the step in which it is published again. A letter without an origin stays. So does a
        letter whose origin does not send its dead letters to `queue`, unless `anywhere` allows it. `tell` is called
        with the number of letters that were moved, and the number of all, as the work goes on.
        """
        return self._carry_out(redrive(queue, count, to, anywhere=anywhere, tell=tell))

    def ping(self) -> None:
        """Return as soon as the broker answers."""
        self._caller.call(requests.ping())

    def _carry_out(self, steps: Steps[T]) -> T:
        """Send one request after the other. The steps receive each result, or the error instead."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._caller.call(request)
                except WakeqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)

    def _dial(self, address: str) -> Connection:
        """Connect to one address. Clients of a broker in memory override this."""
        return dial(address, self._context, timeout_s=self._connect_timeout_s)

    def _message(self, queue: str, one: wire.Msg | wire.Delivery) -> Message:
        return Message(client=self, **requests.delivered_fields(queue, one))
