"""Packets of a TaskFlux connection whose turn has not come: which of them begin together, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.wire.taskflux.packets import ACK, NACK, Count, Dequeue, Enqueue, Packet
from wakeq.protocol.wire.taskflux.parked import TAKEN_TOGETHER_MAX, Parked

Q, OTHER = Dequeue("q"), Dequeue("other")
PACKETS = st.lists(st.sampled_from([ACK, ACK, ACK, NACK, Q, Q, OTHER, Enqueue("q", 1, b"a")]), max_size=12)


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
    ],
)
def test_dequeues_go_together_if_each_of_them_is_acknowledged(
    behind: list[Packet], together: int, left: list[Packet]
) -> None:
    parked = Parked(behind)

    assert parked.dequeues_with(Q, one_phase=False) == [Q] * together

    assert list(parked) == left


def test_without_acknowledgements_all_of_one_queue_go_together_up_to_a_bound() -> None:
    parked = Parked([Q] * TAKEN_TOGETHER_MAX)

    assert parked.dequeues_with(Q, one_phase=True) == [Q] * TAKEN_TOGETHER_MAX
    assert list(parked) == [Q]
    assert parked.dequeues_with(OTHER, one_phase=True) == [OTHER]


@pytest.mark.parametrize("one_phase", [False, True])
def test_enqueues_that_are_too_large_go_alone(one_phase: bool) -> None:
    small, large = Enqueue("q", 1, b"ab"), Enqueue("q", 1, b"abc")
    behind: list[Packet] = [small, large] if one_phase else [small, ACK, large, ACK]
    parked = Parked(behind)

    assert parked.enqueues_with(large, 2, one_phase=one_phase) == [large]
    assert parked.enqueues_with(small, 2, one_phase=one_phase) == [small, small]
    assert list(parked) == behind[1 if one_phase else 2 :]


@given(PACKETS, st.booleans())
def test_what_goes_together_stood_at_the_head_and_can_have_its_turn_again(
    behind: list[Packet], one_phase: bool
) -> None:
    parked = Parked(behind)

    dequeues = parked.dequeues_with(Q, one_phase=one_phase)

    if len(dequeues) > 1 or one_phase:
        parked.put_back(dequeues, one_phase=one_phase)
        assert list(parked) == [Q, *behind]
    else:
        assert list(parked) == behind
