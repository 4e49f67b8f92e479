"""World: one simulated cluster: the scheduler, the nodes, the network and the clients.

    seed --> events in the order of their moments, one at a time --> trace hash

Moments are microseconds of true time, which no node can read.  Two events of one moment happen in the order in which
they were planned.
"""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import msgspec

from tests.simulation.disk import Disk, Image
from tests.simulation.entries import Entry
from tests.simulation.knobs import ENTRY_BYTES, Knobs, draw
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.transfer import Ask, Piece
from tests.simulation.truth import Truth
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import config_of

BACKLOG_MAX = 50  # uncommitted entries beyond which proposals wait, as with a real driver


class World:
    """One cluster and its scheduler."""

    core_class: type[Core] = Core
    machine_class: type[Machine] = Machine
    entry_bytes = ENTRY_BYTES

    def __init__(self, seed: int, voters: int | None = None) -> None:
        self.rng = Random(seed)
        self.random = self.rng.random
        self.knobs: Knobs = draw(self.rng, voters)
        self.now_us = 0
        self.events = 0
        self.trace_hash = 0
        self.story: list[str] | None = None  # a line of text for each event
        self.clients_rest_us = 0  # clients do nothing until this moment
        self.on_truncate: Callable[[], None] | None = None  # called when entries are truncated that clients wait for
        self.piece_mask = (1 << (64 // self.knobs.chunks)) - 1
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._order = count()
        self._streams = count(1)
        self._disks = count(101)
        self._operations = count(1)
        self.truth = Truth(self)
        self.network = Network(self)
        self.config = config_of(range(self.knobs.voters))
        self.machines = [
            self.machine_class(self, node, self.new_disk()) for node in range(self.knobs.voters + self.knobs.spares)
        ]

    def new_disk(self) -> Disk:
        """Return an empty disk; every node's settings contain the members of the cluster."""
        return Disk(self, next(self._disks), Image(0, 0, 0, 0, ((0, self.config),)))

    # --- scheduling -------------------------------------------------------------------------------------------------

    def at(self, span_us: int, do: Callable[[Any], None], what: Any) -> None:
        heapq.heappush(self._heap, (self.now_us + span_us, next(self._order), do, what))

    def run(self, *, events: int = 1 << 60, until_us: int = 1 << 60, stop: Callable[[], bool] | None = None) -> bool:
        """Run until `events` have happened, `until_us` is reached, or `stop` holds; return whether `stop` holds."""
        heap, pop, last = self._heap, heapq.heappop, self.events + events
        while heap and self.events < last and heap[0][0] <= until_us:
            self.now_us, order, do, what = pop(heap)
            self.events += 1
            self.trace_hash = hash((self.trace_hash, self.now_us, order))
            do(what)
            if stop is not None and stop():
                return True
        return False

    def next_stream(self) -> int:
        return next(self._streams)

    def flush_span_us(self) -> int:
        return int(self.random() * self.knobs.flush_us)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for machine in self.machines[: self.knobs.voters]:
            machine.boot()

    def deliver(self, message: Any, entries: list[Entry], again: Callable[[Any], None]) -> None:
        """Deliver a message to its receiver if it is up; to a paused one later."""
        machine = self.machines[message.receiver]
        if not machine.is_up or machine.is_paused(again, (message, entries)):
            return
        if self.story is not None:
            self.tell(f"{message.sender}->{message.receiver} {message}")
        kind = type(message)
        if kind is Ask:
            machine.sender.on_ask(message)
        elif kind is Piece:
            machine.receiver.on_piece(message)
        else:
            machine.take(message, entries)

    def disk_failed(self, disk: Disk) -> None:
        """Stop a node whose disk fails a write; an operator starts it again."""
        machine = next(machine for machine in self.machines if machine.disk is disk)
        self.tell(f"{machine.node_id} stops: its disk failed")
        machine.crash()
        self.at(self.knobs.settings.election_ms * 1000, self.boot_if_down, machine)

    def boot_if_down(self, machine: Machine) -> None:
        if not machine.is_up:
            self.tell(f"{machine.node_id} starts")
            machine.boot()

    def calm(self) -> None:
        """End all faults: from now on every message arrives, every disk is fast, every node runs."""
        self.knobs = msgspec.structs.replace(self.knobs, sync_us=1_000, report_us=0, flush_us=200_000)
        self.network.calm()
        for machine in self.machines:
            machine.paused_until_us = 0
            machine.disk.is_slow = machine.disk.is_broken = False
            machine.disk.answer()
            if machine.is_up:
                machine.set_rate(1.0)
            elif machine.life or machine.node_id < self.knobs.voters:
                self.boot_if_down(machine)

    def living(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.is_up]

    def leaders(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.is_up and machine.core.leads]

    # --- clients ----------------------------------------------------------------------------------------------------

    def clients_act(self, _: None) -> None:
        """Propose or read as a client at a node that leads or believes so."""
        if self.network.is_quiet:
            return
        self.at(int(self.random() * 2 * self.knobs.client_us) + 1, self.clients_act, None)
        leaders = [machine for machine in self.leaders() if machine.paused_until_us <= self.now_us]
        if not leaders or self.now_us < self.clients_rest_us:
            return
        machine = self.rng.choice(leaders)
        if self.random() < 0.2:
            machine.read()
        elif machine.core.accepts and machine.last_index - machine.core.commit < BACKLOG_MAX:
            machine.propose(self.new_operations())

    def new_operations(self) -> list[int]:
        return [next(self._operations) for _ in range(self.rng.randrange(self.knobs.batch) + 1)]

    def tell(self, what: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.now_us / 1000:10.1f} ms  {what}")
