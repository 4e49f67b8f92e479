"""Measure: rows about queues and facts about the node, with rates over the last seconds.

    readings, as the HTTP API sends them --> Measure --> rows, facts

One pair of readings half a second apart makes rates that jump; those of several seconds do not.  It waits for nothing.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from wakeq.cli.output import NO_NAME
from wakeq.protocol.names import DEAD_SUFFIX

COLUMNS = ("queue", "ready", "delayed", "leased", "in/s", "done/s", "back/s", "oldest", "workers", "state")
# The time over which rates are measured.
WINDOW_MS = 5_000

Reading = Mapping[str, Any]
Row = dict[str, Any]


class Measure:
    """The readings of the last seconds."""

    def __init__(self) -> None:
        # In their order; the first is just older than the window, or the oldest that there is.
        self._readings: deque[Reading] = deque()

    @property
    def last(self) -> Reading:
        """The newest reading."""
        return self._readings[-1]

    @property
    def span_ms(self) -> int:
        """The time between the readings of which rates are made."""
        return int(self._readings[-1]["at_ms"] - self._readings[0]["at_ms"]) if self._readings else 0

    def add(self, reading: Reading) -> None:
        """Take a reading; one with an error repeats the one before, so that it says nothing about rates."""
        known = self._readings
        if known and reading.get("error"):
            known[-1] = reading
            return
        # Another leader has a clock and counters of its own.
        if known and (reading["at_ms"] < known[-1]["at_ms"] or _term(reading) != _term(known[-1])):
            known.clear()
        known.append(reading)
        while len(known) > 2 and reading["at_ms"] - known[1]["at_ms"] >= WINDOW_MS:
            known.popleft()

    def rows(self) -> list[Row]:
        """Return a row for each queue, by column; the oldest message's age is in seconds."""
        now, then = self._readings[-1], self._readings[0]
        seconds = self.span_ms / 1000
        # A queue that was purged meanwhile has another id, and its counters have begun anew.
        known = {queue["queue_id"]: queue for queue in then["queues"]}
        return [_row(queue, known.get(queue["queue_id"], queue), now["at_ms"], seconds) for queue in now["queues"]]

    def facts(self) -> dict[str, object]:
        """Return the facts about the node; one that is alone has no term to speak of, and leads."""
        now, then = self._readings[-1], self._readings[0]
        seconds = self.span_ms / 1000
        figures, totals = now["figures"], now["totals"]
        syncs, spent = (
            figures.get(f"wakeq_log_sync_seconds_{part}", 0) - then["figures"].get(f"wakeq_log_sync_seconds_{part}", 0)
            for part in ("count", "sum")
        )
        connections = sum(value for name, value in figures.items() if name.startswith("wakeq_connections:"))
        return {
            "role": now["cluster"].get("role", "?"),
            "term": now["cluster"].get("term", "?"),
            "in/s": _rate(totals, then["totals"], "published", seconds),
            "done/s": _rate(totals, then["totals"], "acked", seconds),
            "ready": totals["ready"],
            "leased": totals["leased"],
            "connections": int(connections),
            "sync": f"{1000 * spent / syncs:.1f}ms" if syncs else "-",
            "memory": f"{int(figures.get('process_resident_memory_bytes', 0)) >> 20}MiB",
            "disk free": f"{int(figures.get('wakeq_disk_free_bytes', 0)) >> 30}GiB",
        }


def _row(queue: Mapping[str, Any], then: Mapping[str, Any], now_ms: int, seconds: float) -> Row:
    ins, dones, backs = (_rate(queue, then, field, seconds) for field in ("published", "acked", "released"))
    oldest_ms = queue["oldest_ready_ms"]
    return {
        "queue": queue["name"] or NO_NAME,
        "ready": queue["ready"],
        "delayed": queue["delayed"],
        "leased": queue["leased"],
        "in/s": ins,
        "done/s": dones,
        "back/s": backs,
        "oldest": (now_ms - oldest_ms) / 1000 if queue["ready"] and oldest_ms else None,
        "workers": queue["subscribers"],
        "state": state_of(queue),
    }


def state_of(queue: Mapping[str, Any]) -> str:
    """Return what an operator should know about a queue in a word or two; empty if there is nothing."""
    if queue["paused_until_ms"]:
        return "paused"
    if queue.get("is_dead_letter", queue["name"].endswith(DEAD_SUFFIX)):
        return "dead letters" if queue["ready"] + queue["delayed"] else ""
    return "no worker" if queue["ready"] and not queue["subscribers"] else ""


def _term(reading: Reading) -> object:
    return reading["cluster"].get("term")


def _rate(now: Mapping[str, Any], then: Mapping[str, Any], field: str, seconds: float) -> float:
    return round(max(0, now[field] - then[field]) / seconds, 1) if seconds > 0 else 0.0


def span(seconds: float | None) -> str:
    """Return a span of time as people read it."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
