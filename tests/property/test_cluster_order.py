"""In which order messages leave a cluster whose disks are slow, whose bodies are read, and whose leaders change.

What clients are told goes into a history, and the checker of the real runs judges it.  The lives are drawn from seeds.
"""

import random

import pytest

from tests.helpers.broker import Client
from tests.helpers.by_hand import HandDisk, Json
from tests.helpers.checker import check
from tests.helpers.hand_cluster import HandCluster, HandNode
from tests.helpers.history import History
from tests.helpers.memory_folder import memory_folder
from wakeq.actors.messages import HandOver

Q = "q"
STEPS = 120
SEEDS = (
    *range(6),
    18,
)  # 18 found a message that overtook one whose body was being read, when leadership was handed over


class Asked:
    """A client that has asked one thing; what it hears goes into the history at once."""

    def __init__(self, life: "Life", node: HandNode, command: Json, task: str = "") -> None:
        self.life, self.node, self.task = life, node, task
        self.kind = "deliver" if command["cmd"] == "FET" else "publish"
        self.client: Client = node.client()
        self.op = life.history.invoke(self.kind, queue=Q, task=task)  # type: ignore[arg-type]
        self.client.door.told = self.told
        self.is_open = True
        self.client.send(command)

    def told(self, reply: Json) -> None:
        history = self.life.history
        self.is_open = False
        match reply["cmd"]:
            case "ok":
                history.ok("publish", self.op, task=self.task, uid=reply["uid"])
            case "msg":
                history.ok("deliver", self.op, task=reply["msg"], queue=Q, uid=reply["uid"], lease=reply["lease"],
                           error_count=reply["error_count"])  # fmt: skip
            case _ if reply.get("err") == "UNKNOWN":
                history.unknown(self.kind, self.op)  # type: ignore[arg-type]
            case _:
                history.fail(self.kind, self.op)  # type: ignore[arg-type]


class Life:
    """A cluster, and what happens to it."""

    def __init__(self, cluster: HandCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.moment = 0
        self.history = History(clock=self.clock)
        self.tasks = 0
        self.asked: list[Asked] = []

    def clock(self) -> float:
        """Everything that happens has a moment of its own, although hardly any time passes."""
        self.moment += 1
        return self.moment * 1e-3

    def step(self) -> None:
        weights = {self.publish: 5, self.fetch: 5, self.forget: 2, self.read_slowly: 2, self.read: 2, self.rest: 4}
        weights |= {self.pass_time: 2, self.hand_over: 0.6, self.isolate: 0.5, self.heal: 1}
        (happens,) = self.chance.choices([*weights], [*weights.values()])
        happens()

    def ask(self, command: Json, task: str = "") -> None:
        leading = [node for node in self.cluster.nodes if node.raft_log.core.leads]
        self.asked.append(Asked(self, self.chance.choice(leading or self.cluster.nodes), command, task))

    def publish(self) -> None:
        self.tasks += 1
        task = f"t{self.tasks}"
        self.ask({"cmd": "PUB", "qname": Q, "message": task, "timeout": 3_600}, task)

    def fetch(self) -> None:
        self.ask({"cmd": "FET", "qname": Q})

    def forget(self) -> None:
        """Bodies that are on disk leave memory."""
        self.cluster.advance(2.0)
        for node in self.cluster.nodes:
            process = node.queues._processes.get(Q)
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

    def rest(self) -> None:
        self.cluster.settle()

    def pass_time(self) -> None:
        self.cluster.advance(self.chance.choice([0.03, 0.2, 0.6]))

    def hand_over(self) -> None:
        for node in self.cluster.nodes:
            if node.raft_log.core.leads:
                node.raft_log.tell(HandOver())

    def isolate(self) -> None:
        if not self.cluster.cuts:
            self.cluster.isolate(self.chance.choice(self.cluster.nodes))
            self.history.crash()  # what a leader hands out from now on may die with it

    def heal(self) -> None:
        self.cluster.heal()

    def end(self) -> None:
        self.heal()
        self.read()
        self.cluster.until(lambda: self.cluster.leader() is not None, "a node leads", 60)
        self.cluster.advance(8.0)
        for _ in range(self.tasks):
            self.fetch()
            self.rest()


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_leave_in_the_order_of_their_publication(seed: int) -> None:
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
