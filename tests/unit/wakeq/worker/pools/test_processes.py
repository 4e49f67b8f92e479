"""Proves the pool of processes: each end that a process can come to, and that one which dies takes nothing with it."""

import os
import sys
import threading
import types
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from tests.unit.wakeq.worker import process_tasks
from wakeq.client.message import Received
from wakeq.worker import BadHandler, Worker
from wakeq.worker.engine.job import Job
from wakeq.worker.outcome import DONE, Dead, Done, Failed, Outcome
from wakeq.worker.outcome import Released as NotDone
from wakeq.worker.pools.processes import ProcessPool, check_importable

PATIENCE_S = 30.0


class Released:
    """Stands where the engine's FinishedJobs is."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[tuple[Job, Outcome]] = SimpleQueue()

    def put(self, job: Job, outcome: Outcome, _span_s: float) -> None:
        self.ended.put((job, outcome))

    def take(self) -> Outcome:
        return self.ended.get(timeout=PATIENCE_S)[1]


@pytest.fixture(scope="module")
def pool() -> Iterator[tuple[ProcessPool, Released]]:
    """Return a pool with one process for all tests, which is replaced when it dies."""
    before = set(threading.enumerate())
    returned: Any = Released()
    pool = ProcessPool(1, returned)
    pool.start()
    mine = set(threading.enumerate()) - before
    yield pool, returned
    pool.stop()
    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def job_of(task: Any, body: bytes = b"{}", **facts: Any) -> Job:
    return Job(task, Received(queue=task.queue, uid="u1", body=body, lease="1", delivery=1, **facts))


def verdict_on(pool: tuple[ProcessPool, Released], how: str, **facts: Any) -> Outcome:
    threads, returned = pool
    threads.submit([job_of(process_tasks.end, b'{"how":"%s"}' % how.encode(), **facts)])
    return returned.take()


def test_handlers_run_in_one_process_that_is_not_ours(pool: tuple[ProcessPool, Released]) -> None:
    threads, returned = pool

    threads.submit([job_of(process_tasks.send_pid), job_of(process_tasks.send_pid)])

    outcomes = [returned.take(), returned.take()]
    pids = {one.then[0].message for one in outcomes if isinstance(one, Done)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_process_is_set_up_once_before_its_first_handler() -> None:
    returned: Any = Released()
    pool = ProcessPool(1, returned, partial(process_tasks.set_up_by, "us"))
    pool.start()

    pool.submit([job_of(process_tasks.send_set_up), job_of(process_tasks.send_set_up)])

    outcomes = [returned.take(), returned.take()]
    pool.stop()
    assert [one.then[0].message for one in outcomes] == ['["us"]', '["us"]']


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: no"),
        ("sys.exit", "SystemExit: 3"),
        ("os._exit", "its process ended with exit code 3"),
        ("kill", "its process was ended by SIGKILL"),
    ],
)
def test_each_bad_end_is_a_failure_of_its_message_alone(
    pool: tuple[ProcessPool, Released], how: str, error: str
) -> None:
    first = verdict_on(pool, how)
    last = verdict_on(pool, how, failures=1)

    assert isinstance(first, Failed)
    assert first.error.startswith(error)
    assert first.delay_s == 4
    assert isinstance(last, Dead)
    assert verdict_on(pool, "return") == DONE


def test_the_log_says_what_becomes_of_a_message_whose_process_died(
    pool: tuple[ProcessPool, Released], caplog: pytest.LogCaptureFixture
) -> None:
    verdict_on(pool, "os._exit")
    verdict_on(pool, "os._exit", failures=1)

    ended = "its process ended with exit code 3"
    assert [record.message.partition("u1 ")[2] for record in caplog.records] == [
        f"failed, will be retried in 4 s (delivery 1): {ended}",
        f"became a dead letter (delivery 1): still failing after 1 retry: {ended}",
    ]


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_signals_that_are_meant_for_the_worker_do_not_end_a_handler(
    pool: tuple[ProcessPool, Released], how: str
) -> None:
    assert verdict_on(pool, how) == DONE


def test_a_handler_that_spins_can_be_ended(pool: tuple[ProcessPool, Released]) -> None:
    threads, returned = pool
    job = job_of(process_tasks.end, b'{"how":"spin"}')
    threads.submit([job])
    while job not in threads._running:  # until it has been given to its process
        threading.Event().wait(0.01)

    threads.abandon(job)

    assert isinstance(returned.take(), Failed)
    assert verdict_on(pool, "return") == DONE


def test_a_task_that_can_be_imported_is_taken() -> None:
    check_importable(process_tasks.end)


def test_a_local_function_or_a_lambda_cannot_run_in_a_process() -> None:
    def local() -> None: ...

    for handler in (local, lambda: None):
        with pytest.raises(BadHandler, match=r"is a local function or a lambda; .*at the top of a module"):
            check_importable(Worker().task("q", mode="process")(handler))


def test_what_was_typed_in_cannot_run_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))

    with pytest.raises(BadHandler, match="typed at a prompt, or read from standard input"):
        check_importable(Worker().task("q", mode="process")(typed))


def test_a_name_that_is_not_the_task_any_more_cannot_run_in_a_process() -> None:
    with pytest.raises(BadHandler, match=r"process_tasks.end is <Task ends.* and not the task"):
        check_importable(Worker().task("q", mode="process")(process_tasks.end.handler))


def test_a_process_that_cannot_be_made_fails_its_message_and_not_the_pool(
    pool: tuple[ProcessPool, Released], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(verdict_on(pool, "kill"), Failed)  # the next one needs a new process

    def no_room(_set_up: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("wakeq.worker.pools.processes.Child", no_room)
        outcome = verdict_on(pool, "return")

    assert isinstance(outcome, NotDone)
    assert "Resource temporarily unavailable" in outcome.reason
    assert verdict_on(pool, "return") == DONE


def test_a_process_that_was_made_for_an_abandoned_handler_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    being_made, go, killed = threading.Event(), threading.Event(), threading.Event()

    class SlowChild:
        """A child that is made slowly, and whose handler would never end."""

        def __init__(self, _set_up: object) -> None:
            being_made.set()
            assert go.wait(PATIENCE_S)

        def run(self, _job: Job) -> None:
            assert killed.wait(PATIENCE_S)

        def kill(self) -> None:
            killed.set()

        def exit_reason(self) -> str:
            return "it was killed"

    monkeypatch.setattr("wakeq.worker.pools.processes.Child", SlowChild)
    returned: Any = Released()
    pool = ProcessPool(1, returned)
    pool.start()
    job = job_of(process_tasks.send_pid)
    pool.submit([job])
    assert being_made.wait(PATIENCE_S)

    pool.abandon(job)
    go.set()

    assert isinstance(returned.take(), Failed)
    assert killed.is_set()
    pool.stop()
