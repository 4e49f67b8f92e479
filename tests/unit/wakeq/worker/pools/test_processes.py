"""Tests of the pool of processes: every way in which a process may end, and its effect on other messages."""

import json
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
from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import DONE, Dead, Done, Failed, Outcome
from wakeq.worker.outcome import Released as NotDone
from wakeq.worker.pools.processes import ProcessPool, check_importable

PATIENCE_S = 30.0


class Results:
    """Collects outcomes in place of FinishedJobs."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[tuple[Job, Outcome]] = SimpleQueue()

    def began(self, _job: Job) -> None:
        pass

    def put(self, job: Job, outcome: Outcome, _span_s: float) -> None:
        self.ended.put((job, outcome))

    def take(self) -> Outcome:
        return self.ended.get(timeout=PATIENCE_S)[1]


@pytest.fixture(scope="module")
def pool() -> Iterator[tuple[ProcessPool, Results]]:
    """Return a pool with one process for all tests; it is replaced when it dies."""
    before = set(threading.enumerate())
    results: Any = Results()
    pool = ProcessPool(1, results)
    pool.start()
    mine = set(threading.enumerate()) - before
    yield pool, results
    pool.stop()
    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def job_of(task: Any, body: bytes = b"{}", **facts: Any) -> Job:
    return Job(task, Received(queue=task.queue, uid="u1", body=body, lease="1", delivery=1, **facts))


def outcome_on(pool: tuple[ProcessPool, Results], how: str, **facts: Any) -> Outcome:
    threads, results = pool
    threads.submit([job_of(process_tasks.end, b'{"how":"%s"}' % how.encode(), **facts)])
    return results.take()


def test_handlers_run_in_another_process(pool: tuple[ProcessPool, Results]) -> None:
    threads, results = pool

    threads.submit([job_of(process_tasks.send_pid), job_of(process_tasks.send_pid)])

    outcomes = [results.take(), results.take()]
    pids = {one.then[0].message for one in outcomes if isinstance(one, Done)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_process_is_set_up_once_before_its_first_handler() -> None:
    results: Any = Results()
    pool = ProcessPool(1, results, partial(process_tasks.set_up_by, "us"))
    pool.start()

    pool.submit([job_of(process_tasks.send_set_up), job_of(process_tasks.send_set_up)])

    outcomes = [results.take(), results.take()]
    pool.stop()
    assert [one.then[0].message for one in outcomes] == ['["us"]', '["us"]']


def test_process_has_its_own_middleware_and_opens_its_resources_once(pool: tuple[ProcessPool, Results]) -> None:
    threads, results = pool

    threads.submit([job_of(process_tasks.send_hooks), job_of(process_tasks.send_hooks)])

    told = [json.loads(one.then[0].message) for one in (results.take(), results.take()) if isinstance(one, Done)]
    assert [facts[:-1] for facts in told] == [
        ["before u1", "opened", "database"],
        ["before u1", "opened", "before u1", "database"],
    ]
    assert told[0][-1] != os.getpid()
    assert process_tasks.hooks == []


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: no"),
        ("sys.exit", "SystemExit: 3"),
        ("os._exit", "its process ended with exit code 3"),
        ("kill", "its process was ended by SIGKILL"),
    ],
)
def test_crash_of_a_process_fails_its_message_alone(pool: tuple[ProcessPool, Results], how: str, error: str) -> None:
    first = outcome_on(pool, how)
    last = outcome_on(pool, how, failures=1)

    assert isinstance(first, Failed)
    assert first.error.startswith(error)
    assert first.delay_s == 4
    assert isinstance(last, Dead)
    assert outcome_on(pool, "return") == DONE


def test_log_line_says_what_happens_to_the_message_of_a_dead_process(
    pool: tuple[ProcessPool, Results], caplog: pytest.LogCaptureFixture
) -> None:
    outcome_on(pool, "os._exit")
    outcome_on(pool, "os._exit", failures=1)

    ended = "its process ended with exit code 3"
    assert [record.message.partition("u1 ")[2] for record in caplog.records] == [
        f"failed, will be retried in 4 s (delivery 1): {ended}",
        f"became a dead letter (delivery 1): still failing after 1 retry: {ended}",
    ]


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_signals_to_the_process_group_do_not_end_a_handler(pool: tuple[ProcessPool, Results], how: str) -> None:
    assert outcome_on(pool, how) == DONE


def test_spinning_handler_can_be_ended(pool: tuple[ProcessPool, Results]) -> None:
    threads, results = pool
    job = job_of(process_tasks.end, b'{"how":"spin"}')
    threads.submit([job])
    # Wait until the job was sent to its process.
    while job not in threads._running:
        threading.Event().wait(0.01)

    threads.abandon(job)

    assert isinstance(results.take(), Failed)
    assert outcome_on(pool, "return") == DONE


def test_importable_task_is_accepted() -> None:
    check_importable(process_tasks.end)


def test_local_function_or_lambda_is_refused() -> None:
    def local() -> None: ...

    for handler in (local, lambda: None):
        with pytest.raises(BadHandler, match=r"is a local function or a lambda; .*at the top of a module"):
            check_importable(Worker().task("q", mode="process")(handler))


def test_function_typed_at_a_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))

    with pytest.raises(BadHandler, match="typed at a prompt, or read from standard input"):
        check_importable(Worker().task("q", mode="process")(typed))


def test_task_whose_name_was_reassigned_is_refused() -> None:
    with pytest.raises(BadHandler, match=r"process_tasks.end is <Task ends.* and not the task"):
        check_importable(Worker().task("q", mode="process")(process_tasks.end.handler))


def test_process_that_cannot_start_releases_its_message_and_keeps_the_pool(
    pool: tuple[ProcessPool, Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next job needs a new process.
    assert isinstance(outcome_on(pool, "kill"), Failed)

    def no_room(_set_up: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("wakeq.worker.pools.processes.Child", no_room)
        outcome = outcome_on(pool, "return")

    assert isinstance(outcome, NotDone)
    assert "Resource temporarily unavailable" in outcome.reason
    assert outcome_on(pool, "return") == DONE


def test_process_started_for_an_abandoned_handler_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    being_made, go, killed = threading.Event(), threading.Event(), threading.Event()

    class SlowChild:
        """A child that starts slowly, and whose handler would never end."""

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
    results: Any = Results()
    pool = ProcessPool(1, results)
    pool.start()
    job = job_of(process_tasks.send_pid)
    pool.submit([job])
    assert being_made.wait(PATIENCE_S)

    pool.abandon(job)
    go.set()

    assert isinstance(results.take(), Failed)
    assert killed.is_set()
    pool.stop()
