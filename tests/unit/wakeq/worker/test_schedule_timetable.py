"""Tests of Timetable: each moment has one message with the same id in all instances, unless it is too late."""

import asyncio
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.helpers.loops.driven import in_driven_time
from tests.unit.wakeq.worker.test_worker import PATIENCE_S, ConnectedBroker, worker_on
from wakeq import Message
from wakeq.protocol.errors import QueueFull
from wakeq.worker import Worker
from wakeq.worker.schedule import LATE_S_MAX, Timetable

BEGAN_S = datetime(2026, 11, 18, 10, 30, 20, tzinfo=UTC).timestamp()
# No earlier moment exists on which an instance would catch up.
EACH_MINUTE = "31-59 10 * * *"


class Outbox:
    """A broker that stores each published id once."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[str, Any, dict[str, Any]]] = {}
        self.asked = 0
        self.error: QueueFull | None = None
        self.away = False
        self.introduced = 0

    async def introduce(self) -> None:
        self.introduced += 1

    async def publish(self, queue: str, body: Any, **options: Any) -> str:
        self.asked += 1
        while self.away:
            await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        self.published.setdefault(options["id"], (queue, body, options))
        return "uid-1"

    @property
    def moments(self) -> list[str]:
        return [options["headers"]["scheduled"][11:19] for _, _, options in self.published.values()]


def worker_with(*, when: str | int = EACH_MINUTE, **options: Any) -> Worker:
    worker = Worker()

    @worker.task("reports", timeout=90)
    def report(kind: str = "short") -> None: ...

    worker.schedule(report.options(priority=-5), when, **options)
    return worker


async def run_for(span_s: float, outbox: Outbox, *workers: Worker) -> None:
    """Run the timetables of several instances for so long."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    keeping = [
        asyncio.ensure_future(Timetable(worker.schedules, lambda: BEGAN_S + loop.time() - began_s).publish_due(outbox))
        for worker in workers
    ]
    await asyncio.sleep(span_s)
    for one in keeping:
        one.cancel()
    await asyncio.wait(keeping)


def test_schedule_is_published_at_its_moments_with_the_options_of_the_task() -> None:
    async def scenario() -> None:
        outbox = Outbox()

        await run_for(150, outbox, worker_with(arguments={"kind": "long"}))

        assert outbox.moments == ["10:31:00", "10:32:00"]
        queue, body, options = next(iter(outbox.published.values()))
        assert (queue, body) == ("reports", b'{"kind":"long"}')
        assert (options["priority"], options["timeout"], options["delay"]) == (-5, 90, 0)

    in_driven_time(scenario)


def test_broker_hears_of_the_next_moments_after_each_of_them() -> None:
    async def scenario() -> None:
        outbox, worker = Outbox(), worker_with()
        worker.schedule(worker.tasks["reports"], EACH_MINUTE, arguments={"kind": "long"})

        await run_for(150, outbox, worker)

        # At two moments; the two schedules of each are told together.
        assert outbox.introduced == 2

    in_driven_time(scenario)


def test_moments_have_one_message_with_many_instances() -> None:
    async def scenario() -> None:
        outbox = Outbox()

        await run_for(150, outbox, worker_with(), worker_with(), worker_with())

        assert (outbox.asked, len(outbox.published)) == (6, 2)

    in_driven_time(scenario)


@pytest.mark.parametrize(
    ("when", "moments"),
    [
        ("*/7 * * * *", ["10:28:00", "10:35:00"]),
        ("0 10 * * *", []),
        ("20,21,35 10 * * *", ["10:21:00", "10:35:00"]),
    ],
)
def test_starting_instance_catches_up_on_the_last_moment_of_ten_minutes(when: str, moments: list[str]) -> None:
    async def scenario() -> None:
        outbox = Outbox()

        await run_for(300, outbox, worker_with(when=when))

        assert outbox.moments == moments

    in_driven_time(scenario)


def test_schedules_with_other_arguments_have_other_ids() -> None:
    async def scenario() -> None:
        outbox, worker = Outbox(), worker_with()
        worker.schedule(worker.tasks["reports"], EACH_MINUTE, arguments={"kind": "long"})

        await run_for(60, outbox, worker)

        assert [body for _, body, _ in outbox.published.values()] == [b"{}", b'{"kind":"long"}']

    in_driven_time(scenario)


def test_refused_run_is_logged_once_and_repeated_until_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outbox, worker = Outbox(), worker_with()
        outbox.error = QueueFull("the queue is full")
        keeping = asyncio.ensure_future(run_for(150, outbox, worker))
        await asyncio.sleep(60)
        outbox.error = None

        await keeping

        assert outbox.moments == ["10:31:00", "10:32:00"]
        (logged,) = caplog.messages
        assert "the run of 2026-11-18T10:31:00+00:00 was refused and is tried again: the queue is full" in logged

    in_driven_time(scenario)


@pytest.mark.parametrize("error", [None, QueueFull("the queue is full")])
def test_run_is_given_up_when_its_id_may_be_forgotten(
    error: QueueFull | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        outbox, worker = Outbox(), worker_with(when="31 10 * * *")
        outbox.error, outbox.away = error, error is None
        keeping = asyncio.ensure_future(run_for(2 * LATE_S_MAX, outbox, worker))
        await asyncio.sleep(LATE_S_MAX + 60)
        outbox.error, outbox.away = None, False

        await keeping

        assert outbox.moments == []
        assert "giving up the run of 2026-11-18T10:31:00+00:00" in caplog.messages[-1]

    in_driven_time(scenario)


def test_moments_during_an_outage_are_published_after_it() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        outbox.away = True
        keeping = asyncio.ensure_future(run_for(300, outbox, worker_with()))
        await asyncio.sleep(200)
        outbox.away = False

        await keeping

        assert outbox.moments == ["10:31:00", "10:32:00", "10:33:00", "10:34:00", "10:35:00"]

    in_driven_time(scenario)


async def with_a_step_of(step_s: float, *, after_s: float, span_s: float, when: str, outbox: Outbox) -> None:
    """Run a timetable for so long, with a clock that is set once."""
    loop = asyncio.get_running_loop()
    began_s, set_by_s = loop.time(), 0.0
    timetable = Timetable(worker_with(when=when).schedules, lambda: BEGAN_S + loop.time() - began_s + set_by_s)
    keeping = asyncio.ensure_future(timetable.publish_due(outbox))
    await asyncio.sleep(after_s)
    set_by_s = step_s
    await asyncio.sleep(span_s - after_s)
    keeping.cancel()


def test_moments_older_than_remembered_ids_are_skipped_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        outbox = Outbox()

        await with_a_step_of(LATE_S_MAX + 150, after_s=1, span_s=60, when=EACH_MINUTE, outbox=outbox)

        assert outbox.moments[:2] == ["10:34:00", "10:35:00"]
        (logged,) = caplog.messages
        assert "the runs from 2026-11-18T10:31:00+00:00 until before 2026-11-18T10:34:00+00:00 are skipped" in logged

    in_driven_time(scenario)


def test_clock_set_back_does_not_stop_a_schedule() -> None:
    async def scenario() -> None:
        outbox = Outbox()

        await with_a_step_of(-86_400, after_s=1, span_s=400, when="35 10 * * *", outbox=outbox)

        assert [options["headers"]["scheduled"] for _, _, options in outbox.published.values()] == [
            "2026-11-17T10:35:00+00:00"
        ]

    in_driven_time(scenario)


def test_schedule_with_wrong_arguments_is_refused_at_once() -> None:
    worker = worker_with()

    @worker.task("raw")
    def raw(message: Message) -> None: ...

    with pytest.raises(TypeError):
        worker.schedule(worker.tasks["reports"], 60, arguments={"colour": "red"})
    with pytest.raises(TypeError, match="takes raw messages"):
        worker.schedule(raw, 60)
    assert len(worker.schedules) == 1


def worker_with_a_task(**options: Any) -> tuple[Worker, Any]:
    worker = Worker()

    @worker.task("reports", **options)
    def report(kind: Any = "short") -> None: ...

    return worker, report


@pytest.mark.parametrize("options", [{"delay": 60}, {"expires": 60}, {"priority": 1}, {"headers": {"region": "north"}}])
def test_schedules_with_other_options_have_other_ids(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        outbox, (worker, report) = Outbox(), worker_with_a_task()
        worker.schedule(report, EACH_MINUTE)
        worker.schedule(report.options(**options), EACH_MINUTE)

        await run_for(60, outbox, worker)

        assert len(outbox.published) == 2

    in_driven_time(scenario)


NAMES_OF = """
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from pydantic import AnyUrl, BaseModel
from wakeq.worker import Worker
worker = Worker()
class Inner(BaseModel):
    tags: set[str]
class Model(BaseModel):
    inner: dict[str, list[Inner]]
    nested: frozenset[frozenset[str]]
    paths: set[Path]
    url: AnyUrl
words = {"a", "b", "c", "d", "e", "f", "g"}
model = Model(
    inner={"x": [Inner(tags=words)]},
    nested=frozenset([frozenset(words), frozenset("xyz")]),
    paths={Path(word) for word in words},
    url=AnyUrl("http://x.org"),
)
@worker.task("reports")
def report(kinds: Any, model: Model) -> None: ...
kinds = {1: {"a", "b", "c", "d"}, 2: frozenset("efgh")}
worker.schedule(report, 60, arguments={"kinds": kinds, "model": model})
print(worker.schedules[0].id_at(datetime(2026, 11, 18, tzinfo=UTC)))
"""


def test_ids_are_the_same_in_all_processes_even_with_sets() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", NAMES_OF],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(found) == 1


@pytest.mark.parametrize("name", ["delay", "expires"])
@pytest.mark.parametrize(("one", "other"), [(60, timedelta(minutes=1)), (60, 60.0), (0.5, timedelta(seconds=0.5))])
def test_schedules_with_the_same_span_in_other_words_have_the_same_ids(name: str, one: Any, other: Any) -> None:
    worker, report = worker_with_a_task()
    worker.schedule(report.options(**{name: one}), EACH_MINUTE)
    worker.schedule(report.options(**{name: other}), EACH_MINUTE)

    first, second = (schedule.id_at(datetime(2026, 11, 18, tzinfo=UTC)) for schedule in worker.schedules)

    assert first == second


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"headers": [1]}, "headers"),
        ({"headers": {"region": 1}}, "headers are text"),
        ({"delay": "soon"}, "delay is 'soon'"),
        ({"at": datetime.now(UTC)}, "options\\(at=...\\)"),
        ({"delay": -1}, "delay"),
        ({"expires": 10**12}, "expires"),
        ({"priority": "high"}, "priority"),
        ({"priority": 10**30}, "priority|integer"),
        ({"id": "mine"}, "options\\(id=...\\)"),
    ],
)
def test_schedule_with_unpublishable_options_is_refused_at_once(options: dict[str, Any], reason: str) -> None:
    worker, report = worker_with_a_task()

    with pytest.raises((TypeError, ValueError), match=f"reports: .*({reason})"):
        worker.schedule(report.options(**options), 60)
    assert worker.schedules == []


@pytest.mark.parametrize(
    ("when", "more", "reason"),
    [
        (True, {}, "True is not a schedule"),
        (10**12, {}, "1 to 31536000"),
        (60, {"zone": "Europe/Berlin"}, "has no meaning for a schedule in seconds"),
        ("@daily", {"zone": 5}, "5 is not a time zone"),
        (60, {"arguments": {"kind": {1, "a"}}}, "reports: .*use a list"),
    ],
)
def test_malformed_schedule_is_refused_at_once(when: Any, more: dict[str, Any], reason: str) -> None:
    worker, report = worker_with_a_task()

    with pytest.raises((TypeError, ValueError), match=reason):
        worker.schedule(report, when, **more)
    assert worker.schedules == []


def test_schedule_of_a_foreign_task_is_refused() -> None:
    worker, _report = worker_with_a_task()
    _other, report_of_another = worker_with_a_task()

    with pytest.raises(TypeError, match=r"<Task reports.*is a task of another worker"):
        worker.schedule(report_of_another, 60)
    with pytest.raises(TypeError, match=r"print.* is not a task; schedule a function with @worker.task"):
        worker.schedule(print, 60)  # type: ignore[arg-type]


def test_schedule_added_to_a_running_worker_is_refused() -> None:
    worker = worker_on(ConnectedBroker(), threading.Event())

    with worker, pytest.raises(RuntimeError, match="before it runs"):
        worker.schedule(worker.tasks["q"], 60)


def test_running_worker_publishes_due_schedules_with_its_own_connection() -> None:
    class SharedClient(ConnectedBroker):
        async def publish(self, queue: str, body: Any, **options: Any) -> str:
            published.set()
            return "uid-1"

    published = threading.Event()
    worker = worker_on(SharedClient(), threading.Event())
    # There is always a past moment to catch up on.
    worker.schedule(worker.tasks["q"], 60)

    with worker:
        assert published.wait(PATIENCE_S)


def test_bug_in_the_timetable_ends_the_worker() -> None:
    class Broken(ConnectedBroker):
        async def publish(self, queue: str, body: Any, **options: Any) -> str:
            raise ZeroDivisionError

    worker = worker_on(Broken(), threading.Event())
    worker.schedule(worker.tasks["q"], 60)

    engine_thread = worker._prepare()
    engine_thread.start()

    with pytest.raises(ZeroDivisionError):
        engine_thread.ended.result(PATIENCE_S)


@pytest.mark.parametrize(("asked", "keeps"), [({}, True), ({"drain": True}, False), ({"limit": 7}, False)])
def test_timetable_runs_unless_the_worker_ends_by_itself(asked: dict[str, Any], keeps: bool) -> None:
    worker = worker_with()

    engine_thread = worker._prepare(**asked)

    assert (engine_thread._timetable is not None) == keeps


@pytest.mark.parametrize(
    ("when", "zone", "cron"),
    [("30 6 * * mon-fri", "Europe/Berlin", "30 6 * * mon-fri"), ("@daily", None, "@daily")],
)
def test_worker_says_the_cron_text_zone_and_next_moment_of_a_schedule(when: str, zone: str | None, cron: str) -> None:
    worker = worker_with(when=when, zone=zone)
    moments, before = worker.schedules[0].moments, datetime.now(UTC)

    said = worker.schedules[0].facts()

    assert (said.name, said.cron, said.zone, said.every) == ("reports", cron, zone or "UTC", None)
    assert said.next in {moments.after(before), moments.after(datetime.now(UTC))}


def test_worker_says_the_interval_of_a_schedule() -> None:
    said = worker_with(when=90).schedules[0].facts()

    assert (said.cron, said.zone, said.every) == (None, None, 90)
