"""Series: the figures of one queue, or of the node, over the last half hour and the last day.  Pure.

    Look, every ten seconds --> a row of values in a ring for each step --> the values of a span of time, by name

A ring has room for a fixed number of rows and forgets the oldest.  What is not known is NaN, in memory and in the file
(docs/files.md).  A series never asks anybody: it gets counters, and keeps what they grew by.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wakeq.protocol.queue.timings import percentile_ms

STEP_S = 10
LONG_STEP_S = 300
DAY_S = 86_400
HALF_HOUR_S = 1_800
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COUNTERS = ("published", "delivered", "acknowledged", "failed")
# The first counters are those of an incarnation; the rest go on when a queue is purged or created again.
OF_INCARNATION = 3
STATES = ("ready", "delayed", "leased")
NAMES = (*COUNTERS, *STATES, *(f"{what}_{share}_s" for what in ("wait", "work") for share in SHARES))
WIDTH = len(NAMES)
UNKNOWN = math.nan
UNKNOWN_ROW = array("f", [UNKNOWN] * WIDTH)
# Steps after which a counter is not compared with its last value any more.
MISSED_MAX = 2
VALUE_BYTES = 4
# The bytes of a queue's values; what else a series needs is less than a tenth of it.
QUEUE_BYTES = (HALF_HOUR_S // STEP_S + DAY_S // LONG_STEP_S) * WIDTH * VALUE_BYTES


class Look(NamedTuple):
    """What is seen of a queue, or of all queues, at one moment.  None stands for what is not known here."""

    # Counters that only grow: published, delivered, acknowledged, failed.
    counters: Sequence[int | None]
    # Messages that are ready, delayed, leased.
    states: Sequence[int | None]
    # Counts by bucket (Timings): for how long messages waited, and were worked on; empty while nothing was counted.
    waits: Sequence[int] | None = ()
    works: Sequence[int] | None = ()
    # Of the queue: most counters of another one began again.
    incarnation: int = 0


class Ring:
    """The newest rows of one step."""

    __slots__ = ("last", "length", "rows", "step_s", "values")

    def __init__(self, step_s: int, span_s: int) -> None:
        self.step_s = step_s
        self.length = span_s // step_s
        # The number of the step whose row is the newest, counted from 1970; row n is at place n modulo `length`.
        self.last = 0
        # How many rows there are.
        self.rows = 0
        self.values = array("f", bytes(self.length * WIDTH * VALUE_BYTES))

    def put(self, step: int, row: Sequence[float]) -> None:
        """Keep the row of a step; steps that were left out are unknown.  A step that has one keeps it."""
        if step <= self.last:
            return
        missed = min(step - self.last - 1, self.length) if self.rows else 0
        for gone in range(step - missed, step):
            self._set(gone, UNKNOWN_ROW)
        self._set(step, array("f", row))
        self.last = step
        self.rows = min(self.rows + missed + 1, self.length)

    def _set(self, step: int, row: array[float]) -> None:
        place = step % self.length * WIDTH
        self.values[place : place + WIDTH] = row

    def steps(self, count: int) -> range:
        """Return the newest steps that have rows, at most so many, oldest first."""
        return range(self.last + 1 - min(count, self.rows), self.last + 1)

    def column(self, which: int, count: int) -> array[float]:
        """Return the values of the newest steps, oldest first."""
        cells = self.values[which::WIDTH]
        first = (self.last + 1) % self.length
        ordered = cells[first:] + cells[:first]
        return ordered[self.length - len(self.steps(count)) :]


class Series:
    """The rings of one queue, or of the node."""

    __slots__ = ("_before", "rings")

    def __init__(self, span_s: int = HALF_HOUR_S) -> None:
        self.rings = (Ring(STEP_S, span_s), Ring(LONG_STEP_S, DAY_S))
        # For each ring: what its next row is compared with, and the moment when that was seen.
        self._before: list[tuple[int, Look] | None] = [None, None]

    def take(self, at_s: int, look: Look) -> None:
        """Take what is seen at a moment, which ends a step of the short ring, and perhaps one of the long ring."""
        for place, ring in enumerate(self.rings):
            before = self._before[place]
            if at_s % ring.step_s == 0 and at_s // ring.step_s > ring.last:
                # What was seen long ago says nothing about one step.
                if before is not None and not 0 < at_s - before[0] <= MISSED_MAX * ring.step_s:
                    before = None
                ring.put(at_s // ring.step_s, _row_of(at_s, look, before))
                self._before[place] = at_s, _kept(look)
            elif before is None:
                self._before[place] = at_s, _kept(look)

    def start_from(self, at_s: int, look: Look) -> None:
        """Compare what is seen next with this."""
        self._before = [(at_s, _kept(look))] * len(self.rings)

    def answer(self, step_s: int, last_s: int) -> dict[str, object]:
        """Return the values of the last so many seconds, each with the end of its step.

        They are thousands of values for each name, so whoever wants more than copies of them takes a turn for each.
        """
        ring = next(ring for ring in self.rings if ring.step_s == step_s)
        count = last_s // step_s
        return {
            "step_s": step_s,
            "at_s": [step * step_s for step in ring.steps(count)],
            "series": {name: ring.column(which, count) for which, name in enumerate(NAMES)},
        }


def _kept(look: Look) -> Look:
    """Return a copy whose counts do not grow."""
    waits, works = look.waits, look.works
    return look._replace(
        waits=None if waits is None else array("Q", waits), works=None if works is None else array("Q", works)
    )


def _row_of(at_s: int, look: Look, before: tuple[int, Look] | None) -> list[float]:
    row = [UNKNOWN] * len(COUNTERS)
    spans = [UNKNOWN] * (2 * len(SHARES))
    if before is not None:
        elapsed_s, seen = at_s - before[0], before[1]
        then = seen.counters
        if seen.incarnation != look.incarnation:
            then = [*[0] * OF_INCARNATION, *then[OF_INCARNATION:]]
        pairs = zip(look.counters, then, strict=True)
        row = [UNKNOWN if a is None or b is None else _growth(a, b) / elapsed_s for a, b in pairs]
        spans = [*_percentiles_s(look.waits, seen.waits), *_percentiles_s(look.works, seen.works)]
    return [*row, *(UNKNOWN if count is None else count for count in look.states), *spans]


def _growth(now: int, then: int) -> int:
    """Return by how much a counter grew; one that is smaller than before began again."""
    return now - then if now >= then else now


def _percentiles_s(now: Sequence[int] | None, then: Sequence[int] | None) -> Iterator[float]:
    counts: Sequence[int] = ()
    if now is not None and then is not None:
        counts = [_growth(a, b) for a, b in zip(now, then, strict=True)] if now and then else now
    for share in SHARES.values():
        span_ms = percentile_ms(counts, share)
        yield UNKNOWN if span_ms is None else span_ms / 1000


def little_endian(values: array[float]) -> array[float]:
    """Return values as they stand in the file, or from there; on most machines they are the same."""
    if sys.byteorder == "little":
        return values
    turned = array("f", values)
    turned.byteswap()
    return turned
