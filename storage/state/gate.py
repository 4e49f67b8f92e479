"""Gate: every view of the state passes it, and while it is closed no view is open.

    passed (views) --> inside, and out again         closed, closed_if_empty --> the map may be exchanged

The gate knows nothing about the state behind it.
"""

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """A reader-writer lock: views are the readers, an exchange of the map is the writer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two fields below
        self._inside = 0  # open views
        self._is_closed = False

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """Be inside during the block; wait first while the gate is closed."""
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
        """Let no view in during the block; wait first, for `wait_s` at most, until no view is inside."""
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
        """Close during the block without waiting; yield False and stay open if a view is inside."""
        with self._changed:
            is_closed = self._is_closed = self._inside == 0
        try:
            yield is_closed
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
