"""Life: a broker that is used at random, with the replies to its clients, for the tests that read its history.

seed --> publishes, deliveries, acknowledgements, refusals, crashes --> a data directory, and uids to compare with
"""

import random
from pathlib import Path
from typing import Any

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.led import LedBroker
from wakeq.actors.sessions.operator_mail import Move, Requeue
from wakeq.protocol.uid import uid_of
from wakeq.storage.log.journal import Keep

QUEUES = ("a", "b-long-name", "limited", "")
SEGMENT_BYTES = 3_000
STASH_MESSAGES = 2
KEEP = Keep(1 << 40, 1 << 40)


def broker_of_one(path: Path) -> Broker:
    """Start a broker whose log is cut often, and whose history is kept."""
    return Broker(path, segment_bytes_max=SEGMENT_BYTES, snapshot_bytes_min=1 << 12, keep=KEEP)


class Life:
    """A broker, or a cluster that looks like one, that is used at random, and what its clients were told."""

    def __init__(self, broker: Broker | LedBroker, chance: random.Random) -> None:
        self.chance = chance
        self.broker = broker
        self.client: Client = self.broker.client()
        self.uids: list[str] = []
        self.epochs = 0
        self.held: list[tuple[str, str, str]] = []
        self.client.call("CREATE", "limited", max_size=2, max_deliveries=2, dead_letter="letters")

    def step(self) -> None:
        actions = (
            self.publish, self.publish, self.publish, self.publish_many, self.publish_once, self.fetch, self.fetch,
            self.acknowledge, self.acknowledge, self.follow_up, self.give_back, self.acknowledge_nonsense, self.wait,
            self.empty, self.delete, self.crash, self.flush, self.stage, self.settle, self.stash, self.unstash,
            self.move, self.requeue, self.renew, self.settle_and_renew_at_once, self.cancel, self.read, self.release,
        )  # fmt: skip
        self.chance.choice(actions)()

    def queue(self) -> str:
        return self.chance.choice(QUEUES)

    def told(self, reply: dict[str, Any]) -> None:
        if reply["cmd"] == "ok":
            self.uids += reply["uids"] if "uids" in reply else [reply["uid"]]

    def publish(self) -> None:
        fields = self.chance.choice(({}, {"priority": -3}, {"delay": 5}, {"expires": 9}, {"headers": {"a": "b"}}))
        self.told(self.client.call("PUB", self.queue(), message="x" * self.chance.randrange(300), **fields))

    def publish_many(self) -> None:
        messages = [{"message": str(number)} for number in range(self.chance.randrange(1, 40))]
        for reply in self.client.ask({"cmd": "PUB", "qname": self.queue(), "messages": messages}):
            self.told(reply)

    def publish_once(self) -> None:
        reply = self.client.call("PUB", self.queue(), message="once", id=str(self.chance.randrange(4)))
        if reply.get("uid") not in self.uids:
            self.told(reply)

    def fetch(self) -> None:
        name = self.queue()
        reply = self.client.call("FET", name)
        if reply["cmd"] == "msg":
            self.held.append((name, reply["uid"], reply["lease"]))

    def any_held(self) -> tuple[str, str, str] | None:
        return self.chance.choice(self.held) if self.held else None

    def acknowledge(self) -> None:
        held = self.any_held()
        if held:
            self.client.call("ACK", held[0], uid=held[1], lease=held[2])

    def follow_up(self) -> None:
        held = self.any_held()
        if held:
            follow_ups = [{"qname": self.queue(), "message": "next"}, {"qname": "made", "message": "new"}]
            reply = self.client.call("ACK", held[0], uid=held[1], lease=held[2], publish=follow_ups)
            self.uids += reply.get("published", ())

    def give_back(self) -> None:
        held = self.any_held()
        if held:
            self.client.call("NACK", held[0], uid=held[1], lease=held[2])

    def acknowledge_nonsense(self) -> None:
        self.client.call(
            "ACK", self.chance.choice((*QUEUES, "nowhere")), uid=f"0000001_000000{self.chance.randrange(10, 99)}"
        )

    def cancel(self) -> None:
        """Acknowledge a message without a lease, whatever its state."""
        name = self.queue()
        uid = self.any_living(name)
        if uid is not None:
            self.client.call("ACK", name, uid=uid)

    def stage(self) -> None:
        self.epochs += 1
        epoch = max(1, self.chance.choice((self.epochs, self.epochs - 1)))
        self.client.call("STAGE", self.queue(), source=self.chance.choice("xy"), epoch=epoch, count=3, timeout=30)

    def settle(self) -> None:
        self.client.call("SETTLE", self.queue(), source=self.chance.choice("xy"), epoch=max(1, self.epochs))

    def renew(self) -> None:
        self.client.call("RENEW", self.queue(), source=self.chance.choice("xy"), timeout=30)

    def settle_and_renew_at_once(self) -> None:
        """The renewal comes on another connection, while the log is still being written."""
        name, source, other = self.queue(), self.chance.choice("xy"), self.broker.client()
        self.broker.log_disk.held = True
        self.client.send({"cmd": "SETTLE", "qname": name, "source": source, "epoch": max(1, self.epochs)})
        self.broker.settle()
        other.send({"cmd": "RENEW", "qname": name, "source": source, "timeout": 30})
        self.broker.settle()
        self.broker.log_disk.held = False
        self.broker.log_disk.complete()
        self.client.take()

    def read(self) -> None:
        about = {"source": self.chance.choice("xy"), "epoch": max(1, self.epochs)}
        self.client.call("SLICE", self.queue(), **about, reader="r", batch=self.chance.randrange(1, 9), run="u")

    def release(self) -> None:
        self.client.call("RELEASE", self.queue(), source=self.chance.choice("xy"))

    def stash(self) -> None:
        stash = self.chance.choice("pqr")
        messages = [stash] * STASH_MESSAGES
        fields: dict[str, Any] = self.chance.choice(({}, {}, {"delay": 9}, {"expires": 9}))
        part = self.chance.choice((0, 0, 1))
        if self.chance.random() < 0.5:
            fields = fields | {"writer": "w", "epoch": self.chance.randrange(9)}
        self.client.call("STASH", self.queue(), stash=stash, part=part, messages=messages, **fields)

    def unstash(self) -> None:
        stashes = [(stash, STASH_MESSAGES) for stash in self.chance.sample("pqr", self.chance.choice((1, 1, 2)))]
        writer: dict[str, Any] = {"writer": "w", "epoch": self.chance.randrange(1, 9)}
        reader: dict[str, Any] = writer | {"reader": "r", "run": self.chance.choice("uv")}
        fields = self.chance.choice((writer, reader, reader, writer | {"drop": True}, {}))
        self.client.call("UNSTASH", self.queue(), stashes=stashes if self.chance.random() < 0.7 else [], **fields)

    def any_living(self, name: str) -> str | None:
        """Return the uid of a message of a queue, whatever its state."""
        if self.broker.assembly.lobby.process(name) is None:
            return None
        ledger = self.broker.queue(name).ledger
        numbers = list(ledger.columns.living_numbers())
        return uid_of(ledger.id, self.chance.choice(numbers)) if numbers else None

    def move(self) -> None:
        """An operator moves a message to another queue, or throws it away."""
        name, to = self.queue(), self.chance.choice((*QUEUES, "moved", None))
        uid = self.any_living(name)
        if uid is not None and to != name:
            moved = self.broker.operate(name, lambda me: Move(me, name, [uid], to))
            self.uids += [new for new in moved.uids.values() if new]

    def requeue(self) -> None:
        name = self.queue()
        uid = self.any_living(name)
        if uid is not None:
            self.broker.operate(name, lambda me: Requeue(me, name, [uid]))

    def wait(self) -> None:
        self.broker.advance(self.chance.choice((0.1, 3, 61)))

    def empty(self) -> None:
        if self.chance.random() < 0.2:
            self.client.call("PURGE", self.queue())

    def delete(self) -> None:
        if self.chance.random() < 0.2:
            self.client.call("DROP", self.chance.choice(("a", "made", "nowhere")))

    def crash(self) -> None:
        self.broker.crash_and_restart()
        self.client = self.broker.client()

    def flush(self) -> None:
        self.broker.flush()

    def write_down(self) -> None:
        """Have everything in the files."""
        self.broker.advance(0.1)  # deliveries go to the log a little later
        self.broker.flush()

    def end(self) -> None:
        """Have everything written down, and stop."""
        self.write_down()
        self.broker.close()
