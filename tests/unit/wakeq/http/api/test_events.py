"""Events: which queues a watcher is sent, in which order, and what it is told on a follower."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import node_here, run
from wakeq.http.api import events
from wakeq.http.api.events import EventsQuery, Reading, event_for
from wakeq.http.callers import Caller
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.view import Gauges

EVERYBODY = Caller("someone", None)
NONE = Gauges("", *[0] * (len(Gauges._fields) - 1))._replace(timings=None, is_dead_letter=False)


def gauges(name: str, **values: Any) -> Gauges:
    return NONE._replace(name=name, queue_id=1, **values)


def reading_of(*found: Gauges, earlier: tuple[Gauges, ...] = ()) -> Reading:
    return Reading(10_000, sorted(found, key=lambda one: one.name), {}, {}, earlier=earlier)


def names(reading: Reading, **query: Any) -> list[str]:
    return [queue["name"] for queue in event_for(reading, EventsQuery(**query), EVERYBODY)["queues"]]


def test_queues_with_most_messages_come_first_and_equal_ones_by_name() -> None:
    reading = reading_of(gauges("c"), gauges("b"), gauges("a"), gauges("z", ready=1, leased=1), gauges("y", delayed=1))

    assert names(reading) == ["z", "y", "a", "b", "c"]


@pytest.mark.parametrize(
    ("sort", "field"),
    [
        ("ready", "ready"),
        ("delayed", "delayed"),
        ("leased", "leased"),
        ("workers", "subscribers"),
        ("dead", "dead"),
    ],
)
def test_queues_are_sorted_by_a_column_in_both_directions(sort: str, field: str) -> None:
    reading = reading_of(gauges("a", **{field: 2}), gauges("b", **{field: 3}), gauges("c", **{field: 1}))

    assert names(reading, sort=sort) == ["b", "a", "c"]
    assert names(reading, sort=sort, ascending=True) == ["c", "a", "b"]


def test_queue_without_ready_messages_is_the_youngest() -> None:
    reading = reading_of(
        gauges("empty"), gauges("old", ready=1, oldest_ready_ms=1), gauges("new", ready=1, oldest_ready_ms=9_000)
    )

    assert names(reading, sort="oldest") == ["old", "new", "empty"]


def test_queues_are_sorted_by_what_the_last_seconds_published() -> None:
    now = gauges("busy", published=1_000), gauges("once_busy", published=5_000), gauges("anew", published=9_000)
    earlier = gauges("busy", published=900), gauges("once_busy", published=5_000), gauges("anew")._replace(queue_id=7)
    reading = reading_of(*now, earlier=earlier)

    assert names(reading, sort="published") == ["busy", "anew", "once_busy"]


def test_pages_of_queues_do_not_overlap() -> None:
    reading = reading_of(*[gauges(f"q{number}") for number in range(5)])

    pages = [names(reading, sort="name", ascending=True, offset=offset, limit=2) for offset in (0, 2, 4, 6)]

    assert pages == [["q0", "q1"], ["q2", "q3"], ["q4"], []]


def test_filter_finds_a_part_of_the_name_and_counts_what_it_found() -> None:
    reading = reading_of(gauges("eu.Mail"), gauges("mails"), gauges("orders"))

    event = event_for(reading, EventsQuery(contains="mail", limit=1), EVERYBODY)

    assert [queue["name"] for queue in event["queues"]] == ["eu.Mail"]
    assert (event["queues_found"], event["queues_total"]) == (2, 3)


def test_queues_of_dead_letters_are_hidden_or_alone() -> None:
    # Whatever its name: a policy may name any queue.
    reading = reading_of(gauges("mails"), gauges("failures", is_dead_letter=True, ready=3))

    assert names(reading, dead_letters="hidden") == ["mails"]
    assert names(reading, dead_letters="only") == ["failures"]
    assert event_for(reading, EventsQuery(), EVERYBODY)["totals"]["letters"] == 3


def test_queues_that_need_somebody_come_first() -> None:
    reading = reading_of(
        gauges("worked", ready=9, leased=1),
        gauges("subscribed", ready=9, subscribers=1),
        gauges("paused", paused_until_ms=99_999),
        gauges("forgotten", ready=1),
        gauges("failures", ready=1, is_dead_letter=True),
    )

    assert names(reading, sort="attention") == ["failures", "forgotten", "paused", "subscribed", "worked"]


def test_event_of_a_follower_names_the_leader() -> None:
    refusal = Refusal("NOT_LEADER", "node 2 leads; connect to it", "b:2601", "b:8080")

    event = event_for(Reading(1, (), {}, {}, refusal), EventsQuery(), EVERYBODY)

    assert (event["code"], event["leader_http"]) == ("NOT_LEADER", "b:8080")


def test_second_watcher_is_sent_the_last_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "READ_EVERY_S", 3600)

    async def watch() -> list[bytes]:
        async with node_here(tmp_path / "data") as here, asyncio.timeout(30):
            url = here.http + "/api/v1/events"
            async with here.session.get(url) as first:
                begins = [(await first.content.readline())[:6]]
                async with here.session.get(url, params={"sort": "name"}) as second:
                    return [*begins, (await second.content.readline())[:6]]

    assert run(watch()) == [b"data: ", b"data: "]
