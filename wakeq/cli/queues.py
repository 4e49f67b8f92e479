"""`wakeq queue`: the verbs of queues.  Whatever is done here goes over the worker protocol."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from wakeq.cli.common import Broker, ByteCount, confirm, json_option, queue_name, yes_option
from wakeq.cli.operating import CONDITION_HELP, fact_of, picking, select
from wakeq.cli.output import moment, print_facts, print_json, print_table, say
from wakeq.client.redrive import ORIGIN
from wakeq.protocol.commands import PAUSE_MS_MAX
from wakeq.protocol.errors import QueueExists
from wakeq.protocol.wire.worker_commands import PEEK_COUNT_MAX

COUNT = click.IntRange(min=0)
MOMENTS = ("created_ms", "oldest_ready_ms", "paused_until_ms")
LIST_COLUMNS = ("qname", "ready", "delayed", "leased", "size", "bytes", "subscribers", "state")
PEEK_COLUMNS = ("uid", "state", "priority", "error_count", "error", "msg")
LETTER_COLUMNS = ("uid", "state", "priority", "origin", "reason", "error", "msg")  # of dead letters
PEEKED_CHARS_MAX = 60

POLICY_OPTIONS = (
    click.option("--max-size", type=COUNT, metavar="N", help="Messages it holds at most."),
    click.option("--max-bytes", type=ByteCount(), metavar="BYTES", help="Bytes it holds at most, as 64MiB."),
    click.option("--max-message-size", type=ByteCount(), metavar="BYTES", help="The largest body, as 64KiB."),
    click.option("--priority-min", type=int, metavar="N", help="The smallest priority."),
    click.option("--priority-max", type=int, metavar="N", help="The largest priority."),
    click.option("--structure", type=click.Choice(["H4", "QA"]), help="The priority structure."),
    click.option("--timeout", type=COUNT, metavar="S", help="A delivery comes back after so long."),
    click.option("--max-deliveries", type=COUNT, metavar="N", help="Then it is a dead letter; 0: never."),
    click.option("--dead-letter", metavar="QUEUE", help="Where dead letters go; else QUEUE.dead."),
    click.option("--retry-backoff", type=click.Choice(["fixed", "exponential"]), help="How pauses grow."),
    click.option("--retry-base", type=click.FloatRange(min=0), metavar="S", help="The first pause."),
    click.option("--retry-max", type=click.FloatRange(min=0), metavar="S", help="The longest pause."),
    click.option("--retry-jitter", type=click.FloatRange(0, 1), metavar="PART", help="The part drawn at random."),
    click.option("--wake", type=click.Choice(["ready", "all"]), help="Who is woken."),
    click.option("--lease", type=click.Choice(["fast", "strict"]), help="Whether deliveries wait for a commit."),
    click.option("--on-disconnect", type=click.Choice(["keep", "release"]), help="What becomes of leases."),
)


def policy_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add a flag for each policy."""
    for option in reversed(POLICY_OPTIONS):
        command = option(command)
    return command


def named_policies(given: Mapping[str, Any], retry: Mapping[str, Any]) -> dict[str, Any]:
    """The policies that were named, as CREATE and UPDATE want them; `retry` is what is not named of it."""
    policies = {name: value for name, value in given.items() if value is not None}
    parts = {name.removeprefix("retry_"): policies.pop(name) for name in list(policies) if name.startswith("retry_")}
    if parts:
        policies["retry"] = {**retry, **parts}
    return policies


@click.group()
def queue() -> None:
    """Look at queues, make them, change them, empty them.  "" is the default queue."""


@queue.command("list")
@click.argument("prefix", default="")
@json_option
@click.pass_obj
def list_(broker: Broker, prefix: str, as_json: bool) -> None:
    """List the queues, or those whose name begins with PREFIX."""
    with broker.connect() as client:
        queues = client.queues(prefix)
    if as_json:
        print_json({"queues": queues})
    else:
        print_queues(queues)


@queue.command()
@click.argument("name", metavar="QUEUE")
@policy_options
@click.option("--if-missing", is_flag=True, help="Done, and nothing changed, if there is one already.")
@click.pass_obj
def create(broker: Broker, /, name: str, if_missing: bool, **given: Any) -> None:
    """Make QUEUE with the policies named; the others are built in."""
    with broker.connect() as client:
        try:
            client.create_queue(name, **named_policies(given, {}))
        except QueueExists:
            if not if_missing:
                raise
            click.echo(f"{queue_name(name)} is there already")
            return
    click.echo(f"{queue_name(name)} is made")


@queue.command()
@click.argument("name", metavar="QUEUE")
@policy_options
@click.option("--reset", multiple=True, metavar="POLICY", help="Set one back to its default; repeatable.")
@click.pass_obj
def update(broker: Broker, /, name: str, reset: tuple[str, ...], **given: Any) -> None:
    """Change the policies named; the others stay."""
    resets: dict[str, Any] = {policy.replace("-", "_"): None for policy in reset}
    if not resets and all(value is None for value in given.values()):
        raise click.UsageError("no policy is named, so there is nothing to change")
    with broker.connect() as client:
        policies = client.stats(name).get("policies")
        retry = policies.get("retry", {}) if isinstance(policies, dict) else {}
        client.update_queue(name, **named_policies(given, retry), **resets)
    click.echo(f"{queue_name(name)} is changed")


@queue.command()
@click.argument("name", metavar="QUEUE")
@yes_option
@click.pass_obj
def delete(broker: Broker, name: str, yes: bool) -> None:
    """Delete QUEUE with all that is in it."""
    confirm(f"Delete {queue_name(name)} and every message in it?", yes=yes)
    with broker.connect() as client:
        client.delete_queue(name)
    click.echo(f"{queue_name(name)} is deleted")


@queue.command()
@click.argument("name", metavar="QUEUE")
@picking
@yes_option
@json_option
@click.pass_obj
def purge(broker: Broker, /, name: str, yes: bool, **picked: Any) -> None:
    """Delete every message of QUEUE, or those that are picked; the queue stays.

    Without picking also what workers have is gone at once; picked messages that a worker has stay.
    """
    if picked.pop("dry_run"):
        select(broker, "/messages/purge", name, **picked, dry_run=True, word="")
        return
    is_picked = any(picked[flag] for flag in ("where", "uids", "limit", "rate"))
    confirm(f"Delete {'the messages that fit' if is_picked else 'every message'} in {queue_name(name)}?", yes=yes)
    if is_picked:
        select(broker, "/messages/purge", name, **picked, dry_run=False, word="deleted from")
        return
    with broker.connect() as client:
        count = client.purge(name)
    print_json({"queue": name, "done": count}) if picked["as_json"] else click.echo(f"{count} messages deleted")


@queue.command()
@click.argument("name", metavar="[QUEUE]", required=False)
@json_option
@click.pass_obj
def stats(broker: Broker, name: str | None, as_json: bool) -> None:
    """Show counts and policies of QUEUE, or of the whole node.

    size is ready and delayed together; what is out with a worker is leased, and not part of it.
    """
    with broker.connect() as client:
        facts = client.stats(name)
    if as_json:
        print_json(facts)
    elif name is None and "queues" in facts:
        print_queues(facts["queues"])
    else:
        print_facts(dict(_readable(name, value) for name, value in facts.items()))


@queue.command()
@click.argument("name", metavar="QUEUE")
@click.option("--limit", type=click.IntRange(1, PEEK_COUNT_MAX), metavar="N", default=10, show_default=True)
@click.option("--state", type=click.Choice(["ready", "delayed", "leased", "any"]), default="ready", show_default=True)
@json_option
@click.pass_obj
def peek(broker: Broker, name: str, limit: int, state: str, as_json: bool) -> None:
    """Look at the next messages of QUEUE without taking them."""
    with broker.connect() as client:
        messages = client.peek(name, limit, state=state)
    if as_json:
        print_json({"queue": name, "messages": messages})
    else:
        print_peeked(messages)


@queue.command("redrive")
@click.argument("name", metavar="QUEUE")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many; else all that are ready.")
@click.option("--to", metavar="QUEUE", help="To this queue; else each to where it came from.")
@click.option("--where", multiple=True, metavar="CONDITION", help=CONDITION_HELP)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="So many a second.")
@click.option("--dry-run", is_flag=True, help="Show the next messages, at most 100, and move nothing.")
@yes_option
@json_option
@click.pass_obj
def redrive_(
    broker: Broker,
    name: str,
    limit: int | None,
    to: str | None,
    where: tuple[str, ...],
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move dead letters of QUEUE back to the queues that they came from.

    Each leaves QUEUE in the same step in which it is published again.  One that says no origin stays, unless --to.
    Picking (--where) and pacing (--rate) are done over HTTP.
    """
    if not dry_run:
        fitting = f" that fit {' and '.join(where)}" if where else ""
        target = "where they came from" if to is None else queue_name(to)
        letters = f"{'all' if limit is None else f'up to {limit}'} dead letters of {queue_name(name)}{fitting}"
        confirm(f"Bring {letters} back to {target}?", yes=yes)
    if where or rate:
        picked = {"where": where, "uids": (), "limit": limit, "rate": rate, "dry_run": dry_run, "as_json": as_json}
        more = {} if to is None else {"to": to}
        select(broker, "/messages/redrive", name, **picked, word="redriven from", more=more)  # type: ignore[arg-type]
        return
    with broker.connect() as client:
        if dry_run:
            ready = client.stats(name)["ready"]
            messages = client.peek(name, min(limit or PEEK_COUNT_MAX, PEEK_COUNT_MAX))
        else:
            moved = client.redrive(name, limit, to=to)
    if dry_run:
        print_json({"queue": name, "ready": ready, "messages": messages}) if as_json else print_peeked(messages)
        say(f"nothing was moved; ready in {queue_name(name)}: {ready}")
    elif as_json:
        print_json({"queue": name, "done": moved.done, "left": moved.left})
    else:
        click.echo(f"redriven from {queue_name(name)}: {moved.done}")
        if moved.left:
            say(f"left in {queue_name(name)} for want of a {ORIGIN}: {moved.left}; --to QUEUE says where to")


def _readable(name: str, value: Any) -> tuple[str, object]:
    """A figure of a queue as people read it."""
    if name not in MOMENTS:
        return name, value
    shown = "it is resumed" if value == PAUSE_MS_MAX else moment(value) if value else None
    return name.removesuffix("_ms"), shown


def print_queues(queues: Iterable[Mapping[str, Any]]) -> None:
    """A line for each queue; the default queue has no name, which is shown as two quotes."""
    rows = [
        {**row, "qname": row.get("qname") or '""', "state": "paused" if row.get("paused_until_ms") else ""}
        for row in queues
    ]
    print_table(LIST_COLUMNS, [[row.get(column) for column in LIST_COLUMNS] for row in rows])


def print_peeked(messages: Sequence[Mapping[str, Any]]) -> None:
    """A line for each message; dead letters say where they came from and why."""
    are_letters = any(ORIGIN in (message.get("headers") or {}) for message in messages)
    columns = LETTER_COLUMNS if are_letters else PEEK_COLUMNS
    print_table(columns, [[_peeked(one, column) for column in columns] for one in messages])


def _peeked(message: Mapping[str, Any], column: str) -> object:
    """One cell; bodies are cut."""
    value = fact_of(message, column)
    if column == "msg" and isinstance(value, str) and len(value) > PEEKED_CHARS_MAX:
        return value[: PEEKED_CHARS_MAX - 1] + "…"
    return value
