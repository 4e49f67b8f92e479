"""Recovery: the proof that a cluster recovers once all faults are over.

    calm --> a leader that serves, every operation answered, all states equal; then the promises to operators

Spans are counted in election timeouts of true time.  This proves liveness, so no step may fail by bad luck.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.truth import Violation
from wakeq.protocol.raft.membership import Config, Member

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.world import World

SETTLES_IN = 20  # election timeouts
HANG_ENDS_IN = 6  # election timeouts: two until a hang is noticed, and one for an heir that lags
LATE_SPANS = 4  # election timeouts in which all messages arrive that were under way when the faults ended


class Recovery:
    """The proof for one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.election_us = world.knobs.settings.election_ms * 1000

    def prove(self) -> None:
        """Run all steps; a Violation names the step that failed."""
        self.world.calm()
        self._pass(LATE_SPANS)
        self._converges("after the faults")
        self._isolated_follower_disturbs_no_leader()
        self._isolated_leader_steps_down()
        self._leader_with_a_hanging_disk_is_replaced()
        self._leadership_can_be_transferred()
        self._members_join_and_leave()
        self._converges("at the end")

    # --- steps --------------------------------------------------------------------------------------------------------

    def _await(self, what: str, holds: Callable[[], bool], spans: float = SETTLES_IN) -> None:
        until_us = self.world.now_us + int(spans * self.election_us)
        self.world.tell(f"== {what}")
        if not holds() and not self.world.run(until_us=until_us, stop=holds):
            raise Violation(f"not within {spans} election timeouts: {what}")

    def _pass(self, spans: float) -> None:
        self.world.run(until_us=self.world.now_us + int(spans * self.election_us))

    def _serving(self) -> "Machine | None":
        for machine in self.world.leaders():
            if machine.core.accepts and machine.core.may_serve(machine.now_ms()):
                return machine
        return None

    def _leader(self) -> "Machine":
        self._await("a leader serves", lambda: self._serving() is not None)
        machine = self._serving()
        assert machine is not None
        return machine

    def _members(self, leader: "Machine") -> "list[Machine]":
        return [self.world.machines[member.node_id] for member in leader.core.members.config.members]

    def _converges(self, when: str) -> None:
        """Operations are committed, every client gets an answer, and every member has the same state."""
        leader = self._leader()
        before = self.world.truth.answered_count
        operations = self.world.new_operations()
        leader.propose(operations)
        enough = before + len(operations)
        self._await(f"operations are answered {when}", lambda: self.world.truth.answered_count >= enough)
        last = len(self.world.truth.committed)
        members = self._members(leader)
        everybody = lambda: all(m.applied >= last for m in members if m.is_up)  # noqa: E731
        self._await(f"every member has entry {last} {when}", everybody, 5 * SETTLES_IN)
        self._await("no client waits for an outcome", lambda: not any(m.waiting for m in members))
        leader = self._leader()
        leader.read()
        self._await("reads are answered", lambda: not leader.reads or not leader.core.leads)

    def _followers(self, leader: "Machine") -> "list[Machine]":
        return [self.world.machines[v] for v in leader.core.members.voters if v != leader.node_id]

    def _cut_off(self, machine: "Machine", spans: float) -> None:
        everybody = range(len(self.world.machines))
        self.world.network.cuts |= {(machine.node_id, other) for other in everybody}
        self.world.network.cuts |= {(other, machine.node_id) for other in everybody}
        self._pass(spans)

    def _isolated_follower_disturbs_no_leader(self) -> None:
        """Pre-vote: a node that returns from a long absence changes neither term nor leader."""
        leader = self._leader()
        followers = self._followers(leader)
        if len(followers) < 2:
            return
        term = leader.core.term
        self._cut_off(self.world.rng.choice(followers), 6)
        self.world.network.cuts.clear()
        self._pass(4)
        if not leader.core.leads or leader.core.term != term:
            raise Violation(f"a follower came back and ended term {term} of node {leader.node_id}")

    def _isolated_leader_steps_down(self) -> None:
        """Check-quorum: a leader without answers steps down, and another node leads."""
        leader = self._leader()
        if len(self._followers(leader)) < 2:
            return
        term = leader.core.term
        self._cut_off(leader, 3)
        if leader.core.leads:
            raise Violation(f"node {leader.node_id} leads on in term {term} while it is cut off")
        self._await("another node leads", lambda: any(m is not leader for m in self.world.leaders()))
        self.world.network.cuts.clear()
        self._converges("after a leader was cut off")

    def _leader_with_a_hanging_disk_is_replaced(self) -> None:
        """A node that has the entries leads before the disk answers again, and no accepted entry is lost."""
        leader = self._leader()
        if len(self._followers(leader)) < 2:
            return
        leader.disk.hangs = True
        leader.propose(self.world.new_operations())
        another = lambda: self._serving() not in (None, leader)  # noqa: E731
        self._await("another node leads while a disk hangs", another, HANG_ENDS_IN)
        self._pass(self.world.rng.choice((0, 10)))
        leader.disk.answer()
        self._converges("after a disk hung")

    def _leadership_can_be_transferred(self) -> None:
        leader = self._leader()
        followers = self._followers(leader)
        if followers:
            heir = self.world.rng.choice(followers)
            leader.core.leader().transfer(heir.node_id)
            leader.drive()
            self._await(f"node {heir.node_id} takes over", lambda: heir.core.leads, 3)

    def _members_join_and_leave(self) -> None:
        """A spare node becomes a learner, then a voter, and is removed; afterwards it disturbs no leader."""
        spare = next(
            (m for m in self.world.machines if self._leader().core.members.config.member(m.node_id) is None), None
        )
        if spare is None:
            return
        node = spare.node_id
        self.world.boot_if_down(spare)
        self._change("it learns", lambda config: (*config.members, Member(node, voter=False)))
        has_come = lambda: self._leader().core.leader().has_caught_up(node)  # noqa: E731
        # `Pace` lets it catch up slowly.
        self._await("it has caught up", has_come, 5 * SETTLES_IN)
        self._change("it votes", lambda config: (*_without(config, node), _voter(config, node)))
        self._converges("with another voter")
        if self._leader() is spare:
            return
        self._change("it is removed", lambda config: _without(config, node))
        leader = self._leader()
        term = leader.core.term
        self._pass(5)
        if leader.core.term != term:
            raise Violation(f"node {node} was removed and ended term {term}")
        if not spare.core.is_removed:
            raise Violation(f"node {node} was removed and does not know it")
        if wrong := [machine.node_id for machine in self._members(leader) if machine.core.is_removed]:
            raise Violation(f"members {wrong} believe that they were removed")

    def _change(self, what: str, make: "Callable[[Config], tuple[Member, ...]]") -> None:
        leader = self._leader()
        self._await("the members may change", lambda: leader.core.leader().may_change)
        members = tuple(sorted(make(leader.core.members.config), key=lambda member: member.node_id))
        index = leader.core.leader().change_members(Config(members, leader.core.members.config.founded))
        leader.drive()
        self._await(what, lambda: len(self.world.truth.committed) >= index)


def _without(config: Config, node: int) -> tuple[Member, ...]:
    return tuple(member for member in config.members if member.node_id != node)


def _voter(config: Config, node: int) -> Member:
    member = config.member(node)
    assert member is not None
    return Member(node, member.disk_id, voter=True)
