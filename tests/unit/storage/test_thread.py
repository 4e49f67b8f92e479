"""What DiskThread and InlineDisk promise to those who hand them work; no test waits for the wall clock."""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from wakeq.protocol.errors import StorageError
from wakeq.storage.thread import Disk, DiskThread, InlineDisk

PATIENCE_S = 10.0  # only a hanging test waits for so long


class Results:
    """Collects what was delivered, by whatever thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()

    def deliver(self, call: Callable[[], None]) -> None:
        call()

    def done(self, result: Any) -> None:
        self._queue.put(result)

    def next(self) -> Any:
        return self._queue.get(timeout=PATIENCE_S)


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def thread(results: Results) -> Iterator[DiskThread]:
    thread = DiskThread("test-disk", results.deliver)
    yield thread
    thread.close()


def raiser(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_what_a_job_had_in_hand_is_let_go_of_when_it_is_done(thread: DiskThread, results: Results) -> None:
    class Body:
        pass

    body = Body()
    kept = weakref.ref(body)
    thread.submit(lambda body=body: len([body]), results.done)  # type: ignore[misc]
    del body

    results.next()
    until_s = time.monotonic() + PATIENCE_S
    while not thread._sleeps and time.monotonic() < until_s:
        time.sleep(0)  # until it has looked for the next job and found none

    assert kept() is None


def test_work_is_done_in_one_other_thread_and_in_order(thread: DiskThread, results: Results) -> None:
    for number in range(1000):
        thread.submit(lambda number=number: (number, threading.get_ident()), results.done)  # type: ignore[misc]

    got = [results.next() for _ in range(1000)]

    assert [number for number, _ in got] == list(range(1000))
    assert len({ident for _, ident in got} | {threading.get_ident()}) == 2


def test_a_sleeping_thread_is_woken_by_every_single_piece_of_work(thread: DiskThread, results: Results) -> None:
    for number in range(300):
        thread.submit(lambda number=number: number, results.done)  # type: ignore[misc]

        assert results.next() == number


def test_work_that_comes_while_the_thread_falls_asleep_is_not_forgotten(thread: DiskThread, results: Results) -> None:
    class Meddling(deque[Any]):
        """Looks empty once, and has got work by then: what a submitter does between two steps of the thread."""

        armed = True

        def __bool__(self) -> bool:
            if self.armed and not len(self):
                self.armed = False
                thread.submit(lambda: "came late", results.done)
                return False
            return len(self) > 0

    thread.submit(lambda: None, results.done)
    results.next()
    thread._jobs = Meddling()

    thread.submit(lambda: "first", results.done)

    assert [results.next(), results.next()] == ["first", "came late"]


def test_results_go_through_deliver() -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    got: list[object] = []
    thread = DiskThread("test-disk", calls.put)

    thread.submit(lambda: "written", got.append)
    call = calls.get(timeout=PATIENCE_S)
    assert got == []
    call()

    assert got == ["written"]
    thread.close()


def test_a_failure_is_a_result_and_the_thread_goes_on(thread: DiskThread, results: Results) -> None:
    thread.submit(raiser(OSError(5, "disk")), results.done)
    thread.submit(lambda: "next", results.done)

    assert isinstance(results.next(), OSError)
    assert results.next() == "next"


def test_it_is_busy_until_the_last_piece_is_finished(thread: DiskThread, results: Results) -> None:
    may_end = threading.Event()
    assert not thread.busy

    thread.submit(lambda: may_end.wait(PATIENCE_S), results.done)
    thread.submit(lambda: None, results.done)

    assert thread.busy
    assert thread.waiting == 2
    may_end.set()
    results.next()
    results.next()
    assert not thread.busy


def test_close_waits_for_what_was_handed_in_and_takes_nothing_more(results: Results) -> None:
    thread = DiskThread("test-disk", results.deliver)
    got: list[object] = []
    for number in range(100):
        thread.submit(lambda number=number: number, got.append)  # type: ignore[misc]

    thread.close()
    thread.close()

    assert got == list(range(100))
    with pytest.raises(StorageError, match="was closed"):
        thread.submit(lambda: None, results.done)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_is_no_exception_is_delivered_and_ends_the_thread(results: Results) -> None:
    may_start = threading.Event()
    thread = DiskThread("test-disk", results.deliver)
    thread.submit(lambda: may_start.wait(PATIENCE_S), lambda _: None)
    thread.submit(raiser(KeyboardInterrupt()), results.done)
    thread.submit(lambda: "never", results.done)

    may_start.set()

    assert isinstance(results.next(), KeyboardInterrupt)
    assert isinstance(results.next(), StorageError)
    with pytest.raises(StorageError, match="has ended"):
        thread.submit(lambda: None, results.done)
    thread.close()


def test_a_closed_thread_gives_its_descriptor_back(results: Results) -> None:
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        thread = DiskThread("test-disk", results.deliver)
        thread.submit(lambda: None, results.done)
        thread.close()
        del thread

    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_inline_disk_does_the_work_at_once(results: Results) -> None:
    disk: Disk = InlineDisk()
    got: list[object] = []

    disk.submit(lambda: 1, got.append)
    disk.submit(raiser(OSError(5, "disk")), got.append)

    assert got[0] == 1
    assert isinstance(got[1], OSError)
    assert not disk.busy
    assert disk.waiting == 0


def test_inline_disk_delivers_through_the_callback_and_refuses_when_closed() -> None:
    calls: list[Callable[[], None]] = []
    got: list[object] = []
    disk = InlineDisk(calls.append)

    disk.submit(lambda: 1, got.append)
    assert got == []
    calls[0]()

    assert got == [1]
    disk.close()
    with pytest.raises(StorageError):
        disk.submit(lambda: 2, got.append)


def test_inline_disk_lets_what_is_no_exception_rise() -> None:
    disk = InlineDisk()

    with pytest.raises(KeyboardInterrupt):
        disk.submit(raiser(KeyboardInterrupt()), lambda _: None)
