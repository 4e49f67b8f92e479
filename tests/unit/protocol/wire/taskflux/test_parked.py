"""Packets of a TaskFlux connection whose turn has not come: which of them begin together, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.taskflux.apart import apart
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    TAKEN_TOGETHER_MAX,
    Bad,
    Count,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    Packet,
)
from wakeq.protocol.wire.taskflux.parked import Parked

Q, OTHER = Dequeue("q"), Dequeue("other")
PACKETS = st.lists(st.sampled_from([ACK, ACK, ACK, NACK, Q, Q, OTHER, Enqueue("q", 1, b"a")]), max_size=12)


def rest_of(parked: Parked) -> list[Packet | Bad]:
    """Take everything, packet by packet; it must be as many as there were said to be."""
    count = len(parked)
    packets = []
    while parked:
        packets += apart([parked.take_first()])
    assert len(packets) == count
    assert len(parked) == 0
    return packets


@pytest.mark.parametrize(
    ("behind", "together", "left"),
    [
        ([ACK, Q, ACK, Q, ACK], 3, []),
        ([ACK, Q, ACK, Q], 2, [Q]),
        ([ACK, Q, NACK], 1, [ACK, Q, NACK]),
        ([ACK, OTHER, ACK], 1, [ACK, OTHER, ACK]),
        ([ACK, Q, ACK, Count("q")], 2, [Count("q")]),
        ([ACK], 1, [ACK]),
        ([NACK, Q, ACK], 1, [NACK, Q, ACK]),
        ([Q, ACK], 1, [Q, ACK]),
        ([ACK, Dequeues(Q, 3), Q, ACK, Dequeues(Q, 2)], 7, []),
        ([ACK, Q, ACK, Dequeues(OTHER, 2)], 2, [OTHER, ACK, OTHER, ACK]),
        ([ACK, Dequeues(OTHER, 2), Q, ACK], 1, [ACK, OTHER, ACK, OTHER, ACK, Q, ACK]),
        ([NACK, Dequeues(Q, 2)], 1, [NACK, Q, ACK, Q, ACK]),
        ([ACK, Dequeues(Q, TAKEN_TOGETHER_MAX - 1), Q, ACK], TAKEN_TOGETHER_MAX, [Q, ACK]),
        ([ACK, Dequeues(Q, TAKEN_TOGETHER_MAX)], 1, [ACK, *[Q, ACK] * TAKEN_TOGETHER_MAX]),
    ],
)
def test_dequeues_go_together_if_each_of_them_is_acknowledged(
    behind: list[Packet], together: int, left: list[Packet]
) -> None:
    parked = Parked(behind)

    assert parked.dequeues_with(Q, one_phase=False) == [Q] * together

    assert rest_of(parked) == left


def test_dequeues_of_one_queue_without_acknowledgements_go_together_up_to_a_bound() -> None:
    parked = Parked([Q] * TAKEN_TOGETHER_MAX)

    assert parked.dequeues_with(Q, one_phase=True) == [Q] * TAKEN_TOGETHER_MAX
    assert rest_of(parked) == [Q]
    assert parked.dequeues_with(OTHER, one_phase=True) == [OTHER]


@pytest.mark.parametrize("one_phase", [False, True])
def test_enqueues_that_are_too_large_go_alone(one_phase: bool) -> None:
    small, large = Enqueue("q", 1, b"ab"), Enqueue("q", 1, b"abc")
    behind: list[Packet] = [small, large] if one_phase else [small, ACK, large, ACK]
    parked = Parked(behind)

    assert parked.enqueues_with(large, 2, one_phase=one_phase) == [large]
    assert parked.enqueues_with(small, 2, one_phase=one_phase) == [small, small]
    assert rest_of(parked) == behind[1 if one_phase else 2 :]


@given(PACKETS, st.booleans())
def test_dequeues_taken_together_from_the_head_can_be_put_back(behind: list[Packet], one_phase: bool) -> None:
    parked = Parked(behind)

    dequeues = parked.dequeues_with(Q, one_phase=one_phase)

    if len(dequeues) > 1 or one_phase:
        parked.put_back(dequeues, one_phase=one_phase)
        assert rest_of(parked) == [Q, *behind]
    else:
        assert rest_of(parked) == behind


def test_run_counts_as_its_packets_and_can_be_put_apart() -> None:
    stored = Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40)
    parked = Parked([stored, Dequeues(Q, 3), NACK])
    assert len(parked) == 11

    assert parked.take_first() == stored
    parked.put_apart(stored)

    assert len(parked) == 11
    assert rest_of(parked) == [Enqueue("q", 1, b"a"), ACK, Enqueue("q", 2, b"b"), ACK, *[Q, ACK] * 3, NACK]


def test_cleared_packets_are_no_longer_counted() -> None:
    parked = Parked([Dequeues(Q, 3), NACK])

    parked.clear()

    assert len(parked) == 0
