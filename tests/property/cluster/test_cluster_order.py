"""In which order messages leave a cluster whose disks are slow, whose bodies are read, and whose leaders change.

What clients are told goes into a history, and the checker of the real runs judges it.  The lives are drawn from seeds.
"""

import random

import pytest

from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.clusters.by_hand import HandCluster
from tests.helpers.clusters.told_life import ToldLife
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from tests.helpers.histories.checker import check

STEPS = 120
# 18 found a message that overtook one whose body was being read, when leadership was transferred.
SEEDS = (18, *seeds(2, of=6))


class Life(ToldLife):
    """A cluster, and what happens to it."""

    def step(self) -> None:
        weights = {self.publish_one: 5, self.fetch: 5, self.forget: 2, self.read_slowly: 2, self.read: 2, self.rest: 4}
        weights |= {self.pass_time: 2, self.hand_over: 0.6, self.isolate: 0.5, self.heal: 1}
        self.draw(weights)

    def publish_one(self) -> None:
        self.publish(timeout=3_600)

    def forget(self) -> None:
        """Bodies that are on disk leave memory."""
        self.cluster.advance(2.0)
        for node in self.cluster.nodes:
            process = node.queues.processes.by_name.get(self.queue)
            if process is not None:
                process.bodies.flushed(lambda count: [], 0)

    def readers(self) -> list[HandDisk]:
        return [disk for node in self.cluster.nodes if isinstance(disk := node.assembly.reader_disk, HandDisk)]

    def read_slowly(self) -> None:
        for disk in self.readers():
            disk.held = True

    def read(self) -> None:
        for disk in self.readers():
            disk.held = False
            disk.complete()

    def pass_time(self) -> None:
        self.cluster.advance(self.chance.choice([0.03, 0.2, 0.6]))

    def isolate(self) -> None:
        if not self.cluster.cuts:
            super().isolate()
            self.history.crash()  # what a leader hands out from now on may die with it

    def heal(self) -> None:
        self.cluster.heal()

    def end(self) -> None:
        self.heal()
        self.read()
        self.wait_for_leader()
        self.cluster.advance(8.0)
        for _ in range(self.tasks):
            self.fetch()
            self.rest()


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_delivered_in_the_order_of_their_publication(seed: int) -> None:
    with memory_folder() as directory:
        cluster = HandCluster(directory)
        cluster.start()
        life = Life(cluster, random.Random(seed))

        for _ in range(STEPS):
            life.step()
        life.end()

        cluster.close()

    report = check(life.history.events)
    assert [str(violation) for violation in report.violations if violation.rule == "Q11"] == []
    assert report.seen["deliveries"] > 10
