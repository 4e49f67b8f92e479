"""Acknowledged: the index of a disk never falls, and the number of disks is bounded."""

from wakeq.protocol.raft.acknowledged import DISKS_MAX, Acknowledged


def test_highest_index_of_each_disk_is_kept() -> None:
    known = Acknowledged([(7, 5)])

    known.learn([(7, 4), (8, 2)])
    known.learn([(8, 3)])

    assert (known.of(7), known.of(8), known.of(9)) == (5, 3, 0)
    assert known.told() == ((7, 5), (8, 3))


def test_disks_named_by_the_leader_are_kept_when_there_are_too_many() -> None:
    known = Acknowledged((disk, 1000 + disk) for disk in range(1, DISKS_MAX + 1))

    known.learn([(77, 1), (78, 2)])

    assert len(known.told()) == DISKS_MAX
    assert (known.of(77), known.of(78)) == (1, 2)
    assert known.of(1) == 0, "the lowest of the others"
