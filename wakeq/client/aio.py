"""AsyncClient: the broker for a program that runs on an event loop.

    await client.publish(...)  -->  Request  -->  AsyncCaller  -->  broker

Names, arguments and meanings are those of the blocking Client. Any number of tasks may share one client: no call waits
for another, and the commands of one turn of the loop are sent in one write. A call may be cancelled; a message that a
cancelled fetch brings is released at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from wakeq.client import requests
from wakeq.client.aio_caller import AsyncCaller, Listener
from wakeq.client.arguments.spans import Span
from wakeq.client.connection import Credentials, Tls, Token, tls_context, token_source
from wakeq.client.identity import of_client
from wakeq.client.message import AsyncMessage, Body, Reason, Then
from wakeq.client.redrive import Redriven, Steps, redrive
from wakeq.client.requests import Settled
from wakeq.client.route import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, default_address
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

__all__ = ["AsyncClient", "AsyncMessage", "Listener"]

T = TypeVar("T")


class AsyncClient:
    """A connection to a broker; the client reconnects by itself when it breaks."""

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: Token = None,
        tls: Tls = None,
        listener: Listener | None = None,
        introduce: Callable[[], wire.Hello] = of_client,
    ) -> None:
        """Use the broker at `address`: HOST:PORT, or several with commas; default WAKEQ_BROKER, else 127.0.0.1:2601.

        `token` identifies the program, a path names its file; default WAKEQ_TOKEN or the file WAKEQ_TOKEN_FILE. `tls`
        is True, a file of authorities to trust, or an SSLContext; default WAKEQ_TLS. The client connects with `async
        with`, with `connect`, or with the first call. `introduce` says who the client is, at each connection.
        """
        self._introduce = introduce
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        credentials = Credentials(token_source(token), tls_context(tls))
        self._caller = AsyncCaller(address or default_address(), timeouts, listener, credentials, introduce)

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self._caller.address

    @property
    def broker_version(self) -> str:
        """The version that the broker named in its greeting."""
        return self._caller.broker_version

    async def connect(self) -> None:
        """Return when there is a connection; raise BrokerUnreachable if no broker answers."""
        await self._caller.connect()

    async def introduce(self) -> None:
        """Say again who this client is, because that has changed."""
        await self._caller.call(requests.hello(self._introduce()))

    async def drain(self) -> None:
        """Return when every call so far is answered, except for fetches that still wait."""
        await self._caller.drain()

    async def close(self) -> None:
        """Close the client. Calls that still wait raise Disconnected; later calls do so, too."""
        await self._caller.close()

    async def __aenter__(self) -> Self:
        await self._caller.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # Messages ---------------------------------------------------------------------------------------------

    async def publish(
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
        return await self._caller.call(requests.publish(queue, body, options))

    async def publish_many(
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
        return await self._caller.call(requests.publish_many(queue, batch, options)) if batch else []

    async def fetch(self, queue: str, *, wait: Span = 0, timeout: Span | None = None) -> AsyncMessage | None:
        """Return the next message, or None if there is none within `wait` seconds.

        Its lease lasts for `timeout` seconds, by default for the timeout of the message. Without `wait` a queue that
        does not exist raises QueueNotFound; with `wait` the call waits for the queue, too.
        """
        return await self._caller.call(requests.fetch(queue, wait, self._message, timeout))

    async def fetch_many(
        self, queue: str, count: int, *, wait: Span = 0, timeout: Span | None = None
    ) -> list[AsyncMessage]:
        """Return up to `count` messages, or an empty list if there is none within `wait` seconds."""
        return await self._caller.call(requests.fetch_many(queue, count, wait, self._message, timeout))

    async def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        """Acknowledge messages, and publish `then` in the same step. False: one of them was gone."""
        return await self._caller.call(requests.ack(queue, uids, lease, then))

    async def nack(
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
        return await self._caller.call(requests.nack(queue, uids, lease, ending))

    async def touch(self, queue: str, *uids: str, timeout: Span | None = None, lease: str | None = None) -> bool:
        """Extend leases to `timeout` seconds from now, or by the timeout of the delivery."""
        return await self._caller.call(requests.touch(queue, uids, lease, timeout))

    async def ack_many(self, messages: Sequence[AsyncMessage]) -> Settled:
        """Acknowledge messages of one queue, each with its own lease, in one step."""
        return await self._caller.call(requests.ack_many(messages)) if messages else Settled()

    async def nack_many(
        self,
        messages: Sequence[AsyncMessage],
        *,
        delay: Span | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        """Return messages of one queue to it, each with its own lease, in one step."""
        ending = requests.NackOptions(delay, error, failed, dead, exhausted)
        return await self._caller.call(requests.nack_many(messages, ending)) if messages else Settled()

    async def touch_many(self, messages: Sequence[AsyncMessage], *, timeout: Span | None = None) -> Settled:
        """Extend the leases of messages of one queue, in one step."""
        return await self._caller.call(requests.touch_many(messages, timeout)) if messages else Settled()

    # Subscriptions ----------------------------------------------------------------------------------------------

    async def subscribe(self, queue: str) -> None:
        """Subscribe to a queue, which need not exist yet, on this connection and on all later ones."""
        await self._caller.call(requests.subscribe(queue))

    async def unsubscribe(self, queue: str) -> None:
        """End the subscription to a queue."""
        await self._caller.call(requests.unsubscribe(queue))

    async def sleep(self, queue: str) -> None:
        """Ask to be woken: the listener's `awoken` is called when there is a message, perhaps before this returns.

        This holds for the current connection only. If it breaks before the answer, Disconnected is raised.
        """
        await self._caller.call(requests.sleep(queue))

    # Queues -----------------------------------------------------------------------------------------------

    async def queues(self, prefix: str = "") -> list[dict[str, Any]]:
        """Return the queues whose names begin with `prefix`, with their counts."""
        return await self._caller.call(requests.queues(prefix))

    async def stats(self, queue: str | None = None) -> dict[str, Any]:
        """Return the counts and policies of a queue, or with None the figures of the node."""
        return await self._caller.call(requests.stats(queue))

    async def cluster(self, do: str = "status", *, node: int | None = None, address: str = "") -> dict[str, Any]:
        """Return the state of the cluster; or transfer, add, remove or snapshot (docs/operations/cluster.md)."""
        return await self._caller.call(requests.cluster(do, node, address))

    async def peek(self, queue: str, count: int = 10, *, state: str = "ready") -> list[dict[str, Any]]:
        """Return the next messages in a state (ready, delayed, leased, any) without changing anything."""
        return await self._caller.call(requests.peek(queue, count, state))

    async def create_queue(self, queue: str, **policies: Any) -> None:
        """Create a queue with these policies; QueueExists if there is one."""
        await self._caller.call(requests.create_queue(queue, policies))

    async def update_queue(self, queue: str, **policies: Any) -> None:
        """Change the named policies of a queue; None resets a policy to its default."""
        await self._caller.call(requests.update_queue(queue, policies))

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and all of its messages."""
        await self._caller.call(requests.delete_queue(queue))

    async def purge(self, queue: str) -> int:
        """Delete all messages of a queue and return their number."""
        return await self._caller.call(requests.purge(queue))

    async def redrive(
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
        return await self._carry_out(redrive(queue, count, to, anywhere=anywhere, tell=tell))

    async def ping(self) -> None:
        """Return as soon as the broker answers."""
        await self._caller.call(requests.ping())

    async def _carry_out(self, steps: Steps[T]) -> T:
        """Send one request after the other. The steps receive each result, or the error instead."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._caller.call(request)
                except WakeqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)

    def _message(self, queue: str, one: wire.Msg | wire.Delivery) -> AsyncMessage:
        return AsyncMessage(client=self, **requests.delivered_fields(queue, one))
