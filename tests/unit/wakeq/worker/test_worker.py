"""Tests of worker.py: start and stop of a Worker, and the errors that prevent them."""

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.wakeq.worker.world import MemoryBroker
from wakeq.protocol.errors import BrokerUnreachable
from wakeq.worker import Began, Current, Ended, Worker, resource
from wakeq.worker.engine_thread import EngineThread

PATIENCE_S = 10.0


class ConnectedBroker(MemoryBroker):
    """The broker of world.py, as a client that connects and closes."""

    engine: Any = None

    async def connect(self) -> None:
        self.awoken = self.engine.awoken
        self.engine.connected()

    async def introduce(self) -> None:
        pass

    async def close(self) -> None:
        pass


def worker_on(broker: ConnectedBroker, handled: threading.Event) -> Worker:
    """Return a worker with one task that uses this broker in place of a connection."""
    worker = Worker(concurrency=2, prefetch=4)

    @worker.task("q")
    def handler() -> None:
        handled.set()

    use(worker, broker)
    return worker


def use(worker: Worker, broker: ConnectedBroker) -> None:
    """Let a worker use this broker in place of a connection."""

    def make_client(engine: Any, **_asked: Any) -> Any:
        broker.engine = engine
        return broker

    worker._make_client = make_client  # type: ignore[method-assign]


def test_started_worker_handles_messages_until_it_is_stopped() -> None:
    broker, handled = ConnectedBroker(), threading.Event()
    broker.publish("q", "m1", "m2")
    before = set(threading.enumerate())

    with worker_on(broker, handled):
        assert handled.wait(PATIENCE_S)

    assert sorted([*broker.acked, *dict(broker.returned)]) == ["m1", "m2"]
    assert broker.leased == {}
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_worker_can_be_started_again() -> None:
    broker, handled = ConnectedBroker(), threading.Event()
    worker = worker_on(broker, handled)
    worker.start()
    assert worker.stop() == 0

    broker.publish("q", "m1")
    worker.start()

    assert handled.wait(PATIENCE_S)
    assert worker.stop() == 0


class Connection:
    """A client for publishing; `made` lists all of them."""

    made: list["Connection"]

    def __init__(self, *_arguments: object, **_options: object) -> None:
        self.is_closed = False
        self.made.append(self)

    def publish(self, *_arguments: object, **_options: object) -> str:
        return "uid"

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    monkeypatch.setattr(Connection, "made", [], raising=False)
    monkeypatch.setattr("wakeq.client.blocking.Client", Connection)
    return Connection.made


@pytest.mark.parametrize("runs", [False, True])
def test_publishing_client_is_closed_when_the_worker_has_stopped(connections: list[Connection], runs: bool) -> None:
    broker, handled = ConnectedBroker(), threading.Event()
    worker = worker_on(broker, handled)
    worker.tasks["q"].publish()
    broker.publish("q", "m1")

    if runs:
        worker.run(limit=1)
    else:
        with worker:
            assert handled.wait(PATIENCE_S)
    ended = [connection.is_closed for connection in connections]
    worker.tasks["q"].publish()

    assert ended == [True]
    assert [connection.is_closed for connection in connections] == [True, False], (
        "whoever publishes later has a new one"
    )


def test_second_start_is_refused_and_second_stop_is_accepted() -> None:
    worker = worker_on(ConnectedBroker(), threading.Event())
    worker.start()

    with pytest.raises(RuntimeError, match="is running already"):
        worker.start()

    assert worker.stop() == 0
    assert worker.stop() == 0


def test_start_without_a_broker_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        worker = Worker(f"127.0.0.1:{taken.getsockname()[1]}")
        worker.task("q")(lambda: None)

        with pytest.raises(BrokerUnreachable):
            worker.start()

        with pytest.raises(SystemExit) as ended:
            worker.run()
        assert ended.value.code == 69


def test_bug_in_the_engine_ends_the_worker_with_its_error() -> None:
    broker = ConnectedBroker()
    worker = worker_on(broker, threading.Event())
    worker.start()

    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    broker.engine._collect = broken
    broker.engine._finished._collect = broken
    loop: asyncio.AbstractEventLoop = broker.engine._loop
    loop.call_soon_threadsafe(broker.publish, "q", "m1")

    assert worker._engine_thread is not None
    with pytest.raises(ZeroDivisionError, match="a bug"):
        worker._engine_thread.wait()


def test_connection_that_fails_to_close_leaves_no_resource_and_no_listener_behind() -> None:
    class Unclosable(ConnectedBroker):
        async def close(self) -> None:
            raise OSError("it does not close")

    before, told = set(threading.enumerate()), list[object]()
    simulated, handled, closed = Unclosable(), threading.Event(), threading.Event()
    worker = worker_on(simulated, handled)
    worker.listener(told.append)

    @worker.lifespan
    @contextmanager
    def held() -> Iterator[None]:
        yield
        closed.set()

    simulated.publish("q", "m1")
    worker.start()
    assert handled.wait(PATIENCE_S)

    with pytest.raises(OSError, match="it does not close"):
        worker.stop()

    assert closed.is_set()
    assert [type(event) for event in told] == [Began, Ended]
    # It says that it has ended just before it does.
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread.name


def test_engine_that_cannot_be_made_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise ValueError("no such certificate")

    before = set(threading.enumerate())
    worker = worker_on(ConnectedBroker(), threading.Event())
    worker.listener(lambda _event: None)
    monkeypatch.setattr(worker, "_make_client", refuse)

    with pytest.raises(ValueError, match="no such certificate"):
        worker.start()

    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


class SilentBroker(ConnectedBroker):
    """Accepts the connection and answers nothing; `reached` is set by the first request."""

    def __init__(self, *, connects: bool) -> None:
        super().__init__(silent=True)
        self._connects = connects
        self.reached = threading.Event()

    async def connect(self) -> None:
        if self._connects:
            await super().connect()
        else:
            await self._way("connect")

    async def _way(self, verb: str) -> None:
        self.reached.set()
        await super()._way(verb)


@pytest.mark.parametrize("connects", [False, True])
def test_signal_ends_a_worker_that_waits_for_a_silent_broker(connects: bool) -> None:
    broker = SilentBroker(connects=connects)
    worker = worker_on(broker, threading.Event())

    def interrupt() -> None:
        assert broker.reached.wait(PATIENCE_S)
        signal.raise_signal(signal.SIGTERM)

    stopping = threading.Thread(target=interrupt)
    stopping.start()
    worker.run()

    stopping.join()


def test_signal_before_the_start_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ConnectedBroker()
    worker = worker_on(broker, threading.Event())
    launch = EngineThread.launch

    def launch_late(engine_thread: EngineThread) -> None:
        signal.raise_signal(signal.SIGTERM)
        launch(engine_thread)

    monkeypatch.setattr(EngineThread, "launch", launch_late)
    worker.run()

    assert broker.subscribed == set()


def test_run_of_a_started_worker_is_refused() -> None:
    worker = worker_on(ConnectedBroker(), threading.Event())
    worker.start()

    with pytest.raises(RuntimeError, match="is running already"):
        worker.run()

    assert worker._engine_thread is not None
    assert worker.stop() == 0


def test_run_outside_of_the_main_thread_is_refused_with_advice() -> None:
    worker = worker_on(ConnectedBroker(), threading.Event())
    errors_raised: list[str] = []

    def run() -> None:
        try:
            worker.run()
        except RuntimeError as error:
            errors_raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)

    assert "worker.start()" in errors_raised[0]


def test_stuck_worker_exits_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, handled = ConnectedBroker(), threading.Event()
    worker = worker_on(broker, handled)
    monkeypatch.setattr("wakeq.worker.pools.threads.ABANDONED_MAX", 0)
    stuck = threading.Event()

    @worker.task("stuck", max_run=0.05)
    def hang() -> None:
        assert stuck.wait(PATIENCE_S)

    broker.publish("stuck", "m1")
    with pytest.raises(SystemExit) as ended:
        worker.run()

    stuck.set()
    assert ended.value.code == 1
    assert [uid for uid, _ in broker.returned] == ["m1"]


# Joined workers -------------------------------------------------------------------------------------------------------


def test_joined_worker_runs_each_task_with_the_hooks_of_its_own_worker() -> None:
    told: list[str] = []
    both = threading.Barrier(3)

    @contextmanager
    def database() -> Iterator[str]:
        told.append("opened")
        yield "database"
        told.append("closed")

    def member(queue: str) -> Worker:
        worker = Worker(concurrency=2)

        @worker.middleware
        @contextmanager
        def noting(message: Current) -> Iterator[None]:
            told.append(f"middleware of {queue} around {message.queue}")
            yield

        @worker.listener
        def listen(event: Began | Ended) -> None:
            told.append(f"listener of {queue} hears {type(event).__name__} of {event.message.queue}")

        @worker.task(queue)
        def handler(db: str = resource(database)) -> None:
            told.append(f"{queue} has {db}")
            both.wait(PATIENCE_S)

        return worker

    simulated = ConnectedBroker()
    simulated.publish("a", "m1")
    simulated.publish("b", "m2")
    joined = Worker.joined([member("a"), member("b")])
    use(joined, simulated)

    with joined:
        both.wait(PATIENCE_S)

    assert (told[0], told.count("opened"), told.count("closed")) == ("opened", 1, 1)
    for queue in ("a", "b"):
        assert told.count(f"middleware of {queue} around {queue}") == 1
        assert told.count(f"{queue} has database") == 1
        assert told.count(f"listener of {queue} hears Began of {queue}") == 1
        assert told.count(f"listener of {queue} hears Ended of {queue}") == 1
    assert len(told) == 10


def test_joined_worker_closes_the_connections_with_which_its_tasks_publish(connections: list[Connection]) -> None:
    members = [worker_on(ConnectedBroker(), threading.Event()), Worker()]
    members[1].task("other")(lambda: None)
    joined = Worker.joined(members)
    use(joined, ConnectedBroker())

    with joined:
        joined.tasks["q"].publish()
        joined.tasks["other"].publish()

    assert [connection.is_closed for connection in connections] == [True, True]
