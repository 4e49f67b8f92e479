"""What a report is put together from: the grid, the backlog, percentiles; and that its page shows what it is given."""

import re
import xml.etree.ElementTree
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.pipeline.report import charts as charts
from wakeq.pipeline.report.page import page_of
from wakeq.pipeline.report.report import (
    BIN_GROWTH,
    BUCKETS_S,
    POINTS_MAX,
    Report,
    Tables,
    bucket_for,
    middle_ms,
    report_of,
    worst_of,
)

FACTS = ("redelivered", "redeliveries", "from_before", "stashed_bytes")


def bins_of(ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bins of spans, as an engine computes them."""
    bins = 1 + np.floor(np.log(np.maximum(ms, 1)) / np.log(BIN_GROWTH))
    return np.where(ms <= 0, 0, bins).astype(np.int64)


def count(at_s: int, event: str, events: int, incarnation: int | None = 1, **more: Any) -> dict[str, Any]:
    row = {"cluster": "", "queue": "q", "outcome": "done", "reason": None, "bytes": None, "emptied": None}
    return row | {"at_s": at_s, "event": event, "events": events, "incarnation": incarnation} | more


def span(kind: str, ms: int, messages: int, **more: Any) -> dict[str, Any]:
    bin_ = int(bins_of(np.array([ms]))[0])
    row = {"cluster": "", "queue": "q", "kind": kind, "incarnation": None, "bin": bin_, "messages": messages}
    return row | dict.fromkeys(FACTS, 0) | more


def report(
    counts: list[dict[str, Any]],
    spans: list[dict[str, Any]] | None = None,
    workers: list[dict[str, Any]] | None = None,
    *,
    until_s: int = 10,
    bucket_s: int = 1,
) -> Report:
    return report_of(Tables(counts, spans or [], workers or []), 0, until_s, bucket_s)


def test_backlog_has_a_full_grid_and_counts_all_removals() -> None:
    leaving = [count(3, "acked", 2), count(5, "dead", 1), count(8, "expired", 1), count(9, "moved", 1)]

    made = report([count(0, "published", 6), *leaving])

    assert made.queues[0].backlog == [6, 6, 6, 4, 4, 3, 3, 3, 2, 1]
    assert (made.queues[0].backlog_max, made.queues[0].backlog_last) == (6, 1)
    assert made.queues[0].published == [6] + [0] * 9
    assert made.queues[0].done == [0, 0, 0, 2, 0, 1, 0, 0, 1, 1]


def test_purged_messages_are_gone_and_the_next_incarnation_counts_anew() -> None:
    purge = count(4, "purged", 1, None, emptied=50)

    made = report([count(0, "published", 5, 1), purge, count(6, "published", 2, 50)])

    assert made.queues[0].backlog == [5, 5, 5, 5, 0, 0, 2, 2, 2, 2]


def test_older_message_counts_if_it_ended_in_this_time() -> None:
    life = span("life", 0, 3, incarnation=1, from_before=3)

    made = report([count(2, "acked", 3)], [life])

    assert made.queues[0].backlog_first == 3
    assert made.queues[0].backlog == [3, 3] + [0] * 8


def test_refusals_reasons_and_hours_are_reported() -> None:
    rows = [
        count(0, "published", 4, outcome="queue_full"), count(0, "published", 1, outcome="open"),
        count(0, "released", 2, reason="nack"), count(0, "dead", 1, reason="timeout"),
        count(3 * 3600, "published", 7, bytes=70),
    ]  # fmt: skip

    queue = report(rows, until_s=4 * 3600, bucket_s=60).queues[0]

    assert (queue.refused, queue.releases, queue.dead_letters) == ({"queue_full": 4}, {"nack": 2}, {"timeout": 1})
    assert queue.hours == [0, 0, 0, 7] + [0] * 20
    assert queue.bytes_published == 70


def test_slowest_workers_come_first() -> None:
    rows = []
    for number, ms in ((1, 10), (2, 900)):
        bin_ = int(bins_of(np.array([ms]))[0])
        rows.append({"cluster": "", "worker": number, "messages": 9, "p50": 0, "p90": bin_, "p99": bin_})

    made = report([count(0, "acked", 20)], workers=rows)

    assert [worker.worker for worker in made.workers] == [2, 1]
    assert made.workers[0].working.p50_s == 0
    assert made.workers[0].working.p90_s == pytest.approx(0.9, rel=0.01)


def test_purge_in_one_cluster_leaves_the_messages_of_another() -> None:
    purge = count(4, "purged", 1, None, emptied=50)

    made = report([count(0, "published", 5), count(0, "published", 5, cluster="other"), purge])

    assert made.queues[0].backlog == [10] * 4 + [5] * 6


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.sampled_from([50, 90, 99]))
def test_percentiles_are_right_to_one_part_in_a_hundred(values: list[int], percent: int) -> None:
    bins = bins_of(np.array(values))
    spans = [span("waiting", 0, 1) | {"bin": int(bin_)} for bin_ in bins]

    found = getattr(report([count(0, "published", 1)], spans).queues[0].waiting, f"p{percent}_s")

    rank = max(1, int(np.ceil(len(values) * percent / 100)))
    assert found == pytest.approx(sorted(values)[rank - 1] / 1000, rel=0.0051, abs=0.0006)


def test_bin_represents_its_values() -> None:
    values = np.arange(0, 100_000)

    assert (np.abs(middle_ms(bins_of(values)) - values) <= 0.0051 * values + 0.5).all()


@given(st.integers(1, 40_000_000))
def test_grid_has_a_bounded_number_of_steps(length_s: int) -> None:
    bucket_s = bucket_for(0, length_s)

    assert length_s / bucket_s <= POINTS_MAX or bucket_s == BUCKETS_S[-1]


def test_worst_queues_lose_or_repeat_or_accumulate_messages() -> None:
    fine = [count(0, "published", 100, queue="fine"), count(1, "acked", 100, queue="fine")]
    dying = [count(0, "published", 100, queue="dying"), count(1, "dead", 90, queue="dying", reason="nack")]

    assert [(queue.name, why) for queue, why in worst_of(report(fine + dying).queues)] == [
        ("dying", "90 dead or expired, 10 left at the end")
    ]


def test_page_is_complete_and_escapes_text_from_a_broker() -> None:
    rows = [count(at_s, "published", 3, queue=name) for at_s in range(9) for name in ("<b>&", "", "x" * 99)]
    spans = [span("waiting", 1_500, 4, queue="<b>&"), span("working", 90_000, 4, queue="<b>&")]

    page = page_of(report(rows, spans))

    assert "<b>&" not in page.replace("<b>27<", "")
    assert "&lt;b&gt;&amp;" in page
    assert "(default)" in page
    for drawing in re.findall(r"<svg.*?</svg>", page):
        xml.etree.ElementTree.fromstring(drawing)


def test_empty_report_is_a_page() -> None:
    assert "Nothing to show" in page_of(report([]))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"),
        (0.0005, "0.5 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (200_000, "2.31 d"),
    ],
)
def test_spans_are_written_in_common_units(value: float | None, said: str) -> None:
    assert charts.duration(value) == said


@given(st.floats(0.001, 1e12))
def test_axis_ends_just_above_its_largest_value(value: float) -> None:
    assert value <= charts.nice_top(value) * (1 + 1e-9) <= 4.1 * value + 1e-6
