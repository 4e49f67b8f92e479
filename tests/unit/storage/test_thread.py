"""DiskThread and InlineDisk: order, results, and the end of a thread; no test waits for the wall clock."""

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

PATIENCE_S = 10.0  # only a hanging test waits this long


class Results:
    """Collects results from any thread."""

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


def test_finished_job_is_released(thread: DiskThread, results: Results) -> None:
    class Body:
        pass

    body = Body()
    kept = weakref.ref(body)
    thread.submit(lambda body=body: len([body]), results.done)  # type: ignore[misc]
    del body

    results.next()
    until_s = time.monotonic() + PATIENCE_S
    while not thread._sleeps and time.monotonic() < until_s:
        time.sleep(0)  # until the thread has found no next job

    assert kept() is None


def test_work_is_done_in_order_in_one_other_thread(thread: DiskThread, results: Results) -> None:
    for number in range(1000):
        thread.submit(lambda number=number: (number, threading.get_ident()), results.done)  # type: ignore[misc]

    got = [results.next() for _ in range(1000)]

    assert [number for number, _ in got] == list(range(1000))
    assert len({ident for _, ident in got} | {threading.get_ident()}) == 2


def test_sleeping_thread_is_woken_by_every_job(thread: DiskThread, results: Results) -> None:
    for number in range(300):
        thread.submit(lambda number=number: number, results.done)  # type: ignore[misc]

        assert results.next() == number


def test_job_submitted_while_the_thread_falls_asleep_is_done(thread: DiskThread, results: Results) -> None:
    class Meddling(deque[Any]):
        """A deque that seems empty once and then has a job, as if it was submitted between two steps of the thread."""

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


def test_exception_is_a_result_and_the_thread_continues(thread: DiskThread, results: Results) -> None:
    thread.submit(raiser(OSError(5, "disk")), results.done)
    thread.submit(lambda: "next", results.done)

    assert isinstance(results.next(), OSError)
    assert results.next() == "next"


def test_thread_is_busy_until_the_last_job_is_finished(thread: DiskThread, results: Results) -> None:
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


def test_close_waits_for_submitted_work_and_refuses_more(results: Results) -> None:
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
def test_base_exception_is_delivered_and_ends_the_thread(results: Results) -> None:
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


def test_closed_thread_closes_its_descriptor(results: Results) -> None:
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


def test_inline_disk_uses_deliver_and_refuses_after_close() -> None:
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


def test_inline_disk_raises_a_base_exception() -> None:
    disk = InlineDisk()

    with pytest.raises(KeyboardInterrupt):
        disk.submit(raiser(KeyboardInterrupt()), lambda _: None)
