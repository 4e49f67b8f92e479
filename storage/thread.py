"""DiskThread: the one place that starts threads; what may wait for a disk is done there, in order.

    submit(work, done) --> the thread: work() --> deliver --> done(result or error)

`deliver` is the loop's `call_soon_threadsafe`, so `done` runs on the loop; tests use `InlineDisk`, where all
of it happens at once.  Work never touches what belongs to an actor, and nothing here ever waits for a result.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from wakeq.protocol.errors import StorageError

T = TypeVar("T")
Deliver = Callable[[Callable[[], None]], Any]
Done = Callable[[T | BaseException], None]
_Job = tuple[Callable[[], Any], Callable[[Any], None]]

JOIN_S: Final = 30.0  # how long `close` waits for the work that was handed in before it says so


class Disk(Protocol):
    """Whoever does work that may wait for a disk, one after the other."""

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work`, then have `done` called with what it returned or raised.  One thread submits."""

    @property
    def busy(self) -> bool:
        """Whether anything is being done or waits for it."""

    @property
    def waiting(self) -> int:
        """How many pieces of work were handed in and are not finished."""

    def close(self, wait: bool = True) -> None:
        """Take nothing more; what was handed in is still done, and with `wait` it is done on return."""


class DiskThread:
    """One thread that does what it is given, in order, until it is closed.

    A failure of the work (an Exception) is a result like any other.  Anything beyond, such as SystemExit,
    is delivered too and then ends the thread; what waits behind it is answered with StorageError, and what
    comes later is refused with it.
    """

    def __init__(self, name: str, deliver: Deliver) -> None:
        self._name = name
        self._deliver = deliver
        self._jobs: deque[_Job] = deque()
        # An eventfd wakes a sleeper faster than a lock does (docs/internals/storage.md has the figures).
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)  # not before the thread has ended, for it holds us
        self._sleeps = False  # or is about to; who sees it False may save the bell
        self._submitted = 0  # written by the submitter only
        self._finished = 0  # written by the thread only
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work` in the thread, then have `done` called with what it returned or raised."""
        if self._closed or self._failure is not None:
            raise StorageError(
                f"thread {self._name} has ended: {self._failure or 'it was closed'}; start the node again"
            )
        self._submitted += 1
        self._jobs.append((work, done))
        if self._sleeps:
            os.eventfd_write(self._bell, 1)

    @property
    def busy(self) -> bool:
        """Whether anything is being done or waits for it."""
        return self._submitted != self._finished

    @property
    def waiting(self) -> int:
        """How many pieces of work were handed in and are not finished."""
        return self._submitted - self._finished

    def close(self, wait: bool = True) -> None:
        """Take nothing more; what was handed in is still done, and with `wait` it is done on return."""
        if not self._closed:
            self._closed = True
            os.eventfd_write(self._bell, 1)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                raise StorageError(f"thread {self._name} hangs in its work; look into the kernel's log")

    def _run(self) -> None:
        try:
            while self._next_job():
                self._do(*self._jobs.popleft())  # no name here: it would keep what the last job had in hand
        except BaseException as error:
            self._failure = error
            self._answer_all_with(error)
            raise

    def _next_job(self) -> bool:
        """Wait for a job; return False when there is none and none will come."""
        while not self._jobs:
            if self._closed:
                return False
            self._sleeps = True  # first say it, then look again: a job that came in between has rung no bell
            if not self._jobs and not self._closed:
                os.eventfd_read(self._bell)
            self._sleeps = False
        return True

    def _do(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        result: Any
        fatal: BaseException | None = None
        try:
            result = work()
        except Exception as error:
            result = error
        except BaseException as error:
            result = fatal = error
        self._finished += 1
        self._deliver(lambda: done(result))
        if fatal is not None:
            raise fatal

    def _answer_all_with(self, cause: BaseException) -> None:
        while self._jobs:
            _, done = self._jobs.popleft()
            self._finished += 1
            error = StorageError(f"thread {self._name} has ended: {cause!r}; start the node again")
            self._deliver(lambda done=done, error=error: done(error))  # type: ignore[misc]


class InlineDisk:
    """The same without a thread: work is done at once, its result goes through `deliver`."""

    def __init__(self, deliver: Deliver | None = None) -> None:
        self._deliver = deliver or _at_once
        self._closed = False

    busy: Final = False
    waiting: Final = 0

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work` now, then have `done` called with what it returned or raised."""
        if self._closed:
            raise StorageError("the disk was closed; start the node again")
        result: T | BaseException
        try:
            result = work()
        except Exception as error:
            result = error
        self._deliver(lambda: done(result))

    def close(self, wait: bool = True) -> None:
        """Take nothing more."""
        self._closed = True


def _at_once(call: Callable[[], None]) -> None:
    call()
