"""BrokerProcess: a real `wakeq serve` in a process of its own, for tests that kill, signal and restart it.

    data directory --> start --> `wakeq ready worker=HOST:PORT http=HOST:PORT` --> kill | terminate | restart

It never leaves a process behind: each runs in a group of its own that is killed by `close`, at the end of
the interpreter, and by the kernel when this process dies. It never reads or writes the data directory
itself.
"""

import atexit
import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
THIS_RELEASE = (sys.executable, "-m", "wakeq", "serve")
SETTINGS_PREFIX = "WAKEQ_"  # the broker reads its settings from these, and refuses those that are the tests' own
PR_SET_PDEATHSIG = 1
READY_LINE = re.compile(
    r"^wakeq ready worker=(?P<worker>\S+):(?P<worker_port>\d+) http=(?P<http>\S+):(?P<http_port>\d+)"
    r"( taskflux=(?P<taskflux>\S+):(?P<taskflux_port>\d+))?( taskflux-\w+=(?P<other>\S+):(?P<other_port>\d+))?"
)
_LIBC = ctypes.CDLL(None)
_ALIVE: "weakref.WeakSet[BrokerProcess]" = weakref.WeakSet()


class BrokerDidNotStart(AssertionError):
    """The ready line did not come; carries everything that the process said."""


class BrokerDidNotStop(AssertionError):
    """The process was still there after the time that it had to end."""


class BrokerProcess:
    """One broker and its successive processes on one data directory."""

    def __init__(
        self,
        data_dir: Path,
        *extra_args: str,
        command: Sequence[str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.extra_args = extra_args
        self.worker_address: tuple[str, int] = ("", 0)
        self.http_address: tuple[str, int] = ("", 0)
        self.taskflux_address: tuple[str, int] = ("", 0)
        self.other_taskflux_address: tuple[str, int] = ("", 0)  # of the other dialect, if there is one
        self.addresses: dict[str, str] = {}  # of all doors, HOST:PORT by name
        self.ready_after_s = 0.0
        self.command = tuple(command or THIS_RELEASE)  # what the next start runs
        self.prefix = prefix
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[bytes] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        _ALIVE.add(self)

    # Life ---------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Start the process and return when it says that it is ready."""
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def launch(self) -> None:
        """Start the process and do not wait.  The kernel kills it when the thread that called this ends."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._close_pipes()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = [
            "--data-dir",
            str(self.data_dir),
            "--worker-port",
            "0",
            "--http-port",
            "0",
            "--taskflux-port",
            "0",
            *self.extra_args,
        ]
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(
            [*self.prefix, *self.command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_PREFIX)},
            preexec_fn=die_with_parent,
        )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True).start()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Read the real ports from the ready line."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise BrokerDidNotStart(f"not ready after {timeout_s} s; stderr:\n{self.stderr}") from None
            if line is None:
                status = self.wait()
                raise BrokerDidNotStart(f"ended with exit status {status} before it was ready; stderr:\n{self.stderr}")
            found = READY_LINE.match(line)
            if found:
                self.ready_after_s = time.monotonic() - self._started_s
                self.addresses = dict(word.split("=", 1) for word in line.split() if "=" in word)
                self.worker_address = (found["worker"], int(found["worker_port"]))
                self.http_address = (found["http"], int(found["http_port"]))
                self.taskflux_address = (found["taskflux"] or "", int(found["taskflux_port"] or 0))
                self.other_taskflux_address = (found["other"] or "", int(found["other_port"] or 0))
                return

    def run_to_end(self, timeout_s: float = READY_TIMEOUT_S) -> int:
        """Start a broker that is expected to refuse; return its exit status."""
        self.launch()
        return self.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL to the process and everything that it started; returns when it is gone."""
        if self._process is None:
            return
        self._signal_group(signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, wait for the end, return the exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit status; a process that does not end in time is killed and reported."""
        assert self._process is not None, "not started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerDidNotStop(f"still running {timeout_s} s later; stderr:\n{self.stderr}") from None

    def restart(self) -> Self:
        """kill -9 (if it runs) and start again on the same directory; the ports may change."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """End everything; may be called again."""
        self.kill()
        self._close_pipes()
        _ALIVE.discard(self)

    # What it is ---------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def address(self) -> str:
        """The worker port, HOST:PORT as clients are told it."""
        return self.addresses["worker"]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stderr(self) -> str:
        """Everything that the current process has written to its standard error."""
        if self._stderr is None:
            return ""
        descriptor = self._stderr.fileno()
        said = os.pread(descriptor, os.fstat(descriptor).st_size, 0)  # no seek: the process writes at the same offset
        return said.decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)  # a session of its own: its group has the same number

    def _close_pipes(self) -> None:
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


def _pump(stream: IO[str] | None, lines: "queue.SimpleQueue[str | None]") -> None:
    """Carry the lines of the process out of its pipe, so that it never waits for a reader."""
    assert stream is not None
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def status_of(node: BrokerProcess, path: str) -> int:
    """Return how the HTTP port of a broker answers."""
    host, port = node.http_address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@atexit.register
def _close_all() -> None:
    for broker in list(_ALIVE):
        broker.close()
