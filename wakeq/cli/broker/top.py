"""`wakeq top`: the fullest queues and the node, live in a terminal.

events of the HTTP API --> rates since the last reading --> a screen, or with --once (or on a pipe) one table
"""

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click
import msgspec

from wakeq.cli.common import QUEUE, Broker, json_option
from wakeq.cli.output import COLUMNS_APART, NO_NAME, frame, plain, print_json, print_table
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, NotLeader

if TYPE_CHECKING:
    from wakeq.client.admin import AdminClient

COLUMNS = ("queue", "ready", "delayed", "leased", "in/s", "done/s", "back/s", "oldest", "workers", "state")
# The columns that a narrow screen drops, in this order.
DROPPED_FIRST = ("workers", "delayed", "back/s", "state", "oldest", "done/s", "in/s")
NAME_CHARS_MIN = 12
# Lines of the screen that are not queues.
OTHER_LINES = 9
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

    Only queues whose name begins with PREFIX are shown.  In a cluster it shows the leader.  Ctrl-C ends it.
    """
    with broker.admin() as client:
        readings = readings_of(client, prefix)
        first = next(readings)
        if once or as_json or not sys.stdout.isatty():
            second = next(readings)
            rows = rows_of(second, first)
            facts = {
                "node": node_facts(second, first),
                "queues": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
            }
            print_json(facts) if as_json else print_table(COLUMNS, rows)
            return
        with suppress(KeyboardInterrupt):
            _show(first, readings)


def readings_of(client: "AdminClient", prefix: str) -> Iterator[dict[str, Any]]:
    """Yield each reading; while no node serves, yield the last one again with the error."""
    reading: dict[str, Any] | None = None
    path = f"/events?{urlencode({'prefix': prefix, 'leader': 'true'})}"
    while True:
        try:
            with client.stream(path) as lines:
                for line in lines:
                    if line.startswith(EVENT):
                        reading = msgspec.json.decode(line[len(EVENT) :])
                        yield reading
            # The node has ceased to serve: ask for the leader.
            continue
        except (NotLeader, BrokerUnreachable, Disconnected) as error:
            if reading is None:
                raise
            yield reading | {"error": str(error)}
        time.sleep(RETRY_S)


def _show(first: dict[str, Any], readings: Iterator[dict[str, Any]]) -> None:
    """Draw each reading over the one before."""
    from rich.live import Live

    before = first
    with Live(screen=True, auto_refresh=False) as live:
        for reading in readings:
            live.update(_screen(reading, before), refresh=True)
            before = reading


def _screen(reading: dict[str, Any], before: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    rows = rows_of(reading, before)
    width, height = shutil.get_terminal_size()
    shown = rows[: height - OTHER_LINES]
    facts = "   ".join(f"{name} {value}" for name, value in node_facts(reading, before).items())
    of_all = f"{len(shown)} of {reading['queues_total']} queues"
    return Group(Text(facts), Text(plain(reading["error"]) or of_all, style="dim"), _table(shown, width))


def _table(rows: Sequence[tuple[object, ...]], width: int) -> Any:
    """Return a table with as many columns as fit: a value is shown whole or not at all."""
    from rich.markup import escape

    cells = [[plain(str(value)) for value in row] for row in rows]
    spans = {name: max(map(len, [name, *(row[at] for row in cells)])) for at, name in enumerate(COLUMNS)}
    spans["queue"] = min(spans["queue"], NAME_CHARS_MIN)
    names = list(COLUMNS)
    for name in DROPPED_FIRST:
        if sum(spans[one] + COLUMNS_APART for one in names) > width:
            names.remove(name)
    spans["queue"] += width - sum(spans[one] + COLUMNS_APART for one in names)
    table = frame(expand=True)
    for name in names:
        table.add_column(
            name,
            justify="left" if name in ("queue", "state") else "right",
            overflow="ellipsis",
            no_wrap=True,
            width=spans[name],
        )
    for row in cells:
        table.add_row(*(escape(row[COLUMNS.index(name)]) for name in names))
    return table


def rows_of(reading: Mapping[str, Any], before: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Return a row for each queue.  Pure."""
    seconds = (reading["at_ms"] - before["at_ms"]) / 1000
    known = {queue["name"]: queue for queue in before["queues"]}
    rows = []
    for queue in reading["queues"]:
        then = known.get(queue["name"], queue)
        then = then if then["queue_id"] == queue["queue_id"] else queue
        rates = [_rate(queue, then, field, seconds) for field in ("published", "acked", "released")]
        oldest = queue["oldest_ready_ms"]
        age = _span((reading["at_ms"] - oldest) / 1000) if queue["ready"] and oldest else "-"
        state = "paused" if queue["paused_until_ms"] else ""
        name = queue["name"] or NO_NAME
        rows.append((name, queue["ready"], queue["delayed"], queue["leased"], *rates, age, queue["subscribers"], state))
    return rows


def _rate(now: Mapping[str, Any], then: Mapping[str, Any], field: str, seconds: float) -> float:
    return round(max(0, now[field] - then[field]) / seconds, 1) if seconds > 0 else 0.0


def node_facts(reading: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, object]:
    """Return the line about the node.  Pure."""
    figures, totals, seconds = reading["figures"], reading["totals"], (reading["at_ms"] - before["at_ms"]) / 1000
    syncs = figures.get("wakeq_log_sync_seconds_count", 0) - before["figures"].get("wakeq_log_sync_seconds_count", 0)
    spent = figures.get("wakeq_log_sync_seconds_sum", 0) - before["figures"].get("wakeq_log_sync_seconds_sum", 0)
    connections = sum(value for name, value in figures.items() if name.startswith("wakeq_connections:"))
    return {
        "role": reading["cluster"].get("role", "?"),
        "term": reading["cluster"].get("term", "?"),
        "in/s": _rate(totals, before["totals"], "published", seconds),
        "done/s": _rate(totals, before["totals"], "acked", seconds),
        "ready": totals["ready"],
        "leased": totals["leased"],
        "connections": int(connections),
        "sync": f"{1000 * spent / syncs:.1f}ms" if syncs else "-",
        "memory": f"{int(figures.get('process_resident_memory_bytes', 0)) >> 20}MiB",
        "disk free": f"{int(figures.get('wakeq_disk_free_bytes', 0)) >> 30}GiB",
    }


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
