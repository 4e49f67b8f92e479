"""`wakeq run` and `wakeq tasks`: import the Worker of a program and run it, or show its tasks and schedules.

    MODULE:WORKER  -->  import  -->  Worker.run() or, with --reload, a Reloader around it  -->  exit status

A missing module or worker is an error of the command line.  An error inside the module while it is imported belongs to
the program, and is shown with the traceback of the program's own frames.  A program that has configured logging keeps
its own.
"""

import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import msgspec

from wakeq.cli.common import Broker, json_option
from wakeq.cli.output import print_json, print_table
from wakeq.client.message import json_of
from wakeq.config.logs import ConsoleLine, JsonLine
from wakeq.protocol.errors import WakeqError

LEVELS = ("debug", "info", "warning", "error")

if TYPE_CHECKING:
    from wakeq.worker import Worker
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
@click.argument("target", metavar="MODULE:WORKER")
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
@log_options
@click.pass_obj
def run(
    broker: Broker, target: str, concurrency: int | None, drain: bool, reload: bool, log_level: str, log_json: bool
) -> int:
    """Run the Worker called WORKER in the Python module MODULE.

    Modules are searched in the current directory first.  A Worker created without a broker's address uses --broker.

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

        flags = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
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
    worker.run(drain=drain)
    return 0


def find_worker(target: str) -> "Worker":
    """Import the worker, from this directory first; raise UsageError if it does not exist."""
    from wakeq.worker import Worker

    sys.path.insert(0, os.getcwd())
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{target} is not MODULE:WORKER; write it like shop.tasks:worker")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # The module exists, but imports another one that does not.
            raise _unusable(module_name, error) from error
        raise click.UsageError(f"there is no module {module_name} in {os.getcwd()}, and none is installed") from error
    except WakeqError:
        raise
    except Exception as error:
        raise _unusable(module_name, error) from error
    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    others = [f"{module_name}:{key}" for key, value in vars(module).items() if isinstance(value, Worker)]
    hint = f"did you mean {' or '.join(others)}?" if others else "that module has no Worker"
    what = f"is of type {type(found).__name__}, not a Worker" if found is not None else "does not exist"
    raise click.UsageError(f"{name} of {module_name} {what}; {hint}")


def _unusable(module_name: str, error: Exception) -> click.UsageError:
    """Print the traceback of the user's own frames; return the error for the command line."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
    return click.UsageError(f"{module_name} cannot be imported: {type(error).__name__}: {error}")


@click.command()
@click.argument("target", metavar="MODULE:WORKER")
@json_option
def tasks(target: str, as_json: bool) -> None:
    """Show the tasks and schedules of a Worker.

    Imports MODULE as `wakeq run` does, checks every task of WORKER, and shows when each schedule is due next.  Needs no
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
