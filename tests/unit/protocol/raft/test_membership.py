"""Membership: the configuration in force, and the changes that are allowed."""

import pytest

from wakeq.protocol.errors import BadField, WrongVersion
from wakeq.protocol.raft.membership import (
    LEVEL,
    Config,
    Member,
    Membership,
    check_change,
    check_level,
    config_of,
)

A, B, C = (Member(node, node * 10) for node in (1, 2, 3))
THREE = Config((A, B, C), founded=True)


def learner(member: Member, disk_id: int | None = None) -> Member:
    return Member(member.node_id, member.disk_id if disk_id is None else disk_id, voter=False)


@pytest.mark.parametrize(
    "members",
    [(A, B), (A, B, learner(C)), (A, B, C, Member(4, voter=False)), (A, B, learner(C, 31)), (A, B, C)],
)
def test_change_of_one_voter_is_allowed(members: tuple[Member, ...]) -> None:
    check_change(THREE, Config(members))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((A,), "change one at a time"),
        ((A, learner(B), learner(C)), "change one at a time"),
        ((), "no member would vote"),
        ((B, A, C), "in the order"),
        ((A, B, C, C), "in the order"),
        ((A, B, C, Member(4, 40)), "add it as a learner first"),
        ((A, B, Member(3, 31)), "make it a learner first"),
    ],
)
def test_unsafe_change_is_refused(members: tuple[Member, ...], reason: str) -> None:
    with pytest.raises(BadField, match=reason):
        check_change(THREE, Config(members))


def test_learner_without_a_known_disk_does_not_become_a_voter() -> None:
    old = Config((A, B, Member(3, voter=False)))

    with pytest.raises(BadField, match="start it"):
        check_change(old, Config((A, B, Member(3))))


def test_members_of_a_later_level_are_refused() -> None:
    check_level(Config((A,)), "data")

    with pytest.raises(WrongVersion, match=f"data: the cluster works at level {LEVEL + 1}, this release knows levels"):
        check_level(Config((A,), level=LEVEL + 1), "data")


def test_disks_are_bound_once() -> None:
    config = Config((A, Member(2), Member(3)))

    bound = config.with_disks({1: 11, 2: 20})

    assert [member.disk_id for member in bound.members] == [10, 20, 0]


def test_configuration_of_a_truncated_entry_is_no_longer_in_force() -> None:
    members = Membership(1, [(0, THREE)])
    members.append(5, Config((A, B)))
    members.append(8, Config((A,)))

    members.truncate_from(8)

    assert members.voters == [1, 2]
    assert (members.index, members.at(4), members.at(5)) == (5, THREE, Config((A, B)))


def test_configuration_replaced_before_a_cut_is_forgotten() -> None:
    members = Membership(1, [(0, THREE)])
    members.append(5, Config((A, B)))

    members.cut(4)
    before = members.at(4)
    members.cut(5)

    assert before == THREE
    assert members.between(0, 9) == ((5, Config((A, B))),)


def test_removed_voter_may_campaign_until_its_removal_is_committed() -> None:
    members = Membership(3, [(0, THREE)])

    members.append(5, Config((A, B)))

    assert members.may_stand(30, committed=4)
    assert not members.may_stand(30, committed=5)


def test_disk_that_did_not_join_may_not_campaign() -> None:
    members = Membership(3, [(0, THREE)])
    before = members.may_stand(31, committed=0)

    members.append(5, Config((A, B)))

    assert not before
    assert not members.may_stand(31, committed=4)


def test_learner_may_not_campaign() -> None:
    members = Membership(4, [(0, config_of([1, 2, 3], [4]))])

    assert not members.may_stand(40, committed=0)


@pytest.mark.parametrize(("disk_id", "counts"), [(20, True), (21, False)])
def test_answer_counts_only_from_the_disk_that_joined(disk_id: int, counts: bool) -> None:
    members = Membership(1, [(0, THREE)])

    assert members.knows(2, disk_id) is counts
    assert not members.knows(9, disk_id)
