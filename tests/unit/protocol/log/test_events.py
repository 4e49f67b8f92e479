"""What an entry of the log did to one message, in words."""

import msgspec
import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Requeued,
    Result,
)
from wakeq.protocol.log.events import MessageEvent, events_at, events_in, published

AT = 1_000
TOKENS = [(1, 1), (1, 2)]
LETTER = Draft(b"x", headers=msgspec.msgpack.encode({"wakeq-reason": "nack", "wakeq-error": "boom"}))


def released(reason: Reason) -> Released:
    return Released("q", 3, [4, 5], [0, 7_000], TOKENS, reason, "boom")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Delivered("q", 3, [4, 5], [10, 20], 1, worker=7), [MessageEvent(AT, "delivered", 7, due_ms=20)]),
        (Delivered("q", 3, [4, 5], [10, 20], 1, workers=[8, 9]), [MessageEvent(AT, "delivered", 9, due_ms=20)]),
        (Extended("q", 3, [5], [30]), [MessageEvent(AT, "extended", due_ms=30)]),
        (released(Reason.NACK), [MessageEvent(AT, "failed", reason="nack", error="boom", due_ms=7_000)]),
        (released(Reason.TIMEOUT), [MessageEvent(AT, "timed out", reason="timeout", error="boom", due_ms=7_000)]),
        (released(Reason.DISCONNECT), [MessageEvent(AT, "disconnected", 0, "disconnect", "boom", due_ms=7_000)]),
        (released(Reason.RETURNED), [MessageEvent(AT, "released", 0, "returned", "boom", due_ms=7_000)]),
        (Expired("q", 3, [5]), [MessageEvent(AT, "expired", is_end=True)]),
        (Requeued("q", 3, [5]), [MessageEvent(AT, "made due", due_ms=AT)]),
        (Ack("q", 3, [4, 5], TOKENS, worker=7), [MessageEvent(AT, "acknowledged", 7, is_end=True)]),
        (
            Ack("q", 3, [5], TOKENS[:1], worker=7, delivered=True),
            [MessageEvent(AT, "delivered", 7), MessageEvent(AT, "acknowledged", 7, is_end=True)],
        ),
        (
            Ack("q", 3, [4, 5], TOKENS, [Publish("q.dead", [Draft(b""), LETTER])], dead=True),
            [MessageEvent(AT, "dead lettered", 0, "nack", "boom", queue="q.dead", is_end=True)],
        ),
        (
            Ack("q", 3, [5], TOKENS[:1], [Publish("other", [Draft(b"")])], moved=True),
            [MessageEvent(AT, "moved", queue="other", is_end=True)],
        ),
        (Ack("q", 3, [5], TOKENS[:1], moved=True), [MessageEvent(AT, "deleted", is_end=True)]),
        (
            Claim("q", 3, ClaimAction.STAGED, "s", numbers=[5], until_ms=50, worker=6),
            [MessageEvent(AT, "claimed", 6, due_ms=50)],
        ),
        (Claim("q", 3, ClaimAction.LAPSED, "s", numbers=[5]), [MessageEvent(AT, "timed out")]),
        (Claim("q", 3, ClaimAction.SETTLED, "s", numbers=[5]), [MessageEvent(AT, "acknowledged", is_end=True)]),
        (Expired("q", 3, [4]), []),
        (CreateQueue("q", Policies()), []),
    ],
)
def test_entry_is_told_in_the_words_of_people(entry: Entry, expected: list[MessageEvent]) -> None:
    assert events_in(entry, AT, 5) == expected


def test_refused_item_is_no_event_and_a_cancelled_one_says_so() -> None:
    ack = Ack("q", 3, [5], [(0, 0)])

    assert events_in(ack, AT, 5, Result.STALE) == []
    assert [event.reason for event in events_in(ack, AT, 5, Result.CANCELLED)] == ["cancelled"]


def test_message_that_is_named_by_a_foreign_uid_is_acknowledged() -> None:
    ack = Ack("q", 3, [-1], [(0, 0)], foreign={0: "abc"}, worker=2)

    assert events_at(ack, AT, 0) == [MessageEvent(AT, "acknowledged", 2, is_end=True)]


def test_publication_says_where_a_message_came_from() -> None:
    publish = Publish("q", [Draft(b"1"), Draft(b"2", delay_ms=50)], worker=4)
    move = Ack("old", 2, [1], [(0, 0)], [publish], moved=True)

    assert published(publish, AT, 1, source=None) == MessageEvent(AT, "published", 4, due_ms=AT + 50)
    assert published(publish, AT, 0, source=move) == MessageEvent(AT, "published", 4, "moved", queue="old")
