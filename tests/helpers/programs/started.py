"""Started: a program that a test has started, whose lines are waited for with a deadline, and which never stays behind.

It runs in a process group of its own, which is killed at the end of the `with`.  Both of its outputs are read all the
time, so that it never waits for a reader.
"""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

LINE_TIMEOUT_S = 20.0
END_TIMEOUT_S = 30.0
POLL_S = 0.02


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = END_TIMEOUT_S) -> None:
    """Return when it holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"after {timeout_s} s it is still not so that {what}"
        time.sleep(POLL_S)


class Started:
    """One process and what it says."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.said: list[str] = []
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._readers = [
            self._read(self._process.stdout, self._lines.put),
            self._read(self._process.stderr, lambda line: self._errors.append(line or "")),
        ]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def errors(self) -> str:
        """What it has said on standard error; all of it once it has ended."""
        return "\n".join(self._errors)

    def line(self) -> str:
        """The next line of its standard output."""
        try:
            line = self._lines.get(timeout=LINE_TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"no line for {LINE_TIMEOUT_S} s, after {self.said}; errors: {self.errors}") from None
        assert line is not None, f"it has ended after {self.said}; errors: {self.errors}"
        self.said.append(line)
        return line

    def lines(self, count: int) -> list[str]:
        """So many lines, in any order: sorted."""
        return sorted(self.line() for _ in range(count))

    def lines_so_far(self) -> list[str]:
        """All lines until now, without waiting."""
        with suppress(queue.Empty):
            while (line := self._lines.get_nowait()) is not None:
                self.said.append(line)
        return self.said

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; its exit status."""
        status = self._process.wait(END_TIMEOUT_S)
        for reader in self._readers:
            reader.join(END_TIMEOUT_S)
        return status

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.signal(signal.SIGTERM)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, stream: IO[str] | None, put: Callable[[str | None], None]) -> threading.Thread:
        def read() -> None:
            assert stream is not None
            with stream:
                for line in stream:
                    put(line.rstrip("\n"))
            put(None)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread
