"""Exposition: formats samples as the text that Prometheus reads (version 0.0.4).  Pure.

    metrics of the node, counters of the queues --> pieces of text, each a few milliseconds of work

Between two pieces the caller lets others run.  It knows no actor and no socket.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from wakeq.actors.log.histogram import Histogram
from wakeq.http.families import ALL_QUEUES, FAMILIES, HISTOGRAM, MONIQUE, NODE, QUEUE, STATES, Family
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.queue.timings import BOUNDS_MS, Timings
from wakeq.protocol.queue.view import Gauges

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Lines made at a time, in two to three milliseconds.
PIECE_QUEUES = 2_500
# The same for queues with a line for each bucket.
PIECE_TIMINGS = 350
BOUNDS_S = tuple(bound_ms / 1000 for bound_ms in BOUNDS_MS)
REASONS = tuple(reason for reason in Reason if reason)
# Stands for the label of a queue in a template; no label contains it.
LABEL = "\0"
# The default queue has no name; no name contains a space.
DEFAULT_LABEL = "default queue"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """One value of a metric of the node; `labels` are in the order of its family."""

    name: str
    value: float | Histogram
    labels: Sequence[str] = ()


def escaped(text: str) -> str:
    """Return a label's value as it is written between quotes."""
    return text.translate(_ESCAPES)


def head(family: Family) -> str:
    return f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"


def node_text(samples: Sequence[Sample], families: Sequence[Family] = (*NODE, *MONIQUE)) -> str:
    """Return the metrics of the node.  Every sample belongs to a family of the table."""
    by_name: dict[str, list[Sample]] = {family.name: [] for family in families}
    for sample in samples:
        by_name[sample.name].append(sample)
    parts = []
    for family in families:
        if by_name[family.name]:
            parts.append(head(family))
            parts += [_lines_of(family, sample) for sample in by_name[family.name]]
    return "".join(parts)


def _lines_of(family: Family, sample: Sample) -> str:
    pairs = zip(family.labels, sample.labels, strict=True)
    labels = ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)
    if isinstance(sample.value, Histogram):
        assert family.kind == HISTOGRAM, family.name
        return _histogram_lines(family.name, sample.value)
    return f"{family.name}{{{labels}}} {sample.value}\n" if labels else f"{family.name} {sample.value}\n"


def _histogram_lines(name: str, histogram: Histogram) -> str:
    lines = []
    for bound, count in histogram.cumulative():
        shown = "+Inf" if bound == float("inf") else f"{bound:g}"
        lines.append(f'{name}_bucket{{le="{shown}"}} {count}\n')
    lines.append(f"{name}_sum {histogram.total}\n{name}_count {histogram.count}\n")
    return "".join(lines)


# Queues -------------------------------------------------------------------------------------------------------------


def queue_pieces(gauges: Sequence[Gauges], now_ms: int, timed_max: int) -> Iterator[str]:
    """Yield the series of these queues, metric by metric; so many of them, the first by name, have their timings."""
    slices = [gauges[start : start + PIECE_QUEUES] for start in range(0, len(gauges), PIECE_QUEUES)]
    # The labels of each slice, made with the first metric.
    labels: list[list[str]] = []
    for name, make in _QUEUE_LINES.items():
        yield head(FAMILIES[name])
        for place, some in enumerate(slices):
            if place == len(labels):
                labels.append([escaped(one.name) or DEFAULT_LABEL for one in some])
            yield make(zip(labels[place], some, strict=True), now_ms)
    yield from _timings_pieces(gauges, timed_max)


# An iterable of pairs: the label of a queue, and its Gauges.
Rows = Any


def _state_lines(rows: Rows, _: int) -> str:
    name = "wakeq_queue_messages"
    return "".join(
        [
            f'{name}{{queue="{q}",state="ready"}} {g.ready}\n{name}{{queue="{q}",state="delayed"}} {g.delayed}\n'
            f'{name}{{queue="{q}",state="leased"}} {g.leased}\n'
            for q, g in rows
        ]
    )


def _age_lines(rows: Rows, now_ms: int) -> str:
    name = "wakeq_queue_oldest_ready_age_seconds"
    return "".join(
        [
            f'{name}{{queue="{q}"}} {max(0, now_ms - g.oldest_ready_ms) / 1000 if g.ready else 0}\n'
            for q, g in rows
            if g.oldest_ready_ms or not g.ready
        ]
    )


def _paused_lines(rows: Rows, _: int) -> str:
    return "".join([f'wakeq_queue_paused{{queue="{q}"}} {int(g.paused_until_ms > 0)}\n' for q, g in rows])


def _is_dead_letter_lines(rows: Rows, _: int) -> str:
    return "".join([f'wakeq_queue_is_dead_letter{{queue="{q}"}} {int(g.is_dead_letter)}\n' for q, g in rows])


def _lines_by(name: str, field: str) -> Callable[[Rows, int], str]:
    """Return a function that writes the lines of a metric which is a field of Gauges."""
    place = Gauges._fields.index(field)

    def lines(rows: Rows, _: int) -> str:
        return "".join([f'{name}{{queue="{q}"}} {g[place]}\n' for q, g in rows])

    return lines


_QUEUE_LINES: Mapping[str, Callable[[Rows, int], str]] = {
    "wakeq_queue_messages": _state_lines,
    "wakeq_queue_oldest_ready_age_seconds": _age_lines,
    "wakeq_queue_paused": _paused_lines,
    "wakeq_queue_is_dead_letter": _is_dead_letter_lines,
} | {
    name: _lines_by(name, field)
    for name, field in {
        "wakeq_queue_bytes": "bytes",
        "wakeq_queue_subscribers": "subscribers",
        "wakeq_queue_waiting": "waiting",
        "wakeq_queue_published_total": "published",
        "wakeq_queue_delivered_total": "delivered",
        "wakeq_queue_acked_total": "acked",
        "wakeq_queue_released_total": "released",
        "wakeq_queue_dead_total": "dead",
        "wakeq_queue_wakes_total": "wakes",
    }.items()
}


# Timings ------------------------------------------------------------------------------------------------------------


def timings_samples(timings: Timings) -> list[Sample]:
    """Return the timings of all queues together."""
    waits, works = Histogram(BOUNDS_S), Histogram(BOUNDS_S)
    waits.counts, waits.total = timings.waits, timings.waited_ms / 1000
    works.counts, works.total = timings.works, timings.worked_ms / 1000
    ended = [Sample("wakeq_unacknowledged_total", timings.ended[reason], (reason.name.lower(),)) for reason in REASONS]
    return [Sample("wakeq_wait_seconds", waits), Sample("wakeq_work_seconds", works), *ended]


def _timings_pieces(gauges: Sequence[Gauges], queues_max: int) -> Iterator[str]:
    """Yield the timings of the queues that have some; a queue has many lines, so a piece has few queues."""
    timed = islice((one for one in gauges if one.timings is not None), queues_max)
    rows = [(escaped(one.name) or DEFAULT_LABEL, one.timings) for one in timed]
    slices = [rows[start : start + PIECE_TIMINGS] for start in range(0, len(rows), PIECE_TIMINGS)]
    for family, make in _TIMINGS_LINES.items():
        yield head(FAMILIES[family])
        for some in slices:
            yield "".join([make(timings).replace(LABEL, label) for label, timings in some if timings is not None])


def _bucket_template(name: str) -> str:
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    lines = [f'{name}_bucket{{queue="{LABEL}",le="{bound}"}} %d\n' for bound in bounds]
    return "".join(lines) + f'{name}_sum{{queue="{LABEL}"}} %s\n{name}_count{{queue="{LABEL}"}} %d\n'


def _wait_lines(timings: Timings) -> str:
    counts = (*accumulate(timings.waits),)
    return _WAIT_TEMPLATE % (*counts, timings.waited_ms / 1000, counts[-1])


def _work_lines(timings: Timings) -> str:
    counts = (*accumulate(timings.works),)
    return _WORK_TEMPLATE % (*counts, timings.worked_ms / 1000, counts[-1])


def _ended_lines(timings: Timings) -> str:
    ended = timings.ended
    return _ENDED_TEMPLATE % tuple([ended[reason] for reason in REASONS]) if any(ended) else ""


_WAIT_TEMPLATE, _WORK_TEMPLATE = map(_bucket_template, ("wakeq_queue_wait_seconds", "wakeq_queue_work_seconds"))
_ENDED_TEMPLATE = "".join(
    f'wakeq_queue_unacknowledged_total{{queue="{LABEL}",reason="{reason.name.lower()}"}} %d\n' for reason in REASONS
)
_TIMINGS_LINES: Mapping[str, Callable[[Timings], str]] = {
    "wakeq_queue_wait_seconds": _wait_lines,
    "wakeq_queue_work_seconds": _work_lines,
    "wakeq_queue_unacknowledged_total": _ended_lines,
}


# Sums ---------------------------------------------------------------------------------------------------------------


class Totals:
    """Sums of the counters of all queues since the start.

    A queue's own counters are reset by a purge and end with the queue, so the sums add the growth since the last call
    of `add`; events between that call and the end of a queue are not counted.
    """

    FIELDS = ("published", "delivered", "acked", "released", "expired", "dead", "moved", "wakes")

    def __init__(self) -> None:
        self._sums = dict.fromkeys(self.FIELDS, 0)
        self._seen: dict[str, Gauges] = {}

    def add(self, gauges: Sequence[Gauges]) -> Iterator[None]:
        """Add the growth of all queues, in pieces."""
        seen, self._seen = self._seen, {one.name: one for one in gauges}
        sums = [0] * len(self.FIELDS)
        first = Gauges._fields.index(self.FIELDS[0])
        for place, now in enumerate(gauges, 1):
            before = seen.get(now.name)
            counts, base = (
                now[first:],
                _NOTHING if before is None or before.queue_id != now.queue_id else before[first:],
            )
            if counts != base:
                for which, (count, known) in enumerate(zip(counts, base, strict=True)):
                    sums[which] += max(0, count - known)  # type: ignore[operator]
            if place % PIECE_QUEUES == 0:
                yield
        for field, more in zip(self.FIELDS, sums, strict=True):
            self._sums[field] += more

    def samples(self, gauges: Sequence[Gauges], unlisted: int) -> list[Sample]:
        """Return the metrics of all queues together."""
        sizes = [sum(getattr(one, state) for one in gauges) for state in STATES]
        return [
            Sample("wakeq_queues", len(gauges)),
            Sample("wakeq_queues_unlisted", unlisted),
            Sample("wakeq_queues_paused", sum(one.paused_until_ms > 0 for one in gauges)),
            *(Sample("wakeq_messages", size, (state,)) for state, size in zip(STATES, sizes, strict=True)),
            *(Sample(f"wakeq_{field}_total", count) for field, count in self._sums.items()),
        ]


_NOTHING = (0,) * len(Totals.FIELDS)

assert all(name in FAMILIES for name in _QUEUE_LINES), "every line belongs to a metric of the table"
assert {family.name for family in QUEUE} == {*_QUEUE_LINES, *_TIMINGS_LINES}, "every metric of the table is exported"
assert ALL_QUEUES, "Totals.samples exports them"
assert Gauges._fields[-len(Totals.FIELDS) :] == Totals.FIELDS, "the counters are the last fields of Gauges"
