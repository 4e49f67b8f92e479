"""The figures that a report must show, computed event by event in plain Python: slow and simple.

rows of the journal --> for each queue its figures, and the spans of waiting and working, all of them
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any

Row = dict[str, Any]
OVER = ("acked", "cancelled", "dead", "expired", "moved")


@dataclass
class Life:
    """What happened to one message."""

    due: datetime | None = None
    stashed: Row | None = None
    deliveries: list[tuple[datetime, int]] = field(default_factory=list)
    acked: datetime | None = None
    is_over: bool = False


@dataclass
class Figures:
    """One queue's."""

    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    releases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    dead_letters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lives: dict[str, Life] = field(default_factory=lambda: defaultdict(Life))
    held: set[str] = field(default_factory=set)
    bytes_published: int = 0

    @property
    def waiting_s(self) -> list[float]:
        lives = [life for life in self.lives.values() if life.due is not None and life.deliveries]
        return [max(0.0, (life.deliveries[0][0] - life.due).total_seconds()) for life in lives if life.due]

    @property
    def working_s(self) -> list[float]:
        lives = [life for life in self.lives.values() if life.acked is not None and life.deliveries]
        return [(life.acked - life.deliveries[-1][0]).total_seconds() for life in lives if life.acked]

    @property
    def redeliveries(self) -> int:
        return sum(max(0, len(life.deliveries) - 1) for life in self.lives.values())

    @property
    def redelivered(self) -> int:
        return sum(len(life.deliveries) > 1 for life in self.lives.values())

    @property
    def cancelled(self) -> int:
        return self.events.get("cancelled", 0)


def figures_of(rows: list[Row]) -> dict[str, Figures]:
    """Go through all that happened, in order."""
    queues: dict[str, Figures] = defaultdict(Figures)
    for row in rows:
        queue = queues[row["queue"]]
        if row["outcome"] != "done":
            if row["outcome"] != "open":
                queue.refused[row["outcome"]] += 1
            continue
        queue.events[row["event"]] += 1
        if row["event"] in ("purged", "deleted"):
            queue.held.clear()
        elif row["uid"] is not None:
            _note(queue, queue.lives[row["uid"]], row)
    return dict(queues)


def _note(queue: Figures, life: Life, row: Row) -> None:
    event = row["event"]
    if event == "stashed":
        life.stashed = row
    elif event == "published":
        told = life.stashed or row
        life.due = max(told["until"] or row["at"], row["at"])
        queue.bytes_published += told["size"]
        queue.held.add(row["uid"])
    elif event == "delivered":
        life.deliveries.append((row["at"], row["worker"]))
    elif event == "released":
        queue.releases[row["reason"]] += 1
    elif event == "dead":
        queue.dead_letters[row["reason"]] += 1
    if event in OVER:
        queue.held.discard(row["uid"])
        life.is_over = True
        life.acked = row["at"] if event == "acked" else life.acked


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that so many percent do not pass."""
    return sorted(values)[max(1, ceil(len(values) * percent / 100)) - 1]
