"""Queues that crash at any moment: each command is answered once, and what is written down is what was in memory."""

import logging
import random
from collections import Counter
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.disks.sync_place import sync_on_loop
from tests.helpers.examples import seeds
from wakeq.actors.mail import Tick
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues import flush, listing, rebuild
from wakeq.actors.runtime import runtime
from wakeq.protocol.log.entries import Publish
from wakeq.protocol.queue.ledger.ledger import Ledger

NAMES = ("a", "b", "c", "d")
STEPS = 30
CRASHES_A_STEP = 2  # fewer than set an entry aside; what is poisoned crashes its queue every time
POISON = "poison"
PLAIN = ("PUB", "PUB", "PUB", "FET", "FET", "PEEK", "STATS", "ISLP", "SUB", "DROP")
WITH_UID = ("ACK", "ACK", "NACK", "TOUCH")


class Storm:
    """Clients that send whatever there is, to queues that crash before or after a message, with slow disks."""

    def __init__(self, broker: Broker, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.clients = [broker.client() for _ in range(4)]
        self.uids: dict[str, list[str]] = {name: [broker.client().publish(name)] for name in NAMES}
        self.asked: dict[int, Json] = {}
        self.answers: Counter[int] = Counter()
        self.crashes_left = 0
        sync_on_loop(monkeypatch, lambda: self.chance.random() < 0.5)
        monkeypatch.setattr(runtime, "MAIL_BUDGET", self.chance.choice([1, 2, 32]))
        self._make_fragile(monkeypatch)

    def _make_fragile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        receive, apply, publish = QueueProcess.on_receive, QueueProcess.apply, Ledger.publish
        step = QueueProcess.step

        def receive_or_crash(process: QueueProcess, message: Any) -> None:
            crashes = self.crashes_left > 0 and self.chance.random() < 0.05
            self.crashes_left -= crashes
            if crashes and self.chance.random() < 0.5:
                process.handling = message
                raise ZeroDivisionError("before anything was done")
            receive(process, message)
            if crashes:
                raise ZeroDivisionError("after everything was done")

        def apply_or_crash(process: QueueProcess, items: Any, *applied: Any) -> None:
            crashes = self.crashes_left > 0 and self.chance.random() < 0.05
            self.crashes_left -= crashes
            if crashes:
                process.applying = items[0].index
                if self.chance.random() < 0.5:
                    raise ZeroDivisionError("before anything was applied")
            apply(process, items, *applied)
            if crashes:
                raise ZeroDivisionError("after everything was applied")

        def step_or_crash(process: QueueProcess) -> None:
            crashes = self.crashes_left > 0 and self.chance.random() < 0.1
            self.crashes_left -= crashes
            if not crashes or self.chance.random() < 0.5:
                step(process)
            if crashes:
                raise ZeroDivisionError("before or after a step")

        def publish_or_crash(ledger: Ledger, entry: Publish, at_ms: int) -> Any:
            if any(draft.body == POISON.encode() for draft in entry.drafts):
                raise ZeroDivisionError("poisoned")
            return publish(ledger, entry, at_ms)

        monkeypatch.setattr(QueueProcess, "on_receive", receive_or_crash)
        monkeypatch.setattr(QueueProcess, "apply", apply_or_crash)
        monkeypatch.setattr(QueueProcess, "step", step_or_crash)
        monkeypatch.setattr(Ledger, "publish", publish_or_crash)

    def step(self) -> None:
        """Let one read of each connection bring something, then let the disks finish in any order."""
        chance, broker = self.chance, self.broker
        disks = [broker.log_disk, broker.state_disk, broker.reader_disk]
        self.crashes_left = CRASHES_A_STEP
        for client in self.clients:
            client.send(*[self._command() for _ in range(chance.randint(1, 3))])
            if chance.random() < 0.3:
                broker.queues.tell(Tick("flush"))
        for disk in disks:
            disk.held = chance.random() < 0.3
        broker.settle()
        for disk in disks:
            disk.held = False
        while any(disk.jobs for disk in disks):
            chance.choice(disks).complete(1)
            if chance.random() < 0.5:
                broker.settle()
        self.listen()

    def _command(self) -> Json:
        chance, name = self.chance, self.chance.choice(NAMES)
        command: Json = {"cmd": chance.choice([*PLAIN, *WITH_UID, "LIST"]), "qname": name, "cmd_id": len(self.asked)}
        message = POISON if chance.random() < 0.05 else "m"
        match command["cmd"]:
            case "PUB" if chance.random() < 0.2:
                command["messages"] = [message] * chance.randint(1, 7)
            case "PUB":
                command["message"] = message
            case "FET" if chance.random() < 0.3:
                command["wait"] = 1
            case "LIST":
                del command["qname"]
            case "ACK" | "NACK" | "TOUCH":
                command["uid"] = chance.choice(self.uids[name])
        if command["cmd"] == "ACK" and chance.random() < 0.5:
            command["publish"] = [{"qname": chance.choice([*NAMES, "new"]), "message": message}]
        if command["cmd"] == "NACK":
            command["dead"] = chance.random() < 0.5
        self.asked[len(self.asked)] = command
        return command

    def listen(self) -> None:
        """Note what was answered."""
        for reply in [reply for client in self.clients for reply in client.take() if reply["cmd"] != "awk"]:
            self.answers[reply["cmd_id"]] += 1
            if reply["cmd"] == "ok":
                self.uids[reply["qname"]] += reply.get("uids") or [reply["uid"]]


def living(broker: Broker, client: Client) -> dict[str, list[str]]:
    """Return the uids of all messages, by queue."""
    names = [row["qname"] for row in client.call("LIST")["queues"]]
    return {name: [m["uid"] for m in client.call("PEEK", name, state="any", count=100)["messages"]] for name in names}


@pytest.mark.parametrize("way", ["in one go", "in steps"])
@pytest.mark.parametrize("seed", seeds(6, of=48))
def test_commands_are_answered_once_and_survive_a_restart_whatever_crashes(
    broker: Broker,
    seed: int,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    if way == "in steps":
        request.getfixturevalue("small_steps")
    caplog.set_level(logging.CRITICAL, "wakeq.runtime")
    monkeypatch.setattr(rebuild, "CRASHES_WITHIN_MS", 0)  # so many bugs would end a node
    for module in (listing, flush):
        monkeypatch.setattr(module, "SLICE_QUEUES", 2)
    storm = Storm(broker, seed, monkeypatch)

    for _ in range(STEPS):
        storm.step()
    storm.crashes_left = 0
    broker.advance(2)  # FETs that wait without a message
    storm.listen()
    before = living(broker, broker.client())
    broker.flush()
    broker.crash_and_restart()

    assert storm.answers == Counter(storm.asked.keys())
    assert living(broker, broker.client()) == before


def test_queue_that_is_dropped_before_its_successor_leads_can_be_used_again(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "wakeq.runtime")
    client.publish("q")
    broker.log_disk.held = True
    client.send({"cmd": "DROP", "qname": "q"})
    broker.settle()
    broker.queue("q").tell("nothing that a queue understands")
    broker.settle()

    broker.log_disk.complete(1)  # the deletion, but not the no-op of the rebuilt queue
    broker.settle()
    broker.queues.tell(Tick("flush"))
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == ["okdrop"]
    assert client.publish("q", "again")
    assert client.fetch("q")["msg"] == "again"
