"""Gate: who looks at the state passes it, and while it is closed nobody is inside.

    passed (views) --> inside, and out again         closed, closed_if_empty --> the map may be exchanged

It knows nothing of what is behind it.
"""

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """See the head of this file."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_closed = False

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """Be inside; wait while it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self, wait_s: float) -> Iterator[None]:
        """Let nobody in, and wait for those inside to leave, but no longer than that."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._inside == 0, wait_s)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed_if_empty(self) -> Iterator[bool]:
        """Close for a moment, without waiting; False, and it stays open, if anybody is inside."""
        with self._changed:
            is_closed = self._is_closed = self._inside == 0
        try:
            yield is_closed
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
