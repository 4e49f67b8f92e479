"""Reloader: runs a command, and starts it again when a Python file below a directory has changed.

    moments of the files, once a second  -->  SIGTERM, the end of the command, the next one  -->  exit status

A command that ends by itself with an error is started again at the next change, for that is what mends it.  Signals to
us are passed on, and the end of the command is then ours.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType

from wakeq.cli.output import say
from wakeq.worker.pools.parent import die_with

LOOK_EVERY_S = 1
BY_SIGNAL = 128  # and the signal's number
NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot = dict[str, int]


class Reloader:
    """One run of the command after the other."""

    def __init__(self, command: Sequence[str], directory: str) -> None:
        self._command = command
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled = False

    def run(self) -> int:
        """Until a signal ends the command, or it ends by itself without an error; its exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while True:
            before = snapshot(self._directory)
            with self._start() as self._process:
                changed = self._watch(self._process, before)
                if changed:
                    self._process.terminate()
            status = self._process.returncode
            self._process = None
            if self._signalled or (status == 0 and not changed):
                return BY_SIGNAL - status if status < 0 else status
            if not changed:
                say(f"the worker ended with status {status}; it starts again when a file changes")
                while snapshot(self._directory) == before:
                    time.sleep(LOOK_EVERY_S)

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the command: Ctrl-C comes to us alone, and it does not live on without us."""
        return subprocess.Popen(self._command, process_group=0, preexec_fn=partial(die_with, os.getpid()))

    def _watch(self, process: "subprocess.Popen[bytes]", before: Snapshot) -> bool:
        """Return when a file has changed, or, with False, when the process has ended."""
        ended = select.poll()
        pidfd = os.pidfd_open(process.pid)
        try:
            ended.register(pidfd, select.POLLIN)
            while not ended.poll(LOOK_EVERY_S * 1000):
                if not self._signalled and snapshot(self._directory) != before:
                    return True
            return False
        finally:
            os.close(pidfd)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass it on; between two runs there is nobody, and it is ours."""
        self._signalled = True
        if self._process is None:
            sys.exit(BY_SIGNAL + number)
        self._process.send_signal(number)


def snapshot(directory: str) -> Snapshot:
    """When each Python file below a directory was written; without hidden directories and installed packages."""
    return dict(_moments(directory))


def _moments(directory: str) -> Iterator[tuple[str, int]]:
    """Files that go while we look are not there."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py") and entry.is_file():
                with suppress(FileNotFoundError):
                    yield entry.path, entry.stat().st_mtime_ns
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in NOT_OURS:
                yield from _moments(entry.path)
