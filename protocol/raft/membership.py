"""Membership: the members of the cluster, by index of the log.  Pure.

    configs by index --> the voters, the learners, and the changes that are allowed next

A configuration is in force from the moment it is in the log, committed or not (thesis 4.1), until it is truncated.
Only one voter may join or leave at a time, so that any two neighbouring configurations share a majority.

A vote counts only if it comes from the disk with which the voter joined.  Every node that can be elected must know
those disks, so a new cluster is *founded* once every voter has the disks of all voters; before that it accepts neither
entries nor changes.  From then on any node that could be elected recognises a voter that returns with an empty disk.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wakeq.protocol.errors import BadField, WrongVersion

# One number for all that nodes must agree on: the kinds of entries, what peers say, images of the state.  It stands in
# the log with the members and in every Hello, so that a release can tell what it would not understand.
LEVEL: Final = 3


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node.  `disk_id` is the data directory with which it joined; 0 until the leader has heard from it."""

    node_id: int
    disk_id: int = 0
    voter: bool = True
    address: str = ""


class Config(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All members, in the order of their numbers; at least one votes."""

    members: tuple[Member, ...]
    founded: bool = False  # the disk of every voter is known to every voter
    level: int = LEVEL

    def member(self, node_id: int) -> Member | None:
        return next((member for member in self.members if member.node_id == node_id), None)

    def with_disks(self, disks: dict[int, int]) -> "Config":
        """Return the same members, each with its disk unless it has one already."""
        members = tuple(
            msgspec.structs.replace(member, disk_id=member.disk_id or disks.get(member.node_id, 0))
            for member in self.members
        )
        return msgspec.structs.replace(self, members=members)


def config_of(voters: Iterable[int], learners: Iterable[int] = ()) -> Config:
    """Return a configuration of nodes whose disks are not known yet."""
    members = [Member(node) for node in voters] + [Member(node, voter=False) for node in learners]
    return Config(tuple(sorted(members, key=lambda member: member.node_id)))


def check_change(old: Config, new: Config) -> None:
    """Refuse a change that allows two majorities without a common node, or a vote of an unknown disk."""
    ids = [member.node_id for member in new.members]
    if ids != sorted(set(ids)):
        raise BadField("members must be in the order of their numbers, each once")
    voters = [member for member in new.members if member.voter]
    if not voters:
        raise BadField("no member would vote; at least one member must be a voter")
    before = {member.node_id for member in old.members if member.voter}
    changed = before.symmetric_difference(member.node_id for member in voters)
    if len(changed) > 1:
        raise BadField(f"nodes {sorted(changed)} would begin or cease to vote; change one at a time")
    for member in voters:
        known = old.member(member.node_id)
        if known is None:
            raise BadField(f"node {member.node_id} is new; add it as a learner first")
        if known.disk_id not in (0, member.disk_id):
            raise BadField(f"node {member.node_id} has another disk; make it a learner first")
        if not member.disk_id:
            raise BadField(f"node {member.node_id} has not been heard from; start it, and try again")


def check_level(config: Config, where: object) -> None:
    """Refuse the members of a cluster whose log may hold entries that this release cannot read."""
    if config.level > LEVEL:
        raise WrongVersion(
            f"{where}: the cluster works at level {config.level}, this release knows levels up to {LEVEL}; "
            "start the release that wrote it, or a later one"
        )


class Membership:
    """The configurations of the log by index, the newest one in force.

    Invariant: the first one was in force at the begin of the log, so no configuration in the log is missing.
    """

    def __init__(self, node_id: int, configs: Sequence[tuple[int, Config]]) -> None:
        self.node_id = node_id
        self._configs = list(configs)  # (index, config) in index order
        self._derive()

    def _derive(self) -> None:
        """Set the fields that follow from the newest configuration."""
        self.index, self.config = self._configs[-1]
        self.voters = [member.node_id for member in self.config.members if member.voter]
        self.is_unbound = any(member.disk_id == 0 for member in self.config.members)  # a disk is not known yet
        self.votes = self.node_id in self.voters
        self._before = self._configs[-2][1].member(self.node_id) if len(self._configs) > 1 else None
        self.is_lone = self.voters == [self.node_id]

    def may_stand(self, disk_id: int, committed: int) -> bool:
        """Whether this node may campaign: as a voter, or until the entry that removes it as a voter is committed.

        A leader that removes itself may be the only node with that entry (thesis 4.2.2).  A disk other than the one
        that joined may not campaign: it would vote for itself without knowing its promises.
        """
        mine = self.config.member(self.node_id) if self.votes or self.index <= committed else self._before
        return mine is not None and mine.voter and mine.disk_id in (0, disk_id)

    def until(self, index: int) -> tuple[tuple[int, Config], ...]:
        """Return the configurations up to an entry: a restart needs them beside the log behind that entry."""
        return tuple(entry for entry in self._configs if entry[0] <= index)

    def at(self, index: int) -> Config:
        """Return the configuration in force behind an entry."""
        return next((config for start, config in reversed(self._configs) if start <= index), self._configs[0][1])

    def between(self, first: int, last: int) -> tuple[tuple[int, Config], ...]:
        """Return the configurations among the entries from first to last."""
        # This is nearly always so.
        if self.index < first:
            return ()
        return tuple((index, config) for index, config in self._configs if first <= index <= last)

    def append(self, index: int, config: Config) -> None:
        self._configs.append((index, config))
        self._derive()

    def truncate_from(self, index: int) -> None:
        """Return to the configuration that was in force before the truncated entries."""
        if self.index >= index:
            self._configs = [(start, config) for start, config in self._configs if start < index]
            self._derive()

    def cut(self, index: int) -> None:
        """Forget the configurations that were replaced at or before an entry."""
        while len(self._configs) > 1 and self._configs[1][0] <= index:
            del self._configs[0]

    def reset(self, index: int, config: Config) -> None:
        self._configs = [(index, config)]
        self._derive()

    def knows(self, node_id: int, disk_id: int) -> bool:
        """Whether the answers of a node count: a member, with the disk that joined."""
        member = self.config.member(node_id)
        return member is not None and member.disk_id in (0, disk_id)
