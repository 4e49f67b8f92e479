"""Reloader: runs a command, and starts it again when a Python file below a directory has changed.

    changes that watchfiles sees  -->  SIGTERM, the end of the command, the next one  -->  exit status

A command that ends by itself with an error is started again at the next change, for that is what mends it.  Signals to
us are passed on, and the end of the command is then ours.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from wakeq.cli.output import say
from wakeq.protocol.errors import BadSettings, NotInstalled
from wakeq.worker.signals import kill_with_parent

try:
    from watchfiles import Change, watch
except ImportError as error:
    raise NotInstalled("--reload needs the package watchfiles; pip install 'wakeq[reload]'") from error

LOOK_EVERY_MS = 200  # whether the command has ended, or a signal has come
BY_SIGNAL = 128  # and the signal's number
NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})


class Reloader:
    """One run of the command after the other."""

    def __init__(self, command: Sequence[str], directory: str) -> None:
        self._command = command
        self._changes = changes_below(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._signal = 0  # the last one that came
        self._unsent = 0  # one that came when there was no process

    def run(self) -> int:
        """Until a signal ends the command, or it ends by itself without an error; its exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while True:
            self._catch_up()
            self._process = self._start()
            if self._unsent:
                self._process.send_signal(self._unsent)
            is_changed = self._watch(self._process)
            if is_changed:
                self._process.terminate()
            status = self._process.wait()
            self._process = None
            if self._signal or (status == 0 and not is_changed):
                return BY_SIGNAL - status if status < 0 else status
            if not is_changed:
                say(f"the worker ended with status {status}; it starts again when a file changes")
                while not next(self._changes):
                    if self._signal:
                        return BY_SIGNAL + self._signal

    def _catch_up(self) -> None:
        """Begin to watch, or pass over the changes until now, which the command that starts next has."""
        try:
            next(self._changes)
        except OSError as error:  # it wants a watch of the system's for each directory
            raise BadSettings(f"changes here cannot be watched ({error}); raise fs.inotify.max_user_watches") from error

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the command: Ctrl-C comes to us alone, and it does not live on without us."""
        return subprocess.Popen(self._command, process_group=0, preexec_fn=partial(kill_with_parent, os.getpid()))

    def _watch(self, process: "subprocess.Popen[bytes]") -> bool:
        """Return when a file has changed, or, with False, when the process has ended."""
        for changes in self._changes:
            if changes and not self._signal:
                return True
            if process.poll() is not None:
                break
        return False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass it on.  It raises nothing, for it may have come while watchfiles waits."""
        self._signal = number
        if self._process is None:
            self._unsent = number
        else:
            self._process.send_signal(number)


def changes_below(directory: str) -> Iterator[set[tuple[Change, str]]]:
    """The Python files below a directory that have changed since the set before; often there are none."""
    return watch(
        directory,
        watch_filter=lambda _change, path: is_code(Path(path).relative_to(directory)),
        rust_timeout=LOOK_EVERY_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )


def is_code(path: Path) -> bool:
    """Whether it is a Python file, and in no hidden directory and no installed package."""
    return path.suffix == ".py" and not any(name.startswith(".") or name in NOT_OURS for name in path.parts[:-1])
