"""The harness itself is tested: it must catch a broker with a planted fault, and a healthy broker must pass."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.helpers.brokers.fake import FakeBroker, Fault
from tests.helpers.brokers.process import BrokerDidNotStart, BrokerProcess
from tests.helpers.histories.checker import Report, check
from tests.helpers.histories.history import History
from tests.helpers.loads.crash_loop import Outcome, crash_loop
from tests.helpers.loads.load import Load
from tests.helpers.loads.tasks import LoadQueue

FAKE = (sys.executable, "-m", "tests.helpers.brokers.fake")
ROOT = Path(__file__).parents[3]
QUEUES = (LoadQueue("load"), LoadQueue("load-limited", max_deliveries=1, dead_letter="load-limited.dead"))
SHOWN_BY = {
    Fault.NONE: "",
    Fault.LOSES_PUBLISH: "Q1",
    Fault.DELIVERS_AFTER_ACK: "Q3",
    Fault.IGNORES_DELAY: "Q5",
    Fault.IGNORES_EXPIRY: "Q6",
    Fault.IGNORES_LEASE: "Q4",
    Fault.REPEATS_COUNT: "Q7",
    Fault.ALTERS_BODY: "Q2",
    Fault.LAST_IN_FIRST_OUT: "Q11",
    Fault.NEVER_BURIES: "Q8",
    Fault.HALF_BATCH: "Q1",
    Fault.ACCEPTS_STALE: "Q9",
}


async def run_of(fault: Fault, directory: Path) -> Report:
    broker = FakeBroker(directory / f"{fault}.journal", fault)
    await broker.start()
    history = History()
    load = Load(
        lambda: broker.address,
        history,
        seed=1,
        workers=2,
        lanes=4,
        queues=QUEUES,
        timeout_s=1,
        messages_max=600,
    )
    try:
        await load.prepare()
        load.start()
        await load.until_published()
        await load.stop()
        await load.drain()
    finally:
        await load.abandon()
        await broker.stop()
    return check(history.events)


@pytest.mark.long
def test_planted_faults_are_all_caught_and_a_healthy_run_passes(tmp_path: Path) -> None:
    async def all_of_them() -> list[Report]:
        return await asyncio.gather(*(run_of(fault, tmp_path) for fault in SHOWN_BY))

    reports = dict(zip(SHOWN_BY, asyncio.run(all_of_them()), strict=True))

    assert not reports[Fault.NONE].violations, reports[Fault.NONE].explain()
    for fault, rule in SHOWN_BY.items():
        assert not rule or rule in reports[fault].rules, f"{fault}: {reports[fault].explain()}"


CRASHES = 12  # so many that each fault meets what shows it: a publish whose answer the crash took


def loop_over(directory: Path, fault: Fault) -> Outcome:
    broker = BrokerProcess(directory / "data", "--fault", fault, command=FAKE)
    try:
        return asyncio.run(crash_loop(broker.start(), crashes=CRASHES, seed=1, up_s=(0.2, 0.4), timeout_s=1))
    finally:
        broker.close()


@pytest.mark.long
def test_crash_loop_passes_a_healthy_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    outcome = loop_over(tmp_path, Fault.NONE)

    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=100)


@pytest.mark.long
def test_crash_loop_catches_faults_that_only_a_crash_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    outcome = loop_over(tmp_path, Fault.NEVER_WRITES)

    assert "Q1" in outcome.report.rules, outcome.explain()


def test_fake_broker_starts_after_a_kill_tore_a_line(tmp_path: Path) -> None:
    async def live(text: str) -> int:
        broker = FakeBroker(tmp_path / "journal")
        await broker.start()
        broker._reply({"cmd": "PUB", "qname": "mail", "message": text})
        await broker.stop()
        with (tmp_path / "journal").open("ab") as journal:
            journal.write(b'{"cmd":"PU')
        return len(broker.stored["mail"])

    assert [asyncio.run(live(text)) for text in ("first", "second", "third")] == [1, 2, 3]


def test_fake_broker_stores_a_torn_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    async def stored_by(journal: bytes) -> int:
        (tmp_path / "journal").write_bytes(journal)
        broker = FakeBroker(tmp_path / "journal")
        await broker.start()
        await broker.stop()
        return len(broker.stored.get("mail", ()))

    async def of_a_batch() -> bytes:
        broker = FakeBroker(tmp_path / "whole")
        await broker.start()
        broker._reply({"cmd": "PUB", "qname": "mail", "messages": [{"message": text} for text in ("a", "b", "c")]})
        await broker.stop()
        return (tmp_path / "whole").read_bytes()

    whole = asyncio.run(of_a_batch())
    stored = {asyncio.run(stored_by(whole[:length])) for length in range(len(whole) + 1)}

    assert stored == {0, 3}


def test_run_that_did_too_little_is_invalid() -> None:
    idle = Outcome(Report(), crashes=3, busy_crashes=0, ops_ok=0, up_s=1.0, refused={})

    with pytest.raises(AssertionError, match="invalid run"):
        idle.demand_valid(ops_per_s_min=1)


def test_broker_process_that_does_not_start_reports_the_reason(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, command=(sys.executable, "-c", "import sys; sys.exit('no such disk')"))

    with pytest.raises(BrokerDidNotStart, match="no such disk"):
        broker.start()

    assert not broker.running


def test_broker_process_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, command=(sys.executable, "-c", "import signal; signal.pause()"))

    with pytest.raises(BrokerDidNotStart, match="not ready after"):
        broker.start(timeout_s=0.2)

    assert not broker.running
