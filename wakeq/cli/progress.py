"""Progress: a bar on the terminal while a command works for longer than a moment.

    what is done, how much of it, of how much --> progress --> a line on standard error, which disappears at the end

It appears only on a terminal, and only after half a second.  A program that reads the output, or asked for JSON, never
gets any of it.  Nothing else may be written to standard output while it is shown.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

# A command that is done sooner shows no bar.
SHOW_AFTER_S = 0.5
# The pause between two updates of the line.
REFRESH_S = 0.1
BYTES = "bytes"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Progress:
    """The progress of one command.  The thread that works calls `update`, another one may call `show` meanwhile."""

    def __init__(self, doing: str, unit: str, *, is_wanted: bool) -> None:
        # Whether the line will be shown if the work takes long.
        self.is_wanted = is_wanted
        # What the command does now, such as "moving messages".
        self._doing = doing
        # What is counted, such as "messages".
        self._unit = unit
        self._done = 0
        # None while it is unknown.
        self._total: int | None = None
        # When the present activity began, for its rate.
        self._began_s = time.monotonic()
        # When the line was last updated.
        self._drawn_s = 0.0
        # None while the line is not shown.
        self._bar: Bar | None = None
        # The present activity in the bar.
        self._task: TaskID | None = None
        # Held by whoever changes the bar.
        self._lock = threading.Lock()

    def begin(self, doing: str, unit: str = "", total: int | None = None) -> None:
        """Go on with another activity, whose progress begins at 0."""
        with self._lock:
            self._doing, self._unit, self._done, self._total = doing, unit, 0, total
            self._began_s = time.monotonic()
            self._draw(is_new=True)

    def update(self, done: int, total: int | None = None) -> None:
        """Note how much of the present activity is done, and of how much, if that is known."""
        self._done = done
        if total is not None:
            self._total = total
        if time.monotonic() - self._drawn_s >= REFRESH_S:
            with self._lock:
                self._draw()

    def show(self) -> None:
        """Show the line from now on."""
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
        )
        console = Console(file=sys.stderr, no_color="NO_COLOR" in os.environ or None)
        with self._lock:
            # Standard output may be a file.
            self._bar = Bar(*columns, console=console, transient=True, expand=True, redirect_stdout=False)
            self._draw(is_new=True)
            self._bar.start()

    def hide(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _draw(self, *, is_new: bool = False) -> None:
        """Update the line; the caller holds the lock."""
        self._drawn_s = time.monotonic()
        if self._bar is None:
            return
        amount = amount_of(self._done, self._total, self._unit, self._drawn_s - self._began_s)
        if is_new or self._task is None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(self._doing, total=self._total, completed=self._done, amount=amount)
        else:
            self._bar.update(self._task, completed=self._done, total=self._total, amount=amount)


@contextmanager
def progress(doing: str, unit: str = "", *, is_wanted: bool = True) -> Iterator[Progress]:
    """Show on a terminal what a command does, until this is left; `is_wanted` is False for --json."""
    is_wanted = is_wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    made = Progress(doing, unit, is_wanted=is_wanted)
    if not is_wanted:
        yield made
        return
    showing = threading.Timer(SHOW_AFTER_S, made.show)
    showing.daemon = True
    showing.start()
    try:
        yield made
    finally:
        showing.cancel()
        # It may be about to show the line.
        showing.join()
        made.hide()


def amount_of(done: int, total: int | None, unit: str, seconds: float) -> str:
    """Return what is done, how fast, and how long the rest takes.  Pure."""
    if not unit or not done:
        return ""
    of_total = "" if total is None else f" of {_count(total, unit)}"
    rate = done / seconds if seconds > 0 else 0.0
    left = "" if total is None or not rate or done >= total else f", {_span((total - done) / rate)} left"
    counted = _count(done, unit)
    return f"{counted}{of_total}{'' if unit == BYTES else f' {unit}'}, {_count(int(rate), unit)}/s{left}"


def _count(number: int, unit: str) -> str:
    if unit != BYTES:
        return f"{number:,}"
    size, name = float(number), UNITS[0]
    for name in UNITS:
        if size < 1024 or name == UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {name}" if name == UNITS[0] else f"{size:.1f} {name}"


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
