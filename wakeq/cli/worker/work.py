"""`wakeq work`: a worker in any language: it runs a command for each message of a queue.

    QUEUE, COMMAND  -->  Worker(Command)  -->  exit status

The Worker fetches, leases and acknowledges messages; Command decides what a program gets and what its exit status
means.  This file turns flags into these two objects.
"""

import shutil
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wakeq.cli.common import EXIT_NOTHING, QUEUE, Broker, queue_name
from wakeq.cli.output import say
from wakeq.cli.worker.run import log_options, log_to_stderr
from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN

if TYPE_CHECKING:
    from wakeq.worker import Retry
    from wakeq.worker.outcome import Backoff

RETRY_FLAGS = ("max_retries", "retry_delay_s", "retry_backoff")
SPAN = click.FloatRange(min=0)
SPAN_NOT_0 = click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("queue", type=QUEUE)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="Commands at once."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(min=TIMEOUT_S_MIN),
    metavar="S",
    default=60,
    show_default=True,
    help="If this worker is silent for this long, other workers get its messages.",
)
@click.option(
    "--max-run",
    "max_run_s",
    type=SPAN_NOT_0,
    metavar="S",
    default=3600,
    show_default=True,
    help="End a command that runs longer than this.",
)
@click.option(
    "--grace",
    "grace_s",
    type=SPAN,
    metavar="S",
    default=25,
    show_default=True,
    help="How long to wait for running commands at a shutdown.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="Retries before a message becomes a dead letter.",
)
@click.option(
    "--retry-delay",
    "retry_delay_s",
    type=SPAN,
    metavar="S",
    default=1,
    show_default=True,
    help="The pause before the first retry.",
)
@click.option(
    "--retry-backoff",
    type=click.Choice(["fixed", "exponential"]),
    default="exponential",
    show_default=True,
    help="Exponential doubles the delay with each failure, up to an hour.",
)
@click.option("--retry-by-queue", is_flag=True, help="Let the queue's policy decide how often and when to retry.")
@click.option("--pass-token", is_flag=True, help="Pass WAKEQ_TOKEN and WAKEQ_TOKEN_FILE on to COMMAND.")
@click.option("--once", is_flag=True, help="Process one message and end; exit status 3 if there is none.")
@click.option("--drain", is_flag=True, help="End when the queue has no message that is due.")
@log_options
@click.pass_obj
def work(
    broker: Broker,
    queue: str,
    command: tuple[str, ...],
    concurrency: int,
    timeout_s: int,
    max_run_s: float,
    grace_s: float,
    max_retries: int,
    retry_delay_s: float,
    retry_backoff: "Backoff",
    retry_by_queue: bool,
    pass_token: bool,
    once: bool,
    drain: bool,
    log_level: str,
    log_json: bool,
) -> int:
    """Run COMMAND for each message of QUEUE.

    It runs until SIGTERM or SIGINT.  COMMAND gets the body on its standard input, and in its environment WAKEQ_QUEUE,
    WAKEQ_UID, WAKEQ_DELIVERY (1 for the first), WAKEQ_FAILURES, WAKEQ_LEASE, WAKEQ_BROKER, each header as
    WAKEQ_HEADER_NAME (in capitals, with _ for anything but letters and digits), and TRACEPARENT if the message has one.
    Its output goes where the output of `wakeq work` goes.  COMMAND does not get the token of `wakeq work` without
    --pass-token.

    Its exit status decides what happens to the message: 0 acknowledges it; 75 (EX_TEMPFAIL) releases it for a later
    delivery without counting a failure; 65 (EX_DATAERR) makes it a dead letter at once; any other status, or a signal,
    is a failure, which is retried as the flags say.  The last line on standard error is kept as the reason.

    It runs in its own process group, which gets SIGTERM after --max-run, or when --grace has passed since the first
    signal to `wakeq work`, and SIGKILL 5 seconds later.  Then its message is released.

    Exit status 0 if all commands finished, 1 if some were cut short, 130 or 143 after a second signal, 69 if no broker
    answers.
    """
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]}; pass a path, or a command that is in PATH")
    if retry_by_queue:
        refuse_retry_flags()
    log_to_stderr(log_level, as_json=log_json)
    # The Worker takes a while to load, and other commands do without it.
    from wakeq.cli.worker.command import Command
    from wakeq.worker import Worker

    retry = None if retry_by_queue else retry_of(max_retries, retry_delay_s, retry_backoff)
    handler = Command(command, broker=broker.address, max_run_s=max_run_s, retry=retry, passes_token=pass_token)
    worker = Worker(broker.address, concurrency=concurrency, prefetch=0, grace=grace_s)
    worker.task(queue, timeout=timeout_s, retry=retry, max_run=handler.span_s_max)(handler.handle)
    handled = worker.run(drain=once or drain, limit=1 if once else None)
    if once and handled == 0:
        say(f"{queue_name(queue)} has no message that is due now")
        return EXIT_NOTHING
    return 0


def retry_of(maximum: int, delay_s: float, backoff: "Backoff") -> "Retry":
    """Return the policy that the flags describe."""
    from wakeq.worker import Retry
    from wakeq.worker.outcome import DELAY_S_MAX

    return Retry(max=maximum, delay=delay_s, backoff=backoff, delay_max=max(delay_s, DELAY_S_MAX))


def refuse_retry_flags() -> None:
    """Refuse a flag that the queue's policy would override."""
    context = click.get_current_context()
    for name in RETRY_FLAGS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.removesuffix('_s').replace('_', '-')}"
            raise click.UsageError(f"{flag} and --retry-by-queue contradict each other; give one of them")
