"""Nemesis: the faults of a world, one after the other, mostly where they do the most harm.

    random --> partitions, crashes, pauses, bad disks and clocks, emptied disks; transfers and changes of members

Operators are part of it: they also try forbidden changes, which must be refused.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import msgspec

from wakeq.protocol.errors import Refused
from wakeq.protocol.raft.membership import Config, Member

if TYPE_CHECKING:
    from tests.simulation.disk import Disk
    from tests.simulation.machine import Machine
    from tests.simulation.world import World


class Nemesis:
    """The source of all faults in one world."""

    def __init__(self, world: "World", *, wipes: int, skip: frozenset[int] = frozenset()) -> None:
        self.world = world
        self.rng = Random(world.rng.random())  # separate, so that a skipped fault does not change other random draws
        self.choose = self.rng.choice
        self.acts = 0  # done or skipped so far
        self._skip = skip
        self.wipes_left = wipes
        self.is_over = False
        self._faults = self._draw_faults()

    def _draw_faults(self) -> list[Callable[[], object]]:
        """Draw a part of the faults for this world: then those occur together more often."""
        faults: list[Callable[[], object]] = [
            self.isolate_leader, self.isolate_any, self.cut_one_way, self.halve, self.bridge, self.crash_leader,
            self.crash_any, self.crash_all, self.pause_any, self.pause_leader, self.starve, self.starve,
            self.slow_disk, self.break_disk, self.bend_clock, self.transfer, self.change, self.change_wrongly,
            self.quarrel, self.demote, self.ambush, self.hold_reports, self.hold_reports, self.wipe,
            self.hang_disk,
        ]  # fmt: skip
        share = self.choose((0.2, 0.5, 1.0))
        return [self.heal, self.isolate_leader, *(fault for fault in faults if self.rng.random() < share)]

    def act(self, _: None) -> None:
        """Do one act, and plan the next one."""
        world = self.world
        if self.is_over:
            return
        fault = self.choose(self._faults)
        if self.acts not in self._skip:
            world.tell(f"-- {self.acts}: {fault.__name__}")
            fault()
        self.acts += 1
        world.at(int(self.rng.random() * 2 * world.knobs.fault_us) + 1, self.act, None)

    # --- targets ------------------------------------------------------------------------------------------------------

    def _any(self) -> "Machine | None":
        living = self.world.living()
        return self.choose(living) if living else None

    def _leader(self) -> "Machine | None":
        """Return the latest leader, or any node if there is none."""
        leaders = self.world.leaders()
        return max(leaders, key=lambda machine: machine.core.term) if leaders else self._any()

    def _span_us(self, most: float) -> int:
        return int(self.rng.random() * most * self.world.knobs.settings.election_ms * 1000) + 1

    # --- the network --------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.world.network.cuts.clear()

    def _isolate(self, machine: "Machine | None") -> None:
        if machine is None:
            return
        self.heal()
        for other in range(len(self.world.machines)):
            self.world.network.cuts |= {(machine.node_id, other), (other, machine.node_id)}

    def isolate_leader(self) -> None:
        self._isolate(self._leader())

    def isolate_any(self) -> None:
        self._isolate(self._any())

    def cut_one_way(self) -> None:
        machine = self._leader()
        if machine is not None:
            pairs = [(machine.node_id, other) for other in range(len(self.world.machines))]
            hears = self.rng.random() < 0.5
            self.world.network.cuts |= {pair if hears else pair[::-1] for pair in pairs}

    def halve(self) -> None:
        self.heal()
        side = {machine.node_id for machine in self.world.machines if self.rng.random() < 0.5}
        everybody = range(len(self.world.machines))
        self.world.network.cuts |= {(a, b) for a in everybody for b in everybody if (a in side) != (b in side)}

    def bridge(self) -> None:
        """Connect every node to one node only."""
        machine = self._any()
        everybody = range(len(self.world.machines))
        if machine is not None:
            centre = machine.node_id
            self.world.network.cuts = {(a, b) for a in everybody for b in everybody if centre not in (a, b)}

    # --- processes, clocks and disks ----------------------------------------------------------------------------------

    def _crash(self, machine: "Machine | None", most: float = 3.0) -> None:
        if machine is not None and machine.is_up:
            machine.crash()
            self.world.at(self._span_us(most), self.world.boot_if_down, machine)

    def crash_leader(self) -> None:
        self._crash(self._leader())

    def crash_any(self) -> None:
        self._crash(self._any(), self.choose((0.01, 3.0, 10.0)))

    def crash_all(self) -> None:
        for machine in self.world.living():
            self._crash(machine, 1.0)

    def starve(self) -> None:
        """Stop the clients and separate one follower from its leader; just before it campaigns, restart the others.

        Those have answered the leader a moment ago, and the starved follower has all of their entries.
        """
        self.heal()
        self.world.clients_rest_us = self.world.now_us + 3 * self.world.knobs.settings.election_ms * 1000
        self.world.at(self._span_us(0.5), self._starve, None)

    def _starve(self, _: None) -> None:
        leader, starved = self._leader(), self.choose(self.world.machines)
        if leader is not None and not self.is_over:
            self.world.network.cuts.add((leader.node_id, starved.node_id))
            self.world.at(self._span_us(0.5), self._aim, (leader, starved, starved.life))

    def _aim(self, what: "tuple[Machine, Machine, int]") -> None:
        leader, starved, life = what
        if starved.is_up and starved.life == life and not starved.core.leads:
            left_ms = starved.core.role.deadline_ms - starved.now_ms()
            self.world.at(max(0, left_ms * 1000 - self._span_us(0.05)), self._restart_others, (leader, starved))

    def _restart_others(self, what: "tuple[Machine, Machine]") -> None:
        if self.is_over:
            return
        leader = what[0].node_id
        # From now on no node can tell that leader about a later term.
        for machine in self.world.living():
            self.world.network.cuts |= {(leader, machine.node_id), (machine.node_id, leader)}
            if machine not in what:
                machine.crash()
                machine.boot()

    def ambush(self) -> None:
        """Wait until a node truncates entries that clients wait for; then crash all nodes."""
        self.world.on_truncate = self._spring

    def _spring(self) -> None:
        self.world.on_truncate = None
        span_us = self._span_us(self.choose((0.001, 0.02, 0.2)))
        self.world.at(span_us, lambda _: None if self.is_over else self.crash_all(), None)

    def hold_reports(self) -> None:
        """Isolate a leader whose disk writes without reporting, until the node has truncated the written entries."""
        machine = self._leader()
        if machine is None:
            return
        self._isolate(machine)
        disk, release = machine.disk, lambda _=None: self._release(machine.disk)
        disk.hold_reports()
        self.world.on_truncate = lambda: self.world.at(self._span_us(0.05), release, None)
        election_us = self.world.knobs.settings.election_ms * 1000
        self.world.at(2 * election_us + self._span_us(3.0), lambda _: None if self.is_over else self.heal(), None)
        self.world.at(10 * election_us, release, None)

    def _release(self, disk: "Disk") -> None:
        """Release the reports while the entries that replace the reported ones are still being written."""
        self.world.on_truncate = None
        disk.is_slow = not self.is_over
        disk.release_reports()

    def _pause(self, machine: "Machine | None") -> None:
        if machine is not None:
            span_us = self._span_us(3.0)
            machine.paused_until_us = self.world.now_us + span_us
            # This read comes before the machine has read its clock.
            self.world.at(span_us, self._read, (machine, machine.life))

    def _read(self, what: "tuple[Machine, int]") -> None:
        machine, life = what
        if machine.life == life and machine.core.leads and machine.paused_until_us <= self.world.now_us:
            machine.read()

    def pause_any(self) -> None:
        self._pause(self._any())

    def pause_leader(self) -> None:
        self._pause(self._leader())

    def slow_disk(self) -> None:
        machine = self._any()
        if machine is not None:
            machine.disk.is_slow = not machine.disk.is_slow

    def hang_disk(self) -> None:
        """Make the leader's disk hang, for long or for a moment; sometimes for ever."""
        machine = self._leader()
        if machine is not None:
            machine.disk.hangs = True
            if self.rng.random() < 0.8:
                self.world.at(self._span_us(8.0), lambda _: machine.disk.answer(), None)

    def break_disk(self) -> None:
        machine = self._any()
        if machine is not None:
            machine.disk.is_broken = True

    def bend_clock(self) -> None:
        machine, rate = self._any(), self.world.knobs.rate
        if machine is not None and machine.paused_until_us <= self.world.now_us:
            machine.set_rate(1.0 - rate + 2 * rate * self.rng.random())

    def wipe(self) -> None:
        """Replace a node's disk by an empty one and start it, as an operator might; some entries are acknowledged."""
        machine = self._any()
        if machine is not None and self.wipes_left and self.world.truth.acknowledged:
            self.wipes_left -= 1
            machine.crash()
            machine.disks.append(self.world.new_disk())
            machine.boot()

    # --- operators ----------------------------------------------------------------------------------------------------

    def transfer(self) -> None:
        """Transfer leadership; the old leader may not hear the new one."""
        for machine in self.world.leaders():
            heir = self.choose(machine.core.members.voters)
            self._try(machine, lambda machine=machine, heir=heir: machine.core.leader().transfer(heir))
            if self.rng.random() < 0.5:
                self.world.at(self._span_us(0.02), self._deafen, machine)

    def _deafen(self, machine: "Machine") -> None:
        if not self.is_over:
            self.world.network.cuts |= {(other, machine.node_id) for other in range(len(self.world.machines))}

    def _try(self, machine: "Machine", what: Callable[[], object]) -> None:
        if machine.paused_until_us > self.world.now_us:
            return
        try:
            what()
        except Refused as refusal:
            self.world.tell(f"   refused: {refusal}")
        machine.drive()

    def _propose_members(self, make: "Callable[[Config], Config]") -> None:
        machine = self._leader()
        if machine is not None and machine.core.leads:
            config = make(machine.core.members.config)
            self.world.tell(f"   {config}")
            self._try(machine, lambda: machine.core.leader().change_members(config))

    def change(self) -> None:
        """Add, promote, demote or remove a member."""
        self._propose_members(self._changed)

    def demote(self) -> None:
        """Turn a voter into a learner and crash before the leader's disk has the entry; another node must lead then."""
        machine = self._leader()
        if machine is not None and machine.core.leads:
            machine.disk.is_slow = True
            self._propose_members(self._with_one_voter_less)
            self.world.at(self._span_us(0.1), lambda _: None if self.is_over else self._crash(machine), None)

    def _with_one_voter_less(self, config: Config) -> Config:
        voters = [member for member in config.members if member.voter]
        one = self.choose(voters)
        members = (msgspec.structs.replace(m, voter=m.voter and m is not one) for m in config.members)
        return Config(tuple(members), config.founded)

    def quarrel(self) -> None:
        """Let the leader change the members and isolate it at once; repeat that with the next leaders."""
        for turn in range(self.rng.randrange(2, 6)):
            self.world.at(turn * self._span_us(4.0), self._change_and_isolate, None)

    def _change_and_isolate(self, _: None) -> None:
        if not self.is_over:
            self.choose((self.change, self.change_wrongly))()
            self.world.at(self._span_us(0.1), lambda _: None if self.is_over else self.isolate_leader(), None)

    def _changed(self, config: Config) -> Config:
        node = self.rng.randrange(len(self.world.machines))
        member = config.member(node)
        others = [other for other in config.members if other.node_id != node]
        self.world.boot_if_down(self.world.machines[node]) if not self.world.machines[node].life else None
        if member is None:
            others.append(Member(node, voter=False))
        elif self.rng.random() < 0.7:
            others.append(msgspec.structs.replace(member, voter=not member.voter))
        return Config(tuple(sorted(others, key=lambda other: other.node_id)), config.founded)

    def change_wrongly(self) -> None:
        """Draw for each member whether it votes, which is mostly more than one change."""
        self._propose_members(self._shuffled)

    def _shuffled(self, config: Config) -> Config:
        return Config(
            tuple(msgspec.structs.replace(member, voter=self.rng.random() < 0.5) for member in config.members),
            config.founded,
        )
