"""Three nodes under losses, slow disks and entries that crash queues: in the end they hold the same.

The lives are drawn from seeds; which seed failed stands in the name of the test.
"""

import random
from typing import Any

import pytest

from tests.helpers.brokers.broker import Client
from tests.helpers.brokers.by_hand import HandDisk, Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from wakeq.protocol.log.entries import Publish
from wakeq.protocol.queue.ledger.ledger import Ledger

QUEUES = ("a", "b", "c")
STEPS = 150
# 4 found nodes that disagreed, 63 a queue with two processes, 8_000_256 one that made its state anew for nothing
SEEDS = (63, 8_000_256, *seeds(2, of=10))  # the first two have found something


class Life:
    """A cluster, and what happens to it."""

    def __init__(self, cluster: HandCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.clients: list[Client] = []
        self.held: list[tuple[str, str]] = []  # queue and uid of what was delivered

    def step(self) -> None:
        weights = {self.use: 10, self.wait: 3, self.slow_down: 2, self.cut: 0.5, self.heal: 1, self.lose: 0.4}
        (happens,) = self.chance.choices([*weights], [*weights.values()])
        happens()
        if self.chance.random() < 0.4:
            self.rest()

    def rest(self) -> None:
        self.cluster.settle()
        for client in self.clients:
            for reply in client.door.sent:
                self.held += [(reply["qname"], message["uid"]) for message in reply.get("messages", ())]
            client.door.sent.clear()

    def use(self) -> None:
        living = [node for node in self.cluster.nodes if node.is_up]
        leading = [node for node in living if node.raft_log.core.leads]
        client = self.chance.choice(leading or living).client()
        self.clients.append(client)
        client.send(self.command())

    def command(self) -> Json:
        draw, queue = self.chance, self.chance.choice(QUEUES)
        match draw.choices(["PUB", "FET", "ACK", "NACK", "DROP"], [4, 4, 4, 1, 0.7])[0]:
            case "ACK" if self.held:
                name, uid = draw.choice(self.held[-8:])
                follow_ups = [{"qname": draw.choice(QUEUES), "message": self.body()} for _ in range(draw.randrange(3))]
                return {"cmd": "ACK", "qname": name, "uid": uid} | ({"publish": follow_ups} if follow_ups else {})
            case "NACK" if self.held:
                name, uid = draw.choice(self.held[-8:])
                return {"cmd": "NACK", "qname": name, "uid": uid}
            case "PUB":
                return {"cmd": "PUB", "qname": queue, "message": self.body()}
            case "DROP":
                return {"cmd": "DROP", "qname": queue}
        return {"cmd": "FET", "qname": queue, "count": 2}

    def body(self) -> str:
        return "poison" if self.chance.random() < 0.12 else "body"

    def wait(self) -> None:
        self.rest()
        self.cluster.advance(self.chance.choice([0.03, 0.1, 0.5]))

    def slow_down(self) -> None:
        """A disk takes its time, or has taken it."""
        node = self.chance.choice([node for node in self.cluster.nodes if node.is_up])
        disk = self.chance.choice(disks_of(node))
        disk.held = not disk.held
        if not disk.held:
            disk.complete()

    def cut(self) -> None:
        if not self.cluster.cuts:
            self.cluster.isolate(self.chance.choice(self.cluster.nodes))

    def heal(self) -> None:
        self.cluster.heal()
        for node in self.cluster.nodes:
            if not node.is_up:
                self.cluster.bring_up(node)

    def lose(self) -> None:
        if all(node.is_up for node in self.cluster.nodes):
            self.chance.choice(self.cluster.nodes).kill()

    def end(self) -> None:
        self.heal()
        for disk in [disk for node in self.cluster.nodes for disk in disks_of(node)]:
            disk.held = False
            disk.complete()
        self.cluster.until(lambda: self.cluster.leader() is not None, "a node leads", 60)
        self.cluster.advance(8.0)


def disks_of(node: HandNode) -> list[HandDisk]:
    state_disk = node.assembly.state_disk
    assert isinstance(state_disk, HandDisk)
    return [node.log_disk, state_disk]


def state_of(node: HandNode) -> dict[str, Any]:
    ledgers = {name: process.ledger for name, process in node.queues.processes.by_name.items() if process.exists}
    return {
        name: (
            ledger.id,
            ledger.columns.next_number,
            list(ledger.columns.living_numbers()),
            sorted(ledger.deliveries.records),
            ledger.totals,
        )
        for name, ledger in ledgers.items()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_hold_the_same_state_whatever_entries_were_skipped(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Ledger.publish

    def fragile(ledger: Ledger, entry: Publish, at_ms: int, **more: Any) -> Any:
        if any(draft.body == b"poison" for draft in entry.drafts):
            raise ZeroDivisionError("poisoned")
        return publish(ledger, entry, at_ms, **more)

    monkeypatch.setattr(Ledger, "publish", fragile)
    with memory_folder() as directory:
        cluster = HandCluster(directory)
        cluster.start()
        life = Life(cluster, random.Random(seed))

        for _ in range(STEPS):
            life.step()
        life.end()

        applied = [node.queues.applied[0] for node in cluster.nodes]
        states = [state_of(node) for node in cluster.nodes]
        cluster.close()

    assert len(set(applied)) == 1, applied
    assert states[1:] == states[:1] * 2
