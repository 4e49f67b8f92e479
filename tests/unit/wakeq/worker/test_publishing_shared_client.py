"""Tests of SharedClient: a publish that is under way is not interrupted when the worker stops."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from wakeq.client.route import client_closed
from wakeq.worker import Worker

PATIENCE_S = 10.0


class Connection:
    """A client whose publish lasts until the test ends it; `made` lists all of them."""

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
        """Do nothing."""

    return worker, handler


def test_client_is_closed_after_the_last_publish(made: list[Connection]) -> None:
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


def test_publish_after_closing_gets_a_new_client(made: list[Connection]) -> None:
    worker, task = a_task()
    with ThreadPoolExecutor(1) as threads:
        before = threads.submit(task.publish)
        assert Connection.is_asked.acquire(timeout=PATIENCE_S)
        worker._shared_client.close_when_unused()
        Connection.may_end.set()

        assert task.publish() == "uid"
        assert before.result(PATIENCE_S) == "uid"

    assert [connection.is_closed for connection in made] == [True, False]


def test_failed_publish_leaves_no_client_open(made: list[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    worker, task = a_task()
    monkeypatch.setattr(Connection, "publish", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        task.publish()
    worker._shared_client.close_when_unused()

    assert [connection.is_closed for connection in made] == [True]
