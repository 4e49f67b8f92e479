"""Program: one run of a command with all the processes that it starts, as a thing that can be awaited and ended.

    arguments, body, environment  -->  process  -->  exit status, last line of standard error

The body is a file on its standard input, so a program that does not read it breaks no pipe.  Standard output is ours;
standard error is passed on to ours in whole lines.  It never leaves a process of a program that it was told to end.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from wakeq.worker.pools.parent_death import kill_with_parent

KILL_AFTER_S = 5.0  # from SIGTERM
PIPE_BYTES = 64 * 1024  # as much as a pipe holds, so that one read empties it
LINE_BYTES_MAX = 64 * 1024  # what is longer is passed on in pieces


class Lines:
    """Passes on whole lines, so that those of several programs do not mix, and remembers the last one."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = b""

    @property
    def last(self) -> str:
        """The last line that says something."""
        return self._last.decode(errors="replace").strip()

    def receive(self, data: bytes) -> bytes:
        """Take what was read, and return what is to be passed on now."""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            whole, newline, rest = whole + newline + rest, b"", b""
        self._rest = rest
        self._remember(whole)
        return whole + newline

    def finish(self) -> bytes:
        """There is no more: return the line that was never ended."""
        return self.receive(b"\n") if self._rest else b""

    def _remember(self, lines: bytes) -> None:
        said = lines.rstrip()
        if said:
            self._last = said[said.rfind(b"\n") + 1 :][-LINE_BYTES_MAX:]


class Program:
    """A running program, the leader of a process group.  Its methods belong to the loop that started it."""

    def __init__(self, arguments: Sequence[str], *, body: bytes, environment: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = Lines()
        self._ended = asyncio.Event()
        self._process = _spawn(arguments, body, environment)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        # Not the wait of asyncio: it lasts as long as any descendant holds the pipe of standard error.
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:  # too many open files
            with self._process:
                self._signal(signal.SIGKILL)
            raise
        os.set_blocking(self._stderr.fileno(), False)
        self._loop.add_reader(self._stderr, self._on_stderr)
        self._loop.add_reader(self._pidfd, self._on_end)

    @property
    def last_line(self) -> str:
        """The last that it said on standard error."""
        return self._lines.last

    async def wait(self) -> int:
        """Its exit status; negative for the signal that killed it."""
        await self._ended.wait()
        return self._process.wait()

    async def close(self) -> None:
        """End it if it has not ended, with everything it started, and let go of it."""
        try:
            if not self._ended.is_set():
                await self._end()
        finally:
            os.close(self._pidfd)
            self._process.wait()

    async def _end(self) -> None:
        """SIGTERM to all, and SIGKILL to whoever is left when the first of them has ended, or the patience.

        A task that is cancelled here, a second time then, is out of patience; it too waits until the end.
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
        """As long as it was not waited for, its number, which is that of the group, belongs to nobody else."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _on_stderr(self) -> None:
        if data := os.read(self._stderr.fileno(), PIPE_BYTES):
            _pass_on(self._lines.receive(data))
        else:
            self._loop.remove_reader(self._stderr)

    def _on_end(self) -> None:
        """Hear what it said last.  What it left in the background stays, but is no longer listened to."""
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
    with suppress(BrokenPipeError):  # nobody listens to us any more; the work is still to be done
        sys.stderr.buffer.write(lines)
        sys.stderr.buffer.flush()
