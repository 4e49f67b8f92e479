"""Broker: the real processes on real files, without sockets, threads or time of their own.

    client.send({...}) --> codec --> Subscriber, RaftLog, Queues, QueueProcess --> codec --> client.take()

Time moves by `advance` only, a disk completes at once or when it is told to, and a crash drops every process and
opens the files again as a node does.  It must never hold a rule of queues: what it knows, it asks of the processes.
"""

import json
from pathlib import Path
from typing import Any

from tests.helpers.by_hand import HandDisk, HandDoor, HandTime, Json
from wakeq.actors.door import Closed, Received
from wakeq.actors.messages import Committed, Item, Loaded
from wakeq.actors.queue import QueueProcess
from wakeq.actors.queue_deliveries import Services as QueueServices
from wakeq.actors.queues import Queues
from wakeq.actors.queues import Settings as QueuesSettings
from wakeq.actors.raft_log import RaftLog, Started, core_of_one
from wakeq.actors.runtime import Down, Process, Runtime, Timers
from wakeq.actors.snapshots import Snapshots
from wakeq.actors.subscriber import Limits as SubscriberLimits
from wakeq.actors.subscriber import Services as SubscriberServices
from wakeq.actors.subscriber import Subscriber
from wakeq.opening import Opened, open_all
from wakeq.protocol.clock import ClusterClock
from wakeq.protocol.ledger import Limits
from wakeq.protocol.records import decode_entry
from wakeq.protocol.wire import worker as wire
from wakeq.storage.flush import load_asides, load_queues

BEAT_S = 1.0  # the cluster clock must be read at least every 2 s, or it takes a gap for a pause
CALLS_AT_ONE_MOMENT_MAX = 3_000  # callbacks without time passing; more is a loop that spins
MESSAGES_MAX = 2_000_000


class Client:
    """One connection.  What it knows of sleeping and waking is what a worker could know."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.door = HandDoor()
        self.door.told = self._told
        self.alive = True
        self.subscribed: set[str] = set()
        self.asleep: set[str] = set()
        self.woken_ms: dict[str, int] = {}  # by queue: woken at, and not come back since
        self.awks = 0
        self.process = broker.make_subscriber(self.door)

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
        """Let one read of the connection bring these; nothing is served yet."""
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

    def fall_asleep(self, qname: str) -> None:
        """Subscribe, find nothing, sleep: as the real client does."""
        words = [r["cmd"] for c in ("SUB", "FET", "ISLP") for r in self.ask({"cmd": c, "qname": qname})]
        assert words == ["oksub", "nomsg", "okslp"]

    def figures(self, qname: str) -> Json:
        return dict(self.call("STATS", qname)["stats"])

    def close(self) -> None:
        """The connection is gone."""
        self.alive = False
        self.process.tell(Closed("gone"))
        self.broker.settle()


class Guard(Process):
    """Keeps what essential processes died of."""

    def __init__(self, failures: list[BaseException]) -> None:
        super().__init__()
        self.failures = failures

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Down):
            self.failures.append(message.reason or RuntimeError(f"{message.tag} ended"))


class Broker:
    """A node by hand.  `failures` are what its essential processes died of; `settle` raises the first."""

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008
        flush_after_ms: int = 1_000,
        flush_bytes: int = 16 << 20,
        segment_bytes_max: int = 1 << 20,
        snapshot_bytes_min: int = 1 << 40,
    ) -> None:
        self.path = path
        self.chance = 0.0  # what every draw of chance comes out as
        self.may_fail = False
        self._settings = QueuesSettings(limits, flush_after_ms, flush_bytes)
        self._segment_bytes_max = segment_bytes_max
        self._snapshot_bytes_min = snapshot_bytes_min
        self.time = HandTime(self._rest)
        self._calls_seen = (0, 0.0)
        self._start()

    # --- up and down -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Open, recover, lead: what the node does."""
        self.failures: list[BaseException] = []
        self.clients: list[Client] = []
        self.log_disk, self.state_disk, self.reader_disk, self.snapshot_disk = (HandDisk() for _ in range(4))
        self.runtime = Runtime()
        self.files = open_all(self.path, upgrade=False, segment_bytes_max=self._segment_bytes_max)
        applied = self.files.store.applied()
        self._start_clock(applied.clock_ms)
        self.timers = self.runtime.spawn(Timers, self.now_ms, self.time.call_later)
        self._spawn(self.files)
        self._recover(self.files)
        self.raft_log.tell(Started(self.queues))
        self._beat()
        self.settle()

    def _start_clock(self, last_ms: int) -> None:
        self.cluster_clock = ClusterClock(last_ms, self.time.wall_ms(), self.time.monotonic_ms())

    def _spawn(self, files: Opened) -> None:
        log, runtime = files.log, self.runtime
        core = core_of_one(files.directory.identity.node_id, files.metadata, log)
        self.raft_log = runtime.spawn(
            RaftLog, core, log, files.metadata, self.log_disk, self.stamp_ms, self.time.call_later
        )
        services = QueueServices(
            raft_log=self.raft_log,
            timers=self.timers,
            now_ms=self.now_ms,
            stamp_ms=self.stamp_ms,
            load=self._load,
            later=self.time.call_later,
            chance=lambda: self.chance,
        )
        self.snapshots = runtime.spawn(
            Snapshots,
            files.snapshot_path,
            files.directory.identity,
            files.store,
            log,
            self.raft_log,
            lambda: self.snapshot_disk,
            self._snapshot_bytes_min,
        )
        applied = files.store.applied()
        self.queues = runtime.spawn(
            Queues,
            files.store,
            log,
            self.state_disk,
            services,
            self._settings,
            (applied.log_index, applied.term, applied.clock_ms),
            self.snapshots,
        )
        self._workers = 0
        self._services = SubscriberServices(self.raft_log, self.queues, SubscriberLimits())
        guard = runtime.spawn(Guard, self.failures)
        for process in (self.timers, self.raft_log, self.queues, self.snapshots):
            runtime.monitor(guard, process, type(process).__name__)

    def _load(self, process: Process, numbers: list[int], keys: list[bytes], ticket: Any) -> None:
        store = self.files.store
        self.reader_disk.submit(
            lambda: store.get_many(keys),
            lambda values: process.tell(Loaded(dict(zip(numbers, values, strict=True)), ticket)),
        )

    def _recover(self, files: Opened) -> None:
        with files.store.read() as view:
            for stored in load_queues(view):
                self.queues.restore(stored)
            self.queues.restore_asides(load_asides(view))
        last_ms = files.store.applied().clock_ms
        items: list[Item] = []
        for index, term, payload in files.log.entries(files.store.applied().log_index + 1):
            entry, at_ms = decode_entry(payload)
            last_ms = max(last_ms, at_ms)
            items.append((index, term, at_ms, entry, None))
        if items:
            self.queues.tell(Committed(items))
            self.settle()
            assert self.queues.applied[0] == items[-1][0], "all of the log is applied before anybody is served"
        self._start_clock(last_ms)

    def crash(self) -> None:
        """Lose every process and whatever was not on disk."""
        self.time.settle = lambda: None
        self.files.close()
        self.time._waiting.clear()
        for client in self.clients:
            client.alive = False

    def restart(self) -> None:
        """Start again from the files."""
        self.time.settle = self._rest
        self._start()

    def crash_and_restart(self) -> None:
        self.crash()
        self.restart()

    def close(self) -> None:
        self.crash()

    # --- time ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.cluster_clock.now(self.time.wall_ms(), self.time.monotonic_ms())

    def stamp_ms(self) -> int:
        return self.now_ms()  # time by hand is exact: nothing was rounded away

    def _beat(self) -> None:
        self.now_ms()
        self.time.call_later(BEAT_S, self._beat)

    def _rest(self) -> None:
        self.runtime.run_until_idle(MESSAGES_MAX)
        calls, moment = self._calls_seen
        if self.time.monotonic_s() != moment:
            self._calls_seen = (self.time.calls, self.time.monotonic_s())
        elif self.time.calls - calls > CALLS_AT_ONE_MOMENT_MAX:
            raise AssertionError("the timers spin: something is due again and again at one moment")

    def settle(self) -> None:
        """Serve all mail; no time passes."""
        self._rest()
        if self.failures and not self.may_fail:
            raise self.failures[0]

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what falls due."""
        self.time.advance(seconds)
        self.settle()

    # --- who talks to it -------------------------------------------------------------------------------------------

    def make_subscriber(self, door: HandDoor) -> Subscriber:
        self._workers += 1
        return self.runtime.spawn(Subscriber, door, self._workers, self._services)

    def client(self) -> Client:
        made = Client(self)
        self.clients.append(made)
        return made

    def queue(self, name: str) -> QueueProcess:
        """Return the process of a queue, to look into it."""
        found = self.runtime.whereis(("queue", name))
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
        assert leases is not None
        return [
            n
            for n in ledger.living_numbers()
            if n not in leases.held
            and n not in leases.leaving
            and not ledger.is_out(n)
            and ledger.due_of(n) <= now_ms
            and not 0 < ledger.expires_of(n) <= now_ms
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
            assert ledger.policies.wake == "ready", f"{available} are available and {len(asleep)} sleep"
            counted_on = [c for c in self.clients if c.alive and now_ms - c.woken_ms.get(name, -(1 << 60)) < 5_000]
            assert len(counted_on) >= len(available), f"{available}: {len(asleep)} sleep, {len(counted_on)} were woken"
        assert not (available and leases.all_waits()), "a FET waits beside an available message"
        assert ledger.living == len(list(ledger.living_numbers()))
        assert ledger.out == sum(ledger.is_out(n) for n in ledger.living_numbers())
