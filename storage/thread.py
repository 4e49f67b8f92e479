"""DiskThread: a thread for work that may wait for a disk, done in order.

    submit(work, done) --> the thread: work() --> deliver --> done(result or error)

`deliver` is the loop's `call_soon_threadsafe`, so `done` runs on the loop.  Tests use `InlineDisk`, which does all of
it at once.  Work never touches the state of an actor, and no code here ever waits for a result.
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

JOIN_S: Final = 30.0  # how long `close` waits for submitted work before it raises


class Disk(Protocol):
    """Does work that may wait for a disk, one piece after the other."""

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work`, then call `done` with its result or exception.  Only one thread submits."""

    @property
    def busy(self) -> bool:
        """Whether any submitted work is not finished."""

    @property
    def waiting(self) -> int:
        """The number of submitted pieces of work that are not finished."""

    def close(self, wait: bool = True) -> None:
        """Refuse new work.  Submitted work is still done; with `wait` it is done when this returns."""


class DiskThread:
    """One thread that does submitted work in order until it is closed.

    An Exception from the work is a result like any other.  Any other BaseException, such as SystemExit, is delivered
    too and then ends the thread; pending and later work gets StorageError.
    """

    def __init__(self, name: str, deliver: Deliver) -> None:
        self._name = name
        self._deliver = deliver
        self._jobs: deque[_Job] = deque()
        # An eventfd wakes the thread faster than a lock does (docs/internals/storage.md has the figures).
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        # The thread refers to this object, so the bell is not closed before the thread has ended.
        weakref.finalize(self, os.close, self._bell)
        self._sleeps = False  # or is about to sleep; while this is False the submitter need not ring the bell
        self._submitted = 0  # written by the submitter only
        self._finished = 0  # written by the thread only
        self._closed = False
        self._failure: BaseException | None = None  # the exception that ended the thread
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work` in the thread, then call `done` with its result or exception."""
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
        """Whether any submitted work is not finished."""
        return self._submitted != self._finished

    @property
    def waiting(self) -> int:
        """The number of submitted pieces of work that are not finished."""
        return self._submitted - self._finished

    def close(self, wait: bool = True) -> None:
        """Refuse new work.  Submitted work is still done; with `wait` it is done when this returns."""
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
                # Bind no name here: it would keep the objects of the last job alive.
                self._do(*self._jobs.popleft())
        except BaseException as error:
            self._failure = error
            self._answer_all_with(error)
            raise

    def _next_job(self) -> bool:
        """Wait for a job; return False once the thread is closed and no job is left."""
        while not self._jobs:
            if self._closed:
                return False
            # Set this before checking again: a job submitted in between has not rung the bell.
            self._sleeps = True
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
    """The same without a thread: work is done at once, and its result goes through `deliver`."""

    busy: Final = False
    waiting: Final = 0

    def __init__(self, deliver: Deliver | None = None) -> None:
        self._deliver = deliver or _at_once
        self._closed = False

    def submit(self, work: Callable[[], T], done: Done[T]) -> None:
        """Do `work` now, then call `done` with its result or exception."""
        if self._closed:
            raise StorageError("the disk was closed; start the node again")
        result: T | BaseException
        try:
            result = work()
        except Exception as error:
            result = error
        self._deliver(lambda: done(result))

    def close(self, wait: bool = True) -> None:
        """Refuse new work."""
        self._closed = True


def _at_once(call: Callable[[], None]) -> None:
    call()
