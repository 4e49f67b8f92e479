"""Proves that who publishes by a worker's connection is not interrupted when the worker stops."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from wakeq.client.core.timeouts import client_closed
from wakeq.worker import Worker

PATIENCE_S = 10.0


class Connection:
    """A connection on which a publish takes until it is told to end; all that were made are in here."""

    made: list["Connection"]
    is_asked: threading.Semaphore
    may_end: threading.Event

    def __init__(self, *_arguments: object, **_options: object) -> None:
        self.is_closed = False
        self.made.append(self)

    def publish(self, *_arguments: object, **_options: object) -> str:
        self.is_asked.release()
        assert self.may_end.wait(PATIENCE_S)
        if self.is_closed:
            raise client_closed()
        return "uid"

    def publish_many(self, *arguments: object, **options: object) -> list[str]:
        return [self.publish(*arguments, **options)]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    for name, value in (("made", []), ("is_asked", threading.Semaphore(0)), ("may_end", threading.Event())):
        monkeypatch.setattr(Connection, name, value, raising=False)
    monkeypatch.setattr("wakeq.client.blocking.Client", Connection)
    return Connection.made


def a_task() -> tuple[Worker, Any]:
    worker = Worker()

    @worker.task("q")
    def handler() -> None:
        """Nothing is done here."""

    return worker, handler


def test_the_connection_is_closed_by_the_last_one_who_publishes(made: list[Connection]) -> None:
    worker, task = a_task()
    with ThreadPoolExecutor(2) as threads:
        under_way = [threads.submit(task.publish), threads.submit(task.publish_many, [{}])]
        for _ in under_way:
            assert Connection.is_asked.acquire(timeout=PATIENCE_S)

        worker._shared_client.close_when_unused()
        is_closed_under_them = made[0].is_closed
        Connection.may_end.set()

        assert [done.result(PATIENCE_S) for done in under_way] == ["uid", ["uid"]]
    assert not is_closed_under_them
    assert [connection.is_closed for connection in made] == [True]


def test_who_publishes_meanwhile_has_a_connection_that_stays(made: list[Connection]) -> None:
    worker, task = a_task()
    with ThreadPoolExecutor(1) as threads:
        before = threads.submit(task.publish)
        assert Connection.is_asked.acquire(timeout=PATIENCE_S)
        worker._shared_client.close_when_unused()
        Connection.may_end.set()

        assert task.publish() == "uid"
        assert before.result(PATIENCE_S) == "uid"

    assert [connection.is_closed for connection in made] == [True, False]


def test_what_fails_leaves_nothing_open(made: list[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    worker, task = a_task()
    monkeypatch.setattr(Connection, "publish", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        task.publish()
    worker._shared_client.close_when_unused()

    assert [connection.is_closed for connection in made] == [True]
