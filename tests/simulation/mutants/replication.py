"""Bugs of replication: logs that differ, and entries that are counted wrongly."""

from typing import Any

from tests.simulation.mutants.plant import Patch, mutant
from wakeq.protocol.raft import leader as leader_file
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Membership
from wakeq.protocol.raft.messages import (
    Append,
    HeartbeatAnswer,
    Write,
)
from wakeq.protocol.raft.progress import Progress


@mutant
def commits_entries_of_earlier_terms() -> list[Patch]:
    original = Leader.on_stable

    def on_stable(self: Leader) -> None:
        kept, self.first_index = self.first_index, 0
        original(self)
        self.first_index = kept

    return [(Leader, "on_stable", on_stable)]


@mutant
def commits_without_a_majority() -> list[Patch]:
    return [(leader_file, "agreed", max)]


@mutant
def learners_count() -> list[Patch]:
    original = Membership._derive

    def derive(self: Membership) -> None:
        original(self)
        self.voters = [member.node_id for member in self.config.members]

    return [(Membership, "_derive", derive)]


def _from_the_start(self: Leader, message: Any) -> int:
    return self.core.log.previous_index + 1


@mutant
def acknowledges_its_whole_log() -> list[Patch]:
    """The leader goes back further than it must, which is allowed: ours goes exactly to the first difference."""
    original = Follower._acknowledge

    def acknowledge(self: Follower, matched: int) -> None:
        original(self, self.core.log.last_index)

    return [(Follower, "_acknowledge", acknowledge), (Leader, "_next_for", _from_the_start)]


@mutant
def commits_beyond_the_compared_entries() -> list[Patch]:
    """The leader goes back further than it must, as above."""
    on_append, send = Follower.on_append, Core.send

    def commit_all(self: Follower, message: Any) -> Write | None:
        write = on_append(self, message)
        if self._restoring is None and self.matched >= message.last_index:
            self.core.commit_to(min(message.commit, self.core.log.last_index))
        return write

    def send_commit(self: Core, kind: Any, receiver: int, *fields: Any, **named: Any) -> None:
        if kind is Append:
            fields = (*fields[:4], self.commit, *fields[5:])
        send(self, kind, receiver, *fields, **named)

    return [(Follower, "on_append", commit_all), (Core, "send", send_commit), (Leader, "_next_for", _from_the_start)]


@mutant
def heartbeats_commit_entries_never_compared() -> list[Patch]:
    def on_heartbeat(self: Follower, message: Any) -> None:
        if self._restoring is None:
            self.core.commit_to(min(message.commit, self.core.log.last_index))
        self.core.send(HeartbeatAnswer, message.sender, message.round)

    original = Leader._begin_round

    def begin_round(self: Leader) -> None:
        kept = {peer: peer.match for peer in self.peers.values()}
        for peer in kept:
            peer.match = self.core.commit
        original(self)
        for peer, match in kept.items():
            peer.match = match

    return [(Follower, "on_heartbeat", on_heartbeat), (Leader, "_begin_round", begin_round)]


@mutant
def appends_without_comparing_the_entry_before() -> list[Patch]:
    def on_append(self: Follower, message: Any) -> Write | None:
        if message.prev_index > self.core.log.last_index:
            self._reject(message.prev_index)
            return None
        write = self._append_entries(message)
        self._acknowledge(message.last_index)
        self.core.commit_to(min(message.commit, message.last_index))
        return write

    return [(Follower, "on_append", on_append)]


@mutant
def keeps_entries_that_conflict() -> list[Patch]:
    return [(LogView, "first_conflict", lambda self, first, last, runs: None)]


@mutant
def truncates_on_every_append() -> list[Patch]:
    original = Follower._append_entries

    def take_entries(self: Follower, message: Any) -> Write | None:
        log = self.core.log
        if message.last_index < log.last_index and message.last_index >= log.previous_index:
            start = max(message.prev_index, log.previous_index) + 1
            if start <= message.last_index:
                self.core.log.truncate_from(start)
                self.core.members.truncate_from(start)
                self.core.stable_index = min(self.core.stable_index, start - 1)
                found = original(self, message)
                assert found is not None
                return Write(start, found.first_index, found.last_index)
        return original(self, message)

    return [(Follower, "_append_entries", take_entries)]


@mutant
def sent_entries_count_as_acknowledged() -> list[Patch]:
    original = Progress.answered_heartbeat

    def answered_heartbeat(self: Progress, number: int) -> bool:
        if self._flights:
            self.match = max(self.match, self._flights[-1][0])
        return original(self, number)

    return [(Progress, "answered_heartbeat", answered_heartbeat)]


@mutant
def lost_messages_are_not_noticed() -> list[Patch]:
    return [(Leader, "_probe_for_loss", lambda self, node_id, peer: None)]


@mutant
def no_no_op() -> list[Patch]:
    def become_leader(self: Core, clocks: Any) -> None:
        self.leader_id = self.me.node_id
        self.role = Leader(self, clocks)
        if not self.members.config.founded or self.log.last_index == 0:
            self.put_own_entry(None)

    return [(Core, "become_leader", become_leader)]


@mutant
def tells_acknowledgements_that_disks_never_gave() -> list[Patch]:
    def acknowledged(self: Leader) -> list[tuple[int, int]]:
        return [(peer.disk_id, self.core.commit) for peer in self.peers.values() if peer.disk_id]

    return [(Leader, "_acknowledged", acknowledged)]
