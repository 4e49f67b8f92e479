"""Leases: the next moment is never later than anything that ends or becomes due."""

from collections.abc import Callable

import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Draft, Publish
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.leases import ENDING_GRACE_MS, UNSTASHED_MAX, Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.queue.ledger.staging import STASH

Q = "q"
NOW_MS = 100_000_000


def leases_of(*drafts: Draft) -> Leases:
    leases = Leases(Ledger(Q, 1, Policies(), Limits()), 1, NOW_MS)
    leases.next_ms = leases.next_moment_ms()
    assert leases.next_ms == NEVER
    publish(leases, *drafts)
    return leases


def publish(leases: Leases, *drafts: Draft) -> None:
    if drafts:
        leases.add_published(leases.ledger.publish(Publish(Q, list(drafts)), NOW_MS), NOW_MS, lambda: NOW_MS)


def test_plain_publish_leaves_the_next_moment_as_it_was() -> None:
    leases = leases_of(Draft(b""), Draft(b""))

    assert leases.next_ms == NEVER


def test_lease_lowers_the_next_moment_to_its_end_and_a_later_one_does_not() -> None:
    leases = leases_of(Draft(b""), Draft(b""))

    leases.lease(leases.take(1, NOW_MS), [None], [0], NOW_MS, 30_000)
    leases.lease(leases.take(1, NOW_MS), [None], [0], NOW_MS, 60_000)

    assert leases.next_ms == leases.next_moment_ms() == NOW_MS + 30_000


def test_leases_with_timeouts_of_their_own_lower_the_next_moment_to_the_first_end() -> None:
    leases = leases_of(Draft(b"", timeout_ms=9_000), Draft(b"", timeout_ms=5_000))

    leases.lease(leases.take(2, NOW_MS), [None] * 2, [0] * 2, NOW_MS)

    assert leases.next_ms == leases.next_moment_ms() == NOW_MS + 5_000


@pytest.mark.parametrize(
    "happens",
    [
        lambda leases: publish(leases, Draft(b"", delay_ms=5_000)),
        lambda leases: publish(leases, Draft(b"", expires_ms=5_000)),
        lambda leases: leases.watch_staged((STASH, "s"), {0: NOW_MS + 9_000}),
        lambda leases: leases.note_pause(),
    ],
    ids=["delay", "expiry", "stash", "pause"],
)
def test_next_moment_is_found_anew_after_a_new_moment(happens: Callable[[Leases], None]) -> None:
    leases = leases_of()

    happens(leases)

    assert leases.next_ms == 0


def test_moments_of_published_stashes_are_bounded_and_the_newest_are_kept() -> None:
    leases = leases_of()

    for first in range(1, 10 * UNSTASHED_MAX, 2):
        leases.note_unstashed(range(first, first + 1), NOW_MS + first)

    last = 10 * UNSTASHED_MAX - 1
    assert len(leases.unstashed) <= UNSTASHED_MAX
    assert [leases.unstashed_ms(number) for number in (1, last - 1, last, last + 1)] == [0, 0, NOW_MS + last, 0]


def test_stash_of_several_parts_has_one_moment() -> None:
    leases = leases_of()

    for first in (40, 10, 20, 30):
        leases.note_unstashed(range(first, first + 10), NOW_MS)

    assert leases.unstashed == [(10, 40, NOW_MS), (40, 50, NOW_MS)]


def test_extended_lease_does_not_raise_the_next_moment() -> None:
    leases = leases_of(Draft(b""))
    leases.lease(leases.take(1, NOW_MS), [None], [0], NOW_MS, 30_000)

    leases.extend(1, NOW_MS + 90_000)

    assert leases.next_ms == NOW_MS + 30_000
    assert leases.take_timed_out(NOW_MS + 30_000) == []
    assert leases.take_timed_out(NOW_MS + 90_000) == [1]


def test_lease_with_a_new_end_before_the_next_moment_lowers_it() -> None:
    leases = leases_of(Draft(b""))
    numbers = leases.take(1, NOW_MS)
    leases.lease(numbers, [None], [0], NOW_MS, 30_000)

    leases.extend(numbers[0], NOW_MS + 5_000)

    assert leases.next_ms == leases.next_moment_ms() == NOW_MS + 5_000


def test_message_that_expired_while_it_was_ending_expires_after_the_refusal() -> None:
    leases = leases_of(Draft(b"", expires_ms=5_000))
    (number,) = leases.next_numbers(1)
    later_ms = NOW_MS + 6_000
    leases.mark_ending([number])
    assert leases.take_expired(later_ms) == [number], "it is found, and has to wait"

    leases.keep_leased([number], later_ms)

    assert leases.take_expired(later_ms) == [number]


def test_lease_that_is_over_when_its_end_is_refused_lasts_a_little_longer() -> None:
    leases = leases_of(Draft(b""))
    numbers = leases.take(1, NOW_MS)
    leases.lease(numbers, [None], [0], NOW_MS, 5_000)
    leases.mark_ending(numbers)

    leases.keep_leased(numbers, NOW_MS + 6_000)

    assert leases.held[numbers[0]].until_ms == NOW_MS + 6_000 + ENDING_GRACE_MS


def test_new_incarnation_keeps_the_audience_and_the_sequence() -> None:
    leases = leases_of(Draft(b""))
    leases.lease(leases.take(1, NOW_MS), [None], [0], NOW_MS)
    leases.audience.sleep("somebody", only_ready=False)
    leases.ledger.begin(2, Policies())

    new = leases.for_new_incarnation(NOW_MS)

    assert (new.audience, new.sequence, new.held) == (leases.audience, 1, {})
