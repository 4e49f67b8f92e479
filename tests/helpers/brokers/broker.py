"""Broker: the in-process broker of `wakeq.testing` on real files, for the tests of the house.

    client.send({...}) --> codec --> Subscriber, RaftLog, Queues, QueueProcess --> codec --> client.take()

It adds to the machine: commands as they stand on the wire, disks that can be held, a wall clock that can be stepped,
and the invariants of a queue at rest.  It must never hold a rule of queues: it asks the processes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.brokers.by_hand import HandClock, HandDisk, HandDoor, HandTime, Json
from wakeq.actors.mail import Propose
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.supervisor import Settings as QueuesSettings
from wakeq.actors.sessions.door import Closed, Received
from wakeq.actors.sessions.operator import Question
from wakeq.data.opening import KEEP_NOTHING, DurableFiles, open_all
from wakeq.node.clock import NodeClock
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.wire.worker import codec as wire
from wakeq.storage.log.journal import Keep
from wakeq.testing.machine import Machine

BEAT_S = 1.0  # the cluster clock must be read at least every 2 s, or it takes a gap for a pause
LATE_MS = 2  # what a timer may be late that was set before the clock, behind the time after a start, made some of it up


class Client:
    """One connection.  It knows as much of sleeping and waking as a worker could know."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.door = HandDoor()
        self.door.told = self._told
        self.alive = True
        self.subscribed: set[str] = set()
        self.asleep: set[str] = set()
        self.choosy: set[str] = set()  # the queues on which it last said to be woken only if there is something for it
        self.woken_ms: dict[str, int] = {}  # by queue: woken at, and not come back since
        self.awks = 0
        self.process = broker.connect(self.door)

    def _told(self, reply: Json) -> None:
        self.door.sent.append(reply)
        match reply["cmd"]:
            case "okslp":
                self.asleep.add(reply["qname"])
            case "awk":
                self.awks += 1
                self.asleep.discard(reply["qname"])
                self.woken_ms[reply["qname"]] = self.broker.now_ms()

    def send(self, *commands: Json | bytes) -> None:
        """Put these into one read of the connection; nothing is served yet."""
        lines = b"".join(c if isinstance(c, bytes) else json.dumps(c).encode() + b"\n" for c in commands)
        for command in commands:
            self._note(command)
        self.process.tell(Received(wire.decode(lines)))

    def _note(self, command: Json | bytes) -> None:
        if isinstance(command, bytes):
            return
        name = command.get("qname", "")
        match command["cmd"]:
            case "FET" | "ISLP":
                if command["cmd"] == "ISLP":
                    (self.choosy.add if command.get("wake") == "ready" else self.choosy.discard)(name)
                self.asleep.discard(name)
                self.woken_ms.pop(name, None)
            case "SUB":
                self.subscribed.add(name)
            case "UNS":
                self.subscribed.discard(name)
                self.asleep.discard(name)
                self.woken_ms.pop(name, None)

    def take(self) -> list[Json]:
        """Let everything come to rest, and return what was sent since the last time."""
        self.broker.settle()
        sent = list(self.door.sent)
        self.door.sent.clear()
        return sent

    def words(self) -> list[str]:
        """Return the same, but only what each reply is."""
        return [str(reply["cmd"]) for reply in self.take()]

    def ask(self, *commands: Json) -> list[Json]:
        """Send in one read, and return what comes of it."""
        self.send(*commands)
        return self.take()

    def call(self, cmd: str, qname: str | None = None, **fields: Any) -> Json:
        """Send one command and return its reply, which must be the only one but for wakes."""
        named = {} if qname is None else {"qname": qname}
        replies = [r for r in self.ask({"cmd": cmd, **named, **fields}) if r["cmd"] != "awk"]
        assert len(replies) == 1, f"{cmd} was answered by {replies}"
        return replies[0]

    # What tests do all the time ------------------------------------------------------------------------------------

    def publish(self, qname: str, message: str = "hi", **fields: Any) -> str:
        reply = self.call("PUB", qname, message=message, **fields)
        assert reply["cmd"] == "ok", reply
        return str(reply["uid"])

    def fetch(self, qname: str, **fields: Any) -> Json:
        reply = self.call("FET", qname, **fields)
        assert reply["cmd"] == "msg", reply
        return reply

    def finds_nothing(self, qname: str) -> bool:
        return bool(self.call("FET", qname)["cmd"] == "nomsg")

    def fall_asleep(self, qname: str, **how: str) -> None:
        """Subscribe, find nothing, sleep: as the original's client does unless `how` says otherwise."""
        commands = ({"cmd": "SUB"}, {"cmd": "FET"}, {"cmd": "ISLP", **how})
        words = [r["cmd"] for c in commands for r in self.ask({"qname": qname, **c})]
        assert words == ["oksub", "nomsg", "okslp"]

    def figures(self, qname: str) -> Json:
        return dict(self.call("STATS", qname)["stats"])

    def close(self) -> None:
        """The connection is gone."""
        self.alive = False
        self.process.tell(Closed("gone"))
        self.broker.settle()


class Asked(Question):
    """A question that must have one answer."""

    def tell(self, answer: Any) -> None:
        self.set(answer)  # raises for a second one


class Broker(Machine):
    """The machine of `wakeq.testing` on real files, with disks, clocks and chances that a test can hold or bend."""

    time: HandTime

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008
        flush_after_ms: int = 1_000,
        flush_bytes: int = 16 << 20,
        segment_bytes_max: int = 1 << 20,
        snapshot_bytes_min: int = 1 << 40,
        keep: Keep = KEEP_NOTHING,
        step_ms: int = 0,
    ) -> None:
        settings = QueuesSettings(limits, flush_after_ms, flush_bytes)
        super().__init__(HandTime(), settings, snapshot_bytes_min=snapshot_bytes_min)
        self.clock = HandClock(self.time)
        self.clock.step_ms = step_ms
        self.path = path
        self.chance = 0.0  # what every draw of chance comes out as
        self.may_fail = False
        self._segment_bytes_max = segment_bytes_max
        self._keep = keep
        self.start()

    # --- what it stands on -----------------------------------------------------------------------------------------

    def open_files(self) -> DurableFiles:
        self.clients: list[Client] = []
        self.log_disk, self.state_disk, self.reader_disk, self.snapshot_disk = (HandDisk() for _ in range(4))
        self._opened = open_all(self.path, upgrade=False, segment_bytes_max=self._segment_bytes_max, keep=self._keep)
        opened = self._opened
        return opened.durable

    def close_files(self) -> None:
        self._opened.close()
        for client in self.clients:
            client.alive = False

    def new_disk(self, name: str) -> HandDisk:
        disks = {"log": self.log_disk, "state": self.state_disk, "reader": self.reader_disk}
        return disks.get(name.removeprefix("wakeq-"), self.snapshot_disk)

    def start_clock(self) -> None:
        files = self.files
        self.cluster_clock = NodeClock(
            self.clock, self.runtime, files.store.applied().clock_ms, files.metadata.state.clock
        )

    def begin_clock(self) -> None:
        self.cluster_clock.begin(self.assembly)
        self.cluster_clock.lead([])

    def now_ms(self) -> int:
        return self.cluster_clock.now_ms()

    def behind_ms(self) -> int:
        return self.cluster_clock.behind_ms()

    def draw(self) -> float:
        return self.chance

    # --- up and down -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open, recover, lead: what a node does."""
        super().start()
        self.timers, self.raft_log = self.assembly.timers, self.assembly.raft_log
        self.queues, self.snapshots = self.assembly.queues, self.assembly.snapshots
        self._beat()

    def _beat(self) -> None:
        """Read the cluster clock as often as a node does, or it takes a gap for a pause."""
        self.now_ms()
        self.time.call_later(BEAT_S, self._beat)

    def restart(self) -> None:
        """Start again from the files."""
        self.start()

    def crash_and_restart(self) -> None:
        self.crash()
        self.restart()

    def close(self) -> None:
        self.crash()

    def settle(self) -> None:
        try:
            super().settle()
        except BaseException as error:
            if not (self.may_fail and error in self.failures):
                raise

    # --- who talks to it -------------------------------------------------------------------------------------------

    def client(self) -> Client:
        made = Client(self)
        self.clients.append(made)
        return made

    def operate(self, name: str, make: Callable[[Question], Any]) -> Any:
        """Ask a queue, or with an entry the log, as an operator does; return the answer."""
        question = Asked(self.runtime)
        message = make(question)
        (self.raft_log if isinstance(message, Propose) else self.assembly.lobby.queue(name)).tell(message)
        self.settle()
        return question.get()

    def queue(self, name: str) -> QueueProcess:
        """Return the process of a queue, to look into it."""
        found = self.assembly.lobby.process(name)
        assert isinstance(found, QueueProcess), f"queue {name!r} has no process"
        return found

    def flush(self) -> None:
        """Have everything that is committed written to the state store."""
        done: list[bool] = []
        self.queues.flush_now(lambda: done.append(True))
        self.settle()
        assert done, "the flush did not end"

    # --- what must always hold -------------------------------------------------------------------------------------

    def available(self, name: str) -> list[int]:
        """Return what may be handed out now, by the ledger's own words."""
        process = self.queue(name)
        ledger, leases, now_ms = process.ledger, process.leases, self.now_ms()
        due_ms = now_ms - LATE_MS
        assert leases is not None
        return [
            n
            for n in ledger.columns.living_numbers()
            if n not in leases.held
            and n not in leases.ending
            and not ledger.deliveries.is_leased(n)
            and ledger.due_of(n) <= due_ms
            and not 0 < ledger.columns.expires_of(n) <= now_ms
            and ledger.paused_until_ms <= due_ms
        ]

    def check(self, name: str) -> None:
        """At rest: the line holds exactly what is available, and nobody sleeps beside it."""
        process, available = self.queue(name), self.available(name)
        leases, ledger = process.leases, process.ledger
        assert leases is not None
        in_line = [n for n in leases.next_numbers(1_000_000) if n in set(available)]
        assert sorted(in_line) == available, f"in line {in_line}, available {available}"
        now_ms = self.now_ms()
        asleep = [c for c in self.clients if c.alive and name in c.asleep and name in c.subscribed]
        if available and asleep:
            wake = ledger.policies.wake
            always_woken = [c for c in asleep if wake == "all" or (wake == "sleeper" and name not in c.choosy)]
            assert not always_woken, f"{available} are available and {len(always_woken)} sleep"
            counted_on = [
                c
                for c in self.clients
                if c.alive
                and now_ms - c.woken_ms.get(name, -(1 << 60)) < 5_000
                and (wake == "ready" or name in c.choosy)
            ]
            assert len(counted_on) >= len(available), f"{available}: {len(asleep)} sleep, {len(counted_on)} were woken"
        assert not (available and leases.audience.all_waits()), "a FET waits beside an available message"
        moment_ms = min(leases.next_moment_ms(), leases.audience.next_moment_ms())
        assert process.alarm_ms <= moment_ms, f"something is to come at {moment_ms}, the alarm at {process.alarm_ms}"
        assert ledger.columns.living == len(list(ledger.columns.living_numbers()))
        assert ledger.deliveries.leased == sum(ledger.deliveries.is_leased(n) for n in ledger.columns.living_numbers())
