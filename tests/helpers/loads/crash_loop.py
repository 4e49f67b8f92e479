"""The crash loop: load, a broker that crashes repeatedly, a drain, and the checker's report.

    Breakable + seed --> crashes under load --> drain --> Outcome(report, how much there was)

The driver and its ledger are outside of what dies. A run that did too little proves nothing: it is invalid,
which is a failure of the run and not a pass.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clusters.processes import Cluster
from tests.helpers.histories.checker import Report, check
from tests.helpers.histories.history import History
from tests.helpers.loads.load import TIMEOUT_S, Load

FIRST_OPS_TIMEOUT_S = 10.0
CUTS_OFTEN_MS = 100  # so that most crashes come while the state store is written
BUSY_CRASHES_MIN = 0.5  # of the kills; some come right after a start, before anybody is connected again


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a crash loop showed."""

    report: Report
    crashes: int
    busy_crashes: int
    ops_ok: int
    up_s: float
    refused: dict[str, int]

    @property
    def ops_per_s(self) -> float:
        return self.ops_ok / self.up_s if self.up_s else 0.0

    def explain(self) -> str:
        return (
            f"{self.crashes} crashes ({self.busy_crashes} at work), {self.ops_ok} operations confirmed "
            f"in {self.up_s:.1f} s up ({self.ops_per_s:.0f}/s), refused {dict(self.refused)}; {self.report.explain()}"
        )

    def demand_valid(self, *, ops_per_s_min: float) -> None:
        """Fail a run that did too little to prove anything."""
        assert self.busy_crashes >= self.crashes * BUSY_CRASHES_MIN, f"invalid run, too idle: {self.explain()}"
        assert self.ops_per_s >= ops_per_s_min, f"invalid run, below {ops_per_s_min} operations/s: {self.explain()}"
        seen = self.report.seen
        kinds = ("publishes_ok", "deliveries", "acks_ok", "nacks_ok", "touches_ok", "redeliveries")
        assert all(seen[kind] for kind in kinds), f"invalid run, something was never done: {self.explain()}"

    def demand_nothing_broken(self) -> None:
        assert not self.report.violations, self.explain()


Crash = Callable[[], Coroutine[Any, Any, None]]


async def kill_and_start(broker: BrokerProcess) -> None:
    """SIGKILL, and a new process on the same directory."""
    broker.kill()
    broker.launch()
    await asyncio.to_thread(broker.wait_ready)


async def crash_loop(
    broker: BrokerProcess | Cluster,
    *,
    crashes: int,
    seed: int,
    crash: Crash | None = None,
    up_s: tuple[float, float] = (0.05, 1.5),
    ledger: Path | None = None,
    timeout_s: int = TIMEOUT_S,
    history: History | None = None,
) -> Outcome:
    """Run the load, crash the broker so many times at random moments, drain, and check.

    `crash` makes the broker die and come back; it is kill -9 if not given.  The history is written to `ledger` if
    something is wrong with it; it is given if a crash is not over in a moment, and has to say how long it took.
    """
    draw, history = random.Random(seed), history or History()
    if isinstance(broker, Cluster):
        broker.stepped_down = history.crash  # on a busy machine a leader may lose its followers by itself
        load = Load(broker.address, history, seed, timeout_s=timeout_s, connect=broker.connect)
    else:
        load = Load(lambda: broker.worker_address, history, seed, timeout_s=timeout_s)
    busy = 0
    lived_s = 0.0
    await load.prepare()
    load.start()
    ready_s = time.monotonic()
    try:
        for _ in range(crashes):
            before = load.ops_ok
            await _first_operation(load, before)
            await asyncio.sleep(draw.uniform(*up_s))
            lived_s += time.monotonic() - ready_s
            busy += load.ops_ok > before
            _raise_failure(load)
            if isinstance(broker, Cluster):
                await asyncio.to_thread(broker.leader)  # who it is, before the moment is written down
            history.crash()
            if crash is not None:
                await crash()
            else:
                assert isinstance(broker, BrokerProcess), "of several nodes the caller says which"
                await kill_and_start(broker)
            ready_s = time.monotonic()
        await load.stop()
        ops_ok, lived_s = load.ops_ok, lived_s + time.monotonic() - ready_s
    finally:
        await load.abandon()
    await load.drain()
    outcome = Outcome(check(history.events), crashes, busy, ops_ok, lived_s, load.refused)
    if ledger is not None and outcome.report.violations:
        history.save(ledger)
    return outcome


async def _first_operation(load: Load, before: int) -> None:
    """Wait until the broker is at work again; without it a short life would only test the start."""
    deadline_s = time.monotonic() + FIRST_OPS_TIMEOUT_S
    while load.ops_ok == before and time.monotonic() < deadline_s:
        _raise_failure(load)
        await asyncio.sleep(0.002)


def _raise_failure(load: Load) -> None:
    failure = load.failure()
    if failure is not None:
        raise failure
