"""The ledger's rules for ends: acknowledged, expired or removed in a row, once and with all that is known of it."""

import pytest

from tests.helpers.models.ledger_by_hand import NOW_MS, QUEUE_ID, TERM, ack, deliver, drafts, make, put, release
from tests.helpers.steps import in_one_go
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, Expired, Result, Stash, Unstash, UnstashAction
from wakeq.protocol.queue.ledger.chunks import CHUNK, encode_chunk
from wakeq.protocol.queue.ledger.ledger import Ledger


def test_acknowledged_message_is_gone_and_a_second_time_it_is_unknown() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    deliver(ledger, 1, 1)

    results = ledger.acknowledge(Ack("q", QUEUE_ID, [1, 1, 2], [ANY_TOKEN] * 3))

    assert results == [Result.DONE, Result.UNKNOWN, Result.DONE]
    assert (ledger.columns.living, ledger.deliveries.leased, ledger.columns.bytes, ledger.deliveries.records) == (
        0,
        0,
        0,
        {},
    )
    assert ledger.totals.acked == 2
    assert not ledger.columns.lives(1)


@pytest.mark.parametrize("number", [-1, 0, 2, CHUNK, 10**12])
def test_number_that_never_was_is_unknown(number: int) -> None:
    ledger = make()
    put(ledger)

    assert ack(ledger, number) == Result.UNKNOWN
    assert ledger.columns.living == 1


def test_verdict_on_an_acknowledgement_changes_nothing() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    deliver(ledger, 2, 3)

    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 2], [ANY_TOKEN, (TERM, 3)])) == Result.DONE
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 2], [ANY_TOKEN, (TERM, 2)])) == Result.STALE
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1, 9], [ANY_TOKEN, ANY_TOKEN])) == Result.UNKNOWN
    assert ledger.columns.living == 2


def test_dead_letter_is_counted_as_dead() -> None:
    ledger = make()
    put(ledger)

    ledger.acknowledge(Ack("q", QUEUE_ID, [1], [ANY_TOKEN], dead=True))

    assert (ledger.totals.dead, ledger.totals.acked) == (1, 0)


def test_expiry_does_not_grow_with_redeliveries() -> None:
    ledger = make()
    put(ledger, Draft(b"", expires_ms=1_000))

    for sequence in range(1, 5):
        deliver(ledger, 1, sequence, until_ms=NOW_MS + 10 * sequence)
        release(ledger, 1, due_ms=NOW_MS + 10 * sequence + 5)

    assert ledger.columns.expires_of(1) == NOW_MS + 1_000
    assert ledger.expire(Expired("q", QUEUE_ID, [1]), NOW_MS + 999) == [Result.UNKNOWN]
    assert ledger.expire(Expired("q", QUEUE_ID, [1]), NOW_MS + 1_000) == [Result.DONE]
    assert (ledger.columns.living, ledger.totals.expired) == (0, 1)


def test_message_that_is_leased_or_never_expires_is_not_expired() -> None:
    ledger = make()
    put(ledger, Draft(b"", expires_ms=1), Draft(b""))
    deliver(ledger, 1, 1)

    results = ledger.expire(Expired("q", QUEUE_ID, [1, 2, 3]), NOW_MS + 5)

    assert results == [Result.UNKNOWN] * 3
    assert ledger.columns.living == 2


def test_stashed_message_expires_once_it_is_published() -> None:
    ledger = make()
    in_one_go(ledger.stash(Stash("q", [Draft(b"", expires_ms=1)], "t", 0, 60_000), NOW_MS))
    expired = Expired("q", QUEUE_ID, [1])

    assert ledger.expire(expired, NOW_MS + 5) == [Result.UNKNOWN]
    assert ledger.columns.living == 1
    in_one_go(ledger.unstash(Unstash("q", UnstashAction.PUBLISHED, [("t", 1)], "w", 1), NOW_MS + 6))
    assert ledger.expire(expired, NOW_MS + 7) == [Result.DONE]


def test_chunk_goes_with_its_last_message_and_the_unfinished_one_is_filled_on() -> None:
    ledger = make()
    put(ledger, *drafts(CHUNK + 3))

    for number in range(1, CHUNK + 4):
        ack(ledger, number)

    assert list(ledger.columns.chunks) == [1]  # the one that the next number falls into
    assert put(ledger) == [CHUNK + 4]
    assert list(ledger.columns.living_numbers()) == [CHUNK + 4]


@pytest.mark.parametrize("policies", [{}, {"priority_max": 9}], ids=["plain", "with other columns"])
def test_messages_removed_in_a_row_leave_the_same_ledger_as_one_by_one(policies: dict[str, int]) -> None:
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
    assert (together.columns.living, together.columns.bytes) == (one_by_one.columns.living, one_by_one.columns.bytes)
    assert list(together.columns.living_numbers()) == list(one_by_one.columns.living_numbers())
    assert 1 not in together.columns.chunks
    assert written(together) == written(one_by_one)


def written(ledger: Ledger) -> dict[int, bytes | None]:
    """Return what is written down of the columns that changed."""
    chunks = ledger.collect().chunks
    return {chunk_id: None if chunk is None else encode_chunk(chunk, sides) for chunk_id, chunk, sides in chunks}


@pytest.mark.parametrize("numbers", [[1, 3], [3, 1], [2, 2, 4]])
def test_acknowledgement_of_numbers_not_in_a_row_removes_no_others(numbers: list[int]) -> None:
    ledger = make()
    put(ledger, *drafts(4))

    ledger.acknowledge(Ack("q", QUEUE_ID, numbers, [(TERM, 1)] * len(numbers), delivered=True))

    assert set(ledger.columns.living_numbers()) == {1, 2, 3, 4}.difference(numbers)


def test_message_delivered_before_is_removed_from_a_row_with_its_side_record() -> None:
    ledger = make()
    put(ledger, *drafts(3))
    deliver(ledger, 2, 1)
    release(ledger, 2)

    ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2, 3], [(TERM, 2)] * 3, delivered=True))

    assert (ledger.columns.living, ledger.deliveries.records) == (0, {})


@pytest.mark.parametrize("gone", [1, 3, 5], ids=["the first", "one in the middle", "the last"])
def test_messages_of_a_row_are_removed_although_one_has_gone(gone: int) -> None:
    ledger = make()
    put(ledger, *drafts(9))
    ack(ledger, gone)

    results = ledger.acknowledge(Ack("q", QUEUE_ID, [1, 2, 3, 4, 5], [(TERM, 1)] * 5, delivered=True))

    assert list(results) == [Result.UNKNOWN if number == gone else Result.DONE for number in range(1, 6)]
    assert list(ledger.columns.living_numbers()) == [6, 7, 8, 9]
