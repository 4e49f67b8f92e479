"""Mutants: planted bugs, each of which the simulation must find.  They prove that it can.

    name --> a world whose nodes have that bug --> the seeds that find it

Each is a patch of a class, put on for one run and taken off again; the product has no switch for any of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.simulation.disk import Disk, Image
from tests.simulation.machine import Machine
from tests.simulation.transfer import Receiver
from wakeq.protocol.errors import BadField
from wakeq.protocol.raft import leader as leader_file
from wakeq.protocol.raft.candidate import Candidate
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, Membership
from wakeq.protocol.raft.messages import (
    Append,
    AppendAnswer,
    HardState,
    HeartbeatAnswer,
    RequestVote,
    Restore,
    VoteAnswer,
    Write,
)
from wakeq.protocol.raft.progress import Progress

Patch = tuple[Any, str, Any]  # where, which name, what stands there instead
MUTANTS: dict[str, Callable[[], list[Patch]]] = {}


def mutant(function: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    MUTANTS[function.__name__] = function
    return function


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let everybody have this bug for a while."""
    patches = MUTANTS[name]()
    kept = [(where, what, vars(where).get(what)) for where, what, _ in patches]
    try:
        for where, what, instead in patches:
            setattr(where, what, instead)
        yield
    finally:
        for where, what, before in kept:
            setattr(where, what, before) if before is not None else delattr(where, what)


# --- durability -------------------------------------------------------------------------------------------------------


@mutant
def votes_leave_before_they_are_saved() -> list[Patch]:
    original = Core.ready

    def ready(self: Core) -> Any:
        self._saved = self.state
        return original(self)

    return [(Core, "ready", ready)]


@mutant
def votes_are_not_saved() -> list[Patch]:
    def save(self: Disk, state: HardState) -> None:
        self.state = HardState(state.term, None)

    return [(Disk, "save", save)]


@mutant
def the_term_is_saved_only_with_a_vote() -> list[Patch]:
    def save(self: Disk, state: HardState) -> None:
        if state.vote is not None:
            self.state = state

    return [(Disk, "save", save)]


@mutant
def acknowledges_before_it_is_on_disk() -> list[Patch]:
    def acknowledge(self: Follower, matched: int) -> None:
        self.matched = max(self.matched, matched)
        self._tell_leader(AppendAnswer, self.matched)

    return [(Follower, "_acknowledge", acknowledge)]


@mutant
def leader_counts_itself_before_its_sync() -> list[Patch]:
    original = Leader.replicate

    def replicate(self: Leader) -> None:
        self.core.stable_index = self.core.log.last_index
        self.on_stable()
        original(self)

    return [(Leader, "replicate", replicate)]


@mutant
def applies_what_is_not_on_its_disk() -> list[Patch]:
    return [(Core, "committed", property(lambda self: self.commit))]


@mutant
def late_reports_of_replaced_writes_count() -> list[Patch]:
    def stable(self: Core, index: int, term: int) -> int:
        if index > self.stable_index and index <= self.log.last_index:
            self.stable_index = index
            self.role.on_stable()
        return self.committed

    return [(Core, "stable", stable)]


@mutant
def late_reports_of_saves_count_as_the_last() -> list[Patch]:
    def saved(self: Core, state: HardState) -> None:
        self._saved = state
        if state == self.state and isinstance(self.role, Candidate):
            self.role.on_saved()

    return [(Core, "saved", saved)]


@mutant
def truncation_leaves_the_stable_index() -> list[Patch]:
    def truncate_from(self: Core, index: int) -> None:
        self.log.truncate_from(index)
        self.members.truncate_from(index)
        self.stable_index = min(self.stable_index, self.log.last_index + 1)
        self._truncated_term = self.term

    return [(Core, "truncate_from", truncate_from)]


# --- elections --------------------------------------------------------------------------------------------------------


@mutant
def votes_without_looking_at_the_log() -> list[Patch]:
    return [(LogView, "is_covered_by", lambda self, last_index, last_term: True)]


@mutant
def compares_logs_by_length_alone() -> list[Patch]:
    return [(LogView, "is_covered_by", lambda self, last_index, last_term: last_index >= self.last_index)]


@mutant
def votes_twice_in_a_term() -> list[Patch]:
    def on_request_vote(self: Core, message: RequestVote) -> None:
        self.send(VoteAnswer, message.sender, True, message.pre, term=message.term)

    return [(Core, "_on_request_vote", on_request_vote)]


@mutant
def pre_votes_count_as_votes() -> list[Patch]:
    def on_vote(self: Candidate, message: VoteAnswer) -> None:
        self._count(message.sender, is_granted=message.granted)

    return [(Candidate, "on_vote", on_vote)]


@mutant
def no_pre_vote() -> list[Patch]:
    original = Core.campaign
    return [(Core, "campaign", lambda self, pre, forced=False: original(self, pre=False, forced=forced))]


@mutant
def no_check_of_the_quorum() -> list[Patch]:
    return [(Leader, "has_quorum", lambda self, now_ms: True)]


@mutant
def lets_a_living_leader_be_deposed() -> list[Patch]:
    return [(Core, "has_leader", lambda self, now_ms: False)]


@mutant
def votes_at_once_after_a_restart() -> list[Patch]:
    original = Core.__init__

    def init(self: Core, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self.heard_ms -= self.settings.election_ms

    return [(Core, "__init__", init)]


@mutant
def refuses_to_tell_old_leaders_the_term() -> list[Patch]:
    return [(Core, "_refuse_old", lambda self, message: None)]


@mutant
def an_emptied_disk_counts() -> list[Patch]:
    def settle(self: Leader, peer: Progress, message: Any) -> bool:
        return True

    return [
        (Membership, "knows", lambda self, node_id, disk_id: True),
        (Leader, "_learns_disk", settle),
    ]


@mutant
def a_cluster_works_before_it_is_founded() -> list[Patch]:
    return [(Leader, "accepts", property(lambda self: self._heir is None))]


# --- replication ------------------------------------------------------------------------------------------------------


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
    original = Membership._note

    def note(self: Membership) -> None:
        original(self)
        self.voters = [member.node_id for member in self.config.members]

    return [(Membership, "_note", note)]


@mutant
def acknowledges_its_whole_log() -> list[Patch]:
    original = Follower._acknowledge

    def acknowledge(self: Follower, matched: int) -> None:
        original(self, self.core.log.last_index)

    return [(Follower, "_acknowledge", acknowledge)]


@mutant
def what_matched_one_leader_matches_the_next() -> list[Patch]:
    return [(Follower, "begin_term", lambda self: None)]


@mutant
def commits_beyond_what_the_message_showed() -> list[Patch]:
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

    return [(Follower, "on_append", commit_all), (Core, "send", send_commit)]


@mutant
def heartbeats_commit_what_was_never_compared() -> list[Patch]:
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
def takes_entries_without_comparing_what_is_before() -> list[Patch]:
    def on_append(self: Follower, message: Any) -> Write | None:
        if message.prev_index > self.core.log.last_index:
            self._reject(message.prev_index)
            return None
        write = self._take_entries(message)
        self._acknowledge(message.last_index)
        self.core.commit_to(min(message.commit, message.last_index))
        return write

    return [(Follower, "on_append", on_append)]


@mutant
def keeps_entries_that_conflict() -> list[Patch]:
    return [(LogView, "first_conflict", lambda self, first, last, runs: None)]


@mutant
def truncates_on_every_append() -> list[Patch]:
    original = Follower._take_entries

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

    return [(Follower, "_take_entries", take_entries)]


@mutant
def answers_of_earlier_terms_count() -> list[Patch]:
    original = Core._settle_term

    def settle_term(self: Core, message: Any) -> bool:
        if isinstance(message, AppendAnswer) and message.term < self.term:
            return True
        return original(self, message)

    return [(Core, "_settle_term", settle_term)]


@mutant
def what_was_sent_counts_as_there() -> list[Patch]:
    original = Progress.answered_heartbeat

    def answered_heartbeat(self: Progress, number: int) -> bool:
        if self._flights:
            self.match = max(self.match, self._flights[-1][0])
        return original(self, number)

    return [(Progress, "answered_heartbeat", answered_heartbeat)]


@mutant
def lost_messages_are_not_missed() -> list[Patch]:
    return [(Leader, "_ask_for_loss", lambda self, node_id, peer: None)]


@mutant
def no_no_op() -> list[Patch]:
    def become_leader(self: Core) -> None:
        self.leader_id = self.me.node_id
        self.role = Leader(self)
        if not self.members.config.founded or self.log.last_index == 0:
            self.put_own_entry(None)

    return [(Core, "become_leader", become_leader)]


# --- serving ----------------------------------------------------------------------------------------------------------


@mutant
def serves_before_its_no_op_is_applied() -> list[Patch]:
    def may_serve(self: Leader, now_ms: int) -> bool:
        half_ms = self.core.settings.election_ms // 2
        return self.core.members.is_lone or (not self._has_abdicated and self._contact.is_within(half_ms, now_ms))

    return [(Leader, "may_serve", may_serve)]


@mutant
def the_lease_is_too_long() -> list[Patch]:
    def may_serve(self: Leader, now_ms: int) -> bool:
        if self.core.applied_index < self.first_index or self._has_abdicated:
            return False
        return self.core.members.is_lone or self._contact.is_within(self.core.settings.election_ms * 3, now_ms)

    return [(Leader, "may_serve", may_serve), (Leader, "has_quorum", lambda self, now_ms: True)]


@mutant
def the_lease_begins_with_the_answer() -> list[Patch]:
    original = Leader._count_rounds

    def count_rounds(self: Leader) -> None:
        heard_round = self._contact.heard_round
        original(self)
        if self._contact.heard_round > heard_round:
            self._contact.heard_ms = self.core.now_ms

    return [(Leader, "_count_rounds", count_rounds)]


@mutant
def the_lease_outlives_the_hand_over() -> list[Patch]:
    def may_serve(self: Leader, now_ms: int) -> bool:
        if self.core.applied_index < self.first_index:
            return False
        return self.core.members.is_lone or self._contact.is_within(self.core.settings.election_ms // 2, now_ms)

    return [(Leader, "may_serve", may_serve)]


@mutant
def reads_do_not_wait_for_the_quorum() -> list[Patch]:
    def read_barrier(self: Leader) -> int | None:
        if self.core.commit < self.first_index:
            return None
        self.core.pass_barrier(7, self.core.commit)
        return 7

    return [(Leader, "read_barrier", read_barrier)]


@mutant
def reads_need_no_entry_of_the_term() -> list[Patch]:
    original = Leader.read_barrier

    def read_barrier(self: Leader) -> int | None:
        kept, self.first_index = self.first_index, 0
        try:
            return original(self)
        finally:
            self.first_index = kept

    return [(Leader, "read_barrier", read_barrier)]


@mutant
def what_was_taken_back_is_refused_for_certain() -> list[Patch]:
    original = Machine._truncate

    def truncate(self: Machine, index: int) -> None:
        original(self, index)
        for dropped in [asked for asked in self.asked if asked >= index]:
            self.world.truth.refused.add(self.asked.pop(dropped)[1])

    return [(Machine, "_truncate", truncate)]


# --- members ----------------------------------------------------------------------------------------------------------


@mutant
def members_change_when_it_is_committed() -> list[Patch]:
    append, commit_to = Membership.append, Core.commit_to

    def late_append(self: Membership, index: int, config: Any) -> None:
        self.__dict__.setdefault("waiting", []).append((index, config))

    def late_commit(self: Core, index: int) -> None:
        commit_to(self, index)
        waiting = self.members.__dict__.setdefault("waiting", [])
        while waiting and waiting[0][0] <= self.commit:
            append(self.members, *waiting.pop(0))
            if isinstance(self.role, Leader):
                self.role._follow_members()

    return [(Membership, "append", late_append), (Core, "commit_to", late_commit)]


@mutant
def several_voters_change_at_once() -> list[Patch]:
    def check_change(old: Config, new: Config) -> None:
        if not any(member.voter for member in new.members):
            raise BadField("nobody would vote")

    return [(leader_file, "check_change", check_change)]


@mutant
def members_change_before_the_last_change_is_committed() -> list[Patch]:
    return [(Leader, "may_change", property(lambda self: self.core.commit >= self.first_index))]


@mutant
def members_change_before_an_entry_of_the_term() -> list[Patch]:
    return [(Leader, "may_change", property(lambda self: self.core.commit >= self.core.members.index))]


@mutant
def truncated_members_stay() -> list[Patch]:
    return [(Membership, "truncate_from", lambda self, index: None)]


@mutant
def a_removed_leader_leads_on() -> list[Patch]:
    return [(Leader, "_leave", lambda self: None)]


@mutant
def nobody_stands_who_may_have_been_removed() -> list[Patch]:
    return [(Membership, "may_stand", lambda self, committed: self.votes)]


# --- images of the state ----------------------------------------------------------------------------------------------


@mutant
def the_log_is_cut_behind_what_is_only_in_memory() -> list[Patch]:
    def cut(self: Machine) -> None:
        floor = min(self.core.floor(self.applied), self.disk.last_index)
        if floor - self.base > self.world.knobs.keep_entries:
            self.core.cut(floor)
            self.disk.cut(floor)
            self.base_chain = self.entries[floor - self.base - 1][2]
            del self.entries[: floor - self.base]
            self.base = floor

    return [(Machine, "_cut", cut), (Disk, "flush", lambda self, image: None)]


@mutant
def the_log_is_reset_before_the_state_is_there() -> list[Patch]:
    original = Disk._tear

    def tear(self: Disk, job: Any, random: Any) -> None:
        if job.do == self.restore:
            self.reset(job.what)
        else:
            original(self, job, random)

    def open_(self: Disk) -> None:
        self.incarnation += 1
        if self.chain_at(self.store.index) is None and self.store.index > self.base:
            self.reset(self.store)

    return [(Disk, "_tear", tear), (Disk, "open", open_)]


@mutant
def images_replace_what_the_log_has() -> list[Patch]:
    def has(self: Follower, offer: Any) -> bool:
        if offer.index <= self.core.commit:
            self._acknowledge(offer.index)
            return True
        return False

    return [(Follower, "_has", has)]


@mutant
def old_images_replace_newer_state() -> list[Patch]:
    return [(Follower, "_has", lambda self, offer: False)]


@mutant
def pieces_of_another_stream_are_taken() -> list[Patch]:
    def belongs(self: Receiver, piece: Any) -> bool:
        return self._fetch is not None and piece.offset == len(self._pieces)

    return [(Receiver, "belongs", belongs)]


@mutant
def appends_are_taken_while_an_image_is_put_in_place() -> list[Patch]:
    original = Follower.on_append

    def on_append(self: Follower, message: Any) -> Write | None:
        kept, self._restoring = self._restoring, None
        write = original(self, message)
        self._restoring = kept
        return write

    return [(Follower, "on_append", on_append)]


@mutant
def images_do_not_carry_the_members() -> list[Patch]:
    original = Machine.restore

    def restore(self: Machine, restore: Restore, image: Image) -> None:
        original(self, restore, msgspec.structs.replace(image, config=self.world.config))

    return [(Machine, "restore", restore)]
