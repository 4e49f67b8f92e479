"""Commands for a broker's data: backup, restore, export, import, inspect, repair, reset-clock.

`wakeq.data` does the work.  `backup`, `export` and `import` talk to a broker; the others read or change a directory on
which no broker runs.
"""

import math
import os
import stat
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

import click
import msgspec

from wakeq.cli.common import EXIT_FAILED, QUEUE, Broker, confirm, json_option, refuse_no_name, yes_option
from wakeq.cli.output import NO_NAME, plain_json, print_facts, print_json, print_table, say
from wakeq.cli.progress import BYTES, Progress, progress
from wakeq.protocol.errors import BadField, QueueExists, StorageError

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
# Messages that an import publishes at once.
BATCH = 500
# Lines of an export between two updates of its progress.
LINES_PER_UPDATE = 1_000
TIMEOUT_S_MIN = 5

QUEUE_COLUMNS = ("qname", "id", "messages", "bytes", "leased")
TOTAL_COLUMNS = ("published", "delivered", "acked", "released", "expired", "dead")


@click.command()
@click.argument("to", type=FILE)
@json_option
@click.pass_obj
def backup(broker: Broker, to: Path, as_json: bool) -> None:
    """Write the whole state of the broker to the new file TO.

    The broker keeps serving meanwhile.  Everything that was confirmed before is in the file, which is verified before
    it gets its name.
    """
    from wakeq.data.backup import keep, part_beside, verify

    if to.exists():
        raise StorageError(f"{to} exists already; choose another name for this backup")
    part = part_beside(to)
    try:
        with progress("downloading", BYTES, is_wanted=not as_json) as shown:
            _download(broker, part, shown)
            shown.begin("checking the backup")
            facts = verify(part) | {"path": str(to)}
            keep(part, to)
    finally:
        part.unlink(missing_ok=True)
    print_json(facts) if as_json else click.echo(
        f"{to}: everything up to entry {facts['index']}, {facts['size_bytes']} bytes"
    )


def _download(broker: Broker, to: Path, shown: Progress) -> None:
    with broker.admin() as client:
        try:
            with to.open("wb") as file:

                def write(piece: bytes) -> None:
                    file.write(piece)
                    shown.update(file.tell())

                client.download("/backup", write)
        except OSError as error:
            raise StorageError(f"{to}: {error.strerror}; choose another place") from error


@click.command()
@click.argument("path", metavar="FROM", type=FILE)
@click.option(
    "--data-dir",
    type=FOLDER,
    metavar="DIR",
    required=True,
    help="The directory to create; it must be empty or not exist.",
)
@click.option("--node", type=click.IntRange(0, 65_535), metavar="N", help="The number of this node in its cluster.")
@json_option
def restore(path: Path, data_dir: Path, node: int | None, as_json: bool) -> None:
    """Create a data directory from the backup FROM.

    Then start a broker on it.  It is a cluster of one node, whatever the backup was taken from; with --node you can add
    others: `wakeq cluster add`.
    """
    from wakeq.data.backup import restore as make

    with progress("restoring", is_wanted=not as_json) as shown:
        facts = make(path, data_dir, node, tell=lambda doing, size: shown.begin(doing, BYTES, size), step=shown.update)
    place = "" if node is None else f" --node {node} --peers ..."
    print_json(facts) if as_json else click.echo(
        f"{data_dir}: {facts['messages']} messages; start it: wakeq serve{place} --data-dir {data_dir}"
    )


@click.command("export")
@click.argument("queues", type=QUEUE, metavar="[QUEUE]...", nargs=-1)
@click.option("--from", "path", type=FILE, metavar="FILE", help="Read this backup instead of asking the broker.")
@click.pass_obj
def export(broker: Broker, queues: tuple[str, ...], path: Path | None) -> None:
    """Print queues and messages as JSON lines.

    It prints all queues, or those that you name.  All lines show the same moment.  Leases are omitted: when imported,
    every message is ready or delayed.
    """
    from wakeq.data.backup import lines_of

    # On a terminal the lines are the progress, and behind a pipe another command may show its own.
    is_file = _size_of(sys.stdout) is not None
    with (
        tempfile.TemporaryDirectory(prefix="wakeq-export-") as folder,
        progress("downloading", BYTES, is_wanted=is_file) as shown,
    ):
        if path is None:
            path = Path(folder) / "state"
            _download(broker, path, shown)
        shown.begin("writing lines", "lines")
        write = sys.stdout.buffer.write
        for number, line in enumerate(lines_of(path, frozenset(queues)), 1):
            write(plain_json(line).encode() + b"\n")
            if number % LINES_PER_UPDATE == 0:
                shown.update(number)
        sys.stdout.buffer.flush()


@click.command("import")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--to", type=QUEUE, metavar="QUEUE", callback=refuse_no_name, help="Publish all messages to this queue.")
@json_option
@click.pass_obj
def import_(broker: Broker, file: BinaryIO, to: str | None, as_json: bool) -> None:
    """Publish JSON lines from FILE, as printed by export.

    Without FILE they are read from standard input.  Missing queues are created with their policies.  Each message is
    published once even if you repeat this within 15 minutes.  Messages keep the rest of their delay and time to live.
    """
    import asyncio

    with progress("publishing", BYTES, is_wanted=not as_json) as shown:
        sums = asyncio.run(_publish_all(broker.address, _lines_in(file, shown), to))
    print_json(sums) if as_json else click.echo(f"{sums['messages']} messages published to {sums['queues']} queues")


class QueueLine(msgspec.Struct, tag_field="kind", tag="queue"):
    """The fields of a queue's line that an import uses."""

    queue: str
    policies: dict[str, Any] = {}


class MessageLine(msgspec.Struct, tag_field="kind", tag="message"):
    """The fields of a message's line that an import uses."""

    queue: str
    uid: str
    body: str
    published_ms: int = 0
    encoding: Literal["text", "base64"] = "text"
    headers: dict[str, str] = {}
    priority: int = 0
    timeout_ms: int = 0
    due_ms: int = 0
    expires_ms: int = 0


Line = QueueLine | MessageLine


def _lines_in(file: BinaryIO, shown: Progress) -> Iterator[Line]:
    """Yield line by line; the first invalid line ends the import, because later ones may depend on it."""
    decode = msgspec.json.Decoder(Line).decode
    read_bytes, total_bytes = 0, _size_of(file)
    for number, raw in enumerate(file, 1):
        read_bytes += len(raw)
        shown.update(read_bytes, total_bytes)
        try:
            yield decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadField(f"line {number} was not printed by export: {error}") from None


def _size_of(file: IO[Any]) -> int | None:
    """Return the size of a file; None for a pipe or a terminal."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _publish_all(address: str, lines: Iterable[Line], into: str | None) -> dict[str, int]:
    import asyncio

    from wakeq.client.aio import AsyncClient

    queues, messages = set(), 0
    async with AsyncClient(address) as client:
        waiting: list[Any] = []
        for line in lines:
            queue = line.queue if into is None else into
            queues.add(queue)
            if isinstance(line, QueueLine):
                if into is None and queue:
                    await _create_queue(client, queue, line.policies)
                continue
            waiting.append(client.publish(queue, _body(line), id=_id_of(line), **_options(line)))
            messages += 1
            if len(waiting) == BATCH:
                await asyncio.gather(*waiting)
                waiting = []
        await asyncio.gather(*waiting)
    return {"queues": len(queues), "messages": messages}


async def _create_queue(client: Any, queue: str, policies: dict[str, Any]) -> None:
    """Create a queue with its policies; an existing one stays unchanged."""
    try:
        await client.create_queue(queue, **{name: value for name, value in policies.items() if value is not None})
    except QueueExists:
        say(f"queue {queue} exists already and keeps its policies")


def _id_of(line: MessageLine) -> str:
    """Return an id that no other message has: different brokers may use the same uids."""
    digest = blake2b(line.body.encode(), digest_size=8).hexdigest()
    return f"import-{line.uid}-{line.published_ms}-{digest}"


def _body(line: MessageLine) -> bytes:
    if line.encoding == "text":
        return line.body.encode()
    try:
        return b64decode(line.body, validate=True)
    except ValueError as error:
        raise BadField(f"the body of {line.uid} in queue {line.queue} is not base64: {error}") from None


def _options(line: MessageLine) -> dict[str, Any]:
    """Return the options of a message, with the rest of its delay and time to live; a lease is not restored."""
    now_ms = time.time() * 1000
    options: dict[str, Any] = {"priority": line.priority, "headers": line.headers or None}
    if line.due_ms > now_ms:
        options["delay"] = math.ceil(line.due_ms - now_ms) / 1000
    if line.expires_ms:
        options["expires"] = max(1, math.ceil(line.expires_ms - now_ms)) / 1000
    if line.timeout_ms:
        options["timeout"] = max(TIMEOUT_S_MIN, line.timeout_ms / 1000)
    return options


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show the damage and the steps.")
@yes_option
@json_option
def repair(data_dir: Path, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Repair a damaged DATA_DIR if that loses no data.

    No broker may be running on it.  Damaged files are renamed, nothing is deleted.  Exit status 1 if it cannot be
    repaired: restore a backup.  With --dry-run, 65 if something is damaged, 66 if it is of another release.
    """
    from wakeq.data.repair import carry_out, examine

    with progress("reading the files", is_wanted=not as_json):
        found = examine(data_dir)
    steps = [f"rename {step.path}: {step.why}" for step in found.steps]
    facts: dict[str, Any] = {"damage": found.damage, "steps": steps, "hopeless": found.hopeless}
    if as_json and (dry_run or not steps):
        print_json(facts)
    elif not as_json:
        nothing = "start the broker on it" if found.damage and not found.hopeless else "nothing"
        print_facts({"damage": found.damage or "none found", "to do": steps or nothing})
        if found.hopeless:
            say(found.hopeless)
    if steps and not dry_run:
        confirm("Carry out these steps?", yes=yes)
        with progress("repairing", is_wanted=not as_json):
            done = carry_out(data_dir, found)
        print_json(facts | {"done": done}) if as_json else click.echo("\n".join(done))
    if dry_run:
        return found.status
    return EXIT_FAILED if found.hopeless else 0


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def inspect(data_dir: Path, as_json: bool) -> int:
    """Show the content of DATA_DIR without changing anything.

    Queues are shown as of the state store's applied index; --json includes their policies.  Exit status 65 if something
    is damaged, 66 if it is of another release.
    """
    from wakeq.data.inspect import inspect as facts_of
    from wakeq.data.inspect import status_of

    with progress("reading the files", is_wanted=not as_json):
        facts = facts_of(data_dir)
    status = status_of(facts)
    if as_json:
        print_json(facts)
    else:
        queues = facts["state"].pop("queues", None)
        print_facts(facts)
        if queues is not None:
            print_table((*QUEUE_COLUMNS, *TOTAL_COLUMNS), map(_row, queues))
    return status


def _row(queue: dict[str, Any]) -> list[object]:
    facts = {**queue, **queue["totals"], "qname": queue["qname"] or NO_NAME}
    return [facts[column] for column in (*QUEUE_COLUMNS, *TOTAL_COLUMNS)]


@click.command("reset-clock")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@yes_option
def reset_clock(data_dir: Path, yes: bool) -> None:
    """Let the next start on DATA_DIR begin with the wall clock.

    No broker may be running on it.  The time by which the cluster clock is behind passes at once: leases time out
    early, so a second worker may get a message that the first one still has; delayed messages are delivered early, and
    messages with an expiry may be lost.  In a cluster, stop all nodes and reset each of them: a node that starts among
    others takes their clock.
    """
    from wakeq.data.clock_reset import forget_mark, lag_ms

    lag = lag_ms(data_dir)
    if lag is None:
        say("nothing to do: the next start begins with the wall clock")
        return
    if lag > 0:
        early = f"every present lease, delay and expiry ends {lag / 1000:.1f} s early"
        cost = f"Then {early}; two workers may get the same message, and messages that have expired by then are gone."
    else:
        cost = f"It is {-lag / 1000:.1f} s ahead now, and goes back no further than the last entry of the log."
    confirm(f"Set the cluster clock to the wall clock at the next start? {cost}", yes=yes)
    forget_mark(data_dir)
    click.echo(f"the next start on {data_dir} begins with the wall clock")
