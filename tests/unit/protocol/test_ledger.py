"""The life of a message in a ledger: policies, deliveries, ends, what publishes once, what is written down."""

import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.chunks import CHUNK, encode_chunk
from wakeq.protocol.commands import (
    ANY_TOKEN,
    Ack,
    Delivered,
    Draft,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Result,
)
from wakeq.protocol.deliveries import ERROR_CHARS_MAX
from wakeq.protocol.delta import Delta
from wakeq.protocol.ledger import Ledger
from wakeq.protocol.publishers import SESSION_WINDOW, Limits, Publishers
from wakeq.protocol.results import Mixed, Repeated, new_drafts, new_numbers
from wakeq.protocol.uid import UidMaker

QUEUE_ID = 7
OTHER_ID = 5
TERM = 2
NOW = 1_000_000
WINDOW = Limits().dedup_window_ms


def make(limits: Limits | None = None, **policies: int) -> Ledger:
    return Ledger("q", QUEUE_ID, Policies(**policies), limits or Limits())  # type: ignore[arg-type]


def drafts(count: int) -> list[Draft]:
    return [Draft(b"body") for _ in range(count)]


def put(ledger: Ledger, *new: Draft, at_ms: int = NOW) -> list[int]:
    return list(ledger.publish(Publish("q", list(new) or drafts(1)), at_ms))


def put_once(ledger: Ledger, name: str, at_ms: int = NOW, count: int = 1) -> list[int]:
    return list(ledger.publish(Publish("q", drafts(count), atomic=True, id=name), at_ms))


def put_numbered(ledger: Ledger, *ordinals: int, at_ms: int = NOW, session: str = "s") -> list[int]:
    entry = Publish("q", drafts(len(ordinals)), session=session, ordinals=list(ordinals))
    return list(ledger.publish(entry, at_ms))


def publishers_of(ledger: Ledger) -> Publishers:
    assert ledger.publishers is not None
    return ledger.publishers


def deliver(ledger: Ledger, number: int, sequence: int, until_ms: int = NOW + 60_000) -> None:
    ledger.deliver(Delivered("q", QUEUE_ID, [number], [until_ms], sequence), TERM)


def release(
    ledger: Ledger, number: int, *, token: tuple[int, int] = ANY_TOKEN, due_ms: int = NOW, error: str = ""
) -> int:
    return ledger.release(Released("q", QUEUE_ID, [number], [due_ms], [token], Reason.NACK, error))[0]


def ack(ledger: Ledger, number: int, token: tuple[int, int] = ANY_TOKEN, queue_id: int = QUEUE_ID) -> int:
    return ledger.acknowledge(Ack("q", queue_id, [number], [token]))[0]


def ack_foreign(ledger: Ledger, uid: str, queue_id: int = 0) -> int:
    return ledger.acknowledge(Ack("q", queue_id, [-1], [ANY_TOKEN], foreign={0: uid}))[0]


# Publishing -------------------------------------------------------------------------------------------------------


def test_numbers_run_on_from_one_and_across_chunks() -> None:
    ledger = make()

    first = put(ledger, *drafts(3))
    second = put(ledger, *drafts(2 * CHUNK))

    assert first == [1, 2, 3]
    assert second == list(range(4, 4 + 2 * CHUNK))
    assert list(ledger.living_numbers()) == first + second
    assert (ledger.living, ledger.bytes, ledger.totals.published) == (3 + 2 * CHUNK, 4 * (3 + 2 * CHUNK), 3 + 2 * CHUNK)


def test_what_a_message_asks_for_becomes_moments_by_the_stamp_of_its_entry() -> None:
    ledger = make(timeout=30)

    put(ledger, *drafts(5))
    put(ledger, Draft(b"", priority=-4, delay_ms=500, expires_ms=900, timeout_ms=7_000))
    put(ledger, *drafts(1))

    assert (ledger.priority_of(6), ledger.published_due_of(6), ledger.expires_of(6)) == (-4, NOW + 500, NOW + 900)
    assert (ledger.own_timeout_of(6), ledger.timeout_of(6)) == (7_000, 7_000)
    for plain in (5, 7):
        assert (ledger.priority_of(plain), ledger.due_of(plain), ledger.expires_of(plain)) == (0, 0, 0)
        assert (ledger.own_timeout_of(plain), ledger.timeout_of(plain)) == (0, 30_000)


def test_an_empty_body_lives() -> None:
    ledger = make()

    put(ledger, Draft(b""))

    assert ledger.lives(1)
    assert (ledger.living, ledger.bytes) == (1, 0)


def test_drafts_that_stand_for_themselves_are_refused_one_by_one() -> None:
    ledger = make(max_message_size=3, priority_max=5)

    results = put(ledger, Draft(b"abc"), Draft(b"abcd"), Draft(b"", priority=6), Draft(b"x"))

    assert results == [1, Result.TOO_LARGE, Result.KEY_RANGE, 2]
    assert list(ledger.living_numbers()) == [1, 2]


def test_a_batch_is_checked_whole_before_its_first_change() -> None:
    ledger = make(max_size=2)
    batch = Publish("q", drafts(3), atomic=True)

    results = ledger.publish(batch, NOW)

    assert results == [Result.QUEUE_FULL] * 3
    assert (ledger.living, ledger.next_number) == (0, 1)
    assert ledger.collect() == Delta([], [], [], [])


def test_a_batch_with_an_id_is_whole_even_if_nobody_said_so() -> None:
    ledger = make(max_size=2)

    results = ledger.publish(Publish("q", drafts(3), id="a"), NOW)

    assert results == [Result.QUEUE_FULL] * 3
    assert (ledger.living, len(publishers_of(ledger).ids)) == (0, 0)


def test_each_draft_counts_those_before_it() -> None:
    by_size, by_bytes = make(max_size=2), make(max_bytes=9)

    assert put(by_size, *drafts(3)) == [1, 2, Result.QUEUE_FULL]
    assert put(by_bytes, *drafts(3)) == [1, 2, Result.QUEUE_FULL]
    assert put(by_bytes, Draft(b"c")) == [3]


def test_several_limits_are_named_in_the_order_size_range_payload() -> None:
    wrong = Draft(b"long", priority=9)

    assert put(make(max_size=0, priority_max=1, max_message_size=1), wrong) == [Result.QUEUE_FULL]
    assert put(make(max_size=1, priority_max=1, max_message_size=1), wrong) == [Result.KEY_RANGE]
    assert put(make(max_size=1, priority_min=10, max_message_size=1), wrong) == [Result.KEY_RANGE]
    assert put(make(max_size=1, priority_max=9, max_message_size=1), wrong) == [Result.TOO_LARGE]


def test_what_the_node_left_out_for_its_size_is_judged_in_the_same_order_and_never_stored() -> None:
    def judged(**policies: int) -> list[int]:
        return list(make(**policies).publish(Publish("q", [Draft(b"", priority=9)], oversized=True), NOW))

    assert judged() == [Result.TOO_LARGE]
    assert judged(max_size=0, priority_max=1) == [Result.QUEUE_FULL]
    assert judged(max_size=1, priority_max=1) == [Result.KEY_RANGE]
    assert judged(max_size=1, priority_max=9) == [Result.TOO_LARGE]


def test_an_acknowledgement_that_is_the_delivery_too_counts_as_both() -> None:
    ledger = make()
    put(ledger)

    assert ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2], [(TERM, 1), (TERM, 2)], delivered=True)) == [0, Result.UNKNOWN]

    assert (ledger.totals.delivered, ledger.totals.acked, ledger.living, ledger.out) == (1, 1, 0, 0)


@pytest.mark.parametrize("policies", [{}, {"priority_max": 9}], ids=["plain", "with other columns"])
def test_what_is_removed_in_a_row_leaves_what_it_leaves_one_by_one(policies: dict[str, int]) -> None:
    together, one_by_one = make(**policies), make(**policies)
    numbers = list(range(CHUNK - 3, 2 * CHUNK + 3))  # the whole of a chunk, and of its neighbours a little
    for ledger in (together, one_by_one):
        put(ledger, *[Draft(bytes(size % 7), priority=len(policies)) for size in range(3 * CHUNK)])
        ledger.collect()

    tokens = [(TERM, number) for number in numbers]
    results = together.acknowledge(Ack("q", QUEUE_ID, numbers, tokens, delivered=True))
    for number, token in zip(numbers, tokens, strict=True):
        one_by_one.acknowledge(Ack("q", QUEUE_ID, [number], [token]))

    assert list(results) == [Result.DONE] * len(numbers)
    assert together.totals.acked == together.totals.delivered == one_by_one.totals.acked == len(numbers)
    assert (together.living, together.bytes) == (one_by_one.living, one_by_one.bytes)
    assert list(together.living_numbers()) == list(one_by_one.living_numbers())
    assert 1 not in together.chunks
    assert written(together) == written(one_by_one)


def written(ledger: Ledger) -> dict[int, bytes | None]:
    """Return what is written down of the columns that changed."""
    chunks = ledger.collect().chunks
    return {chunk_id: None if chunk is None else encode_chunk(chunk, sides) for chunk_id, chunk, sides in chunks}


@pytest.mark.parametrize("numbers", [[1, 3], [3, 1], [2, 2, 4]])
def test_of_what_is_not_in_a_row_nothing_else_is_removed(numbers: list[int]) -> None:
    ledger = make()
    put(ledger, *drafts(4))

    ledger.acknowledge(Ack("q", QUEUE_ID, numbers, [(TERM, 1)] * len(numbers), delivered=True))

    assert set(ledger.living_numbers()) == {1, 2, 3, 4}.difference(numbers)


def test_of_a_row_one_that_was_out_before_has_gone_with_all_that_is_known_of_it() -> None:
    ledger = make()
    put(ledger, *drafts(3))
    deliver(ledger, 2, 1)
    release(ledger, 2)

    ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2, 3], [(TERM, 2)] * 3, delivered=True))

    assert (ledger.living, ledger.sides) == (0, {})


@pytest.mark.parametrize("gone", [1, 3, 5], ids=["the first", "one in the middle", "the last"])
def test_of_a_row_from_which_one_has_gone_the_others_are_removed(gone: int) -> None:
    ledger = make()
    put(ledger, *drafts(9))
    ack(ledger, gone)

    results = ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2, 3, 4, 5], [(TERM, 1)] * 5, delivered=True))

    assert list(results) == [Result.UNKNOWN if number == gone else Result.DONE for number in range(1, 6)]
    assert list(ledger.living_numbers()) == [6, 7, 8, 9]


def test_what_is_out_with_a_worker_does_not_count_for_the_size() -> None:
    ledger = make(max_size=1)
    put(ledger)

    deliver(ledger, 1, 1)

    assert put(ledger) == [2]
    assert (ledger.size, ledger.out, ledger.living) == (1, 1, 2)


def test_dead_letters_are_not_subject_to_policies() -> None:
    ledger = make(max_size=0, max_bytes=0, max_message_size=0, priority_min=3, priority_max=3)
    letter = Publish("q", drafts(1), forced=True)

    assert ledger.judge(letter) == Result.DONE
    assert list(ledger.publish(letter, NOW)) == [1]


def test_the_verdict_on_a_follow_up_is_what_publishing_it_says() -> None:
    ledger = make(max_size=2)

    assert ledger.judge(Publish("q", drafts(3), atomic=True)) == Result.QUEUE_FULL
    assert ledger.judge(Publish("q", drafts(2), atomic=True)) == Result.DONE
    assert ledger.living == 0


# Publishing once --------------------------------------------------------------------------------------------------


def test_an_id_is_idempotent_for_fifteen_minutes_of_the_logs_time() -> None:
    ledger = make()
    first = put_once(ledger, "a", count=2)

    again = ledger.publish(Publish("q", drafts(2), atomic=True, id="a"), NOW + WINDOW - 1)
    later = put_once(ledger, "a", NOW + WINDOW, count=2)

    assert first == [1, 2]
    assert isinstance(again, Repeated)
    assert (list(again), again.queue_id, list(new_numbers(again))) == ([1, 2], QUEUE_ID, [])
    assert later == [3, 4]


def test_a_repetition_does_not_lengthen_the_time_of_an_id() -> None:
    ledger = make()
    put_once(ledger, "a")

    put_once(ledger, "a", NOW + WINDOW - 1)

    assert put_once(ledger, "a", NOW + WINDOW) == [2]


def test_at_the_bound_of_ids_a_publish_is_busy_until_the_oldest_are_forgotten() -> None:
    ledger = make(Limits(dedup_ids_max=2))
    put_once(ledger, "a", NOW)
    put_once(ledger, "b", NOW + 1)

    assert put_once(ledger, "c", NOW + 2) == [Result.BUSY]
    assert put_once(ledger, "b", NOW + 2) == [2]  # what is known is still answered
    assert put(ledger, at_ms=NOW + 2) == [3]  # and without an id nothing is bounded
    assert put_once(ledger, "c", NOW + WINDOW) == [4]
    assert list(publishers_of(ledger).ids) == ["b", "c"]


def test_a_refused_publish_does_not_use_up_its_id_or_number() -> None:
    ledger = make(max_size=1)
    put(ledger)

    assert put_once(ledger, "a") == [Result.QUEUE_FULL]
    assert put_numbered(ledger, 1) == [Result.QUEUE_FULL]
    ack(ledger, 1)

    assert put_once(ledger, "a") == [2]
    ack(ledger, 2)
    assert put_numbered(ledger, 1) == [3]


def test_a_number_of_a_session_is_stored_once() -> None:
    ledger = make()

    assert put_numbered(ledger, 1, 2, 3) == [1, 2, 3]
    assert put_numbered(ledger, 3) == [3]
    assert put_numbered(ledger, 2, 3, 4) == [2, 3, 4]
    assert put_numbered(ledger, 1, session="other") == [5]
    assert ledger.living == 5


def test_a_number_that_stands_twice_in_one_entry_is_stored_once() -> None:
    ledger = make()

    results = ledger.publish(Publish("q", drafts(3), session="s", ordinals=[1, 1, 2]), NOW)

    assert list(results) == [1, 1, 2]
    assert ledger.living == 2
    assert list(new_numbers(results)) == [1, 2]


def test_new_drafts_are_those_that_were_stored_and_not_those_that_look_like_it() -> None:
    ledger = make()
    put_numbered(ledger, 5)
    ledger.begin(QUEUE_ID + 1, Policies())  # numbers begin again at 1
    new = [Draft(b"old"), Draft(b"new"), Draft(b"last")]

    results = ledger.publish(Publish("q", new, session="s", ordinals=[5, 6, 7]), NOW)

    assert list(results) == [1, 1, 2]
    assert isinstance(results, Mixed)
    assert results.repeated == {0: QUEUE_ID}
    assert [draft.body for draft in new_drafts(results, new)] == [b"new", b"last"]
    assert new_drafts(range(1, 4), new) == new
    assert new_drafts([Result.BUSY, 3, 4], new) == new[1:]
    assert new_drafts(Repeated(1, range(1, 4)), new) == []


def test_a_batch_of_a_session_is_one_number() -> None:
    ledger = make()
    batch = Publish("q", drafts(3), atomic=True, session="s", ordinals=[1])

    first, again = ledger.publish(batch, NOW), ledger.publish(batch, NOW)

    assert list(first) == list(again) == [1, 2, 3]
    assert ledger.living == 3


def test_a_batch_that_is_repeated_as_a_single_message_gets_one_answer_for_each() -> None:
    ledger = make()
    ledger.publish(Publish("q", drafts(3), atomic=True, session="s", ordinals=[1]), NOW)

    assert put_numbered(ledger, 1) == [1]
    assert put_numbered(ledger, 1, 2) == [1, 4]


def test_a_session_knows_its_highest_and_the_last_1024_numbers() -> None:
    ledger = make()
    for ordinal in range(1, 2 * SESSION_WINDOW + 2):
        put_numbered(ledger, ordinal)
    living, highest = ledger.living, 2 * SESSION_WINDOW + 1
    oldest = highest - SESSION_WINDOW + 1

    assert put_numbered(ledger, oldest) == [oldest]
    assert put_numbered(ledger, oldest - 1) == [Result.FORGOTTEN]
    assert put_numbered(ledger, 1, highest + 1) == [Result.FORGOTTEN, highest + 1]
    assert ledger.living == living + 1
    assert len(publishers_of(ledger).sessions["s"].outcomes) <= 2 * SESSION_WINDOW
    assert publishers_of(ledger).sessions["s"].highest == highest + 1


def test_a_number_left_out_within_the_window_may_come_later() -> None:
    ledger = make()
    put_numbered(ledger, SESSION_WINDOW)

    assert put_numbered(ledger, 1) == [2]
    assert put_numbered(ledger, SESSION_WINDOW + 2) == [3]
    assert put_numbered(ledger, 2) == [Result.FORGOTTEN]


def test_a_session_is_forgotten_fifteen_minutes_after_its_last_use() -> None:
    ledger = make()
    put_numbered(ledger, 1)

    put_numbered(ledger, 1, at_ms=NOW + WINDOW - 1)

    assert put_numbered(ledger, 1, at_ms=NOW + 2 * WINDOW - 2) == [1]
    assert put_numbered(ledger, 1, at_ms=NOW + 4 * WINDOW) == [2]


def test_a_session_that_is_used_outlives_one_that_began_later() -> None:
    ledger = make()
    put_numbered(ledger, 1)
    put_numbered(ledger, 1, session="later", at_ms=NOW + 1)
    put_numbered(ledger, 2, at_ms=NOW + 10)

    assert put_numbered(ledger, 1, session="later", at_ms=NOW + 1 + WINDOW) == [4]
    assert put_numbered(ledger, 2, at_ms=NOW + 1 + WINDOW) == [3]


def test_sessions_are_bounded_as_ids_are() -> None:
    ledger = make(Limits(dedup_ids_max=1))
    put_numbered(ledger, 1)

    assert put_numbered(ledger, 1, 2, session="other") == [Result.BUSY] * 2
    assert put_numbered(ledger, 2) == [2]
    assert put_numbered(ledger, 1, session="other", at_ms=NOW + WINDOW) == [3]


def test_a_purge_keeps_what_was_published_once_and_a_deletion_does_not() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)

    ledger.begin(9, Policies())
    again = ledger.publish(Publish("q", drafts(1), atomic=True, id="a"), NOW)
    assert isinstance(again, Repeated)
    assert again.queue_id == QUEUE_ID  # its uid is that of the incarnation that stored it
    assert put_numbered(ledger, 1) == [2]

    ledger.forget_publishers()
    ledger.begin(11, Policies())
    assert put_once(ledger, "a") == [1]
    assert put_numbered(ledger, 1) == [2]


# Deliveries -------------------------------------------------------------------------------------------------------


def test_a_delivered_message_is_out_until_it_is_released() -> None:
    ledger = make()
    put(ledger)

    deliver(ledger, 1, 4, until_ms=NOW + 5)
    assert ledger.is_out(1)
    assert (ledger.out, ledger.size) == (1, 0)

    assert release(ledger, 1, token=(TERM, 4), due_ms=NOW + 9, error="why") == Result.DONE
    side = ledger.sides[1]
    assert not ledger.is_out(1)
    assert (ledger.out, ledger.size, ledger.due_of(1)) == (0, 1, NOW + 9)
    assert (side.deliveries, side.nacks, side.error) == (1, 1, "why")


def test_each_reason_is_counted() -> None:
    ledger = make()
    put(ledger)
    for sequence, reason in enumerate((Reason.NACK, Reason.TIMEOUT, Reason.TIMEOUT, Reason.DISCONNECT), 1):
        deliver(ledger, 1, sequence)
        ledger.release(Released("q", QUEUE_ID, [1], [NOW], [ANY_TOKEN], reason))

    side = ledger.sides[1]
    assert (side.deliveries, side.nacks, side.timeouts, side.disconnects) == (4, 1, 2, 1)


def test_what_was_returned_is_a_delivery_and_no_failure() -> None:
    ledger = make()
    put(ledger)
    for sequence, reason in enumerate((Reason.NACK, Reason.RETURNED, Reason.RETURNED, Reason.TIMEOUT), 1):
        deliver(ledger, 1, sequence)
        assert ledger.release(Released("q", QUEUE_ID, [1], [NOW], [ANY_TOKEN], reason, "why")) == [Result.DONE]

    side = ledger.sides[1]
    assert (side.deliveries, side.failures, side.error) == (4, 2, "why")
    assert (ledger.out, ledger.totals.released) == (0, 4)


def test_a_dead_letter_is_made_only_of_what_is_out() -> None:
    ledger = make()
    put(ledger)
    deliver(ledger, 1, 1)
    letter = Ack("q", QUEUE_ID, [1], [(TERM, 1)], dead=True)

    while_out = ledger.judge_ack(letter)
    release(ledger, 1)

    assert (while_out, ledger.judge_ack(letter)) == (Result.DONE, Result.UNKNOWN)
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1], [(TERM, 1)])) == Result.DONE


def test_deliveries_count_on_beyond_255() -> None:
    ledger = make()
    put(ledger)

    for sequence in range(1, 301):
        deliver(ledger, 1, sequence)
        release(ledger, 1)

    assert ledger.sides[1].deliveries == 300


def test_an_older_token_is_stale_and_one_that_the_log_does_not_know_is_taken() -> None:
    ledger = make()
    put(ledger, *drafts(3))
    for number in (1, 2, 3):
        deliver(ledger, number, number)
    deliver(ledger, 1, 9)

    assert release(ledger, 1, token=(TERM, 1)) == Result.STALE
    assert ack(ledger, 1, (TERM, 1)) == Result.STALE
    assert ack(ledger, 1, (TERM - 1, 99)) == Result.STALE
    assert ledger.is_out(1)
    assert ack(ledger, 1, (TERM, 9)) == Result.DONE
    assert ack(ledger, 2, (TERM, 77)) == Result.DONE
    assert ack(ledger, 3, ANY_TOKEN) == Result.DONE


def test_what_is_not_out_cannot_be_released_or_extended() -> None:
    ledger = make()
    put(ledger)

    assert release(ledger, 1) == Result.UNKNOWN
    ledger.extend(Extended("q", QUEUE_ID, [1, 99], [NOW, NOW]))
    assert ledger.sides == {}

    deliver(ledger, 1, 1)
    ledger.extend(Extended("q", QUEUE_ID, [1], [NOW + 1]))
    assert ledger.sides[1].until_ms == NOW + 1
    release(ledger, 1)
    ledger.extend(Extended("q", QUEUE_ID, [1], [NOW + 2]))
    assert ledger.sides[1].until_ms == 0


def test_a_delivery_of_what_is_gone_is_not_counted() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    ack(ledger, 1)

    ledger.deliver(Delivered("q", QUEUE_ID, [1, 2], [NOW, NOW], 3), TERM)

    assert (ledger.out, ledger.totals.delivered, list(ledger.sides)) == (1, 1, [2])
    assert ledger.sides[2].sequence == 4


def test_an_entry_of_another_incarnation_changes_nothing() -> None:
    ledger = make()
    put(ledger, Draft(b"x", expires_ms=1), Draft(b"y", alias="old-1"), Draft(b"z"))
    deliver(ledger, 3, 1)
    ledger.collect()

    ledger.deliver(Delivered("q", OTHER_ID, [1], [NOW], 1), TERM)
    ledger.extend(Extended("q", OTHER_ID, [3], [1]))
    assert ledger.release(Released("q", OTHER_ID, [3], [1], [ANY_TOKEN], Reason.NACK)) == [Result.UNKNOWN]
    assert ledger.expire(Expired("q", OTHER_ID, [1]), NOW + 5) == [Result.UNKNOWN]
    assert [ack(ledger, number, queue_id=OTHER_ID) for number in (1, 2, 3)] == [Result.UNKNOWN] * 3
    assert ledger.judge_ack(Ack("q", OTHER_ID, [2], [ANY_TOKEN])) == Result.UNKNOWN
    assert (ledger.living, ledger.out) == (3, 1)
    assert ledger.collect() == Delta([], [], [], [])


def test_an_error_text_is_bounded() -> None:
    ledger = make()
    put(ledger)
    deliver(ledger, 1, 1)

    release(ledger, 1, error="é" * 100_000)

    assert len(ledger.sides[1].error) == ERROR_CHARS_MAX


# Ends -------------------------------------------------------------------------------------------------------------


def test_an_acknowledged_message_is_gone_and_a_second_time_it_is_unknown() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    deliver(ledger, 1, 1)

    results = ledger.acknowledge(Ack("q", QUEUE_ID, [1, 1, 2], [ANY_TOKEN] * 3))

    assert results == [Result.DONE, Result.UNKNOWN, Result.DONE]
    assert (ledger.living, ledger.out, ledger.bytes, ledger.sides) == (0, 0, 0, {})
    assert ledger.totals.acked == 2
    assert not ledger.lives(1)


@pytest.mark.parametrize("number", [-1, 0, 2, CHUNK, 10**12])
def test_a_number_that_never_was_is_unknown(number: int) -> None:
    ledger = make()
    put(ledger)

    assert ack(ledger, number) == Result.UNKNOWN
    assert ledger.living == 1


def test_the_verdict_on_an_acknowledgement_changes_nothing() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    deliver(ledger, 2, 3)

    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 2], [ANY_TOKEN, (TERM, 3)])) == Result.DONE
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 2], [ANY_TOKEN, (TERM, 2)])) == Result.STALE
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 9], [ANY_TOKEN, ANY_TOKEN])) == Result.UNKNOWN
    assert ledger.living == 2


def test_a_dead_letter_is_counted_as_dead() -> None:
    ledger = make()
    put(ledger)

    ledger.acknowledge(Ack("q", QUEUE_ID, [1], [ANY_TOKEN], dead=True))

    assert (ledger.totals.dead, ledger.totals.acked) == (1, 0)


def test_expiry_does_not_grow_with_redeliveries() -> None:
    ledger = make()
    put(ledger, Draft(b"", expires_ms=1_000))

    for sequence in range(1, 5):
        deliver(ledger, 1, sequence, until_ms=NOW + 10 * sequence)
        release(ledger, 1, due_ms=NOW + 10 * sequence + 5)

    assert ledger.expires_of(1) == NOW + 1_000
    assert ledger.expire(Expired("q", QUEUE_ID, [1]), NOW + 999) == [Result.UNKNOWN]
    assert ledger.expire(Expired("q", QUEUE_ID, [1]), NOW + 1_000) == [Result.DONE]
    assert (ledger.living, ledger.totals.expired) == (0, 1)


def test_what_is_out_or_never_expires_stays() -> None:
    ledger = make()
    put(ledger, Draft(b"", expires_ms=1), Draft(b""))
    deliver(ledger, 1, 1)

    results = ledger.expire(Expired("q", QUEUE_ID, [1, 2, 3]), NOW + 5)

    assert results == [Result.UNKNOWN] * 3
    assert ledger.living == 2


def test_a_chunk_goes_with_its_last_message_and_the_unfinished_one_is_filled_on() -> None:
    ledger = make()
    put(ledger, *drafts(CHUNK + 3))

    for number in range(1, CHUNK + 4):
        ack(ledger, number)

    assert list(ledger.chunks) == [1]  # the one that the next number falls into
    assert put(ledger) == [CHUNK + 4]
    assert list(ledger.living_numbers()) == [CHUNK + 4]


# Imported uids ----------------------------------------------------------------------------------------------------


def test_a_message_of_version_1_is_acknowledged_by_its_own_uid() -> None:
    ledger = make()
    put(ledger, Draft(b"a"), Draft(b"b", alias="aB1440000000_250"))

    assert ack_foreign(ledger, "aB1440000000_999") == Result.UNKNOWN
    assert ack_foreign(ledger, "aB1440000000_250") == Result.DONE
    assert ack_foreign(ledger, "aB1440000000_250") == Result.UNKNOWN
    assert list(ledger.living_numbers()) == [1]


def test_the_uid_of_a_message_that_just_left_is_known_until_it_is_collected() -> None:
    ledger = make()
    put(ledger, Draft(b"", alias="old-1"))
    ledger.collect()
    entry = Ack("q", 0, [-1], [ANY_TOKEN], foreign={0: "old-1"})

    ledger.acknowledge(entry)

    assert ledger.resolved(entry) == [1]  # whoever keeps its body or lease can still find it
    assert ledger.aliased == {1: "old-1"}
    assert ledger.collect().aliases_gone == ["old-1"]
    assert (ledger.aliases, ledger.aliased, ledger.collect().aliases_gone) == ({}, {}, [])


def test_a_uid_of_this_incarnation_beside_one_of_another_is_found() -> None:
    """The door can give an entry one queue id only: that of its first uid."""
    ledger = make()
    put(ledger)
    foreign = {1: UidMaker(QUEUE_ID).uid(1), 2: UidMaker(QUEUE_ID + 1).uid(1)}

    results = ledger.acknowledge(Ack("q", OTHER_ID, [1, -1, -1], [ANY_TOKEN] * 3, foreign=foreign))

    assert results == [Result.UNKNOWN, Result.DONE, Result.UNKNOWN]


def test_a_new_incarnation_knows_no_imported_uid() -> None:
    ledger = make()
    put(ledger, Draft(b"", alias="old-1"))

    ledger.begin(8, Policies())
    put(ledger)

    assert ack_foreign(ledger, "old-1") == Result.UNKNOWN
    assert ledger.living == 1


# Writing down -----------------------------------------------------------------------------------------------------


def test_what_was_collected_does_not_change_any_more() -> None:
    ledger = make()
    put_numbered(ledger, 1)
    put(ledger, Draft(b"", priority=1))
    delta = ledger.collect()

    put_numbered(ledger, 2)
    ack(ledger, 1)

    ((_, session),) = delta.sessions
    ((_, chunk, _),) = delta.chunks
    assert session is not None
    assert chunk is not None
    assert (session.highest, session.outcomes) == (1, {1: (QUEUE_ID, 1, 1)})
    assert list(chunk.sizes) == [0, 5, 1]


def test_only_what_changed_is_collected_and_only_once() -> None:
    ledger = make()
    put(ledger, *drafts(2 * CHUNK))
    ledger.collect()

    deliver(ledger, 3, 1)
    ack(ledger, CHUNK + 1)
    put_once(ledger, "a")

    delta = ledger.collect()
    assert delta.touched == [3]
    assert sorted((chunk_id, sides) for chunk_id, _, sides in delta.chunks) == [(0, [3]), (1, []), (2, [])]
    assert delta.ids == [("a", (QUEUE_ID, 2 * CHUNK + 1, 1, NOW))]
    assert ledger.collect() == Delta([], [], [], [])


def test_what_is_gone_is_collected_as_gone() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)
    deliver(ledger, 1, 1)
    ledger.collect()

    ack(ledger, 1)
    ack(ledger, 2)
    ledger.publish(Publish("q", drafts(1), atomic=True, id="b"), NOW + WINDOW)
    ack(ledger, 3)

    delta = ledger.collect()
    assert delta.touched == []
    assert delta.chunks == [(0, None, [])]
    assert dict(delta.ids)["a"] is None
    assert delta.sessions == [("s", None)]


def test_a_purge_writes_the_publishers_down_again() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)
    ledger.collect()

    ledger.begin(9, Policies())

    delta = ledger.collect()
    assert delta.ids == [("a", (QUEUE_ID, 1, 1, NOW))]
    assert [name for name, _ in delta.sessions] == ["s"]
