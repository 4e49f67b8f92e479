"""A world for the engine without sockets, threads or waiting: a simulated broker and pool, and a driven clock.

Time stands still while the loop has work, and jumps to the next timer when it has none. So an hour takes no time, and
every run is the same.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wakeq.client.message import Received, Then
from wakeq.client.requests import Settled
from wakeq.protocol.errors import Disconnected, WakeqError
from wakeq.worker import Task, Worker
from wakeq.worker.engine.engine import Engine
from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import DONE, Outcome
from wakeq.worker.pools.pool import FinishedJobs


@dataclass
class MemoryBroker:
    """A simulated broker that records all calls. Each of `faults` is raised once."""

    ready: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    leased: dict[str, str] = field(default_factory=dict)
    acked: list[str] = field(default_factory=list)
    returned: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    chained: list[tuple[str, list[Any]]] = field(default_factory=list)
    touched: list[tuple[float, str]] = field(default_factory=list)
    subscribed: set[str] = field(default_factory=set)
    sleeping: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    faults: dict[str, list[WakeqError]] = field(default_factory=lambda: defaultdict(list))
    fetches: int = 0
    silent: bool = False
    address: str = "broker.test:2601"
    awoken: Callable[[str], None] = lambda _queue: None

    def publish(self, queue: str, *uids: str) -> None:
        self.ready[queue] += uids
        if queue in self.sleeping:
            self.sleeping.discard(queue)
            self.awoken(queue)

    async def _way(self, verb: str) -> None:
        """Simulate the way to the broker, with its faults."""
        await asyncio.sleep(0)
        if self.faults[verb]:
            raise self.faults[verb].pop(0)
        if self.silent:
            await asyncio.sleep(10**9)

    async def subscribe(self, queue: str) -> None:
        await self._way("subscribe")
        self.subscribed.add(queue)

    async def unsubscribe(self, queue: str) -> None:
        await self._way("unsubscribe")
        self.subscribed.discard(queue)

    async def sleep(self, queue: str) -> None:
        await self._way("sleep")
        if self.ready[queue]:
            self.awoken(queue)
        else:
            self.sleeping.add(queue)
        await asyncio.sleep(0)

    async def fetch_many(self, queue: str, count: int) -> list[Received]:
        await self._way("fetch")
        self.fetches += 1
        uids, self.ready[queue] = self.ready[queue][:count], self.ready[queue][count:]
        self.leased |= dict.fromkeys(uids, queue)
        await asyncio.sleep(0)
        return [Received(queue=queue, uid=uid, body=b"{}", lease="1-1", delivery=1) for uid in uids]

    async def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        await self._way("ack")
        self._end(*uids)
        self.chained += [(uid, list(then)) for uid in uids]
        self.acked += uids
        await asyncio.sleep(0)
        return True

    async def ack_many(self, messages: Sequence[Received]) -> Settled:
        await self._way("ack")
        self._end(*(one.uid for one in messages))
        self.acked += [one.uid for one in messages]
        await asyncio.sleep(0)
        return Settled()

    async def nack_many(self, messages: Sequence[Received], **options: Any) -> Settled:
        await self._way("nack")
        self._end(*(one.uid for one in messages))
        self.returned += [(one.uid, options) for one in messages]
        await asyncio.sleep(0)
        return Settled()

    async def touch_many(self, messages: Sequence[Received], *, timeout: int | None = None) -> Settled:
        await self._way("touch")
        now_s = asyncio.get_running_loop().time()
        self.touched += [(now_s, one.uid) for one in messages]
        await asyncio.sleep(0)
        return Settled(stale=[one.uid for one in messages if one.uid in self.stale])

    def _end(self, *uids: str) -> None:
        for uid in uids:
            assert uid in self.leased, f"{uid} was acknowledged or returned twice, or never delivered"
            del self.leased[uid]


class SimulatedPool:
    """A simulated pool: the test decides how long handlers take and how they end."""

    is_stuck = False

    def __init__(self, finished: FinishedJobs, slots: int, takes_s: float) -> None:
        self.slots = slots
        self.closed = None
        self.takes_s = takes_s
        self.outcomes: dict[str, Outcome] = {}
        self.abandoned: list[str] = []
        # After so many seconds an abandoned handler ends; None: it cannot be ended.
        self.ends_after_s: float | None = None
        self.started: list[str] = []
        self.stopped = False
        self._finished = finished
        self._waiting: list[Job] = []
        self._running: set[Job] = set()

    def start(self) -> None:
        pass

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting += jobs
        self._fill()

    def take_back(self) -> list[Job]:
        taken, self._waiting = self._waiting, []
        return taken

    def abandon(self, job: Job) -> bool:
        self.abandoned.append(job.message.uid)
        if self.ends_after_s is not None:
            asyncio.get_running_loop().call_later(self.ends_after_s, self._end, job)
            return True
        self._running.discard(job)
        self._fill()
        return False

    def stop(self) -> None:
        self.stopped = True

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._running) < self.slots:
            job = self._waiting.pop(0)
            self._running.add(job)
            self.started.append(job.message.uid)
            job.started_s = loop.time()
            loop.call_later(self.takes_s, self._end, job) if self.takes_s else loop.call_soon(self._end, job)

    def _end(self, job: Job) -> None:
        if job in self._running:
            self._running.discard(job)
            assert job.started_s is not None
            span_s = asyncio.get_running_loop().time() - job.started_s
            self._finished.put(job, self.outcomes.get(job.message.uid, DONE), span_s)
            self._fill()


class World:
    """One worker with a task for each queue, and its broker. Must be made on a running loop."""

    def __init__(
        self,
        *queues: str,
        slots: int = 2,
        takes_s: float = 0.0,
        prefetch: int = 64,
        drain: bool = False,
        limit: int | None = None,
        **options: Any,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.broker = MemoryBroker()
        self.hurry = asyncio.Event()
        worker = Worker()

        def handler() -> None: ...

        tasks: list[Task[..., Any]] = [worker.task(queue, **options)(handler) for queue in queues or ("q",)]
        pools: list[SimulatedPool] = []

        def make_pool(_mode: str, finished: FinishedJobs) -> SimulatedPool:
            pools.append(SimulatedPool(finished, slots, takes_s))
            return pools[-1]

        self.engine: Engine[MemoryBroker] = Engine(
            lambda _engine: self.broker,
            make_pool,
            tasks,
            prefetch=prefetch,
            drain=drain,
            limit=limit,
            clock=self.loop.time,
        )
        (self.pool,) = pools
        self.broker.awoken = self.engine.awoken

    async def start(self) -> None:
        self.engine.connected()
        await self.engine.start()

    async def stop(self, grace_s: float = 25.0) -> int:
        return await self.engine.stop(grace_s, self.hurry)

    def break_connection(self) -> None:
        """Break the connection; the broker forgets the sleepers."""
        self.broker.sleeping.clear()
        self.engine.disconnected(Disconnected("broken"))

    def returned(self) -> dict[str, dict[str, Any]]:
        return dict(self.broker.returned)
