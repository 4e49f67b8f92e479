"""`wakeq run` and `wakeq tasks`: import the Worker of a program and run it, or show its tasks and schedules.

    MODULE[:WORKER]  -->  import  -->  Worker.run() or, with --reload, a Reloader around it  -->  exit status

find.py imports the worker, ready.py shows what it serves.  A program that has configured logging keeps its own.
"""

import logging
import os
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from wakeq.cli.common import Broker, json_option
from wakeq.cli.output import print_json, print_table
from wakeq.cli.worker.find import find_worker
from wakeq.cli.worker.ready import announce
from wakeq.client.message import json_of
from wakeq.config.logs import ConsoleLine, JsonLine

LEVELS = ("debug", "info", "warning", "error")

if TYPE_CHECKING:
    from wakeq.worker.schedule import Schedule
    from wakeq.worker.task import Task


def log_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags of `log_to_stderr`."""
    level = click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True,
                         help="Log what is at least so important.")  # fmt: skip
    return level(click.option("--log-json", is_flag=True, help="Log JSON objects, one per line.")(command))


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Log from this level on, unless there is a handler already."""
    from wakeq.worker import LogContext

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogContext())
    handler.setFormatter(JsonLine(("queue", "uid", "delivery")) if as_json else ConsoleLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])


@click.command()
@click.argument("target", metavar="MODULE[:WORKER]")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Handlers at once; default: the worker's own setting.",
)
@click.option("--drain", is_flag=True, help="End when its queues have no message that is due.")
@click.option(
    "--reload", is_flag=True, help="Restart when a Python file under the current directory changes (wakeq[reload])."
)
@click.option("--quiet", "-q", is_flag=True, help="Do not show what it serves when it is ready.")
@log_options
@click.pass_obj
def run(
    broker: Broker,
    target: str,
    concurrency: int | None,
    drain: bool,
    reload: bool,
    quiet: bool,
    log_level: str,
    log_json: bool,
) -> int:
    """Run a Worker of a Python program.

    It is the Worker called WORKER in the module MODULE.  Without WORKER, all Workers of MODULE run as one, which serves
    the tasks and schedules of all; if MODULE is a package, all modules in it are imported, except __main__, conftest,
    tests and test_*.

    Modules are searched in the current directory first.  A Worker created without a broker's address uses --broker.

    When it is connected, it shows what it serves: on a terminal in a few lines, otherwise in one line of the log; not
    with --quiet or --drain.

    It runs until SIGTERM or SIGINT.  The first signal lets running handlers finish within the worker's grace time; a
    second one ends them at once.  With --reload, a changed file does what the first signal does, and then the worker
    restarts.  With --drain it ends by itself, as a cron job should: when no queue has a message that is due and every
    fetched message has been processed.

    Exit status 0 if all handlers finished, 1 if some were cut short, 130 or 143 after a second signal, 69 if no broker
    answers.
    """
    if drain and reload:
        raise click.UsageError("--drain and --reload contradict each other; give one of them")
    os.environ["WAKEQ_BROKER"] = broker.address
    if reload:
        from wakeq.cli.worker.reload import Reloader

        flags = ["--log-level", log_level, *(["--log-json"] if log_json else []), *(["--quiet"] if quiet else [])]
        if concurrency is not None:
            flags += ["--concurrency", str(concurrency)]
        # -B writes no compiled files: Python would use a stale one after a change of the same size in the same second.
        return Reloader([sys.executable, "-B", "-m", "wakeq", "run", target, *flags], os.getcwd()).run()
    worker = find_worker(target)
    log = partial(log_to_stderr, log_level, as_json=log_json)
    # After the import, because the program may have configured logging itself.
    log()
    worker.process_set_up = log
    worker.name = worker.name or target
    if concurrency is not None:
        worker.concurrency = concurrency
    if not (quiet or drain):
        worker.ready = announce(worker, target=target, as_json=log_json)
    worker.run(drain=drain)
    return 0


@click.command()
@click.argument("target", metavar="MODULE[:WORKER]")
@json_option
def tasks(target: str, as_json: bool) -> None:
    """Show the tasks and schedules of a Worker.

    It imports MODULE as `wakeq run` does, checks every task, and shows when each schedule is due next.  It needs no
    broker.  Where no number of retries is shown, the queue's policy decides.
    """
    worker, now = find_worker(target), datetime.now(UTC)
    worker.check()
    found = [_facts_of(task) for task in worker.tasks.values()]
    schedules = sorted(worker.schedules, key=lambda schedule: schedule.moments.after(now))
    due = [_due(schedule, now) for schedule in schedules]
    if as_json:
        calls = [facts | {"arguments": msgspec.Raw(facts["arguments"].encode())} for facts in due]
        print_json({"tasks": found, "schedules": calls})
        return
    print_table(tuple(found[0]), [tuple(facts.values()) for facts in found])
    if due:
        click.echo()
        print_table(tuple(due[0]), [tuple(facts.values()) for facts in due])


def _facts_of(task: "Task[..., Any]") -> dict[str, Any]:
    return {
        "queue": task.queue,
        "handler": f"{task.handler.__module__}.{task.handler.__qualname__}",
        "mode": task.mode,
        "timeout": task.timeout,
        "max_run": task.max_run if task.max_run % 1 else int(task.max_run),
        # None leaves the decision to the queue's policy.
        "retries": None if task.retry is None else task.retry.max,
    }


def _due(schedule: "Schedule", now: datetime) -> dict[str, Any]:
    moments = schedule.moments
    return {
        "next": moments.after(now).astimezone(moments.zone).isoformat(timespec="seconds"),
        "queue": schedule.publisher.task.queue,
        "when": str(moments),
        "arguments": json_of(schedule.arguments).decode(),
    }
