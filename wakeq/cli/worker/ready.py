"""ready: what a worker on the command line serves, shown once it is connected and subscribed.

a terminal        a few lines for people
anything else     one line of the log, whatever the level of the log is
"""

import logging
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from wakeq import __version__
from wakeq.cli.output import plain

if TYPE_CHECKING:
    from wakeq.worker import Worker

log = logging.getLogger("wakeq.ready")

# Of longer lists only so many lines are shown.
LINES_MAX = 20
PLURALS = {"thread": "threads", "coroutine": "coroutines", "process": "processes"}


def announce(worker: "Worker", *, target: str, as_json: bool) -> Callable[[str], None]:
    """Return the function that shows what the worker serves; it takes the address of the broker."""
    if sys.stderr.isatty() and not as_json:
        return partial(_show, worker, target)
    log.setLevel(logging.INFO)
    return partial(_log, worker)


def _log(worker: "Worker", address: str) -> None:
    schedules = ", ".join(f"{one.publisher.task.queue} {one.moments}" for one in worker.schedules)
    log.info(
        "ready: serving %s, %s at once, from %s%s",
        ", ".join(worker.tasks),
        at_once(worker),
        address,
        f"; schedules: {schedules}" if schedules else "",
    )


def at_once(worker: "Worker") -> str:
    """Return how many handlers run at once, for each mode, such as "8 threads, 8 coroutines"."""
    modes = dict.fromkeys(task.mode for task in worker.tasks.values())
    return ", ".join(f"{worker.concurrency} {mode if worker.concurrency == 1 else PLURALS[mode]}" for mode in modes)


def _show(worker: "Worker", target: str, address: str) -> None:
    now = datetime.now(UTC)
    tasks = [
        (task.queue, f"{task.handler.__module__}.{task.handler.__qualname__}", task.mode)
        for task in worker.tasks.values()
    ]
    schedules = [
        (one.publisher.task.queue, str(one.moments), f"next {one.moments.after(now).astimezone():%Y-%m-%d %H:%M:%S}")
        for one in sorted(worker.schedules, key=lambda one: one.moments.after(now))
    ]
    more = f"and %d more; see wakeq tasks {target}"
    facts = [
        ("broker", [address]),
        ("at once", [at_once(worker)]),
        ("tasks", _aligned(tasks, more)),
        ("schedules", _aligned(schedules, more)),
    ]
    lines = [f"{click.style('wakeq', bold=True)} {__version__} worker, {platform.node()}, process {os.getpid()}"]
    for name, values in facts:
        for number, value in enumerate(values):
            label = click.style(f"{'' if number else name:11}", dim=True)
            lines.append(f"  {label}{plain(value)}")
    lines.append(click.style("ready", fg="green", bold=True) + "; Ctrl-C stops it")
    # The terminal may be gone, and the work still has to be done.
    with suppress(OSError):
        click.echo("\n".join(lines), err=True, color=False if os.environ.get("NO_COLOR") else None)


def _aligned(rows: Sequence[tuple[str, ...]], more: str) -> list[str]:
    """Return the rows as lines with aligned columns, and the rest of a long list as a number."""
    shown = rows if len(rows) <= LINES_MAX else rows[: LINES_MAX - 1]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return [*lines, more % (len(rows) - len(shown))] if len(shown) < len(rows) else lines
