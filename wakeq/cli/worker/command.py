"""Command: a command line as the handler of a queue, run once for each message.

    message  -->  Program: standard input and environment  -->  exit status, last line of standard error
    exit status  -->  judge  -->  what happens to the message

`judge` defines the exit statuses; the help of `wakeq work` explains them to users.  The outcome is reported after the
program has ended, also when the handler is cancelled, so that nobody else gets the message while it still runs.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from wakeq.client import Message
from wakeq.worker import Reject, Retry, Snooze
from wakeq.worker.outcome import HandlerDecision
from wakeq.worker.signals import kill_with_parent

# After SIGTERM.
KILL_AFTER_S = 5.0
# The capacity of a pipe, so that one read empties it.
PIPE_BYTES = 64 * 1024
# A longer line is passed on in pieces.
LINE_BYTES_MAX = 64 * 1024

HEADER_PREFIX = "WAKEQ_HEADER_"
# Variables of `wakeq work` that its commands do not need.
TOKEN_VARIABLES = ("WAKEQ_TOKEN", "WAKEQ_TOKEN_FILE")
# Other tools expect their variables under these names in capitals.
TRACE_HEADERS = ("traceparent", "tracestate")
UNSAFE = re.compile(r"[^A-Z0-9_]")
# The broker keeps 1,000 characters of an error.
LINE_CHARS_MAX = 900
# The pause after EX_TEMPFAIL, if the user chose none.
NOT_NOW = Retry(backoff="exponential")


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
    """A running program, the leader of a process group.  Its methods belong to the loop that started it.

    The body is a file on its standard input, so a program that does not read it breaks no pipe.  It inherits our
    standard output; its standard error is copied to ours in whole lines.  When it is ended, all processes that it
    started are ended, too.
    """

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


class CommandFailed(Retry):
    """A failure that the command did not ask for: the Worker logs a warning."""

    is_deliberate = False


class Command:
    """Handles messages by running a program for each of them."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        broker: str,
        max_run_s: float,
        retry: Retry | None,
        passes_token: bool = False,
    ) -> None:
        # The longest time that `handle` takes, with a program that does not want to end.
        self.span_s_max = max_run_s + 2 * KILL_AFTER_S
        self._arguments = arguments
        self._broker = broker
        self._max_run_s = max_run_s
        self._retry = retry
        withheld = () if passes_token else TOKEN_VARIABLES
        self._inherited = {name: value for name, value in os.environ.items() if name not in withheld}

    async def handle(self, message: Message) -> None:
        """Run the program; return after success, else raise what must happen to the message."""
        ending: HandlerDecision | None
        environment = environment_of(message, self._inherited, broker=self._broker)
        try:
            program = Program(self._arguments, body=message.body, environment=environment)
        except OSError as error:
            # The file is not a program, its environment is too large, or there are too many processes.
            ending = CommandFailed(f"the command could not be run ({error})")
        else:
            ending = await self._end_of(program, message)
        if ending is not None:
            raise ending

    async def _end_of(self, program: Program, message: Message) -> HandlerDecision | None:
        """Wait until the program ends, or end it, and judge its exit status."""
        try:
            async with asyncio.timeout(self._max_run_s):
                status = await program.wait()
        except TimeoutError:
            return CommandFailed(f"the command ran for more than {self._max_run_s:g} s (--max-run)")
        else:
            return judge(status, program.last_line, self._retry, deliveries=message.delivery, drawn=random.random())
        finally:
            await program.close()


def environment_of(message: Message, inherited: Mapping[str, str], *, broker: str) -> dict[str, str]:
    """Return the environment of a program for this message, without values of another message."""
    ours = (HEADER_PREFIX, *(name.upper() for name in TRACE_HEADERS))
    environment = {name: value for name, value in inherited.items() if not name.startswith(ours)}
    for name, value in message.headers.items():
        safe = UNSAFE.sub("_", name.upper())
        # An environment cannot contain NUL.
        environment[HEADER_PREFIX + safe] = value.replace("\0", "")
        if name in TRACE_HEADERS:
            environment[safe] = environment[HEADER_PREFIX + safe]
    return environment | {
        "WAKEQ_BROKER": broker,
        "WAKEQ_QUEUE": message.queue,
        "WAKEQ_UID": message.uid,
        "WAKEQ_LEASE": message.lease or "",
        "WAKEQ_DELIVERY": str(message.delivery),
        "WAKEQ_FAILURES": str(message.failures),
    }


def judge(
    status: int, last_line: str, policy: Retry | None, *, deliveries: int, drawn: float
) -> HandlerDecision | None:
    """Return what an exit status, in the terms of sysexits.h, means for the message; a negative one is a signal.

    `drawn` is a random number of 0..1 for the jitter.
    """
    reason = _reason(status, last_line)
    match status:
        case 0:
            return None
        case os.EX_TEMPFAIL:
            timing = NOT_NOW if policy is None or policy.delay is None else policy
            return Snooze(timing.delay_after(deliveries - 1, drawn=drawn) or 0, reason)
        case os.EX_DATAERR:
            return Reject(reason)
        case _:
            return CommandFailed(reason)


def _reason(status: int, last_line: str) -> str:
    """Return the error that is stored with the message."""
    ended = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"{last_line[-LINE_CHARS_MAX:]} ({ended})" if last_line else ended
