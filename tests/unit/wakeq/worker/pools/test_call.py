"""Tests of call.py: the outcome for everything that a handler may do, and what a handler knows of its message."""

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from wakeq import Message, Reject, Retry, Snooze, current
from wakeq.client.message import Received
from wakeq.worker import LogContext, Task, Worker
from wakeq.worker.context import NoHandler, SettledByWorker
from wakeq.worker.outcome import Dead, Done, Failed, Outcome, Released
from wakeq.worker.pools.call import call, call_async


def delivered(body: bytes = b"{}", **facts: Any) -> Received:
    fields: dict[str, Any] = {"queue": "q", "uid": "u1", "lease": "1-7", "delivery": 1, **facts}
    return Received(body=body, **fields)


def outcome_on(handler: Callable[..., Any], message: Received, **options: Any) -> Outcome:
    """Run a handler in its own mode and return the outcome."""
    task: Task[..., Any] = Worker().task("q", **options)(handler)
    return asyncio.run(call_async(task, message)) if task.mode == "coroutine" else call(task, message)


def in_both_ways(act: Callable[[], None]) -> list[Callable[[], Any]]:
    """Return the same handler as a function and as a coroutine."""

    def plain() -> None:
        act()

    async def coroutine() -> None:
        await asyncio.sleep(0)
        act()

    return [plain, coroutine]


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_handler_that_returns_is_done() -> None:
    for handler in in_both_ways(lambda: None):
        assert outcome_on(handler, delivered()) == Done()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), Failed),
        (SystemExit(3), Failed),
        (KeyboardInterrupt(), Failed),
        (asyncio.CancelledError(), Failed),
        (Retry(delay=3), Failed),
        (Snooze(3), Released),
        (Reject("never"), Dead),
    ],
)
def test_exception_of_any_kind_becomes_an_outcome(error: BaseException, kind: type) -> None:
    for handler in in_both_ways(raising(error)):
        assert isinstance(outcome_on(handler, delivered()), kind)


def test_body_that_does_not_fit_is_dead_at_once() -> None:
    def send(to: str) -> None:
        raise AssertionError("must not be called")

    outcome = outcome_on(send, delivered(b'{"to":1}'), retry=Retry(max=5))

    assert isinstance(outcome, Dead)
    assert "Expected `str`, got `int` - at `$.to`" in outcome.error


def test_handler_gets_the_fields_of_the_body_as_arguments() -> None:
    got: list[tuple[str, int]] = []

    def send(to: str, copies: int = 2) -> None:
        got.append((to, copies))

    outcome_on(send, delivered(b'{"to":"a"}'))

    assert got == [("a", 2)]


def test_handler_of_raw_messages_cannot_acknowledge_them() -> None:
    got: list[Message] = []

    def take(message: Message) -> None:
        got.append(message)
        message.ack()

    outcome = outcome_on(take, delivered(b"\xff", failures=2, headers={"a": "b"}))

    assert (got[0].body, got[0].uid, got[0].lease, got[0].failures, got[0].headers) == (
        b"\xff", "u1", "1-7", 2, {"a": "b"},
    )  # fmt: skip
    assert isinstance(outcome, Failed)
    assert SettledByWorker.__name__ in outcome.error


def test_handler_knows_its_message() -> None:
    known: list[Any] = []

    def look() -> None:
        mine = current()
        known.extend([mine.queue, mine.uid, mine.delivery, mine.failures, mine.lease, mine.priority, mine.headers])

    for handler in in_both_ways(look):
        known.clear()
        outcome_on(handler, delivered(delivery=4, failures=2, priority=-3, headers={"a": "b"}))
        assert known == ["q", "u1", 4, 2, "1-7", -3, {"a": "b"}]


def test_current_outside_of_a_handler_is_refused() -> None:
    with pytest.raises(NoHandler, match="no handler runs here"):
        current()


def test_context_of_one_handler_is_not_seen_by_the_next() -> None:
    leak: ContextVar[str] = ContextVar("leak", default="clean")
    seen: list[str] = []

    def look() -> None:
        seen.append(leak.get())
        leak.set("dirty")

    for _ in range(2):
        outcome_on(look, delivered())

    assert seen == ["clean", "clean"]


def test_follow_ups_go_with_the_acknowledgement() -> None:
    worker = Worker()

    @worker.task("audit", timeout=30)
    def audit(uid: str) -> None: ...

    def act() -> None:
        current().then(audit, uid="x")
        current().then(audit.options(delay=9, priority=-1, headers={"a": "b"}), uid="y")
        current().then("plain", {"n": 1})

    for handler in in_both_ways(act):
        outcome = outcome_on(handler, delivered())
        assert isinstance(outcome, Done)
        follow_ups = [
            (one.qname, one.message, one.delay, one.timeout, one.priority, one.headers) for one in outcome.then
        ]
        assert follow_ups == [
            ("audit", '{"uid":"x"}', None, 30, None, None),
            ("audit", '{"uid":"y"}', 9, 30, -1, {"a": "b"}),
            ("plain", '{"n":1}', None, None, None, None),
        ]


def test_follow_ups_of_a_failed_handler_are_dropped() -> None:
    def act() -> None:
        current().then("plain", "x")
        raise ValueError("no")

    for handler in in_both_ways(act):
        assert isinstance(outcome_on(handler, delivered()), Failed)


def test_log_records_of_a_handler_name_its_message() -> None:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    keeper, logger = Keep(), logging.getLogger("users.own")
    keeper.addFilter(LogContext())
    logger.addHandler(keeper)
    try:
        outcome_on(lambda: logger.warning("inside"), delivered(delivery=2))
        logger.warning("outside")
    finally:
        logger.removeHandler(keeper)

    fields = [tuple(vars(record)[name] for name in ("queue", "uid", "delivery")) for record in records]
    assert fields == [("q", "u1", 2), ("-", "-", "-")]


def test_failure_is_logged_with_traceback_and_a_deliberate_end_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.worker")

    outcome_on(raising(ValueError("no")), delivered())
    outcome_on(raising(Snooze(1)), delivered())

    levels = [(record.levelname, record.exc_info is not None) for record in caplog.records]
    assert levels == [("ERROR", True), ("INFO", False)]
    assert vars(caplog.records[0])["uid"] == "u1"


def test_handler_that_calls_sys_exit_fails_and_the_thread_goes_on() -> None:
    outcome = outcome_on(lambda: sys.exit("bye"), delivered())

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("SystemExit: bye")


def logged(caplog: pytest.LogCaptureFixture, error: BaseException, **options: Any) -> tuple[str, str]:
    """Return the level and text of the log record for a handler that raises this."""
    caplog.set_level(logging.INFO, logger="wakeq.worker")
    caplog.clear()
    outcome_on(raising(error), delivered(failures=1, delivery=2), **options)
    (record,) = caplog.records
    return record.levelname, record.getMessage()


def test_log_line_says_what_happens_to_the_message(caplog: pytest.LogCaptureFixture) -> None:
    fixed = Retry(max=1, delay=4, jitter=0)

    assert logged(caplog, Snooze(9, "night")) == ("INFO", "q: u1 was postponed for 9 s (delivery 2): night")
    assert logged(caplog, Reject("never")) == ("WARNING", "q: u1 became a dead letter (delivery 2): never")
    assert logged(caplog, Retry("busy", delay=3, jitter=0)) == (
        "INFO",
        "q: u1 failed, will be retried in 3 s (delivery 2): busy",
    )
    assert logged(caplog, Retry("busy"), retry=fixed) == (
        "WARNING",
        "q: u1 became a dead letter (delivery 2): still failing after 1 retry: busy",
    )
    level, words = logged(caplog, ValueError("no"), retry=fixed)
    assert level == "ERROR"
    assert words.startswith("q: u1 became a dead letter (delivery 2): still failing after 1 retry: ValueError: no (")


def test_coroutine_cancelled_from_outside_is_not_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.worker")

    async def handler() -> None:
        await asyncio.Event().wait()

    task: Task[..., Any] = Worker().task("q")(handler)

    async def cancel() -> Outcome:
        running = asyncio.create_task(call_async(task, delivered()))
        await asyncio.sleep(0)
        running.cancel()
        return await running

    assert isinstance(asyncio.run(cancel()), Failed)
    assert not caplog.records


def test_exception_without_text_is_a_failure_too() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    for handler in in_both_ways(raising(Unspeakable())):
        outcome = outcome_on(handler, delivered(), retry=Retry(max=1, delay=7, jitter=0))
        assert isinstance(outcome, Failed)
        assert outcome.delay_s == 7


SILENT_PROGRAM = """
from wakeq import Worker
from wakeq.client.message import Received
from wakeq.worker.pools.call import call

@Worker().task("q")
def fail():
    raise ValueError("no")

call(fail, Received(queue="q", uid="u1", body=b"{}", lease="1", delivery=1))
"""


def test_failures_are_visible_without_logging_set_up() -> None:
    ran = subprocess.run([sys.executable, "-c", SILENT_PROGRAM], capture_output=True, text=True, timeout=60, check=True)

    # The delay is random.
    assert re.search(r"q: u1 failed, will be retried in [0-9.]+ s \(delivery 1\): ValueError: no", ran.stderr)
    assert "Traceback" in ran.stderr


# Forks --------------------------------------------------------------------------------------------------------


def raises(error: BaseException | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("error", "status", "output"),
    [
        (None, 0, ""),
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit("no room"), 1, "no room\n"),
        (ValueError("in the copy"), 1, "ValueError: in the copy\n"),
    ],
)
def test_forked_copy_of_a_process_ends_with_its_handler(
    capfd: pytest.CaptureFixture[str], error: BaseException | None, status: int, output: str
) -> None:
    """Otherwise it would go on as a second worker, with the jobs, pipes and sockets of this one."""
    here = os.getpid()
    copies: list[int] = []

    def act() -> None:
        copies.append(os.fork())
        if not copies[-1]:
            print("the copy speaks")
            raises(error)

    for handler in in_both_ways(act):
        outcome = outcome_on(handler, delivered())
        if os.getpid() != here:
            # Reaching this line means that the copy went on.
            os._exit(99)

        assert outcome == Done()
        assert os.waitstatus_to_exitcode(os.waitpid(copies[-1], 0)[1]) == status
        out, err = capfd.readouterr()
        assert out == "the copy speaks\n"
        assert err.endswith(output)
        assert bool(err) == bool(output)


def test_worker_in_a_forked_process_works() -> None:
    """Some servers fork before they serve; only a fork by a handler makes a copy that must end."""
    child = os.fork()
    if not child:
        outcome = outcome_on(lambda: None, delivered())
        os._exit(0 if outcome == Done() else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
