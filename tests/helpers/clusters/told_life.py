"""A random life of a cluster by hand; all commands and replies of its clients go into a history.

steps, drawn by a test --> commands to whoever leads --> replies --> History --> the checker
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.histories.history import History, Kind
from wakeq.actors.mail import HandOver

KINDS: dict[str, Kind] = {"PUB": "publish", "FET": "deliver", "ACK": "ack", "NACK": "nack", "TOUCH": "touch"}
DEPOSED = ("NOT_LEADER", "NO_QUORUM")  # a FET that was refused so may have been counted, for its delivery was not sent
SETTLED = {"ok": ("uid",), "okack": ("known",), "oknack": (), "oktouch": ()}  # by reply: what of it the history keeps


class Asked:
    """A client that has asked one thing; what it hears goes into the history at once."""

    def __init__(self, life: "ToldLife", node: HandNode, command: Json, task: str, about: Json) -> None:
        self.life, self.node, self.command, self.task = life, node, command, task
        self.kind = KINDS[command["cmd"]]
        self.op = life.history.invoke(self.kind, queue=command["qname"], task=task, **about)
        self.asked_s = life.cluster.time.monotonic_s()
        self.is_open, self.is_lost = True, False

    def told(self, reply: Json) -> None:
        if self.is_lost:
            return  # its node has died, and what it said last with it
        self.is_open = False
        history, cmd = self.life.history, reply["cmd"]
        if cmd == "msg":
            facts = {name: reply[name] for name in ("uid", "lease", "error_count")}
            history.ok("deliver", self.op, task=reply["msg"], queue=reply["qname"], **facts)
            self.life.held.append((reply["msg"], reply["uid"], reply["lease"]))
        elif cmd in SETTLED and (self.kind != "touch" or reply.get("known", True)):
            facts = {name: reply.get(name, True) for name in SETTLED[cmd]}
            history.ok(self.kind, self.op, task=self.task, **facts)
        elif reply.get("err") == "UNKNOWN" or (self.kind == "deliver" and reply.get("err") in DEPOSED):
            history.unknown(self.kind, self.op)
        else:
            history.fail(self.kind, self.op)

    def lose(self) -> None:
        """Its node has died, so the outcome is unknown."""
        if self.is_open:
            self.is_open = False
            self.life.history.unknown(self.kind, self.op)
        self.is_lost = True


class ToldLife:
    """See the head of this file."""

    queue = "q"
    policies: ClassVar[Json] = {}  # what the checker has to know of the queue

    def __init__(self, cluster: HandCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.moment = 0
        self.history = History(clock=self.clock)
        self.tasks = 0
        self.asked: list[Asked] = []
        self.held: list[tuple[str, str, Any]] = []  # task, uid and lease of what was delivered

    def clock(self) -> float:
        """Everything that happens has a moment of its own, although hardly any time passes."""
        self.moment += 1
        return self.cluster.time.monotonic_s() + self.moment * 1e-6

    def create(self, **policies: Any) -> None:
        """Create the queue; the node that leads takes it."""
        leader = self.cluster.leader()
        assert leader is not None, "the cluster was started"
        reply = leader.client().call("CREATE", self.queue, **policies)
        assert reply["cmd"] == "okcreate", reply

    def draw(self, weights: dict[Callable[[], None], float]) -> None:
        """Let one thing happen."""
        (happens,) = self.chance.choices([*weights], [*weights.values()])
        happens()

    @property
    def living(self) -> list[HandNode]:
        return [node for node in self.cluster.nodes if node.is_up]

    @property
    def leading(self) -> list[HandNode]:
        return [node for node in self.living if node.raft_log.core.leads]

    def ask(self, command: Json, task: str = "", **about: Any) -> None:
        if self.living:
            self.ask_in_turn(self.chance.choice(self.leading or self.living), [(command, task, about)])

    def ask_in_turn(self, node: HandNode, commands: Sequence[tuple[Json, str, Json]]) -> None:
        """Send commands, each with its task and facts, in one read of one connection; replies come in their order."""
        asked = [
            Asked(self, node, cmd | {"qname": self.queue}, task, self.policies | about) for cmd, task, about in commands
        ]
        self.asked += asked
        open_, client = deque(asked), node.client()
        client.door.told = lambda reply: open_.popleft().told(reply)
        client.send(*[one.command for one in asked])

    def publish(self, about: Json = {}, **fields: Any) -> None:  # noqa: B006
        """Publish; `about` is what the history has to know of it."""
        command, task, facts = self.new_message(about, **fields)
        self.ask(command, task, **facts)

    def new_message(self, about: Json = {}, **fields: Any) -> tuple[Json, str, Json]:  # noqa: B006
        """Return the command that publishes another message, its task, and what the history has to know of it."""
        self.tasks += 1
        task = f"t{self.tasks}"
        return {"cmd": "PUB", "message": task} | fields, task, {"publish_id": fields.get("id", "")} | about

    def fetch(self) -> None:
        self.ask({"cmd": "FET"})

    def settle_one(self, cmd: str, held: tuple[str, str, Any]) -> None:
        """Ask for the end of a delivery, one way or the other."""
        task, uid, lease = held
        self.ask({"cmd": cmd, "uid": uid, "lease": lease}, task, uid=uid)

    def rest(self) -> None:
        self.cluster.settle()

    def hand_over(self) -> None:
        for node in self.leading:
            node.raft_log.tell(HandOver())

    def isolate(self) -> None:
        if not self.cluster.cuts:
            self.cluster.isolate(self.chance.choice(self.cluster.nodes))

    def wait_for_leader(self) -> None:
        self.cluster.until(lambda: self.cluster.leader() is not None, "a node leads", 60)
