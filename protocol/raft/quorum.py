"""Quorum: the result that a majority supports.  Pure.

    one value for each voter --> the result of the majority

Learners are never among the values.
"""

from collections.abc import Iterable, Mapping, Sequence


def majority(voters: int) -> int:
    """Return the least number of voters that is more than half of all."""
    return voters // 2 + 1


def agreed(values: Iterable[int]) -> int:
    """Return the highest value that a majority has reached."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def verdict(voters: Sequence[int], ballots: Mapping[int, bool]) -> bool | None:
    """Return True once a majority has granted, False once it no longer can, None until then."""
    needed = majority(len(voters))
    granted = sum(ballots.get(voter) is True for voter in voters)
    refused = sum(ballots.get(voter) is False for voter in voters)
    if granted >= needed:
        return True
    return False if refused > len(voters) - needed else None
