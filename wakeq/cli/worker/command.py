"""Command: a command line as the handler of a queue, run once for each message.

    message  -->  standard input and environment of a program;  its exit status  -->  what happens to the message

`judge` defines the exit statuses; the help of `wakeq work` explains them to users.  The outcome is reported after the
program has ended, also when the handler is cancelled, so that nobody else gets the message while it still runs.
"""

import asyncio
import os
import random
import re
import signal
from collections.abc import Mapping, Sequence

from wakeq.cli.worker.program import KILL_AFTER_S, Program
from wakeq.client import Message
from wakeq.worker import Reject, Retry, Snooze
from wakeq.worker.outcome import HandlerDecision

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
