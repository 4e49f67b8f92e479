"""Bugs of serving: reads, leases and answers."""

from tests.simulation.machine import Machine
from tests.simulation.mutants.plant import Patch, mutant
from wakeq.protocol.raft.leader import Leader


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
def the_lease_outlives_the_transfer() -> list[Patch]:
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
def truncated_entries_are_refused_for_certain() -> list[Patch]:
    original = Machine._truncate

    def truncate(self: Machine, index: int) -> None:
        original(self, index)
        for dropped in [asked for asked in self.waiting if asked >= index]:
            self.world.truth.refused.add(self.waiting.pop(dropped)[1])

    return [(Machine, "_truncate", truncate)]
