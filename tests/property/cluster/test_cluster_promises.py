"""Three nodes are killed, cut off, slowed down and made to transfer leadership: a strict queue keeps its promises.

What clients are told goes into a history, and the checker of the real runs judges it by all of its rules.
"""

import random
from typing import ClassVar

import pytest

from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.clusters.told_life import ToldLife
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from tests.helpers.histories.checker import check

STEPS = 300
TIMEOUT_S = 20


class Life(ToldLife):
    """A cluster, and what happens to it."""

    policies: ClassVar[Json] = {"timeout_s": TIMEOUT_S, "strict": True}

    def step(self) -> None:
        weights = {self.publish_one: 5, self.fetch: 6, self.ack: 5, self.nack: 1, self.rest: 4, self.pass_time: 3}
        weights |= {self.slow_down: 1.5, self.write_one: 2, self.forget: 0.5, self.hand_over: 0.4}
        weights |= {self.isolate: 0.4, self.heal: 1, self.kill: 0.5, self.kill_all: 0.1, self.mend: 0.5}
        self.draw(weights)

    def publish_one(self) -> None:
        self.publish(id=f"t{self.tasks + 1}")

    def ack(self) -> None:
        if self.held:
            self.settle_one("ACK", self.chance.choice(self.held[-6:]))

    def nack(self) -> None:
        if self.held:
            self.settle_one("NACK", self.chance.choice(self.held[-6:]))

    def pass_time(self) -> None:
        self.rest()
        self.cluster.advance(self.chance.choice([0.03, 0.1, 0.5, 1.1, 3.0]))

    def slow_down(self) -> None:
        """A disk takes its time, or has taken it."""
        disk = self.chance.choice([disk for node in self.living for disk in node.disks] or [None])
        if disk is not None:
            disk.held = not disk.held
            if not disk.held:
                disk.complete()

    def write_one(self) -> None:
        """Of what waits for a slow disk one thing is done."""
        for disk in [disk for node in self.living for disk in node.disks if disk.waiting][:1]:
            disk.complete(1)

    def forget(self) -> None:
        """Bodies that are on disk leave memory."""
        for node in self.living:
            process = node.queues.processes.by_name.get(self.queue)
            if process is not None and not (process.bodies._fresh.living or process.bodies._flushing.living):
                process.bodies.flushed(lambda count: [], 0)

    def kill(self) -> None:
        if self.living:
            self.lose(self.chance.choice(self.living))

    def kill_all(self) -> None:
        for node in self.living:
            self.lose(node)

    def lose(self, node: HandNode) -> None:
        node.kill()
        for asked in self.asked:
            if asked.node is node:
                asked.lose()

    def heal(self) -> None:
        self.cluster.heal()
        for node in self.cluster.nodes:
            if not node.is_up:
                self.cluster.bring_up(node)

    def mend(self) -> None:
        """Everything is well for a while: a cluster that is always half broken would do nothing that can be judged."""
        for disk in [disk for node in self.living for disk in node.disks]:
            disk.held = False
            disk.complete()
        self.heal()
        self.cluster.advance(3.0)

    def end(self) -> None:
        """Everything is well again, and all that is left is delivered and acknowledged."""
        self.mend()
        self.wait_for_leader()
        self.cluster.advance(TIMEOUT_S + 8.0)
        for asked in self.asked:
            asked.lose()
        in_vain = 0
        while in_vain < 2:  # what was given back may come a little later
            delivered = len(self.held)
            self.fetch()
            self.rest()
            if len(self.held) > delivered:
                in_vain = 0
                self.settle_one("ACK", self.held[-1])
                self.rest()
            else:
                in_vain += 1
                self.cluster.advance(2.0)


@pytest.mark.parametrize("seed", seeds(3, of=24))
def test_promises_hold_whichever_node_dies_leads_or_is_slow(seed: int) -> None:
    with memory_folder() as directory:
        chance = random.Random(seed)
        cluster = HandCluster(directory, segment_bytes_max=chance.choice([1 << 20, 2_000]))
        cluster.start()
        life = Life(cluster, chance)
        life.create(lease="strict", timeout=TIMEOUT_S)
        cluster.advance(1.0)

        for _ in range(STEPS):
            life.step()
        life.end()

        ledgers = [node.queues.processes.by_name[life.queue].ledger for node in cluster.nodes]
        states = [(sorted(ledger.columns.living_numbers()), ledger.totals) for ledger in ledgers]
        cluster.close()

    report = check(life.history.events)
    assert not report.violations, report.explain()
    assert report.seen["deliveries"]
    assert states[1:] == states[:1] * 2
