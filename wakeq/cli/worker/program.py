"""Program: one run of a command with all processes that it starts; it can be awaited and ended.

    arguments, body, environment  -->  process  -->  exit status, last line of standard error

The body is a file on its standard input, so a program that does not read it breaks no pipe.  It inherits our standard
output; its standard error is copied to ours in whole lines.  When a program is ended, none of its processes stays.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from wakeq.worker.signals import kill_with_parent

# After SIGTERM.
KILL_AFTER_S = 5.0
# The capacity of a pipe, so that one read empties it.
PIPE_BYTES = 64 * 1024
# A longer line is passed on in pieces.
LINE_BYTES_MAX = 64 * 1024


class Lines:
    """Splits output into whole lines, so that those of several programs do not mix, and remembers the last one."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = b""

    @property
    def last(self) -> str:
        """The last line that is not blank."""
        return self._last.decode(errors="replace").strip()

    def receive(self, data: bytes) -> bytes:
        """Add what was read; return the bytes to pass on now."""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            whole, newline, rest = whole + newline + rest, b"", b""
        self._rest = rest
        self._remember(whole)
        return whole + newline

    def finish(self) -> bytes:
        """Return the last line if it was not ended."""
        return self.receive(b"\n") if self._rest else b""

    def _remember(self, lines: bytes) -> None:
        text = lines.rstrip()
        if text:
            self._last = text[text.rfind(b"\n") + 1 :][-LINE_BYTES_MAX:]


class Program:
    """A running program, the leader of a process group.  Its methods belong to the loop that started it."""

    def __init__(self, arguments: Sequence[str], *, body: bytes, environment: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = Lines()
        self._ended = asyncio.Event()
        self._process = _spawn(arguments, body, environment)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        # asyncio's own wait would last as long as any descendant holds the pipe of standard error.
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            # There are too many open files.
            with self._process:
                self._signal(signal.SIGKILL)
            raise
        os.set_blocking(self._stderr.fileno(), False)
        self._loop.add_reader(self._stderr, self._on_stderr)
        self._loop.add_reader(self._pidfd, self._on_end)

    @property
    def last_line(self) -> str:
        """The last line that it wrote to standard error."""
        return self._lines.last

    async def wait(self) -> int:
        """Return its exit status, negative for the signal that killed it."""
        await self._ended.wait()
        return self._process.wait()

    async def close(self) -> None:
        """End it and everything that it started, unless it has ended, and release its resources."""
        try:
            if not self._ended.is_set():
                await self._end()
        finally:
            os.close(self._pidfd)
            self._process.wait()

    async def _end(self) -> None:
        """Send SIGTERM to all processes, and SIGKILL to the remaining ones when the first has ended or time is up.

        A task that is cancelled here, for the second time then, does not wait for the time, but still for the end.
        """
        try:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_AFTER_S):
                    await self._ended.wait()
        finally:
            self._signal(signal.SIGKILL)
            await self._ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group.  Its number belongs to no other process until this one has been waited for."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _on_stderr(self) -> None:
        if data := os.read(self._stderr.fileno(), PIPE_BYTES):
            _pass_on(self._lines.receive(data))
        else:
            self._loop.remove_reader(self._stderr)

    def _on_end(self) -> None:
        """Read its last output.  Processes that it left in the background stay, but their output is not read."""
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._stderr)
        with suppress(BlockingIOError):
            _pass_on(self._lines.receive(os.read(self._stderr.fileno(), PIPE_BYTES)))
        _pass_on(self._lines.finish())
        self._stderr.close()
        self._ended.set()


def _spawn(arguments: Sequence[str], body: bytes, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with open(os.memfd_create("wakeq-body"), "wb") as file:
        file.write(body)
        file.seek(0)
        return subprocess.Popen(
            arguments,
            stdin=file,
            stderr=subprocess.PIPE,
            env=environment,
            process_group=0,
            bufsize=0,
            # One call of libc, which takes no lock that another thread may hold.
            preexec_fn=partial(kill_with_parent, os.getpid()),
        )


def _pass_on(lines: bytes) -> None:
    # The reader of our output has gone, but the work still has to be done.
    with suppress(BrokenPipeError):
        sys.stderr.buffer.write(lines)
        sys.stderr.buffer.flush()
