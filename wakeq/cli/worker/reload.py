"""Reloader: runs a command, and starts it again when a Python file below a directory has changed.

    changes that watchfiles sees  -->  SIGTERM, the end of the command, the next one  -->  exit status

A command that ends by itself with an error is started again at the next change, which may mend it.  Signals are passed
on to the command, and when it ends after one, so does the reloader.
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

# How often to check whether the command has ended, or a signal has arrived.
CHECK_EVERY_MS = 200
# The number of the signal is added.
BY_SIGNAL = 128
NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})


class Reloader:
    """One run of the command after the other."""

    def __init__(self, command: Sequence[str], directory: str) -> None:
        self._command = command
        self._changes = changes_below(directory)
        self._process: subprocess.Popen[bytes] | None = None
        # The last signal, and a signal that arrived when there was no process.
        self._signal = 0
        self._unsent = 0

    def run(self) -> int:
        """Run until a signal ends the command, or it ends by itself without an error. Return its exit status."""
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
        """Begin to watch, or discard the changes so far: the command that starts next has them."""
        try:
            next(self._changes)
        # The system has a limit of watches, and each directory needs one.
        except OSError as error:
            raise BadSettings(f"changes here cannot be watched ({error}); raise fs.inotify.max_user_watches") from error

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the command so that a Ctrl-C reaches this process only, and the command ends with this process."""
        return subprocess.Popen(self._command, process_group=0, preexec_fn=partial(kill_with_parent, os.getpid()))

    def _watch(self, process: "subprocess.Popen[bytes]") -> bool:
        """Wait. Return True when a file has changed, False when the process has ended."""
        for changes in self._changes:
            if changes and not self._signal:
                return True
            if process.poll() is not None:
                break
        return False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass a signal on.  This must not raise: watchfiles may be waiting."""
        self._signal = number
        if self._process is None:
            self._unsent = number
        else:
            self._process.send_signal(number)


def changes_below(directory: str) -> Iterator[set[tuple[Change, str]]]:
    """Yield the Python files below a directory that have changed since the last set; often there are none."""
    return watch(
        directory,
        watch_filter=lambda _change, path: is_code(Path(path).relative_to(directory)),
        rust_timeout=CHECK_EVERY_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )


def is_code(path: Path) -> bool:
    """Whether it is a Python file, and in no hidden directory and no installed package."""
    return path.suffix == ".py" and not any(name.startswith(".") or name in NOT_OURS for name in path.parts[:-1])
