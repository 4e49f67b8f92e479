"""W7, W7B: job libraries, each with one worker of eight threads, and jobs that do nothing.

The jobs leave marks in a file, which are counted here; the publisher and the worker are processes of the library.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench import machine
from bench.load.clients import PeerFailed
from bench.peers.job_libraries.libraries import LIBRARIES
from bench.peers.job_libraries.marks import Marks
from bench.peers.job_libraries.process import Process
from bench.peers.peer import Peer
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, start_fresh

WARM_UP = 100
LOOK_EVERY_S = 0.002
DONE_S_MAX = 120.0


class Shop:
    """A broker with one publisher, one worker once it is opened, and the marks of what was done."""

    def __init__(self, peer: Peer, marks: Marks, publisher: Process) -> None:
        self.peer = peer
        self.marks = marks
        self.publisher = publisher
        self.worker: Process | None = None

    def pids(self) -> dict[str, list[int]]:
        assert self.worker is not None
        return {"broker": self.peer.pids(), "worker": self.worker.pids(), "publisher": self.publisher.pids()}

    async def until_done(self, jobs: int) -> None:
        gives_up_at = time.perf_counter() + DONE_S_MAX
        while (done := self.marks.count()) < jobs:
            if self.worker is not None:
                self.worker.check()
            if time.perf_counter() > gives_up_at:
                raise PeerFailed(f"only {done} of {jobs} jobs were done after {DONE_S_MAX:.0f} s")
            await asyncio.sleep(LOOK_EVERY_S)


class Measurement:
    """One stretch of jobs: the rate, and what each process took for one of them."""

    def __init__(self, shop: Shop) -> None:
        self._pids = shop.pids()  # looked up once and first: it takes longer than many a job
        everybody = [pid for pids in self._pids.values() for pid in pids]
        self._before_s = self._cpu_s()
        self._meter = machine.Meter(lambda: everybody)

    def _cpu_s(self) -> dict[str, float]:
        return {name: machine.cpu_s(pids) for name, pids in self._pids.items()}

    def stop(self, jobs: int) -> Figures:
        if not jobs:
            raise PeerFailed("all jobs were done before the measurement began; give it more of them")
        figures = self._meter.stop(jobs)
        for name, after_s in self._cpu_s().items():
            figures[f"{name}_us"] = (after_s - self._before_s[name]) / jobs * 1e6
        return figures


@asynccontextmanager
async def opened(peer: Peer, jobs: int, *, backlog: bool) -> AsyncIterator[Shop]:
    """A shop whose worker has done something already; with `backlog`, all jobs are published before it begins."""
    library = LIBRARIES[peer.name]
    programs = await library.programs()
    await start_fresh(peer)
    marks_path = peer.folder.parent / f"{peer.name}.marks"
    marks = Marks.create(marks_path, jobs)
    async with AsyncExitStack() as stack:

        async def start(role: str, command: list[str], *, talks: bool) -> Process:
            name = f"{role} of {peer.name}"
            process = await Process.start(name, command, port=peer.port, marks=marks_path, talks=talks)
            stack.push_async_callback(process.stop)
            return process

        shop = Shop(peer, marks, await start("publisher", library.publisher_command(programs), talks=True))
        await shop.publisher.ask(f"0 {jobs if backlog else WARM_UP}")
        shop.worker = await start("worker", library.worker_command(programs, peer.port), talks=False)
        await shop.until_done(WARM_UP)
        yield shop


async def side_by_side(peer: Peer, plan: Plan) -> Figures:
    """From the first publish to the last job done, worker and publisher both at work."""
    jobs = jobs_of(peer, plan)
    async with opened(peer, jobs, backlog=False) as shop:
        measurement, began = Measurement(shop), time.perf_counter()
        await shop.publisher.ask(f"{WARM_UP} {jobs}")
        published_s = time.perf_counter() - began
        await shop.until_done(jobs)
        return measurement.stop(jobs - WARM_UP) | {"published_rate": (jobs - WARM_UP) / published_s}


async def backlog(peer: Peer, plan: Plan) -> Figures:
    """All jobs wait when the worker begins; counted from the moment that it is at work."""
    jobs = jobs_of(peer, plan)
    async with opened(peer, jobs, backlog=True) as shop:
        measurement, done_before = Measurement(shop), shop.marks.count()
        await shop.until_done(jobs)
        return measurement.stop(jobs - done_before)


def jobs_of(peer: Peer, plan: Plan) -> int:
    return WARM_UP + plan.count(LIBRARIES[peer.name].jobs, least=100)


PARTS = (
    Column("per_cpu", "per CPU-s of all three"),
    Column("broker_us", "broker CPU us each"),
    Column("worker_us", "worker CPU us each"),
)
PUBLISHER = (
    Column("publisher_us", "publisher CPU us each"),
    Column("published_rate", "published/s"),
)
JOBS = Column("rate", "jobs/s")
WITH = tuple(LIBRARIES)
WORKLOADS = (
    Workload(
        "W7", "a job library: published and done side by side, empty jobs, 8 threads", side_by_side,
        (JOBS, *PARTS, *PUBLISHER, *NOISE), WITH,
    ),
    Workload("W7B", "the same, all jobs waiting when the worker begins", backlog, (JOBS, *PARTS, *NOISE), WITH),
)  # fmt: skip
