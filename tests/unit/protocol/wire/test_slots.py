"""Slot: filled once; and the results of one command about several messages, which may come in parts."""

from itertools import permutations

import pytest

from tests.helpers.doors.lanes import HandSession
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.wire.slots import MISSING, SeveralResults, Slot

BUSY = Refusal("BUSY", "not now")


@pytest.fixture
def session() -> HandSession:
    return HandSession()


@pytest.fixture
def slot(session: HandSession) -> Slot:
    return Slot(session, "a command")


def part(*results: int) -> Outcome:
    return Outcome("q", 7, list(results))


@pytest.mark.parametrize("outcome", [None, 0, "", False])
def test_outcome_that_is_nothing_fills_a_slot(slot: Slot, outcome: object) -> None:
    """A fetch that found nothing is told None, an acknowledgement that is done 0."""
    assert slot.outcome is MISSING

    slot.tell(outcome)
    slot.tell("another")

    assert slot.outcome is outcome


def test_first_outcome_of_a_session_has_it_flushed_and_later_ones_do_not(session: HandSession) -> None:
    slots = [Slot(session, number) for number in range(3)]

    for slot in slots:
        slot.tell(None)
    before = session.dirtied
    session.is_dirty = False  # as a flush does first
    Slot(session, 3).tell(None)

    assert (before, session.dirtied) == (1, 2)


def test_dropped_outcome_has_nothing_flushed(session: HandSession, slot: Slot) -> None:
    slot.tell("first")
    session.is_dirty = False

    slot.tell("second")

    assert not session.is_dirty


def test_slots_with_equal_commands_are_not_equal(session: HandSession) -> None:
    """A queue looks for the one slot whose wait ends."""
    assert Slot(session, "same") != Slot(session, "same")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_results_that_come_in_parts_fill_the_slot_when_the_last_is_there(slot: Slot, order: tuple[int, ...]) -> None:
    results = SeveralResults(slot, 4)
    parts = [([2], part(12)), ([0, 3], part(10, 13)), ([1], part(11))]

    for place in order:
        assert slot.outcome is MISSING
        places, answer = parts[place]
        results.at(places).tell(answer)

    assert slot.outcome == part(10, 11, 12, 13)


def test_results_that_come_at_once_fill_the_slot(slot: Slot) -> None:
    SeveralResults(slot, 2).tell(part(1, 2))

    assert slot.outcome == part(1, 2)


def test_results_of_a_part_of_a_part_keep_their_places(slot: Slot) -> None:
    results = SeveralResults(slot, 3).at([0, 2])

    results.at([2]).tell(part(12))
    results.at([0]).tell(part(10))
    SeveralResults.at(results, [1]).tell(part(11))

    assert slot.outcome == part(10, 11, 12)


def test_refusal_of_one_part_refuses_the_command(slot: Slot) -> None:
    results = SeveralResults(slot, 3)

    results.at([1]).tell(BUSY)
    results.at([0, 2]).tell(part(1, 2))
    results.at([1]).tell(part(3))

    assert slot.outcome is BUSY


def test_results_that_a_rebuilt_queue_tells_again_change_nothing(slot: Slot) -> None:
    results = SeveralResults(slot, 2)

    results.at([0]).tell(part(1))
    results.at([0]).tell(part(1))
    early = slot.outcome
    results.at([1]).tell(part(2))
    results.at([1]).tell(part(9))

    assert early is MISSING
    assert slot.outcome == part(1, 2)


def test_results_of_another_number_than_their_places_are_a_bug(slot: Slot) -> None:
    with pytest.raises(ValueError, match="zip"):
        SeveralResults(slot, 2).tell(part(1))
