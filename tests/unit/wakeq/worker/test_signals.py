"""Tests of signals.py: the effect of signals on a worker, and the exit status of its process."""

import os
import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from wakeq.worker import BadHandler
from wakeq.worker.signals import CHILD_NAME, StopSignals, refuse_in_child

PATIENCE_S = 10.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_counted_and_reported(number: signal.Signals) -> None:
    reported: list[int] = []

    with StopSignals(reported.append):
        signal.raise_signal(number)
        signal.raise_signal(number)

    assert reported == [1, 2]


def test_previous_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    with StopSignals(lambda _count: None):
        assert signal.getsignal(signal.SIGTERM) != before[0]

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_signal_received_by_another_thread_wakes_the_main_thread() -> None:
    ended: Future[int] = Future()
    other = threading.Thread(target=ended.exception, args=(PATIENCE_S,))
    other.start()
    assert other.ident is not None
    to_other = threading.Timer(0.05, signal.pthread_kill, (other.ident, signal.SIGTERM))
    to_other.start()

    with StopSignals(lambda count: ended.set_result(count)) as signals:
        reported = signals.wait_for(ended)

    assert reported == 1
    other.join()
    to_other.join()


def test_end_without_a_signal_ends_the_wait() -> None:
    ended: Future[int] = Future()
    threading.Timer(0.01, ended.set_result, (7,)).start()

    with StopSignals(lambda _count: None) as signals:
        assert signals.wait_for(ended) == 7


def test_error_is_raised_in_the_waiting_thread() -> None:
    ended: Future[int] = Future()
    ended.set_exception(ZeroDivisionError("a bug"))

    with StopSignals(lambda _count: None) as signals, pytest.raises(ZeroDivisionError):
        signals.wait_for(ended)


@pytest.mark.parametrize(
    ("received", "left", "status"),
    [
        ([], 0, None),
        ([signal.SIGTERM], 0, None),
        ([signal.SIGTERM], 2, 1),
        ([signal.SIGTERM, signal.SIGTERM], 0, 143),
        ([signal.SIGTERM, signal.SIGINT], 2, 130),
    ],
)
def test_exit_status_says_how_the_worker_ended(received: list[signal.Signals], left: int, status: int | None) -> None:
    with StopSignals(lambda _count: None) as signals:
        for number in received:
            os.kill(os.getpid(), number)

    if status is None:
        signals.exit(left)
    else:
        with pytest.raises(SystemExit) as ended:
            signals.exit(left)
        assert ended.value.code == status


def test_run_in_a_child_process_of_a_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # This is no child process of a worker.
    refuse_in_child()

    child: Any = type("Child", (), {"name": CHILD_NAME})
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    monkeypatch.setattr("multiprocessing.current_process", lambda: child)

    with pytest.raises(BadHandler, match="if __name__ == '__main__'"):
        refuse_in_child()
