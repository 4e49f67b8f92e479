"""Tests of listeners.py: events of a running worker are told by one thread, each once."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.helpers.loops.driven import in_driven_time
from tests.unit.wakeq.worker.test_worker import PATIENCE_S, ConnectedBroker, use
from tests.unit.wakeq.worker.world import World
from wakeq.client.message import Received
from wakeq.protocol.wire.worker.codec import Followup
from wakeq.worker import Began, Done, Ended, Failed, Released, Worker, listeners
from wakeq.worker.engine.engine import CUT_SHORT
from wakeq.worker.listeners import Listeners
from wakeq.worker.outcome import Outcome


class Ear:
    """A listener that remembers the events and the threads."""

    def __init__(self, count: int) -> None:
        self.events: list[Began | Ended] = []
        self.threads: set[str] = set()
        self.complete = threading.Event()
        self._count = count

    def __call__(self, event: Began | Ended) -> None:
        self.events.append(event)
        self.threads.add(threading.current_thread().name)
        if len(self.events) == self._count:
            self.complete.set()


@pytest.mark.parametrize("mode", ["thread", "coroutine"])
def test_running_worker_tells_begin_and_end_of_each_message(mode: str) -> None:
    worker, ear, simulated = Worker(), Ear(4), ConnectedBroker()
    worker.listener(ear)

    async def coroutine() -> None: ...

    handler: Any = coroutine if mode == "coroutine" else lambda: None
    worker.task("q")(handler)
    simulated.publish("q", "m1", "m2")
    use(worker, simulated)

    with worker:
        assert ear.complete.wait(PATIENCE_S)

    for uid in ("m1", "m2"):
        of_one = [event for event in ear.events if event.message.uid == uid]
        assert [type(event) for event in of_one] == [Began, Ended]
        ended = of_one[1]
        assert isinstance(ended, Ended)
        assert ended.outcome == Done()
        assert ended.duration_s >= 0
    assert ear.threads == {"wakeq-listeners"}


def test_last_events_are_told_before_the_worker_has_stopped() -> None:
    worker, ear, simulated, began = Worker(), Ear(2), ConnectedBroker(), threading.Event()
    worker.listener(ear)
    worker.task("q")(began.set)
    simulated.publish("q", "m1")
    use(worker, simulated)

    with worker:
        assert began.wait(PATIENCE_S)

    assert [type(event) for event in ear.events] == [Began, Ended]


def test_worker_without_listeners_has_no_thread_for_them() -> None:
    worker = Worker()
    worker.task("q")(lambda: None)

    assert worker._make_listeners() is None


class Recorder(Listeners):
    """Keeps the events instead of telling them."""

    def __init__(self) -> None:
        self.put_events: list[Any] = []

    def put(self, event: Any) -> None:
        self.put_events.append(event)


def ends(world: World, recorder: Recorder) -> list[tuple[str, Any]]:
    world.engine.listeners = recorder
    return [(event.message.uid, event.outcome) for event in recorder.put_events if isinstance(event, Ended)]


def test_handler_that_is_cut_short_ends_as_released() -> None:
    async def scenario() -> None:
        world, recorder = World(takes_s=100.0), Recorder()
        world.engine.listeners = recorder
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)

        await world.stop(grace_s=1)

        assert ends(world, recorder) == [("m1", Released(CUT_SHORT))]

    in_driven_time(scenario)


def test_message_whose_handler_never_began_has_no_end() -> None:
    async def scenario() -> None:
        world, recorder = World(slots=1, takes_s=0.001), Recorder()
        world.engine.listeners = recorder
        world.broker.publish("q", *(f"m{place}" for place in range(20)))
        await world.start()
        await asyncio.sleep(0.003)
        world.pool.takes_s = 2.0
        await asyncio.sleep(0.5)

        await world.stop()

        assert len(world.returned()) > 0, "some were fetched ahead"
        assert [uid for uid, _ in ends(world, recorder)] == world.pool.started

    in_driven_time(scenario)


def test_handler_that_runs_for_too_long_ends_as_failed_once() -> None:
    async def scenario() -> None:
        world, recorder = World(takes_s=100.0, max_run=10), Recorder()
        world.engine.listeners = recorder
        world.broker.publish("q", "m1")
        await world.start()

        await asyncio.sleep(200)

        (uid, outcome), *_ = ends(world, recorder)
        assert uid == "m1"
        assert isinstance(outcome, Failed)
        assert len(ends(world, recorder)) == 1
        await world.stop()

    in_driven_time(scenario)


class Slow:
    """A listener that waits for `gate` with its first event, and a Listeners that is told events of its task."""

    def __init__(self, body: bytes = b"{}", outcome: Outcome | None = None, *, measures: Sequence[Any] = ()) -> None:
        self.gate = threading.Event()
        self.heard: list[object] = []
        self.told = threading.Semaphore(0)
        self._begun = threading.Event()
        worker = Worker()
        worker.listener(self._listen)
        task = worker.task("q")(lambda: None)
        message = Received(queue="q", uid="u", body=body, lease="1", delivery=1)
        self._event = Began(task, message) if outcome is None else Ended(task, message, outcome, 1.0)
        self.listeners = Listeners(measures)
        self.put(1)
        assert self._begun.wait(PATIENCE_S)

    def _listen(self, event: Began | Ended) -> None:
        self._begun.set()
        self.gate.wait(PATIENCE_S)
        self.heard.append(event)
        self.told.release()

    def put(self, count: int) -> None:
        for _ in range(count):
            self.listeners.put(self._event)


def test_events_beyond_the_bound_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "EVENTS_MAX", 2)
    slow = Slow()

    slow.put(5)
    slow.gate.set()
    slow.listeners.close()

    assert len(slow.heard) == 3
    assert "they were not told of 3 events" in caplog.text


def test_measures_are_told_of_events_that_listeners_are_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "EVENTS_MAX", 2)
    measured: list[object] = []
    slow = Slow(measures=[measured.append])

    slow.put(5)

    assert len(measured) == 6
    slow.gate.set()
    slow.listeners.close()
    assert len(slow.heard) == 3


def test_events_of_a_task_without_listeners_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "EVENTS_MAX", 2)
    slow, measured = Slow(), list[object]()
    slow.listeners._measures = [measured.append]
    task = Worker().task("other")(lambda: None)

    for _ in range(5):
        slow.listeners.put(Began(task, Received(queue="other", uid="u", body=b"{}", lease="1", delivery=1)))

    assert len(measured) == 5
    slow.put(2)
    slow.gate.set()
    slow.listeners.close()
    assert len(slow.heard) == 3


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"x" * 1000, None),
        (b"x" * 1000, Failed("no", 1)),
        (b"", Done((Followup("next", "x" * 1000), Followup("next", "{}")))),
    ],
)
def test_waiting_events_have_a_bound_of_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, body: bytes, outcome: Outcome | None
) -> None:
    monkeypatch.setattr(listeners, "BYTES_MAX", 2000)
    slow = Slow(body, outcome)

    slow.put(5)
    slow.gate.set()
    slow.listeners.close()

    assert len(slow.heard) == 3
    assert "they were not told of 3 events" in caplog.text


def test_bytes_of_events_that_were_told_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "BYTES_MAX", 2000)
    slow = Slow(b"x" * 1000)
    slow.gate.set()

    for _ in range(6):
        assert slow.told.acquire(timeout=PATIENCE_S)
        slow.put(1)
    slow.listeners.close()

    assert len(slow.heard) == 7


def test_close_that_waits_no_longer_says_how_many_events_were_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "EVENTS_MAX", 4)
    monkeypatch.setattr(listeners, "CLOSE_S", 0.01)
    slow = Slow()
    slow.put(7)

    slow.listeners.close()

    assert "they were not told of 7 events" in caplog.text
    slow.gate.set()
    slow.listeners._thread.join(PATIENCE_S)
    assert not slow.listeners._thread.is_alive()
    assert len(slow.heard) == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_listener_that_raises_what_is_no_exception_ends_neither_the_thread_nor_the_others(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    worker, heard = Worker(), []

    @worker.listener
    def exiting(_event: Began | Ended) -> None:
        raise error

    worker.listener(heard.append)
    task = worker.task("q")(lambda: None)
    thread = Listeners()
    for _ in range(2):
        thread.put(Began(task, Received(queue="q", uid="u", body=b"{}", lease="1", delivery=1)))

    thread.close()

    assert len(heard) == 2
    assert caplog.text.count("exiting failed") == 2


def test_measure_that_raises_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    worker, heard = Worker(), []
    worker.listener(heard.append)
    task = worker.task("q")(lambda: None)

    def measure(_event: Began | Ended) -> None:
        raise ZeroDivisionError("a bug")

    thread = Listeners([measure])
    for _ in range(2):
        thread.put(Began(task, Received(queue="q", uid="u", body=b"{}", lease="1", delivery=1)))

    thread.close()

    assert len(heard) == 2
    assert caplog.text.count("measure failed") == 2
