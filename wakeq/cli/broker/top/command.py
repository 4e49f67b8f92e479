"""The command `wakeq top`: readings and keys in, screens out; with --once, on a pipe or as JSON one table.

events of the HTTP API, in a thread --> Measure --> TopScreen --> the terminal
                                 keys, changes of its size ---^
"""

import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click
import msgspec

from wakeq.cli.broker.top.measure import COLUMNS, Measure, Reading, span
from wakeq.cli.common import QUEUE, Broker, json_option
from wakeq.cli.output import print_json, print_table
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, NotLeader

if TYPE_CHECKING:
    from wakeq.client.admin import AdminClient

# As many as the broker sends.
QUEUES_MAX = 500
# How long one table is measured.
ONCE_MS = 1_000
EVENT = b"data: "
# The pause between two attempts while no node serves.
RETRY_S = 1.0


@click.command()
@click.argument("prefix", type=QUEUE, default="")
@click.option("--once", is_flag=True, help="Measure for one second, print one table, and end.")
@json_option
@click.pass_obj
def top(broker: Broker, prefix: str, once: bool, as_json: bool) -> None:
    """Watch the node and its queues, the fullest first.

    Only queues whose name begins with PREFIX are shown, at most the first 500 in the order that you choose.  In a
    cluster it shows the leader.  Rates are those of the last five seconds.

    Keys: an arrow to the left or right, or the underlined letter of a column, sorts by it, and v reverses the order; f
    returns to the fullest first; / filters by a part of the name; space holds the screen; q or Ctrl-C ends it.
    """
    with broker.admin() as client:
        if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            readings, measure = readings_of(client, prefix), Measure()
            measure.add(next(readings))
            while measure.span_ms < ONCE_MS:
                measure.add(next(readings))
            _print(measure, as_json=as_json)
            return
        with suppress(KeyboardInterrupt):
            _watch(client, prefix)


def _print(measure: Measure, *, as_json: bool) -> None:
    rows = [{**row, "oldest": span(row["oldest"])} for row in measure.rows()]
    if as_json:
        print_json({"node": measure.facts(), "queues": rows})
    else:
        print_table(COLUMNS, [[row[column] for column in COLUMNS] for row in rows], nothing="there are no such queues")


def readings_of(
    client: "AdminClient", prefix: str, wishes: Callable[[], Mapping[str, str]] = dict
) -> Iterator[dict[str, Any]]:
    """Yield each reading; while no node serves, yield the last one again with the error.

    `wishes` says which queues are wanted besides; when that changes, the stream is opened anew.
    """
    reading: dict[str, Any] | None = None
    while True:
        asked = wishes()
        query = {"prefix": prefix, "limit": QUEUES_MAX, "leader": "true", **asked}
        try:
            with client.stream(f"/events?{urlencode(query)}") as lines:
                for line in lines:
                    if line.startswith(EVENT):
                        reading = msgspec.json.decode(line[len(EVENT) :])
                        yield reading
                    if wishes() != asked:
                        break
            # The user wants other queues, or the node has ceased to serve: ask for the leader.
            continue
        except (NotLeader, BrokerUnreachable, Disconnected) as error:
            if reading is None:
                raise
            yield reading | {"error": str(error)}
        time.sleep(RETRY_S)


def _watch(client: "AdminClient", prefix: str) -> None:
    """Draw the screen after each reading, key and change of the terminal's size, until a key ends it."""
    from rich.console import Console
    from rich.live import Live

    from wakeq.cli.broker.top.keyboard import raw_keys, read_keys
    from wakeq.cli.broker.top.screen import TopScreen

    screen, measure = TopScreen(), Measure()
    readings = readings_of(client, prefix, screen.wishes)
    # Before the screen is taken: a broker that does not answer is an error in one line.
    measure.add(next(readings))
    console = Console(no_color="NO_COLOR" in os.environ or None)
    keyboard = sys.stdin.fileno()
    with (
        _wakes() as (woken, wake),
        raw_keys(keyboard),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        inbox: queue.SimpleQueue[Reading | BaseException] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(readings, inbox, wake), name="wakeq-top", daemon=True).start()
        while True:
            live.update(screen.draw(measure, console.width, console.height), refresh=True)
            ready, _, _ = select.select([keyboard, woken], [], [])
            if woken in ready:
                os.read(woken, 1024)
            while not inbox.empty():
                found = inbox.get()
                if isinstance(found, BaseException):
                    raise found
                if not screen.is_held:
                    measure.add(found)
            if keyboard in ready:
                keys = read_keys(keyboard)
                # Without keys, the terminal is gone.
                if not keys or not all(map(screen.press, keys)):
                    return


def _read(readings: Iterator[Reading], inbox: "queue.SimpleQueue[Reading | BaseException]", wake: int) -> None:
    """Pass on readings, and at last the error that ends them."""
    try:
        for reading in readings:
            inbox.put(reading)
            os.write(wake, b"r")
    except BaseException as error:
        inbox.put(error)
        # The command has ended meanwhile.
        with suppress(OSError):
            os.write(wake, b"e")


@contextmanager
def _wakes() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe, which also tells of a change of the terminal's size."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
    before_fd = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken, wake
    finally:
        signal.set_wakeup_fd(before_fd)
        signal.signal(signal.SIGWINCH, before)
        # Its thread may still write to the pipe, which is closed when the process ends.
