"""Power cuts: every promised message is on the disk, and everything that was not synced is really gone.

WAKEQ_CUTS sets the number of cuts. The first tests prove the harness: a writer without a sync must lose
data here.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.brokers.fake import Fault
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.brokers.sized import sized
from tests.helpers.disks import power_cut
from tests.helpers.disks.power_cut import LoopDisk
from tests.helpers.loads.crash_loop import CUTS_OFTEN_MS, Outcome, crash_loop

CUTS = int(os.environ.get("WAKEQ_CUTS", "30"))
FAKE = (sys.executable, "-m", "tests.helpers.brokers.fake")
OPS_PER_S_MIN = 300

reason = cache(power_cut.unavailable_reason)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if reason():
        pytest.skip(reason())
    with LoopDisk(tmp_path) as disk:
        yield disk


def run(broker: BrokerProcess, disk: LoopDisk, cuts: int, ledger: Path) -> Outcome:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}, {cuts} cuts")
    draw = random.Random(seed)

    async def cut() -> None:
        disk.cut(draw)
        broker.kill()
        disk.power_on()
        broker.launch()
        await asyncio.to_thread(broker.wait_ready)

    try:
        outcome = asyncio.run(
            crash_loop(broker.start(), crashes=cuts, seed=seed, crash=cut, up_s=(0.05, 0.6), ledger=ledger)
        )
    finally:
        broker.close()
    print(outcome.explain())
    return outcome


@pytest.mark.parametrize("synced", [False, True])
def test_unsynced_data_does_not_survive_a_power_cut(disk: LoopDisk, synced: bool) -> None:
    file = os.open(disk.path / "file", os.O_CREAT | os.O_WRONLY)
    os.fsync(file)
    directory = os.open(disk.path, os.O_RDONLY)
    os.fsync(directory)
    os.write(file, b"promised" * 1000)
    if synced:
        os.fdatasync(file)

    disk.cut(random.Random(1), pages_share_max=0.0)
    os.close(file)
    os.close(directory)
    disk.power_on()

    assert (disk.path / "file").read_bytes() == (b"promised" * 1000 if synced else b"")


@pytest.mark.long
def test_broker_that_does_not_sync_is_caught(disk: LoopDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    broker = BrokerProcess(disk.path / "data", "--fault", Fault.NEVER_SYNCS, command=FAKE)

    outcome = run(broker, disk, 3, tmp_path / "ledger.jsonl")

    assert "Q1" in outcome.report.rules, outcome.explain()


@pytest.mark.long
def test_power_cuts_under_load_lose_nothing(disk: LoopDisk, tmp_path: Path) -> None:
    broker = BrokerProcess(disk.path / "data", command=sized(flush_after_ms=CUTS_OFTEN_MS))

    outcome = run(broker, disk, CUTS, tmp_path / "ledger.jsonl")

    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)
