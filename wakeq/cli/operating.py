"""Commands over the HTTP API: pause, resume, move, requeue, leases, connections, workers, why, history.

A command that destroys or moves asks first.  Messages are selected by uid or by conditions; `--dry-run` shows them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wakeq.cli.common import EXIT_NOTHING, QUEUE, Broker, confirm, json_option, queue_name, yes_option
from wakeq.cli.output import moment, print_json, print_line, print_table, say
from wakeq.cli.progress import progress
from wakeq.protocol.errors import Refused

if TYPE_CHECKING:
    from wakeq.client.admin import AdminClient

CONDITION_HELP = (
    "A condition such as priority<5, error~timeout, header.tenant=acme or age>3600; repeatable: all must hold."
)
EVENT_COLUMNS = ("at", "event", "worker", "reason", "queue", "due", "error")
LEASE_COLUMNS = ("uid", "holder", "until", "error_count", "body")
WORKER_COLUMNS = ("number", "name", "host", "pid", "at once", "queues", "has", "oldest since", "address")
CONNECTION_COLUMNS = ("id", "door", "peer", "in_flight", "subscriptions", "queues")
MESSAGE_COLUMNS = ("uid", "state", "priority", "error_count", "error", "body")
BODY_CHARS_MAX = 60


def selection_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags that select messages."""
    for option in reversed(
        (
            click.option("--where", multiple=True, metavar="CONDITION", help=CONDITION_HELP),
            click.option("--uid", "uids", multiple=True, metavar="UID", help="Only this message; repeatable."),
            click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most this many; default: all."),
            click.option(
                "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most this many per second."
            ),
            click.option("--dry-run", is_flag=True, help="Only show the first messages that would be affected."),
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
    doing: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Apply an operation to the selected messages, or show them."""
    from wakeq.client.admin import apply_to_selected

    body: dict[str, Any] = {**(more or {}), "where": list(where)} | ({"rate": rate} if rate else {})
    if uids:
        body = body | {"uids": list(uids)}
    with broker.admin() as client:
        if dry_run:
            answer = client.call("POST", path, {**body, "dry_run": True, "limit": limit or 1_000}, queue=queue)
            print_json(answer) if as_json else print_messages(answer["messages"])
            behind = "; there may be more" if answer["after"] else ""
            say(f"nothing was changed; {answer['matched']} of {answer['scanned']} examined messages match{behind}")
            return
        strangers: set[str] = set()
        with progress(doing, "messages", is_wanted=not as_json) as shown:
            total = _total(client, queue, None if where else limit, len(uids)) if shown.is_wanted else None
            counted = "scanned" if where else "done"
            sums = apply_to_selected(
                client,
                path,
                queue,
                body,
                limit=limit,
                strangers=strangers,
                progress=lambda sums: shown.update(sums[counted], total),
            )
    print_json({"queue": queue, **sums}) if as_json else click.echo(f"{word} {queue_name(queue)}: {sums['done']}")
    if strangers:
        say_strangers(queue, strangers)
    elif sums["done"] < sums["matched"]:
        say(f"{sums['matched'] - sums['done']} more messages matched, but they are leased, or were gone by then")


def _total(client: "AdminClient", queue: str, limit: int | None, uids: int) -> int | None:
    """Return how many messages are to be looked at, at most; None if the token may not know."""
    if uids:
        return uids
    try:
        size = int(client.call("GET", "/queue", queue=queue)["size"])
    except Refused:
        return None
    return size if limit is None else min(size, limit)


def say_strangers(queue: str, strangers: Iterable[str]) -> None:
    """Say why a redrive left letters: any publisher can write an origin into a letter."""
    names = ", ".join(queue_name(name) for name in sorted(strangers))
    say(
        f"some dead letters stay in {queue_name(queue)}, because the queues that they name as their origin do not send "
        f"dead letters there: {names}; check them with `wakeq queue peek`, and move them with --anywhere or --to QUEUE"
    )


def print_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each message."""
    rows = [[message_cell(one, column) for column in MESSAGE_COLUMNS] for one in messages]
    print_table(MESSAGE_COLUMNS, rows, nothing="no message would be affected")


def fact_of(message: Mapping[str, Any], column: str) -> object:
    """Return a field of a message; a dead letter may have it in a header."""
    value = message.get(column)
    return value or (message.get("headers") or {}).get(f"wakeq-{column}", value)


def message_cell(row: Mapping[str, Any], column: str) -> object:
    """Return a cell of a table of messages; bodies are shortened."""
    if column == "until":
        return moment(row["until_ms"])
    if column == "holder":
        return f"source {row['source']}" if row["source"] else f"worker {row['worker']}"
    value = fact_of(row, column)
    if column in ("body", "msg") and isinstance(value, str) and len(value) > BODY_CHARS_MAX:
        return value[: BODY_CHARS_MAX - 1] + "…"
    return value


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Use the local time zone if the text has none."""
        try:
            return datetime.fromisoformat(value).astimezone()
        except ValueError:
            self.fail(f"{value!r} is not a time; write 2026-12-24T18:00, or with a zone 2026-12-24T18:00Z", param, ctx)


# Queues -----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.option("--for", "for_s", type=click.FloatRange(min=0, min_open=True), metavar="S", help="For this many seconds.")
@click.option(
    "--until",
    type=Moment(),
    metavar="MOMENT",
    help="Until this time, such as 2026-12-24T18:00; local time unless a zone follows: 18:00Z, 18:00+02:00.",
)
@json_option
@click.pass_obj
def pause(broker: Broker, name: str, for_s: float | None, until: datetime | None, as_json: bool) -> None:
    """Stop delivering messages of QUEUE.

    It is paused until you resume it, or until the given time.  Clients can still publish, and workers acknowledge the
    messages that they have.
    """
    if for_s is not None and until is not None:
        raise click.UsageError("--for and --until contradict each other; give one of them")
    body: dict[str, Any] = {"for_s": for_s} if for_s is not None else {}
    if until is not None:
        body = {"until": until.isoformat()}
    with broker.admin() as client:
        answer = client.call("POST", "/queue/pause", body, queue=name)
    until_ms = answer["until_ms"]
    when = f"until {moment(until_ms)}" if until_ms else f"until `wakeq queue resume {name}`"
    print_json(answer) if as_json else click.echo(f"{queue_name(name)} is paused {when}")


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.pass_obj
def resume(broker: Broker, name: str) -> None:
    """Deliver messages of QUEUE again."""
    with broker.admin() as client:
        client.call("POST", "/queue/resume", queue=name)
    click.echo(f"{queue_name(name)} resumed")


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.argument("to", type=QUEUE, metavar="TO")
@selection_options
@yes_option
@json_option
@click.pass_obj
def move(broker: Broker, /, name: str, to: str, yes: bool, **selection: Any) -> None:
    """Move messages of QUEUE to the queue TO, each in one step.

    Leased messages stay.  A message keeps its priority, its headers and the rest of its delay and time
    to live; it gets a new uid.
    """
    if not selection["dry_run"]:
        confirm(f"Move {_described(selection)} of {queue_name(name)} to {queue_name(to)}?", yes=yes)
    select(broker, "/messages/move", name, **selection, word="moved from", doing="moving messages", more={"to": to})


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@selection_options
@yes_option
@json_option
@click.pass_obj
def requeue(broker: Broker, /, name: str, yes: bool, **selection: Any) -> None:
    """Make delayed messages of QUEUE ready now.

    Messages keep their uids.
    """
    if not selection["dry_run"]:
        confirm(f"Make {_described(selection)} of {queue_name(name)} that are delayed ready now?", yes=yes)
    select(broker, "/messages/requeue", name, **selection, word="made ready in", doing="making messages ready")


def _described(selection: Mapping[str, Any]) -> str:
    """Describe the selected messages for a question."""
    if selection["uids"]:
        return f"{len(selection['uids'])} messages"
    matching = f" that match {' and '.join(selection['where'])}" if selection["where"] else ""
    return f"all messages{matching}" if selection["limit"] is None else f"up to {selection['limit']} messages{matching}"


# Leases and connections -------------------------------------------------------------------------------------------


@click.group()
def leases() -> None:
    """List leased messages, or release them."""


@leases.command("list")
@click.argument("name", type=QUEUE, metavar="QUEUE")
@json_option
@click.pass_obj
def list_leases(broker: Broker, name: str, as_json: bool) -> None:
    """List leased messages of QUEUE, who holds them, and when their leases time out.

    A worker holds a message by a lease of its own, a source by its claim of a batch (wakeq pipeline claims).
    """
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
        rows = [[message_cell(one, column) for column in LEASE_COLUMNS] for one in messages]
        print_table(LEASE_COLUMNS, rows, nothing=f"no message of {queue_name(name)} is leased")


@leases.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.argument("uids", metavar="UID...", nargs=-1, required=True)
@yes_option
@click.pass_obj
def release(broker: Broker, name: str, uids: tuple[str, ...], yes: bool) -> int:
    """Release messages from their workers.

    They are delivered again, and a later acknowledgement of the old worker is refused.  Exit status 3 if one of them is
    not leased.
    """
    confirm(f"Release {len(uids)} messages of {queue_name(name)} from their workers?", yes=yes)
    with broker.admin() as client:
        done = client.call("POST", "/leases/release", {"uids": list(uids)}, queue=name)["done"]
    click.echo(f"released: {done}")
    return 0 if done == len(uids) else EXIT_NOTHING


@click.group()
def connections() -> None:
    """List the connections of clients, or close one."""


@connections.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N",
              help="Show at most this many.")  # fmt: skip
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
    print_table(
        CONNECTION_COLUMNS,
        [[row[column] for column in CONNECTION_COLUMNS] for row in rows],
        nothing="no client is connected",
    )
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


@click.command()
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N",
              help="Show at most this many.")  # fmt: skip
@json_option
@click.pass_obj
def workers(broker: Broker, limit: int, as_json: bool) -> None:
    """List connected programs, and what they are busy with.

    A program that processes messages comes first, then those that only publish.  `has` is the number of messages that
    are leased to it, and --json shows the oldest 20 of them.
    """
    with broker.admin() as client:
        answer = client.call("GET", "/workers", limit=limit)
    if as_json:
        print_json(answer)
        return
    rows = answer["workers"]
    print_table(
        WORKER_COLUMNS,
        [_worker_cells(row) for row in rows],
        nothing="no program is connected; start a worker with `wakeq run MODULE:WORKER`",
    )
    if len(rows) < answer["total"]:
        say(f"{answer['total'] - len(rows)} more; --limit shows more")
    # An older broker does not say it.
    if not answer.get("is_complete", True):
        say("not all leased messages were counted; a program may have more than `has` says")


def _worker_cells(row: Mapping[str, Any]) -> list[object]:
    since = next((one["since"] for one in row["busy"] if one["since"]), None)
    oldest = None if since is None else moment(round(datetime.fromisoformat(since).timestamp() * 1000))
    queues = [queue_name(queue) for queue in row["queues"]]
    what = (row["number"], row["name"], row["host"], row["pid"], row["concurrency"], queues)
    return [*what, row["leased"], oldest, row["address"]]


# Why --------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.argument("uid", metavar="UID")
@json_option
@click.pass_obj
def why(broker: Broker, name: str, uid: str, as_json: bool) -> None:
    """Explain why a message of QUEUE is not being processed."""
    with broker.admin() as client:
        answer = client.call("GET", "/messages/why", queue=name, uid=uid)
    if as_json:
        print_json(answer)
        return
    for cause in answer["causes"]:
        print_line(f"{cause['code']}: {cause['text']}")


@click.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@click.argument("uid", metavar="UID")
@json_option
@click.pass_obj
def history(broker: Broker, name: str, uid: str, as_json: bool) -> int:
    """Show what happened to a message of QUEUE.

    It also knows messages that are finished, as far back as the broker keeps its history (journal.keep_s,
    journal.keep_bytes).
    Exit status 3 if nothing is known of it.
    """
    with broker.admin() as client:
        answer = client.call("GET", "/messages/history", queue=name, uid=uid)
    events = answer["events"]
    if as_json:
        print_json(answer)
    elif events:
        print_table(EVENT_COLUMNS, [[event_cell(one, column) for column in EVENT_COLUMNS] for one in events])
    if not as_json and not answer["is_complete"]:
        since = f", which goes back to {answer['since']}" if answer["since"] else ""
        what = "events may be missing" if events else f"nothing is known of {uid}"
        say(f"{what}: its life is not wholly in the history of this broker{since}")
    return 0 if events else EXIT_NOTHING


def event_cell(event: Mapping[str, Any], column: str) -> object:
    """Return a cell of a table of events; moments are in local time, to the millisecond."""
    value = event.get(column)
    if column in ("at", "due") and value is not None:
        return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if column == "event" and event.get("times", 1) > 1:
        return f"{value} ({event['times']} times)"
    return '""' if column == "queue" and value == "" else value
