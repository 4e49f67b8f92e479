"""wakeq over its JSON lines: the broker that all of this is about."""

import itertools
import json
import os
import re
import secrets
import shlex
import sys
from typing import TypeAlias

from bench.load.clients import Caller, Consumer, Member, PeerFailed, Producer
from bench.load.flow import QUEUE, Flow, Load
from bench.peers.peer import Peer, output_of

READY = re.compile(r"^wakeq ready .*?worker=\S*:(\d+)", re.MULTILINE)
WORKER_PORT = re.compile(r"wakeq ready .*?worker=\S*:(\d+)")
UID = re.compile(rb'"uid":\s*"([^"]+)"')
LEASE = re.compile(rb'"lease":\s*("[^"]*"|\d+)')
MESSAGES = b'"cmd":"msg'  # one of them, or several
WAIT_S = 1
NODES = 3  # of `wakeq cluster try`

Handle: TypeAlias = tuple[bytes, bytes]  # a uid, and a lease as it stands in JSON


def line(cmd: str, **fields: object) -> bytes:
    return json.dumps({"cmd": cmd, **fields}, separators=(",", ":")).encode() + b"\n"


def begun(cmd: str, **fields: object) -> bytes:
    """A line without its end, so that more fields can follow."""
    return line(cmd, **fields)[: -len(b"}\n")]


def whole_lines(rest: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return all complete lines so far, and the rest behind them."""
    head, newline, tail = data.rpartition(b"\n")
    return (rest + head + newline, tail) if newline else (b"", rest + data)


def handles_in(reply: bytes) -> list[Handle]:
    """Return the handle for the acknowledgement of each delivered message in this reply."""
    uids, leases = UID.findall(reply), LEASE.findall(reply)
    if len(leases) != len(uids):
        raise PeerFailed("messages came without leases")
    return list(zip(uids, leases, strict=True))


def first_refusal(data: bytes) -> PeerFailed:
    at = data.find(b'"nok"')
    return PeerFailed(data[max(0, at - 20) : at + 200].decode(errors="replace"))


class WakeqCaller(Caller):
    """Idle as the protocol's own workers are: SUB, FET, nomsg, ISLP, awk, FET."""

    subscribed = False
    fetch_line = line("FET", qname=QUEUE)

    def data_received(self, data: bytes) -> None:
        lines, self.rest = whole_lines(self.rest, data)
        for reply in lines.splitlines():
            self.deliver(reply)

    async def declare(self) -> None:
        self.expect(await self.call(line("UPDATE", qname=QUEUE, wake="ready")), b'"ok')

    async def publish(self, body: bytes) -> None:
        self.expect(await self.call(b'{"cmd":"PUB","qname":"bench","msg":"%b"}\n' % body), b'"ok"')

    async def fetch(self) -> bytes:
        return self.handle_in(await self.call(self.fetch_line))

    def handle_in(self, reply: bytes) -> bytes:
        """The fields that an acknowledgement gives back, as they stand in JSON."""
        self.expect(reply, b'"msg"')
        uid, lease = UID.search(reply), LEASE.search(reply)
        assert uid is not None
        return b'"uid":"%b"' % uid[1] + (b',"lease":%b' % lease[1] if lease else b"")

    async def ack(self, handle: bytes) -> None:
        self.expect(await self.call(b'{"cmd":"ACK","qname":"bench",%b}\n' % handle), b'"okack"')

    async def doze(self) -> None:
        if not self.subscribed:
            self.subscribed = True
            self.expect(await self.call(line("SUB", qname=QUEUE)), b'"oksub"')
        self.expect(await self.call(self.fetch_line), b'"nomsg"')
        self.expect(await self.call(line("ISLP", qname=QUEUE)), b'"okslp"')

    async def wake(self) -> bytes:
        self.expect(await self.reply(), b'"awk"')
        while b'"nomsg"' in (reply := await self.call(self.fetch_line)):  # somebody else was quicker
            self.expect(await self.call(line("ISLP", qname=QUEUE)), b'"okslp"')
            self.expect(await self.reply(), b'"awk"')
        return self.handle_in(reply)

    async def ping(self) -> None:
        self.expect(await self.call(b'{"cmd":"PING"}\n'), b'"pong"')


class WakeqWaiter(WakeqCaller):
    """Idle by a FET that waits."""

    fetch_line = line("FET", qname=QUEUE, wait=30)

    async def doze(self) -> None:
        self.send(self.fetch_line)

    async def wake(self) -> bytes:
        return self.handle_in(await self.reply())


class WakeqProducer(Producer):
    def prepare(self, load: Load) -> None:
        body = load.body.decode()
        content: dict[str, object] = {"messages": [body] * load.batch} if load.batch > 1 else {"msg": body}
        self.lines = [
            line("PUB", qname=qname, **content, **({"delay": delay_s} if delay_s else {}))
            for qname in load.queues
            for delay_s in load.delays_s
        ]
        self.turn = itertools.cycle(self.lines)

    def requests(self, count: int) -> bytes:
        if len(self.lines) == 1:
            return self.lines[0] * count
        return b"".join(itertools.islice(self.turn, count))

    def confirmations(self, data: bytes) -> int:
        if b'"nok"' in data:
            raise first_refusal(data)
        return data.count(b"\n")


class WakeqConsumer(Consumer):
    """One waiting FET is always out; it carries a cmd_id, so that it holds up no answer to an ACK."""

    def begin(self) -> None:
        self.fetch_line = line("FET", qname=QUEUE, count=self.window, wait=WAIT_S, cmd_id=1)
        self.fetch()

    def fetch(self) -> None:
        if not self.closing and self.flow.may_fetch(self.fetch):
            self.send(self.fetch_line)

    def data_received(self, data: bytes) -> None:
        lines, self.rest = whole_lines(self.rest, data)
        if b'"nok"' in lines:
            self.flow.fail(first_refusal(lines))
            return
        answered = lines.count(b'"nomsg"')
        if MESSAGES in lines:
            replies = [reply for reply in lines.splitlines() if MESSAGES in reply]
            answered += len(replies)
            self.send(b"".join([ack for reply in replies for ack in self.acknowledgements(reply)]))
        if acked := lines.count(b'"okack"'):
            self.flow.finish(acked)
        for _ in range(answered):  # one, as long as one is out
            self.fetch()

    @staticmethod
    def acknowledgements(reply: bytes) -> list[bytes]:
        """One ACK for each message: jobs finish one by one."""
        return [b'{"cmd":"ACK","qname":"bench","uid":"%b","lease":%b}\n' % handle for handle in handles_in(reply)]


class WakeqMember(Member):
    stored, removed = b'"ok"', b'"okack"'

    def __init__(self, flow: Flow, body: bytes, queue: str) -> None:
        super().__init__(flow, body, queue)
        self._pub = line("PUB", qname=queue, msg=body.decode())
        self._fet = line("FET", qname=queue)
        self._ack = begun("ACK", qname=queue)

    def publish(self) -> bytes:
        return self._pub

    def fetch(self) -> bytes:
        return self._fet

    def acknowledge(self, answer: bytes) -> bytes:
        return b"%b}\n" % self._acknowledgement(answer)

    def _acknowledgement(self, answer: bytes) -> bytes:
        """It ends where a command may have more fields."""
        ((uid, lease),) = handles_in(self.expect(answer, b'"msg"'))
        return b'%b,"uid":"%b","lease":%b' % (self._ack, uid, lease)


class NumberedMember(WakeqMember):
    """Sends the same as wakeq's own client: a session, numbered publishes, and a cmd_id with each command."""

    def __init__(self, flow: Flow, body: bytes, queue: str) -> None:
        super().__init__(flow, body, queue)
        self._pub = begun("PUB", qname=queue, message=body.decode())
        self._fet = begun("FET", qname=queue)
        self._numbers, self._cmd_ids = itertools.count(1), itertools.count(1)

    async def hello(self) -> None:
        await self.greet(line("HELLO", session=secrets.token_hex(16)), b'"hello"')

    def publish(self) -> bytes:
        return b'%b,"n":%d,"cmd_id":%d}\n' % (self._pub, next(self._numbers), next(self._cmd_ids))

    def fetch(self) -> bytes:
        return b'%b,"cmd_id":%d}\n' % (self._fet, next(self._cmd_ids))

    def acknowledge(self, answer: bytes) -> bytes:
        return b'%b,"cmd_id":%d}\n' % (self._acknowledgement(answer), next(self._cmd_ids))


def program() -> list[str]:
    """WAKEQ_BENCH_PROGRAM puts another release in the place of this one."""
    chosen = os.environ.get("WAKEQ_BENCH_PROGRAM")
    return shlex.split(chosen) if chosen else [sys.executable, "-m", "wakeq"]


class Wakeq(Peer):
    name = "wakeq"
    durability = "log, group commit, fdatasync before every answer; LMDB behind"
    caller_class: type[Caller] = WakeqCaller
    producer_class = WakeqProducer
    consumer_class = WakeqConsumer
    member_class: type[Member] = WakeqMember
    batch_max = 100

    @classmethod
    def version(cls) -> str:
        return output_of(*program(), "--version")

    def environment(self) -> dict[str, str]:
        """The broker takes WAKEQ_... for its settings, and these are the benchmark's."""
        return {name: value for name, value in os.environ.items() if not name.startswith("WAKEQ_")}

    def command(self) -> list[str]:
        ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
        return [*program(), "serve", "--data-dir", str(self.folder), *ports]

    async def prepare(self) -> None:
        """A FET of a queue that nobody published to is refused, and consumers may come first."""
        client = await self.caller()
        client.expect(await client.call(line("CREATE", qname=QUEUE)), b'"ok')
        client.close()

    async def is_ready(self) -> bool:
        found = READY.search(self.log.read_text(errors="replace"))
        self.port = int(found[1]) if found else 0
        return found is not None


class WakeqNumbered(Wakeq):
    """The same broker, with the commands of wakeq's own client in a fleet (W12)."""

    name = "wakeq-numbered"
    durability = "the same; a fleet's publishes carry a session and a number, as those of the Python client do"
    member_class = NumberedMember


class WakeqThree(Wakeq):
    """Three nodes on this machine; clients go to the leader.  The cost is the sum of all three."""

    name = "wakeq-three"
    durability = "the same, on two of three nodes before every answer; all of them on this machine"

    def command(self) -> list[str]:
        return [*program(), "cluster", "try", "--free-ports", "--data-dir", str(self.folder)]

    async def is_ready(self) -> bool:
        ports = [
            int(port) for port in re.findall(r"wakeq ready .*?worker=\S*:(\d+)", self.log.read_text(errors="replace"))
        ]
        for port in ports if len(ports) == NODES else ():
            self.port = port
            caller = await self.caller()
            status = json.loads(await caller.call(line("CLUSTER")))
            caller.close()
            if status["cluster"]["serves"]:
                return True
        return False
