"""Operating verbs that speak the HTTP API: pause, move, throw away, let go, leases, connections, why.

Whatever destroys or moves asks first.  Messages are picked by uid or by conditions; `--dry-run` shows them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from wakeq.cli.common import EXIT_NOTHING, Broker, confirm, json_option, queue_name, yes_option
from wakeq.cli.output import moment, print_json, print_line, print_table, say

CONDITION_HELP = (
    "A condition such as priority<5, error~timeout, header.tenant=acme or age>3600; repeatable: all must hold."
)
LEASE_COLUMNS = ("uid", "worker", "until", "error_count", "body")
CONNECTION_COLUMNS = ("id", "door", "peer", "in_flight", "subscriptions", "queues")
MESSAGE_COLUMNS = ("uid", "state", "priority", "error_count", "error", "body")
BODY_CHARS_MAX = 60


def picking(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags by which messages are picked."""
    for option in reversed(
        (
            click.option("--where", multiple=True, metavar="CONDITION", help=CONDITION_HELP),
            click.option("--uid", "uids", multiple=True, metavar="UID", help="Only this message; repeatable."),
            click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most this many; default: all."),
            click.option(
                "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most this many a second."
            ),
            click.option("--dry-run", is_flag=True, help="Only show the first messages this would affect."),
        )
    ):
        command = option(command)
    return command


def select(
    broker: Broker,
    path: str,
    queue: str,
    *,
    where: Sequence[str],
    uids: Sequence[str],
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    as_json: bool,
    word: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Do something to the messages that are meant, or show them."""
    from wakeq.client.admin import apply_to_selected

    body: dict[str, Any] = {**(more or {}), "where": list(where)} | ({"rate": rate} if rate else {})
    if uids:
        body = body | {"uids": list(uids)}
    with broker.admin() as client:
        if dry_run:
            answer = client.call("POST", path, {**body, "dry_run": True, "limit": limit or 1_000}, queue=queue)
            print_json(answer) if as_json else print_messages(answer["messages"])
            behind = "; there may be more" if answer["after"] else ""
            say(f"nothing was done; {answer['matched']} of {answer['scanned']} messages examined match{behind}")
            return
        strangers: set[str] = set()
        sums = apply_to_selected(client, path, queue, body, limit=limit, strangers=strangers)
    print_json({"queue": queue, **sums}) if as_json else click.echo(f"{word} {queue_name(queue)}: {sums['done']}")
    if strangers:
        say_strangers(queue, strangers)
    elif sums["done"] < sums["matched"]:
        say(f"{sums['matched'] - sums['done']} more matched but were gone by then, or are with a worker")


def say_strangers(queue: str, strangers: Iterable[str]) -> None:
    """Say why a redrive has left letters: whoever may publish there may have written their origin."""
    names = ", ".join(queue_name(name) for name in sorted(strangers))
    say(
        f"some were left in {queue_name(queue)}: they name queues that do not send their dead letters there: {names}; "
        "look at them with `wakeq queue peek`, and move them with --anywhere or --to QUEUE"
    )


def print_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """A line for each message."""
    print_table(MESSAGE_COLUMNS, [[_cell(one, column) for column in MESSAGE_COLUMNS] for one in messages])


def fact_of(message: Mapping[str, Any], column: str) -> object:
    """What is known of a message; of a dead letter it may stand in the headers that say why it is one."""
    value = message.get(column)
    return value or (message.get("headers") or {}).get(f"wakeq-{column}", value)


def _cell(row: Mapping[str, Any], column: str) -> object:
    if column == "until":
        return moment(row["until_ms"])
    value = fact_of(row, column)
    if column == "body" and isinstance(value, str) and len(value) > BODY_CHARS_MAX:
        return value[: BODY_CHARS_MAX - 1] + "…"
    return value


class Moment(click.ParamType[datetime]):
    """A moment as people write it, by ISO 8601."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """In the local time zone, if none is said."""
        try:
            return datetime.fromisoformat(value).astimezone()
        except ValueError:
            self.fail(f"{value!r} is not a time; write 2026-12-24T18:00, or with a zone 2026-12-24T18:00Z", param, ctx)


# Queues -----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", metavar="QUEUE")
@click.option("--for", "for_s", type=click.FloatRange(min=0, min_open=True), metavar="S", help="For this many seconds.")
@click.option(
    "--until",
    type=Moment(),
    help="Until this time, such as 2026-12-24T18:00; local time unless a zone follows: 18:00Z, 18:00+02:00.",
)
@json_option
@click.pass_obj
def pause(broker: Broker, name: str, for_s: float | None, until: datetime | None, as_json: bool) -> None:
    """Stop handing out messages of QUEUE.

    Until you resume it, or the given time is over.  Publishing goes on, and workers can acknowledge what they have.
    """
    if for_s is not None and until is not None:
        raise click.UsageError("give either --for or --until")
    body: dict[str, Any] = {"for_s": for_s} if for_s is not None else {}
    if until is not None:
        body = {"until": until.isoformat()}
    with broker.admin() as client:
        answer = client.call("POST", "/queue/pause", body, queue=name)
    until_ms = answer["until_ms"]
    when = f"until {moment(until_ms)}" if until_ms else f"until `wakeq queue resume {name}`"
    print_json(answer) if as_json else click.echo(f"{queue_name(name)} is paused {when}")


@click.command()
@click.argument("name", metavar="QUEUE")
@click.pass_obj
def resume(broker: Broker, name: str) -> None:
    """Hand out messages of QUEUE again."""
    with broker.admin() as client:
        client.call("POST", "/queue/resume", queue=name)
    click.echo(f"{queue_name(name)} resumed")


@click.command()
@click.argument("name", metavar="QUEUE")
@click.argument("to", metavar="TO")
@picking
@yes_option
@json_option
@click.pass_obj
def move(broker: Broker, /, name: str, to: str, yes: bool, **picked: Any) -> None:
    """Move messages of QUEUE to the queue TO, each in one step.

    Messages that workers have stay.  A message keeps its priority, its headers and what is left of its delay and time
    to live; it gets a new uid.
    """
    if not picked["dry_run"]:
        confirm(f"Move {_meant(picked)} of {queue_name(name)} to {queue_name(to)}?", yes=yes)
    select(broker, "/messages/move", name, **picked, word="moved from", more={"to": to})


@click.command()
@click.argument("name", metavar="QUEUE")
@picking
@yes_option
@json_option
@click.pass_obj
def requeue(broker: Broker, /, name: str, yes: bool, **picked: Any) -> None:
    """Make delayed messages of QUEUE ready now.

    They keep their uids.
    """
    if not picked["dry_run"]:
        confirm(f"Make {_meant(picked)} of {queue_name(name)} that are delayed ready now?", yes=yes)
    select(broker, "/messages/requeue", name, **picked, word="made ready in")


def _meant(picked: Mapping[str, Any]) -> str:
    """Say which messages, for a question."""
    if picked["uids"]:
        return f"{len(picked['uids'])} messages"
    fitting = f" that fit {' and '.join(picked['where'])}" if picked["where"] else ""
    return f"all messages{fitting}" if picked["limit"] is None else f"up to {picked['limit']} messages{fitting}"


# Leases and connections -------------------------------------------------------------------------------------------


@click.group()
def leases() -> None:
    """List the messages that workers have, or take them back."""


@leases.command("list")
@click.argument("name", metavar="QUEUE")
@json_option
@click.pass_obj
def list_leases(broker: Broker, name: str, as_json: bool) -> None:
    """List messages of QUEUE that workers have, and until when."""
    messages: list[Any] = []
    after: int | None = 0
    with broker.admin() as client:
        while after is not None:
            page = client.call("GET", "/leases", queue=name, after=after)
            messages += page["messages"]
            after = page["after"] or None
    if as_json:
        print_json({"queue": name, "leases": messages})
    else:
        print_table(LEASE_COLUMNS, [[_cell(one, column) for column in LEASE_COLUMNS] for one in messages])


@leases.command()
@click.argument("name", metavar="QUEUE")
@click.argument("uids", metavar="UID...", nargs=-1, required=True)
@yes_option
@click.pass_obj
def release(broker: Broker, name: str, uids: tuple[str, ...], yes: bool) -> int:
    """Take messages back from their workers.

    They are handed out again.  If the old worker acknowledges after that, it is refused.  Exit status 3 if no worker
    has one of them.
    """
    confirm(f"Take {len(uids)} messages of {queue_name(name)} back from their workers?", yes=yes)
    with broker.admin() as client:
        done = client.call("POST", "/leases/release", {"uids": list(uids)}, queue=name)["done"]
    click.echo(f"taken back: {done}")
    return 0 if done == len(uids) else EXIT_NOTHING


@click.group()
def connections() -> None:
    """List the connections of clients, or close one."""


@connections.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N")
@json_option
@click.pass_obj
def list_connections(broker: Broker, limit: int, as_json: bool) -> None:
    """List connections: protocol, address, subscriptions."""
    with broker.admin() as client:
        answer = client.call("GET", "/connections", limit=limit)
    if as_json:
        print_json(answer)
        return
    rows = answer["connections"]
    print_table(CONNECTION_COLUMNS, [[row[column] for column in CONNECTION_COLUMNS] for row in rows])
    if len(rows) < answer["total"]:
        say(f"{answer['total'] - len(rows)} more; --limit shows more")


@connections.command("close")
@click.argument("connection", metavar="ID", type=int)
@yes_option
@click.pass_obj
def close_connection(broker: Broker, connection: int, yes: bool) -> None:
    """Close a connection, as if the network had broken it."""
    confirm(f"Close connection {connection}?", yes=yes)
    with broker.admin() as client:
        client.call("DELETE", "/connection", id=connection)
    click.echo(f"connection {connection} closed")


# Why --------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", metavar="QUEUE")
@click.argument("uid", metavar="UID")
@json_option
@click.pass_obj
def why(broker: Broker, name: str, uid: str, as_json: bool) -> None:
    """Say where a message of QUEUE is, and why it is not processed."""
    with broker.admin() as client:
        answer = client.call("GET", "/messages/why", queue=name, uid=uid)
    if as_json:
        print_json(answer)
        return
    for cause in answer["causes"]:
        print_line(f"{cause['code']}: {cause['text']}")
