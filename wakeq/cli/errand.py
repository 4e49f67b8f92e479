"""Errand: a Worker that ends by itself, when its queue has nothing more or when it has taken so many messages.

    Worker  -->  Bounded, in the place of its client  -->  the end, when there was nothing to fetch and nothing is held

How messages are fetched and settled stays the Worker's; Bounded only looks on, and never asks for more than is left of
the limit.  It is for handlers without follow-ups, and for one queue.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence

from wakeq.client.aio import AsyncClient, AsyncMessage, Listener
from wakeq.client.requests import Settled
from wakeq.protocol.errors import WakeqError
from wakeq.worker import Worker
from wakeq.worker.engine import Engine
from wakeq.worker.settling import NOT_NOW


class Errand(Worker):
    """`run` returns when it is done, or after a signal."""

    def __init__(self, address: str, *, concurrency: int, grace: float, limit: int | None = None) -> None:
        super().__init__(address, concurrency=concurrency, prefetch=0, grace=grace)
        self._limit = limit

    def _make_engine(self) -> Engine[AsyncClient]:
        def make_client(engine: Engine[AsyncClient]) -> Bounded:
            (queue,) = self.tasks
            return Bounded(self.address, queue, listener=engine, limit=self._limit, finished=self._finished)

        return Engine(make_client, self._make_pool, list(self.tasks.values()), prefetch=0)

    def _finished(self) -> None:
        self._signalled(1)


class Bounded(AsyncClient):
    """The client of an Errand: it knows what is held, and calls `finished` when that is all."""

    def __init__(
        self,
        address: str | None,
        queue: str,
        *,
        listener: Listener,
        limit: int | None,
        finished: Callable[[], None],
    ) -> None:
        super().__init__(address, listener=listener, reconnect_for_s=math.inf)
        self._queue = queue
        self._listener = listener
        self._left = math.inf if limit is None else limit
        self._finished = finished
        self._held: set[str] = set()  # uids

    async def fetch_many(self, queue: str, count: int, *, wait: float = 0) -> list[AsyncMessage]:
        """As many as the limit leaves; none is what an empty queue answers, too."""
        count = int(min(count, self._left))
        messages = await super().fetch_many(queue, count, wait=wait) if count else []
        self._left -= len(messages)
        self._held.update(message.uid for message in messages)
        return messages

    async def sleep(self, queue: str) -> None:
        """There was nothing to fetch: that is the end, or it is said to the broker, or the last ones are still held."""
        if not self._held:
            self._finished()
        elif self._left:
            await super().sleep(queue)

    async def ack_many(self, messages: Sequence[AsyncMessage]) -> Settled:
        return await self._settled(messages, super().ack_many(messages))

    async def nack_many(
        self,
        messages: Sequence[AsyncMessage],
        *,
        delay: int | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
    ) -> Settled:
        ending = super().nack_many(messages, delay=delay, error=error, failed=failed, dead=dead)
        return await self._settled(messages, ending)

    async def touch_many(self, messages: Sequence[AsyncMessage], *, timeout: int | None = None) -> Settled:
        outcome = await super().touch_many(messages, timeout=timeout)
        self._let_go([*outcome.stale, *outcome.unknown])  # nobody will settle them
        return outcome

    async def _settled(self, messages: Sequence[AsyncMessage], answer: Awaitable[Settled]) -> Settled:
        uids = [message.uid for message in messages]
        try:
            outcome = await answer
        except NOT_NOW:
            raise  # it will be said again
        except WakeqError:
            self._let_go(uids)
            raise
        self._let_go(uids)
        return outcome

    def _let_go(self, uids: Iterable[str]) -> None:
        """They are not ours any more.  After the last one the queue is asked again: one may have gone back to it."""
        if self._held:
            self._held.difference_update(uids)
            if not self._held:
                self._listener.awoken(self._queue)
