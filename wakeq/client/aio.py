"""AsyncClient: the broker for a program that runs on an event loop.

    await client.publish(...)  -->  Request  -->  AsyncCaller  -->  broker

The names, arguments and meanings are the blocking Client's.  Any number of tasks may share one client: their calls
are under way together, and what they ask in one turn of the loop leaves in one write.  A call may be cancelled;
a message that a cancelled fetch brings is given back at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from wakeq.client.aio_caller import AsyncCaller, Listener
from wakeq.client.core import requests
from wakeq.client.core.requests import Settled
from wakeq.client.core.route import default_address
from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts
from wakeq.client.credentials import Credentials, Tls, context_of, token_source
from wakeq.client.message import AsyncMessage, Body, Reason, Then
from wakeq.client.redrive import Redriven, Steps, redrive
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

__all__ = ["AsyncClient", "AsyncMessage", "Listener"]

T = TypeVar("T")


class AsyncClient:
    """A connection to a broker, made again by itself when it breaks."""

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: str | None = None,
        tls: Tls = None,
        listener: Listener | None = None,
    ) -> None:
        """Talk to `address`, HOST:PORT or several with commas between; else to WAKEQ_BROKER, else to 127.0.0.1:2601.

        `token` says who we are, else WAKEQ_TOKEN or the file WAKEQ_TOKEN_FILE.  `tls`: True, a file of authorities to
        trust, or an SSLContext; else WAKEQ_TLS.  The connection is made by `async with`, by `connect`, or by the
        first call.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        credentials = Credentials(token_source(token), context_of(tls))
        self._caller = AsyncCaller(address or default_address(), timeouts, listener, credentials)

    @property
    def address(self) -> str:
        """Where the broker is."""
        return self._caller.address

    @property
    def broker_version(self) -> str:
        """What the broker said of itself when it greeted."""
        return self._caller.broker_version

    async def connect(self) -> None:
        """Return when there is a connection; raise BrokerUnreachable if there is nobody."""
        await self._caller.connect()

    async def drain(self) -> None:
        """Return when everything that was asked is answered, but for fetches that still wait."""
        await self._caller.drain()

    async def close(self) -> None:
        """End the connection, also under calls that wait; the client is of no use afterwards."""
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
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Publish one message (text, bytes, or what JSON can say) and return its uid; spans are whole seconds.

        It is stored when this returns, and once, even if the connection broke in between.  `id` does the same
        over restarts of the publisher, for 15 minutes.
        """
        options = requests.Options(delay, timeout, expires, priority, headers, id)
        return await self._caller.call(requests.publish(queue, body, options))

    async def publish_many(
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
        options = requests.Options(delay, timeout, expires, priority, headers, id)
        batch = requests.batch_of(bodies)
        return await self._caller.call(requests.publish_many(queue, batch, options)) if batch else []

    async def fetch(self, queue: str, *, wait: float = 0, timeout: int | None = None) -> AsyncMessage | None:
        """The next message, ours for `timeout` seconds, or for its own; None if there is none within `wait` seconds.

        Without `wait` a queue that does not exist is QueueNotFound; with it, it is waited for.
        """
        return await self._caller.call(requests.fetch(queue, wait, self._message, timeout))

    async def fetch_many(
        self, queue: str, count: int, *, wait: float = 0, timeout: int | None = None
    ) -> list[AsyncMessage]:
        """Up to `count` messages; an empty list if there is none within `wait` seconds."""
        return await self._caller.call(requests.fetch_many(queue, count, wait, self._message, timeout))

    async def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        """The messages are done with; `then` is published in the same step.  False: one was gone."""
        return await self._caller.call(requests.ack(queue, uids, lease, then))

    async def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> bool:
        """Give messages back, to be delivered after `delay` seconds, or as the queue's retry policy says.

        `failed=False`: it counts as no failure.  `dead=True`: they become dead letters now; `exhausted=True` says of
        them that they were tried as often as they may.  False: one was gone.
        """
        ending = requests.Ending(delay, error, failed, dead, exhausted)
        return await self._caller.call(requests.nack(queue, uids, lease, ending))

    async def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> bool:
        """Keep messages for `timeout` seconds from now, or for the timeout they were delivered with."""
        return await self._caller.call(requests.touch(queue, uids, lease, timeout))

    async def ack_many(self, messages: Sequence[AsyncMessage]) -> Settled:
        """Messages of one queue are done with, each by its own lease, in one step."""
        return await self._caller.call(requests.ack_many(messages)) if messages else Settled()

    async def nack_many(
        self,
        messages: Sequence[AsyncMessage],
        *,
        delay: int | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        """Give messages of one queue back, each by its own lease, in one step."""
        ending = requests.Ending(delay, error, failed, dead, exhausted)
        return await self._caller.call(requests.nack_many(messages, ending)) if messages else Settled()

    async def touch_many(self, messages: Sequence[AsyncMessage], *, timeout: int | None = None) -> Settled:
        """Keep messages of one queue for longer, each by its own lease, in one step."""
        return await self._caller.call(requests.touch_many(messages, timeout)) if messages else Settled()

    # Working ----------------------------------------------------------------------------------------------

    async def subscribe(self, queue: str) -> None:
        """Join those who work on a queue, which need not exist yet; also on each connection that follows."""
        await self._caller.call(requests.subscribe(queue))

    async def unsubscribe(self, queue: str) -> None:
        """Leave those who work on a queue."""
        await self._caller.call(requests.unsubscribe(queue))

    async def sleep(self, queue: str) -> None:
        """Ask to be woken: the listener's `awoken` is called when there is something, perhaps before this returns.

        It holds for this connection only; if that breaks before the answer, Disconnected is raised.
        """
        await self._caller.call(requests.sleep(queue))

    # Queues -----------------------------------------------------------------------------------------------

    async def queues(self, prefix: str = "") -> list[dict[str, Any]]:
        """Every queue whose name begins with `prefix`, with what the broker says of it."""
        return await self._caller.call(requests.queues(prefix))

    async def stats(self, queue: str | None = None) -> dict[str, Any]:
        """Counts and policies of a queue; of the whole node for None."""
        return await self._caller.call(requests.stats(queue))

    async def cluster(self, do: str = "status", *, node: int | None = None, address: str = "") -> dict[str, Any]:
        """Look at the cluster; or transfer, add, remove or snapshot (docs/operations/cluster.md)."""
        return await self._caller.call(requests.cluster(do, node, address))

    async def peek(self, queue: str, count: int = 10, *, state: str = "ready") -> list[dict[str, Any]]:
        """Look at the next messages in a state (ready, delayed, leased, any), changing nothing."""
        return await self._caller.call(requests.peek(queue, count, state))

    async def create_queue(self, queue: str, **policies: Any) -> None:
        """Make a queue with these policies; QueueExists if there is one."""
        await self._caller.call(requests.create_queue(queue, policies))

    async def update_queue(self, queue: str, **policies: Any) -> None:
        """Change the named policies of a queue; None sets one back to its default."""
        await self._caller.call(requests.update_queue(queue, policies))

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue with all that is in it."""
        await self._caller.call(requests.delete_queue(queue))

    async def purge(self, queue: str) -> int:
        """Delete all messages of a queue and return how many there were."""
        return await self._caller.call(requests.purge(queue))

    async def redrive(
        self, queue: str, count: int | None = None, *, to: str | None = None, anywhere: bool = False
    ) -> Redriven:
        """Move dead letters, up to `count` or all that are ready now, back to where each came from, or to `to`.

        Each leaves `queue` in the step in which it is published again.  One without an origin stays, and so does one
        whose origin does not send its dead letters to `queue`, unless `anywhere` says that it may go there.
        """
        return await self._carry_out(redrive(queue, count, to, anywhere=anywhere))

    async def ping(self) -> None:
        """Return when the broker has answered."""
        await self._caller.call(requests.ping())

    async def _carry_out(self, steps: Steps[T]) -> T:
        """Ask one request after the other; an error goes to where the next one is decided."""
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
        return AsyncMessage(settler=self, **requests.facts_of(queue, one))
