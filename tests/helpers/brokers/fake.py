"""A tiny fake broker with switchable faults, against which the harness and its checker are tested.

    JSON lines in --> one journal, one sync --> answers out

It speaks the part of the worker protocol that the load driver uses, keeps a journal, and comes back from
it. Every member of `Fault` breaks one promise on purpose. It is no broker: one file, no limits, nothing
bounded, and no test of wakeq itself may ever run on it. `python -m tests.helpers.brokers.fake --data-dir D`
serves as a process.
"""

import argparse
import asyncio
import enum
import itertools
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

Message = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Fault(enum.StrEnum):
    """One promise that is broken on purpose."""

    NONE = "none"
    LOSES_PUBLISH = "loses-publish"  # every 50th accepted publish is thrown away
    DELIVERS_AFTER_ACK = "delivers-after-ack"  # every 20th acknowledged message stays
    NEVER_SYNCS = "never-syncs"  # answers without fdatasync; only a power cut shows it
    NEVER_WRITES = "never-writes"  # answers while the journal is still in the process; kill -9 shows it
    IGNORES_DELAY = "ignores-delay"
    IGNORES_EXPIRY = "ignores-expiry"
    IGNORES_LEASE = "ignores-lease"  # hands out what another worker holds
    REPEATS_COUNT = "repeats-count"  # error_count is always 0
    ALTERS_BODY = "alters-body"
    ACCEPTS_STALE = "accepts-stale"  # an old lease token acknowledges
    FORGETS_IDS = "forgets-ids"  # a publish repeated with its id is stored again
    LAST_IN_FIRST_OUT = "last-in-first-out"
    NEVER_BURIES = "never-buries"  # max_deliveries is not looked at
    HALF_BATCH = "half-batch"  # the second half of a batch is thrown away


@dataclass(slots=True)
class Stored:
    """One message."""

    uid: str
    queue: str
    text: str
    priority: int
    timeout_s: float
    ready_s: float
    expires_s: float
    order: int
    claims: int = 0
    lease: str = ""
    leased_until_s: float = 0.0
    body_reads: int = 0


@dataclass(slots=True)
class FakeBroker:
    """The queues, the journal and the fault."""

    journal_path: Path
    fault: Fault = Fault.NONE
    stored: dict[str, dict[str, Stored]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    limits: dict[str, tuple[int, str]] = field(default_factory=dict)  # by queue: max_deliveries and dead letter
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    publishes: int = 0
    acks: int = 0
    address: tuple[str, int] = ("", 0)
    _journal: Any = None
    _changes: list[Message] = field(default_factory=list)  # of the command in hand
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, port: int = 0) -> None:
        """Read the journal and listen."""
        whole = self._recover(self.journal_path.read_bytes()) if self.journal_path.exists() else 0
        self._journal = self.journal_path.open("ab", buffering=1 << 20)
        self._journal.truncate(whole)
        os.fsync(self._journal.fileno())
        directory = os.open(self.journal_path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 26)
        host, real_port = self._server.sockets[0].getsockname()[:2]
        self.address = (host, real_port)

    async def stop(self) -> None:
        """Close every connection and the journal, as a process that ends would."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._journal.close()

    def _recover(self, data: bytes) -> int:
        """Redo what the journal holds; return how many of its bytes are whole lines: a kill tears the last one."""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            for change in _decode(line):
                self._redo(change)
        return whole

    def _redo(self, change: Message) -> None:
        if "uid" in change and change["cmd"] == "PUT":
            message = msgspec.convert(change["message"], Stored)
            self.stored.setdefault(message.queue, {})[message.uid] = message
            if change["id"]:
                self.ids[change["id"]] = message.uid
            self.numbers = itertools.count(max(message.order, int(message.uid.rpartition("_")[2])) + 1)
        elif change["cmd"] == "SET":
            message = self.stored[change["qname"]][change["uid"]]
            message.claims, message.lease, message.leased_until_s = (
                change["claims"],
                change["lease"],
                change["until"],
            )
            message.ready_s, message.order = change["ready"], change["order"]
        elif change["cmd"] == "LIMIT":
            self.limits[change["qname"]] = (change["most"], change["dead"])
        elif change["cmd"] == "REMOVE":
            self.stored.get(change["qname"], {}).pop(change["uid"], None)

    # Connections --------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            rest = b""
            while data := await reader.read(1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                replies = [self._reply(_decode(line)) for line in lines if line]
                self._sync()
                writer.write(b"".join(_encode(reply) + b"\n" for reply in replies))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _note(self, change: Message) -> None:
        self._changes.append(change)

    def _sync(self) -> None:
        if self.fault is Fault.NEVER_WRITES:
            return
        self._journal.flush()
        if self.fault is not Fault.NEVER_SYNCS:
            os.fdatasync(self._journal.fileno())

    def _reply(self, command: Message) -> Message:
        reply = self._do(command)
        if self._changes:  # in one line, so that a kill in the middle of a write leaves all of a command or nothing
            self._journal.write(_encode(self._changes) + b"\n")
            self._changes = []
        return {**reply, "cmd_id": command["cmd_id"]} if "cmd_id" in command else reply

    def _do(self, command: Message) -> Message:
        match command["cmd"]:
            case "PUB":
                return self._publish(command)
            case "FET":
                return self._fetch(command)
            case "ACK":
                return self._ack(command)
            case "NACK" | "TOUCH":
                return self._change(command)
            case "CREATE":
                return self._create(command)
            case "STATS":
                return {"cmd": "stats", "stats": {"size": len(self.stored.get(command["qname"], ())), "leased": 0}}
        return {"cmd": "nok", "err": "BAD_COMMAND"}

    # Commands -----------------------------------------------------------------------------------------------

    def _create(self, command: Message) -> Message:
        most, dead = command.get("max_deliveries", 0), command.get("dead_letter", "")
        if most and self.fault is not Fault.NEVER_BURIES:
            self.limits[command["qname"]] = (most, dead)
            self._note({"cmd": "LIMIT", "qname": command["qname"], "most": most, "dead": dead})
        return {"cmd": "okcreate", "qname": command["qname"]}

    def _publish(self, command: Message) -> Message:
        publish_id = command.get("id", "")
        if publish_id in self.ids and self.fault is not Fault.FORGETS_IDS:
            return {"cmd": "ok", "qname": command["qname"], "uid": self.ids[publish_id]}
        parts = command.get("messages") or [command]
        uids = [self._put(command["qname"], part, publish_id, place, len(parts)) for place, part in enumerate(parts)]
        reply = {"cmd": "ok", "qname": command["qname"]}
        return {**reply, "uids": uids} if "messages" in command else {**reply, "uid": uids[0]}

    def _put(self, queue: str, part: Message, publish_id: str, place: int, size: int) -> str:
        self.publishes += 1
        number = next(self.numbers)
        now_s = time.time()
        delay_s = 0 if self.fault is Fault.IGNORES_DELAY else part.get("delay", 0)
        message = Stored(
            f"0000001_{number:08d}",
            queue,
            part["message"],
            part.get("priority", 0),
            part.get("timeout", 60),
            now_s + delay_s,
            now_s + part["expires"] if part.get("expires") else 0.0,
            number,
        )
        if publish_id:
            self.ids[publish_id] = message.uid
        lost = self.fault is Fault.LOSES_PUBLISH and self.publishes % 50 == 0
        if not lost and not (self.fault is Fault.HALF_BATCH and place >= max(1, size // 2)):
            self.stored.setdefault(queue, {})[message.uid] = message
            self._note({"cmd": "PUT", "uid": message.uid, "message": message, "id": publish_id})
        return message.uid

    def _fetch(self, command: Message) -> Message:
        taken = [self._claim(message) for message in self._ready(command["qname"], command.get("count", 1))]
        if not taken:
            return {"cmd": "nomsg", "qname": command["qname"]}
        if "count" in command:
            return {"cmd": "msgs", "qname": command["qname"], "messages": taken}
        return {"cmd": "msg", "qname": command["qname"], **taken[0]}

    def _ready(self, queue: str, count: int) -> list[Stored]:
        now_s = time.time()
        for name in self.limits:
            self._bury(name, now_s)
        messages = self.stored.get(queue, {})
        if self.fault is not Fault.IGNORES_EXPIRY:
            for uid in [uid for uid, message in messages.items() if 0 < message.expires_s <= now_s]:
                self._remove(queue, uid)
        free = self.fault is Fault.IGNORES_LEASE and next(self.numbers) % 10 == 0
        ready = [m for m in messages.values() if m.ready_s <= now_s and (free or m.leased_until_s <= now_s)]
        sign = -1 if self.fault is Fault.LAST_IN_FIRST_OUT else 1
        ready.sort(key=lambda message: (message.priority, sign * message.order))
        return ready[:count]

    def _bury(self, queue: str, now_s: float) -> None:
        """Move what has used up its deliveries to the dead-letter queue."""
        most, dead = self.limits[queue]
        messages = self.stored.get(queue, {})
        for old in [m for m in messages.values() if m.claims >= most and m.leased_until_s <= now_s]:
            self._remove(queue, old.uid)
            number = next(self.numbers)
            letter = Stored(f"0000002_{number:08d}", dead, old.text, 0, old.timeout_s, now_s, 0.0, number)
            self.stored.setdefault(dead, {})[letter.uid] = letter
            self._note({"cmd": "PUT", "uid": letter.uid, "message": letter, "id": ""})

    def _claim(self, message: Stored) -> Message:
        message.claims += 1
        message.order = next(self.numbers)
        message.lease = f"1.{message.order}"
        message.leased_until_s = time.time() + message.timeout_s
        self._note_state(message)
        altered = self.fault is Fault.ALTERS_BODY and message.order % 10 == 0
        count = 0 if self.fault is Fault.REPEATS_COUNT else message.claims - 1
        return {
            "uid": message.uid,
            "error_count": count,
            "lease": message.lease,
            "msg": message.text + "!" if altered else message.text,
        }

    def _note_state(self, message: Stored) -> None:
        self._note(
            {
                "cmd": "SET",
                "qname": message.queue,
                "uid": message.uid,
                "claims": message.claims,
                "lease": message.lease,
                "until": message.leased_until_s,
                "ready": message.ready_s,
                "order": message.order,
            }
        )

    def _remove(self, queue: str, uid: str) -> None:
        self.stored[queue].pop(uid, None)
        self._note({"cmd": "REMOVE", "qname": queue, "uid": uid})

    def _ack(self, command: Message) -> Message:
        uids = command.get("uids") or [command["uid"]]
        leases = command.get("leases") or [command.get("lease", "")] * len(uids)
        messages = [self.stored.get(command["qname"], {}).get(uid) for uid in uids]
        for message, lease in zip(messages, leases, strict=True):
            if message is not None and self._stale(message, lease):
                return {"cmd": "nok", "err": "STALE_LEASE"}
        for uid in uids:
            self.acks += 1
            if uid in self.stored.get(command["qname"], {}):
                self._end(command["qname"], uid)
        known = {} if all(messages) else {"known": False}
        return {"cmd": "okack", "qname": command["qname"], **known}

    def _end(self, queue: str, uid: str) -> None:
        if self.fault is Fault.DELIVERS_AFTER_ACK and self.acks % 20 == 0:
            self.stored[queue][uid].leased_until_s = 0.0
        else:
            self._remove(queue, uid)

    def _stale(self, message: Stored, lease: str) -> bool:
        return bool(lease) and lease != message.lease and self.fault is not Fault.ACCEPTS_STALE

    def _change(self, command: Message) -> Message:
        message = self.stored.get(command["qname"], {}).get(command["uid"])
        if message is None or message.lease != command["lease"] or message.leased_until_s <= time.time():
            return {"cmd": "nok", "err": "STALE_LEASE"}
        if command["cmd"] == "TOUCH":
            message.leased_until_s = time.time() + command["timeout"]
        else:
            message.leased_until_s, message.ready_s = 0.0, time.time() + command.get("delay", 0)
        self._note_state(message)
        return {"cmd": "oknack" if command["cmd"] == "NACK" else "oktouch", "qname": command["qname"]}


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--worker-port", type=int, default=0)
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--taskflux-port", type=int, default=0)
    parser.add_argument("--fault", type=Fault, default=Fault.NONE)
    arguments = parser.parse_args()
    arguments.data_dir.mkdir(exist_ok=True)
    broker = FakeBroker(arguments.data_dir / "journal", arguments.fault)
    await broker.start(arguments.worker_port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sys.stdout.write(f"wakeq ready worker={broker.address[0]}:{broker.address[1]} http=127.0.0.1:0\n")
    sys.stdout.flush()
    await stop.wait()
    await broker.stop()


if __name__ == "__main__":
    asyncio.run(_main())
