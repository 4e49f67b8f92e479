"""`wakeq queue`: the commands for queues, mostly over the worker protocol."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from wakeq.cli.common import QUEUE, Broker, ByteCount, confirm, json_option, queue_name, yes_option
from wakeq.cli.operating import (
    CONDITION_HELP,
    message_cell,
    move,
    pause,
    requeue,
    resume,
    say_strangers,
    select,
    selection_options,
)
from wakeq.cli.output import NO_NAME, moment, print_facts, print_json, print_table, say
from wakeq.cli.progress import progress
from wakeq.protocol.errors import QueueExists
from wakeq.protocol.log.entries import PAUSE_MS_MAX
from wakeq.protocol.redrive import ORIGIN
from wakeq.protocol.wire.worker.commands import PEEK_COUNT_MAX

COUNT = click.IntRange(min=0)
MOMENTS = ("created_ms", "oldest_ready_ms", "paused_until_ms")
LIST_COLUMNS = ("qname", "ready", "delayed", "leased", "size", "bytes", "subscribers", "state")
PEEK_COLUMNS = ("uid", "state", "priority", "error_count", "error", "msg")
LETTER_COLUMNS = ("uid", "state", "priority", "origin", "reason", "error", "msg")

POLICY_OPTIONS = (
    click.option("--max-size", type=COUNT, metavar="N", help="The most messages it may hold."),
    click.option("--max-bytes", type=ByteCount(), metavar="BYTES", help="The most bytes it may hold, such as 64MiB."),
    click.option(
        "--max-message-size", type=ByteCount(), metavar="BYTES", help="The largest body it accepts, such as 64KiB."
    ),
    click.option("--priority-min", type=int, metavar="N", help="The lowest priority it accepts."),
    click.option("--priority-max", type=int, metavar="N", help="The highest priority it accepts."),
    click.option(
        "--structure",
        type=click.Choice(["H4", "QA"]),
        help="How priorities are kept: H4 for any, QA for a small range.",
    ),
    click.option(
        "--timeout", type=COUNT, metavar="S", help="How long a worker may keep a message before it is redelivered."
    ),
    click.option(
        "--max-deliveries",
        type=COUNT,
        metavar="N",
        help="Failed deliveries before a message becomes a dead letter; 0: no limit.",
    ),
    click.option("--dead-letter", type=QUEUE, metavar="QUEUE", help="Where dead letters go; default: QUEUE.dead."),
    click.option(
        "--retry-backoff",
        type=click.Choice(["fixed", "exponential"]),
        help="Whether the pause doubles with each failure.",
    ),
    click.option("--retry-base", type=click.FloatRange(min=0), metavar="S", help="The pause after the first failure."),
    click.option("--retry-max", type=click.FloatRange(min=0), metavar="S", help="The longest pause."),
    click.option(
        "--retry-jitter",
        type=click.FloatRange(0, 1),
        metavar="PART",
        help="The fraction of a pause that may be subtracted at random.",
    ),
    click.option(
        "--wake",
        type=click.Choice(["sleeper", "ready", "all"]),
        help="Which sleepers a message wakes: as many as there are messages (ready), all, or as each asked (sleeper).",
    ),
    click.option(
        "--lease", type=click.Choice(["fast", "strict"]), help="Whether a delivery waits until it is on disk (strict)."
    ),
    click.option(
        "--on-disconnect",
        type=click.Choice(["keep", "release"]),
        help="What happens to a worker's leases when it disconnects.",
    ),
)


def policy_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add a flag for each policy."""
    for option in reversed(POLICY_OPTIONS):
        command = option(command)
    return command


def named_policies(given: Mapping[str, Any], retry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given policies for CREATE and UPDATE; `retry` has the parts of it that were not given."""
    policies = {name: value for name, value in given.items() if value is not None}
    parts = {name.removeprefix("retry_"): policies.pop(name) for name in list(policies) if name.startswith("retry_")}
    if parts:
        policies["retry"] = {**retry, **parts}
    return policies


@click.group()
def queue() -> None:
    """List, create, change, empty and delete queues.

    "" is the default queue.
    """


@queue.command("list")
@click.argument("prefix", type=QUEUE, default="")
@json_option
@click.pass_obj
def list_(broker: Broker, prefix: str, as_json: bool) -> None:
    """List the queues, or those whose name begins with PREFIX."""
    with broker.connect() as client:
        queues = client.queues(prefix)
    if as_json:
        print_json({"queues": queues})
    else:
        print_queues(queues, nothing=f"no queue has a name that begins with {prefix}")


@queue.command()
@click.argument("name", metavar="QUEUE")
@policy_options
@click.option("--if-missing", is_flag=True, help="Succeed and change nothing if the queue exists.")
@click.pass_obj
def create(broker: Broker, /, name: str, if_missing: bool, **given: Any) -> None:
    """Create QUEUE; omitted policies have their defaults."""
    with broker.connect() as client:
        try:
            client.create_queue(name, **named_policies(given, {}))
        except QueueExists:
            if not if_missing:
                raise
            click.echo(f"{queue_name(name)} exists already")
            return
    click.echo(f"{queue_name(name)} created")


@queue.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@policy_options
@click.option("--reset", multiple=True, metavar="POLICY", help="Reset a policy to its default; repeatable.")
@click.pass_obj
def update(broker: Broker, /, name: str, reset: tuple[str, ...], **given: Any) -> None:
    """Change policies of QUEUE; omitted ones stay."""
    resets: dict[str, Any] = {policy.replace("-", "_"): None for policy in reset}
    if not resets and all(value is None for value in given.values()):
        raise click.UsageError("no policy was given, so there is nothing to change")
    with broker.connect() as client:
        policies = client.stats(name).get("policies")
        retry = policies.get("retry", {}) if isinstance(policies, dict) else {}
        client.update_queue(name, **named_policies(given, retry), **resets)
    click.echo(f"{queue_name(name)} updated")


@queue.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@yes_option
@click.pass_obj
def delete(broker: Broker, name: str, yes: bool) -> None:
    """Delete QUEUE and every message in it."""
    confirm(f"Delete {queue_name(name)} and every message in it?", yes=yes)
    with broker.connect() as client:
        client.delete_queue(name)
    click.echo(f"{queue_name(name)} deleted")


@queue.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@selection_options
@yes_option
@json_option
@click.pass_obj
def purge(broker: Broker, /, name: str, yes: bool, **selection: Any) -> None:
    """Delete all messages of QUEUE, or those you select.

    The queue itself stays.  Without a selection, leased messages are deleted too; with one, they stay.
    """
    if selection.pop("dry_run"):
        select(broker, "/messages/purge", name, **selection, dry_run=True, word="", doing="")
        return
    is_selective = any(selection[flag] for flag in ("where", "uids", "limit", "rate"))
    confirm(f"Delete {'the selected messages' if is_selective else 'every message'} in {queue_name(name)}?", yes=yes)
    if is_selective:
        select(
            broker, "/messages/purge", name, **selection, dry_run=False, word="deleted from", doing="deleting messages"
        )
        return
    with broker.connect() as client, progress("deleting all messages", is_wanted=not selection["as_json"]):
        count = client.purge(name)
    print_json({"queue": name, "done": count}) if selection["as_json"] else click.echo(f"{count} messages deleted")


@queue.command()
@click.argument("name", type=QUEUE, metavar="[QUEUE]", required=False)
@json_option
@click.pass_obj
def stats(broker: Broker, name: str | None, as_json: bool) -> None:
    """Show counts and policies of QUEUE, or of the whole node.

    size is ready and delayed together; leased messages are counted separately.
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
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.option("--limit", type=click.IntRange(1, PEEK_COUNT_MAX), metavar="N", default=10, show_default=True,
              help="Show at most this many.")  # fmt: skip
@click.option("--state", type=click.Choice(["ready", "delayed", "leased", "any"]), default="ready", show_default=True,
              help="Only messages in this state.")  # fmt: skip
@json_option
@click.pass_obj
def peek(broker: Broker, name: str, limit: int, state: str, as_json: bool) -> None:
    """Show the next messages of QUEUE without fetching them."""
    with broker.connect() as client:
        messages = client.peek(name, limit, state=state)
        counts = {} if messages or as_json else client.stats(name)
    if as_json:
        print_json({"queue": name, "messages": messages})
    else:
        print_peeked(messages, nothing=_explain_empty(name, state, counts))


@queue.command("redrive")
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Move at most this many; default: all that are ready."
)
@click.option("--to", type=QUEUE, metavar="QUEUE", help="Move them to this queue; default: each to its origin.")
@click.option("--anywhere", is_flag=True, help="Also to queues that do not send their dead letters here.")
@click.option("--where", multiple=True, metavar="CONDITION", help=CONDITION_HELP)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most this many per second.")
@click.option("--dry-run", is_flag=True, help="Show the next messages, at most 100, and move nothing.")
@yes_option
@json_option
@click.pass_obj
def redrive_(
    broker: Broker,
    name: str,
    limit: int | None,
    to: str | None,
    anywhere: bool,
    where: tuple[str, ...],
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move dead letters back to the queues they came from.

    A dead letter leaves QUEUE in the same step in which it is published again.  It stays if it has no origin, unless
    you give --to, or if its origin does not send its dead letters to QUEUE, unless you give --anywhere.  With --where
    or --rate this uses the HTTP port.
    """
    if not dry_run:
        matching = f" that match {' and '.join(where)}" if where else ""
        target = "where they came from" if to is None else queue_name(to)
        letters = f"{'all' if limit is None else f'up to {limit}'} dead letters of {queue_name(name)}{matching}"
        confirm(f"Move {letters} back to {target}?", yes=yes)
    if where or rate:
        selection = {"where": where, "uids": (), "limit": limit, "rate": rate, "dry_run": dry_run, "as_json": as_json}
        more: dict[str, Any] = {"anywhere": anywhere} if to is None else {"to": to}
        words = {"word": "redriven from", "doing": "moving dead letters"}
        select(broker, "/messages/redrive", name, **selection, **words, more=more)  # type: ignore[arg-type]
        return
    with broker.connect() as client:
        if dry_run:
            ready = client.stats(name)["ready"]
            messages = client.peek(name, min(limit or PEEK_COUNT_MAX, PEEK_COUNT_MAX))
        else:
            with progress("moving dead letters", "messages", is_wanted=not as_json) as shown:
                moved = client.redrive(name, limit, to=to, anywhere=anywhere, tell=shown.update)
    if dry_run:
        print_json({"queue": name, "ready": ready, "messages": messages}) if as_json else print_peeked(
            messages, nothing=""
        )
        say(f"nothing was moved; {queue_name(name)} has {ready} ready messages")
    elif as_json:
        print_json({"queue": name, "done": moved.done, "left": moved.left})
    else:
        click.echo(f"redriven from {queue_name(name)}: {moved.done}")
        if moved.strangers:
            say_strangers(name, moved.strangers)
        elif moved.left:
            say(
                f"not moved from {queue_name(name)}, because they have no {ORIGIN}: {moved.left}; "
                "--to QUEUE moves them too"
            )


def _readable(name: str, value: Any) -> tuple[str, object]:
    """Return a statistic of a queue as people read it."""
    if name not in MOMENTS:
        return name, value
    shown = "resumed" if value == PAUSE_MS_MAX else moment(value) if value else None
    return name.removesuffix("_ms"), shown


def _explain_empty(name: str, state: str, counts: Mapping[str, Any]) -> str:
    """Say that no message of this state is there, and which others there are."""
    if state == "any":
        return f"{queue_name(name)} has no messages"
    others = [f"{one}: {counts[one]}" for one in ("ready", "delayed", "leased") if one != state and counts.get(one)]
    here = f"{queue_name(name)} has no {state} messages"
    return f"{here}; {', '.join(others)}; --state any shows all" if others else here


def print_queues(queues: Iterable[Mapping[str, Any]], *, nothing: str = "") -> None:
    """Print a line for each queue."""
    rows = [
        {**row, "qname": row.get("qname") or NO_NAME, "state": "paused" if row.get("paused_until_ms") else ""}
        for row in queues
    ]
    print_table(LIST_COLUMNS, [[row.get(column) for column in LIST_COLUMNS] for row in rows], nothing=nothing)


def print_peeked(messages: Sequence[Mapping[str, Any]], *, nothing: str) -> None:
    """Print a line for each message; dead letters show their origin and reason."""
    are_letters = any(ORIGIN in (message.get("headers") or {}) for message in messages)
    columns = LETTER_COLUMNS if are_letters else PEEK_COLUMNS
    print_table(columns, [[message_cell(one, column) for column in columns] for one in messages], nothing=nothing)


for command in (pause, resume, move, requeue):
    queue.add_command(command)
