"""`wakeq tasks`: shows the tasks of a Worker, and when its schedules are due.

    MODULE:WORKER  -->  import  -->  a table of tasks, a table of schedules; or JSON

It needs no broker, and runs nothing but the import of the module.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from wakeq.cli.common import json_option
from wakeq.cli.output import print_json, print_table
from wakeq.cli.worker.run import find_worker
from wakeq.client.message import json_of

if TYPE_CHECKING:
    from wakeq.worker.schedule import Schedule
    from wakeq.worker.task import Task


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
