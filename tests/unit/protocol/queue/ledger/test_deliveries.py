"""Deliveries: how many messages are out, whose record changed, and what a release leaves in a record."""

import pytest

from wakeq.protocol.log.entries import ANY_TOKEN, Reason, Result
from wakeq.protocol.log.rows import DeliveryRecord
from wakeq.protocol.queue.ledger.deliveries import ERROR_CHARS_MAX, Deliveries

TOKEN = (2, 7)


def leased_once(number: int = 1, until_ms: int = 500) -> Deliveries:
    deliveries = Deliveries()
    deliveries.restore(number, DeliveryRecord(1, 0, 0, 0, *TOKEN, until_ms, 0, ""))
    return deliveries


def test_new_deliveries_are_empty_and_have_nothing_to_collect() -> None:
    deliveries = Deliveries()

    assert (deliveries.leased, deliveries.collect(), deliveries.is_leased(1)) == (0, (), False)
    assert not deliveries.extend(1, 9)
    deliveries.forget(1)


def test_lease_that_is_extended_has_a_later_end_and_is_collected_once() -> None:
    deliveries = leased_once()

    assert deliveries.extend(1, 900)

    assert deliveries.records[1].until_ms == 900
    assert [deliveries.collect(), deliveries.collect()] == [[1], ()]


@pytest.mark.parametrize(
    ("reason", "counts"), [(Reason.NACK, (1, 0, 0)), (Reason.TIMEOUT, (0, 1, 0)), (Reason.DISCONNECT, (0, 0, 1))]
)
def test_released_message_is_no_longer_leased_and_counts_its_reason(
    reason: Reason, counts: tuple[int, int, int]
) -> None:
    deliveries = leased_once()

    result = deliveries.release(1, 700, TOKEN, reason, "x" * 2 * ERROR_CHARS_MAX)

    record = deliveries.records[1]
    assert (result, deliveries.leased, deliveries.is_leased(1), record.due_ms) == (Result.DONE, 0, False, 700)
    assert (record.nacks, record.timeouts, record.disconnects) == counts
    assert len(record.error) == ERROR_CHARS_MAX


def test_release_with_an_older_token_is_stale_and_changes_nothing() -> None:
    deliveries = leased_once()

    assert deliveries.release(1, 0, (2, 6), Reason.NACK, "") is Result.STALE

    assert (deliveries.leased, deliveries.collect()) == (1, ())


def test_release_of_a_message_that_is_not_leased_is_unknown() -> None:
    deliveries = leased_once()

    results = [deliveries.release(number, 0, ANY_TOKEN, Reason.NACK, "") for number in (2, 1, 1)]

    assert results == [Result.UNKNOWN, Result.DONE, Result.UNKNOWN]


def test_forgotten_message_is_no_longer_counted_or_collected() -> None:
    deliveries = leased_once()
    deliveries.extend(1, 900)

    deliveries.forget(1)

    assert (deliveries.leased, deliveries.records, deliveries.collect()) == (0, {}, [])
