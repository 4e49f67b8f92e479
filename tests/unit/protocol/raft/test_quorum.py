"""Quorum: the value that a majority has reached, and the moment at which an election is decided."""

import pytest

from wakeq.protocol.raft.quorum import agreed, majority, verdict


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority_is_more_than_half(voters: int, needed: int) -> None:
    assert majority(voters) == needed


@pytest.mark.parametrize("voters", range(1, 8))
def test_agreed_value_is_the_highest_that_a_majority_has_reached(voters: int) -> None:
    values = [7 * place % 5 for place in range(voters)]

    reached = agreed(values)

    assert sum(value >= reached for value in values) >= majority(voters)
    assert sum(value > reached for value in values) < majority(voters)


@pytest.mark.parametrize(
    ("voters", "ballots", "expected"),
    [
        ([1, 2, 3], {1: True}, None),
        ([1, 2, 3], {1: True, 3: True}, True),
        ([1, 2, 3], {1: True, 2: False}, None),
        ([1, 2, 3], {2: False, 3: False}, False),
        ([1, 2, 3, 4], {1: True, 2: True}, None),
        ([1, 2, 3, 4], {3: False, 4: False}, False),
        ([1, 2, 3], {1: True, 9: True}, None),
        ([2], {1: True}, None),
    ],
)
def test_election_is_decided_as_early_as_possible(
    voters: list[int], ballots: dict[int, bool], expected: bool | None
) -> None:
    assert verdict(voters, ballots) is expected
