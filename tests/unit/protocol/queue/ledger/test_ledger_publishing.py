"""What a ledger takes: numbers, moments, policies, and what is published once however often it is said."""

from typing import Any

import pytest
from msgspec.structs import astuple

from tests.helpers.models.ledger_by_hand import (
    NOW_MS,
    QUEUE_ID,
    TERM,
    WINDOW_MS,
    ack,
    deliver,
    drafts,
    make,
    put,
    put_numbered,
    put_once,
)
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Ack, Draft, Publish, Result
from wakeq.protocol.queue.ledger.chunks import CHUNK, encode_chunk
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import (
    SESSION_WINDOW,
    Limits,
    Mixed,
    Publishers,
    Repeated,
    new_drafts,
    new_numbers,
)
from wakeq.protocol.queue.ledger.uniform import uniform_bodies


def publishers_of(ledger: Ledger) -> Publishers:
    assert ledger.publishers is not None
    return ledger.publishers


# Publishing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policies", [{}, {"max_size": 9}, {"max_bytes": 99}, {"priority_min": 2}], ids=str)
@pytest.mark.parametrize("shared", [(), (3, 20, 30, 40)], ids=str)
@pytest.mark.parametrize(
    "once", [{"atomic": True}, {"id": "i", "atomic": True}, {"session": "s", "ordinals": [1], "atomic": True}, {}]
)
def test_drafts_of_one_buffer_are_published_as_separate_drafts_are(
    once: dict[str, Any], shared: tuple[int, ...], policies: dict[str, int]
) -> None:
    bodies = [b"x" * (i % 5) for i in range(2 * CHUNK)]
    one_by_one, together = make(**policies), make(**policies)
    for ledger in (one_by_one, together):
        put(ledger, *drafts(3))

    expected = one_by_one.publish(Publish("q", [Draft(body, *shared) for body in bodies], **once), NOW_MS)
    results = together.publish(Publish("q", uniform_bodies(bodies, Draft(b"", *shared)), **once), NOW_MS)

    assert list(results) == list(expected)
    assert (together.columns.living, together.columns.bytes, together.totals) == (
        one_by_one.columns.living, one_by_one.columns.bytes, one_by_one.totals
    )  # fmt: skip
    about = [
        [(n, encode_chunk(chunk, sides)) for n, chunk, sides in ledger.collect().chunks if chunk is not None]
        for ledger in (one_by_one, together)
    ]
    assert about[0] == about[1]


PLAIN = Draft(b"ab", headers=b"\x80")
MIXED = [Draft(b"", priority=3), PLAIN, Draft(b"a", delay_ms=5), Draft(b"", expires_ms=6), Draft(b"b", timeout_ms=7)]


@pytest.mark.parametrize(
    "drafts",
    [[PLAIN], [PLAIN] * (CHUNK + 2), [*MIXED, PLAIN, PLAIN], [PLAIN, PLAIN, *MIXED], [*[PLAIN] * (CHUNK - 2), *MIXED]],
)
def test_messages_published_one_by_one_are_written_like_a_batch(drafts: list[Draft]) -> None:
    together, one_by_one = make(), make()

    put(together, *drafts)
    for draft in drafts:
        put(one_by_one, draft)

    about = [
        (
            [(n, encode_chunk(chunk, sides)) for n, chunk, sides in ledger.collect().chunks if chunk is not None],
            [ledger.columns.next_number, ledger.columns.living, ledger.columns.bytes, ledger.totals],
            [ledger.columns.has_moments, ledger.columns.has_timeouts, ledger.columns.only_sizes],
        )
        for ledger in (together, one_by_one)
    ]
    assert about[0] == about[1]


def test_numbers_run_on_from_one_and_across_chunks() -> None:
    ledger = make()

    first = put(ledger, *drafts(3))
    second = put(ledger, *drafts(2 * CHUNK))

    assert first == [1, 2, 3]
    assert second == list(range(4, 4 + 2 * CHUNK))
    assert list(ledger.columns.living_numbers()) == first + second
    assert (ledger.columns.living, ledger.columns.bytes, ledger.totals.published) == (
        3 + 2 * CHUNK,
        4 * (3 + 2 * CHUNK),
        3 + 2 * CHUNK,
    )


def test_delay_and_expiry_of_a_message_count_from_the_stamp_of_its_entry() -> None:
    ledger = make(timeout=30)

    put(ledger, *drafts(5))
    put(ledger, Draft(b"", priority=-4, delay_ms=500, expires_ms=900, timeout_ms=7_000))
    put(ledger, *drafts(1))

    assert (ledger.columns.priority_of(6), ledger.columns.published_due_of(6), ledger.columns.expires_of(6)) == (
        -4,
        NOW_MS + 500,
        NOW_MS + 900,
    )
    assert (ledger.columns.own_timeout_of(6), ledger.timeout_of(6)) == (7_000, 7_000)
    for plain in (5, 7):
        assert (ledger.columns.priority_of(plain), ledger.due_of(plain), ledger.columns.expires_of(plain)) == (0, 0, 0)
        assert (ledger.columns.own_timeout_of(plain), ledger.timeout_of(plain)) == (0, 30_000)


def test_empty_body_lives() -> None:
    ledger = make()

    put(ledger, Draft(b""))

    assert ledger.columns.lives(1)
    assert (ledger.columns.living, ledger.columns.bytes) == (1, 0)


def test_drafts_that_stand_for_themselves_are_refused_one_by_one() -> None:
    ledger = make(max_message_size=3, priority_max=5)

    results = put(ledger, Draft(b"abc"), Draft(b"abcd"), Draft(b"", priority=6), Draft(b"x"))

    assert results == [1, Result.TOO_LARGE, Result.KEY_RANGE, 2]
    assert list(ledger.columns.living_numbers()) == [1, 2]


def test_batch_is_checked_whole_before_its_first_change() -> None:
    ledger = make(max_size=2)
    batch = Publish("q", drafts(3), atomic=True)

    results = ledger.publish(batch, NOW_MS)

    assert results == [Result.QUEUE_FULL] * 3
    assert (ledger.columns.living, ledger.columns.next_number) == (0, 1)
    assert not any(astuple(ledger.collect()))


def test_batch_with_an_id_is_atomic_without_being_marked_so() -> None:
    ledger = make(max_size=2)

    results = ledger.publish(Publish("q", drafts(3), id="a"), NOW_MS)

    assert results == [Result.QUEUE_FULL] * 3
    assert (ledger.columns.living, len(publishers_of(ledger).ids)) == (0, 0)


def test_limits_of_a_queue_count_the_earlier_drafts_of_an_entry() -> None:
    by_size, by_bytes = make(max_size=2), make(max_bytes=9)

    assert put(by_size, *drafts(3)) == [1, 2, Result.QUEUE_FULL]
    assert put(by_bytes, *drafts(3)) == [1, 2, Result.QUEUE_FULL]
    assert put(by_bytes, Draft(b"c")) == [3]


def test_limits_exceeded_together_are_named_in_the_order_size_range_payload() -> None:
    wrong = Draft(b"long", priority=9)

    assert put(make(max_size=0, priority_max=1, max_message_size=1), wrong) == [Result.QUEUE_FULL]
    assert put(make(max_size=1, priority_max=1, max_message_size=1), wrong) == [Result.KEY_RANGE]
    assert put(make(max_size=1, priority_min=10, max_message_size=1), wrong) == [Result.KEY_RANGE]
    assert put(make(max_size=1, priority_max=9, max_message_size=1), wrong) == [Result.TOO_LARGE]


def test_oversized_message_is_judged_in_the_same_order_and_never_stored() -> None:
    def judged(**policies: int) -> list[int]:
        return list(make(**policies).publish(Publish("q", [Draft(b"", priority=9)], oversized=True), NOW_MS))

    assert judged() == [Result.TOO_LARGE]
    assert judged(max_size=0, priority_max=1) == [Result.QUEUE_FULL]
    assert judged(max_size=1, priority_max=1) == [Result.KEY_RANGE]
    assert judged(max_size=1, priority_max=9) == [Result.TOO_LARGE]


def test_acknowledgement_that_is_the_delivery_too_counts_as_both() -> None:
    ledger = make()
    put(ledger)

    assert ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2], [(TERM, 1), (TERM, 2)], delivered=True)) == [0, Result.UNKNOWN]

    assert (ledger.totals.delivered, ledger.totals.acked, ledger.columns.living, ledger.deliveries.leased) == (
        1,
        1,
        0,
        0,
    )


def test_leased_message_does_not_count_for_the_size() -> None:
    ledger = make(max_size=1)
    put(ledger)

    deliver(ledger, 1, 1)

    assert put(ledger) == [2]
    assert (ledger.size, ledger.deliveries.leased, ledger.columns.living) == (1, 1, 2)


def test_dead_letters_are_not_subject_to_policies() -> None:
    ledger = make(max_size=0, max_bytes=0, max_message_size=0, priority_min=3, priority_max=3)
    letter = Publish("q", drafts(1), forced=True)

    assert ledger.judge(letter) == Result.DONE
    assert list(ledger.publish(letter, NOW_MS)) == [1]


def test_verdict_on_a_follow_up_matches_its_publish() -> None:
    ledger = make(max_size=2)

    assert ledger.judge(Publish("q", drafts(3), atomic=True)) == Result.QUEUE_FULL
    assert ledger.judge(Publish("q", drafts(2), atomic=True)) == Result.DONE
    assert ledger.columns.living == 0


# Publishing once ------------------------------------------------------------------------------------------------------


def test_id_is_idempotent_for_fifteen_minutes_of_the_logs_time() -> None:
    ledger = make()
    first = put_once(ledger, "a", count=2)

    again = ledger.publish(Publish("q", drafts(2), atomic=True, id="a"), NOW_MS + WINDOW_MS - 1)
    later = put_once(ledger, "a", NOW_MS + WINDOW_MS, count=2)

    assert first == [1, 2]
    assert isinstance(again, Repeated)
    assert (list(again), again.queue_id, list(new_numbers(again))) == ([1, 2], QUEUE_ID, [])
    assert later == [3, 4]


def test_repetition_does_not_lengthen_the_time_of_an_id() -> None:
    ledger = make()
    put_once(ledger, "a")

    put_once(ledger, "a", NOW_MS + WINDOW_MS - 1)

    assert put_once(ledger, "a", NOW_MS + WINDOW_MS) == [2]


def test_publish_at_the_bound_of_ids_is_busy_until_the_oldest_are_forgotten() -> None:
    ledger = make(Limits(dedup_ids_max=2))
    put_once(ledger, "a", NOW_MS)
    put_once(ledger, "b", NOW_MS + 1)

    assert put_once(ledger, "c", NOW_MS + 2) == [Result.BUSY]
    assert put_once(ledger, "b", NOW_MS + 2) == [2]  # what is known is still answered
    assert put(ledger, at_ms=NOW_MS + 2) == [3]  # and without an id nothing is bounded
    assert put_once(ledger, "c", NOW_MS + WINDOW_MS) == [4]
    assert list(publishers_of(ledger).ids) == ["b", "c"]


def test_refused_publish_does_not_use_up_its_id_or_number() -> None:
    ledger = make(max_size=1)
    put(ledger)

    assert put_once(ledger, "a") == [Result.QUEUE_FULL]
    assert put_numbered(ledger, 1) == [Result.QUEUE_FULL]
    ack(ledger, 1)

    assert put_once(ledger, "a") == [2]
    ack(ledger, 2)
    assert put_numbered(ledger, 1) == [3]


def test_number_of_a_session_is_stored_once() -> None:
    ledger = make()

    assert put_numbered(ledger, 1, 2, 3) == [1, 2, 3]
    assert put_numbered(ledger, 3) == [3]
    assert put_numbered(ledger, 2, 3, 4) == [2, 3, 4]
    assert put_numbered(ledger, 1, session="other") == [5]
    assert ledger.columns.living == 5


def test_number_that_stands_twice_in_one_entry_is_stored_once() -> None:
    ledger = make()

    results = ledger.publish(Publish("q", drafts(3), session="s", ordinals=[1, 1, 2]), NOW_MS)

    assert list(results) == [1, 1, 2]
    assert ledger.columns.living == 2
    assert list(new_numbers(results)) == [1, 2]


def test_new_drafts_are_the_stored_ones_and_not_repeated_ones_with_equal_numbers() -> None:
    ledger = make()
    put_numbered(ledger, 5)
    ledger.begin(QUEUE_ID + 1, Policies())  # numbers begin again at 1
    new = [Draft(b"old"), Draft(b"new"), Draft(b"last")]

    results = ledger.publish(Publish("q", new, session="s", ordinals=[5, 6, 7]), NOW_MS)

    assert list(results) == [1, 1, 2]
    assert isinstance(results, Mixed)
    assert results.repeated == {0: QUEUE_ID}
    assert [draft.body for draft in new_drafts(results, new)] == [b"new", b"last"]
    assert new_drafts(range(1, 4), new) == new
    assert new_drafts([Result.BUSY, 3, 4], new) == new[1:]
    assert new_drafts(Repeated(1, range(1, 4)), new) == []


def test_batch_of_a_session_is_one_number() -> None:
    ledger = make()
    batch = Publish("q", drafts(3), atomic=True, session="s", ordinals=[1])

    first, again = ledger.publish(batch, NOW_MS), ledger.publish(batch, NOW_MS)

    assert list(first) == list(again) == [1, 2, 3]
    assert ledger.columns.living == 3


def test_batch_that_is_repeated_as_a_single_message_gets_one_answer_for_each() -> None:
    ledger = make()
    ledger.publish(Publish("q", drafts(3), atomic=True, session="s", ordinals=[1]), NOW_MS)

    assert put_numbered(ledger, 1) == [1]
    assert put_numbered(ledger, 1, 2) == [1, 4]


def test_session_knows_its_highest_and_the_last_1024_numbers() -> None:
    ledger = make()
    for ordinal in range(1, 2 * SESSION_WINDOW + 2):
        put_numbered(ledger, ordinal)
    living, highest = ledger.columns.living, 2 * SESSION_WINDOW + 1
    oldest = highest - SESSION_WINDOW + 1

    assert put_numbered(ledger, oldest) == [oldest]
    assert put_numbered(ledger, oldest - 1) == [Result.FORGOTTEN]
    assert put_numbered(ledger, 1, highest + 1) == [Result.FORGOTTEN, highest + 1]
    assert ledger.columns.living == living + 1
    assert len(publishers_of(ledger).sessions["s"].outcomes) <= 2 * SESSION_WINDOW
    assert publishers_of(ledger).sessions["s"].highest == highest + 1


def test_number_left_out_within_the_window_may_come_later() -> None:
    ledger = make()
    put_numbered(ledger, SESSION_WINDOW)

    assert put_numbered(ledger, 1) == [2]
    assert put_numbered(ledger, SESSION_WINDOW + 2) == [3]
    assert put_numbered(ledger, 2) == [Result.FORGOTTEN]


def test_session_is_forgotten_fifteen_minutes_after_its_last_use() -> None:
    ledger = make()
    put_numbered(ledger, 1)

    put_numbered(ledger, 1, at_ms=NOW_MS + WINDOW_MS - 1)

    assert put_numbered(ledger, 1, at_ms=NOW_MS + 2 * WINDOW_MS - 2) == [1]
    assert put_numbered(ledger, 1, at_ms=NOW_MS + 4 * WINDOW_MS) == [2]


def test_session_that_is_used_outlives_one_that_began_later() -> None:
    ledger = make()
    put_numbered(ledger, 1)
    put_numbered(ledger, 1, session="later", at_ms=NOW_MS + 1)
    put_numbered(ledger, 2, at_ms=NOW_MS + 10)

    assert put_numbered(ledger, 1, session="later", at_ms=NOW_MS + 1 + WINDOW_MS) == [4]
    assert put_numbered(ledger, 2, at_ms=NOW_MS + 1 + WINDOW_MS) == [3]


def test_sessions_are_bounded_as_ids_are() -> None:
    ledger = make(Limits(dedup_ids_max=1))
    put_numbered(ledger, 1)

    assert put_numbered(ledger, 1, 2, session="other") == [Result.BUSY] * 2
    assert put_numbered(ledger, 2) == [2]
    assert put_numbered(ledger, 1, session="other", at_ms=NOW_MS + WINDOW_MS) == [3]


def test_purge_keeps_publisher_ids_and_a_deletion_does_not() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)

    ledger.begin(9, Policies())
    again = ledger.publish(Publish("q", drafts(1), atomic=True, id="a"), NOW_MS)
    assert isinstance(again, Repeated)
    assert again.queue_id == QUEUE_ID  # its uid is that of the incarnation that stored it
    assert put_numbered(ledger, 1) == [2]

    ledger.forget_publishers()
    ledger.begin(11, Policies())
    assert put_once(ledger, "a") == [1]
    assert put_numbered(ledger, 1) == [2]
