"""Commands for messages: pub, fetch, ack, nack, touch, and ping.

Bodies go to standard output unchanged and everything else to standard error, so that `wakeq fetch QUEUE > file` keeps a
body exactly; a terminal gets no control characters.
"""

import shlex
import sys
import time
from typing import NamedTuple

import click

from wakeq.cli.common import EXIT_NOTHING, QUEUE, Broker, json_option, queue_name, refuse_no_name
from wakeq.cli.output import moment, plain, print_body, print_json, print_line, say
from wakeq.client import Client, Message
from wakeq.client.route import CONNECT_TIMEOUT_S
from wakeq.client.session import WrongProtocol
from wakeq.protocol.errors import NOT_NOW, NoQuorum, QueueNotFound, WakeqError
from wakeq.protocol.log.entries import PAUSE_MS_MAX
from wakeq.protocol.wire.worker.codec import text_of
from wakeq.protocol.wire.worker.commands import COUNT_MAX, SECONDS_MAX, TIMEOUT_S_MIN, WAIT_S_MAX

SECONDS = click.FloatRange(min=0)
# The pause between two attempts while a broker starts.
RETRY_S = 0.1
# Messages that a fetch does not get.
HELD = {"delayed": "delayed", "leased": "leased by workers", "staged": "claimed by a pipeline"}


def headers_of(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the `--header NAME=VALUE` options as a map."""
    headers = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair} has no value; write NAME=VALUE")
        headers[name] = value
    return headers


def id_of(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """Refuse an empty `--id`, as of an unset variable: it would not prevent duplicates."""
    if given == "":
        raise click.BadParameter("it is empty; give an id, or omit the flag")
    return given or ""


@click.command()
@click.argument("queue", type=QUEUE, callback=refuse_no_name)
@click.argument("body", default="-")
@click.option("--delay", "delay_s", type=SECONDS, metavar="S", default=0, help="Deliver it no earlier than this.")
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    metavar="S",
    help="How long a worker may keep it before it is redelivered; default: the queue's.",
)
@click.option(
    "--expires", "expires_s", type=SECONDS, metavar="S", default=0, help="Remove it after this long; 0: never."
)
@click.option("--priority", type=int, metavar="N", default=0, help="The lowest is delivered first; default 0.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, callback=headers_of, help="Add a header; repeatable."
)
@click.option(
    "--id", "publish_id", metavar="ID", callback=id_of, help="Store it only once, even if you repeat the command."
)
@json_option
@click.pass_obj
def pub(
    broker: Broker,
    queue: str,
    body: str,
    delay_s: float,
    timeout_s: float | None,
    expires_s: float,
    priority: int,
    headers: dict[str, str],
    publish_id: str,
    as_json: bool,
) -> None:
    """Publish a message to QUEUE and print its uid.

    Without BODY, or with -, the body is read from standard input.  Write two dashes before a BODY that begins with one:
    wakeq pub QUEUE -- -5
    """
    content = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    with broker.connect() as client:
        uid = client.publish(
            queue,
            content,
            delay=delay_s,
            timeout=timeout_s,
            expires=expires_s,
            priority=priority,
            headers=headers,
            id=publish_id,
        )
    if as_json:
        print_json({"uid": uid, "queue": queue})
    else:
        print_line(uid)


@click.command()
@click.argument("queue", type=QUEUE)
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, WAIT_S_MAX),
    metavar="S",
    default=0,
    help="Wait up to this long for a message.",
)
@click.option(
    "--limit",
    # FET calls it count.
    "--count",
    "limit",
    type=click.IntRange(1, COUNT_MAX),
    metavar="N",
    default=1,
    help="Fetch up to this many.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(TIMEOUT_S_MIN, SECONDS_MAX),
    metavar="S",
    help="Lease them for this long, whatever their own timeouts are.",
)
@click.option("--ack", "acknowledge", is_flag=True, help="Acknowledge the messages once they are printed.")
@click.option("--raw", is_flag=True, help="Print bodies as they are, without adding a newline, to a terminal too.")
@json_option
@click.pass_obj
def fetch(
    broker: Broker,
    queue: str,
    wait_s: float,
    limit: int,
    timeout_s: float | None,
    acknowledge: bool,
    raw: bool,
    as_json: bool,
) -> int:
    """Fetch messages from QUEUE and print their bodies.

    Without --ack a message is redelivered after its timeout unless you acknowledge it: `wakeq ack QUEUE UID`.  Its uid
    and lease are printed to standard error.  Exit status 3 if there was no message.
    """
    with broker.connect() as client:
        messages = client.fetch_many(queue, limit, wait=wait_s, timeout=timeout_s)
        if not messages:
            say(explain_empty(client, queue))
            return EXIT_NOTHING
        for message in messages:
            print_message(message, as_json=as_json, raw=raw, leased=not acknowledge)
        sys.stdout.flush()
        # Acknowledged only after the output has been written.
        if acknowledge:
            client.ack_many(messages)
    return 0


def explain_empty(client: Client, queue: str) -> str:
    """Say why a fetch got nothing although the queue may have messages."""
    try:
        found = client.stats(queue)
    except WakeqError:
        # The queue may not exist, or the token may not see it: this is only a hint.
        found = {}
    paused_until_ms = found.get("paused_until_ms", 0)
    if paused_until_ms:
        until = "" if paused_until_ms == PAUSE_MS_MAX else f" until {moment(paused_until_ms)}"
        return f"{queue_name(queue)} is paused{until}; `wakeq queue resume` resumes it"
    held = [f"{found[state]} {words}" for state, words in HELD.items() if found.get(state)]
    but = f" ({', '.join(held)})" if held else ""
    return f"{queue_name(queue)} has nothing to fetch now{but}; --wait S waits for a message"


@click.command()
@click.argument("queue", type=QUEUE)
@click.argument("uids", metavar="UID...", nargs=-1, required=True)
@click.option("--lease", metavar="LEASE", help="The lease that fetch printed; an outdated one is refused.")
@click.pass_obj
def ack(broker: Broker, queue: str, uids: tuple[str, ...], lease: str | None) -> int:
    """Acknowledge messages of QUEUE, which removes them.

    Exit status 3 if one of them was not there.
    """
    with broker.connect() as client:
        if client.ack(queue, *uids, lease=lease):
            return 0
        try:
            client.stats(queue)
        except QueueNotFound:
            say(f"{queue_name(queue)} does not exist; `wakeq queue list` shows all queues")
        else:
            say(f"{_uids(uids)} not in {queue_name(queue)}: it was acknowledged already, or is mistyped")
    return EXIT_NOTHING


@click.command()
@click.argument("queue", type=QUEUE)
@click.argument("uids", metavar="UID...", nargs=-1, required=True)
@click.option(
    "--delay",
    "delay_s",
    type=SECONDS,
    metavar="S",
    help="Deliver them again after this long; default: the queue's retry policy.",
)
@click.option("--lease", metavar="LEASE", help="The lease that fetch printed; an outdated one is refused.")
@click.option("--no-failure", is_flag=True, help="Do not count a failure; deliver again at once, or after --delay.")
@click.option("--dead", is_flag=True, help="Move them to the dead-letter queue now.")
@click.pass_obj
def nack(
    broker: Broker,
    queue: str,
    uids: tuple[str, ...],
    delay_s: float | None,
    lease: str | None,
    no_failure: bool,
    dead: bool,
) -> int:
    """Release messages of QUEUE as failed, to be delivered again.

    Exit status 3 if one of them is not leased any more.
    """
    with broker.connect() as client:
        known = client.nack(queue, *uids, delay=delay_s, lease=lease, failed=not no_failure, dead=dead)
    return _report_leased(known, queue, uids)


@click.command()
@click.argument("queue", type=QUEUE)
@click.argument("uids", metavar="UID...", nargs=-1, required=True)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    metavar="S",
    help="The new lease, counted from now; default: the message's own timeout.",
)
@click.option("--lease", metavar="LEASE", help="The lease that fetch printed; an outdated one is refused.")
@click.pass_obj
def touch(broker: Broker, queue: str, uids: tuple[str, ...], timeout_s: float | None, lease: str | None) -> int:
    """Extend the leases of messages of QUEUE.

    Exit status 3 if one of them is not leased any more.
    """
    with broker.connect() as client:
        known = client.touch(queue, *uids, timeout=timeout_s, lease=lease)
    return _report_leased(known, queue, uids)


@click.command()
@click.option("--wait", "wait_s", type=SECONDS, metavar="S", default=0, help="Try for up to this long.")
@json_option
@click.pass_obj
def ping(broker: Broker, wait_s: float, as_json: bool) -> None:
    """Check that the broker answers.

    With several addresses, or with --wait, the first node that answers must also serve, or know the leader.
    --wait is for scripts that have just started the broker.
    """
    pong = _ping_until_it_serves(broker, wait_s) if wait_s else _ping(broker)
    if as_json:
        print_json(pong._asdict())
    else:
        print_line(f"{pong.broker} answers in {pong.took_ms} ms; wakeq {pong.version}")


class Pong(NamedTuple):
    """The answer of a node, with the fields of --json."""

    broker: str
    version: str
    took_ms: float


def _ping_until_it_serves(broker: Broker, wait_s: float) -> Pong:
    """Retry every failure that may be temporary, until the time is over."""
    until_s = time.monotonic() + wait_s
    while True:
        left_s = until_s - time.monotonic()
        try:
            return _ping(broker, within_s=min(CONNECT_TIMEOUT_S, max(RETRY_S, left_s)))
        except WrongProtocol:
            # Another program listens on that port.
            raise
        except NOT_NOW:
            if left_s <= RETRY_S:
                raise
            time.sleep(RETRY_S)


def _ping(broker: Broker, *, within_s: float | None = None) -> Pong:
    """Ask for version and round trip; with --wait or several addresses, also whether the node serves."""
    with broker.connect(within_s=within_s) as client:
        if within_s is not None or len(broker.addresses) > 1:
            facts = client.cluster()
            if not facts["serves"] and facts["leader"] in (None, facts["node"]):
                raise NoQuorum(
                    f"{client.address} answers but cannot serve: its cluster has no leader with a majority; "
                    "see `wakeq cluster status`"
                )
        began_s = time.monotonic()
        client.ping()
        return Pong(client.address, client.broker_version, round((time.monotonic() - began_s) * 1000, 3))


def print_message(message: Message, *, as_json: bool, raw: bool, leased: bool) -> None:
    """Print the body to standard output, and the data for an acknowledgement to standard error."""
    if as_json:
        print_json(_as_facts(message))
        return
    if raw:
        sys.stdout.buffer.write(message.body)
        sys.stdout.flush()
    else:
        print_body(message.body if message.body.endswith(b"\n") else message.body + b"\n")
    if leased:
        lease = f" --lease {message.lease}" if message.lease else ""
        needed = f"uid {message.uid} lease {message.lease or '-'} delivery {message.delivery}"
        done = f"wakeq ack {shlex.quote(message.queue)} {message.uid}{lease}"
        click.echo(plain(f"{needed}; when done: {done}"), err=True)


def _as_facts(message: Message) -> dict[str, object]:
    """Return the stable fields of --json: `body` is text, or base64 if `encoding` says so."""
    body, encoding = text_of(message.body)
    return {
        "queue": message.queue,
        "uid": message.uid,
        "lease": message.lease,
        "delivery": message.delivery,
        "priority": message.priority,
        "headers": dict(message.headers),
        "encoding": "base64" if encoding else "text",
        "body": body,
    }


def _report_leased(known: bool, queue: str, uids: tuple[str, ...]) -> int:
    if known:
        return 0
    say(f"{_uids(uids)} not leased from {queue_name(queue)} now: it was acknowledged, or its lease timed out")
    return EXIT_NOTHING


def _uids(uids: tuple[str, ...]) -> str:
    return f"{uids[0]} is" if len(uids) == 1 else f"one of {', '.join(uids)} is"
