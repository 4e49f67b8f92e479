"""beanstalkd, and the yardstick that speaks a scrap of its protocol: text lines, bodies after their
length."""

import re
import sys

from bench.load.clients import Caller, Member, PeerFailed, PollingConsumer, Producer
from bench.load.flow import QUEUE, Flow, Load
from bench.peers.peer import Peer, find_program, output_of

RESERVED = re.compile(rb"RESERVED (\d+) (\d+)\r\n")
POLL = b"reserve-with-timeout 0\r\n"


def put(body: bytes, delay_s: int = 0) -> bytes:
    return b"put 0 %d 60 %d\r\n%b\r\n" % (delay_s, len(body), body)


class BeanstalkCaller(Caller):
    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        at = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            after = line_end + 2
            if found := RESERVED.match(data, at):
                after += int(found[2]) + 2
                if after > len(data):
                    break
            self.deliver(data[at:after])
            at = after
        self.rest = data[at:]

    async def publish(self, body: bytes) -> None:
        self.expect(await self.call(put(body)), b"INSERTED")

    async def fetch(self) -> bytes:
        await self.doze()
        return await self.wake()

    async def ack(self, handle: bytes) -> None:
        self.expect(await self.call(b"delete %b\r\n" % handle), b"DELETED")

    async def doze(self) -> None:
        self.send(b"reserve\r\n")

    async def wake(self) -> bytes:
        found = RESERVED.match(self.expect(await self.reply(), b"RESERVED"))
        assert found is not None
        return found[1]

    async def ping(self) -> None:
        self.expect(await self.call(POLL), b"TIMED_OUT")


class BeanstalkProducer(Producer):
    def prepare(self, load: Load) -> None:
        self.one = put(load.body)

    def requests(self, count: int) -> bytes:
        return self.one * count

    def confirmations(self, data: bytes) -> int:
        return data.count(b"\n")


class BeanstalkConsumer(PollingConsumer):
    def parse(self, data: bytes) -> tuple[list[bytes], int, int]:
        data = self.rest + data
        at = empty = acked = 0
        handles: list[bytes] = []
        while (line_end := data.find(b"\r\n", at)) >= 0:
            after = line_end + 2
            match data[at]:
                case 82:  # RESERVED <number> <bytes>
                    _, number, size = data[at:line_end].split()
                    after += int(size) + 2
                    if after > len(data):
                        break
                    handles.append(number)
                case 68:  # DELETED, or DEADLINE_SOON, which is as good as nothing
                    if data[at + 2] == 76:
                        acked += 1
                    else:
                        empty += 1
                case 84:  # TIMED_OUT
                    empty += 1
                case _:
                    raise PeerFailed(f"unexpected answer {data[at:line_end]!r}")
            at = after
        self.rest = data[at:]
        return handles, empty, acked

    def acknowledge(self, handles: list[bytes]) -> bytes:
        return b"".join([b"delete %b\r\n" % handle for handle in handles])

    def fetches(self, count: int) -> bytes:
        return POLL * count

    def blocking_fetch(self) -> bytes:
        return b"reserve-with-timeout 1\r\n"


class BeanstalkMember(Member):
    """The queue of most workloads is the default tube, for the yardstick knows no other."""

    stored, removed = b"INSERTED", b"DELETED"

    def __init__(self, flow: Flow, body: bytes, queue: str) -> None:
        super().__init__(flow, body, queue)
        self._put = put(body)
        self._end = body + b"\r\n"

    async def hello(self) -> None:
        if self.queue != QUEUE:
            tube = self.queue.encode()
            await self.greet(b"use %b\r\n" % tube, b"USING")
            await self.greet(b"watch %b\r\n" % tube, b"WATCHING")
            await self.greet(b"ignore default\r\n", b"WATCHING")

    def is_whole(self, answer: bytes) -> bool:
        return answer.endswith(self._end if answer.startswith(b"RESERVED") else b"\r\n")

    def publish(self) -> bytes:
        return self._put

    def fetch(self) -> bytes:
        return POLL

    def acknowledge(self, answer: bytes) -> bytes:
        found = RESERVED.match(self.expect(answer, b"RESERVED"))
        assert found is not None
        return b"delete %b\r\n" % found[1]


class Beanstalkd(Peer):
    program = "beanstalkd"
    caller_class = BeanstalkCaller
    producer_class = BeanstalkProducer
    consumer_class = BeanstalkConsumer
    member_class = BeanstalkMember
    sync_every_ms: int

    @classmethod
    def version(cls) -> str:
        return output_of(find_program("beanstalkd") or "", "-v")

    def command(self) -> list[str]:
        program = find_program("beanstalkd")
        assert program is not None
        flags = [
            "-l",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-b",
            str(self.folder),
            "-f",
            str(self.sync_every_ms),
        ]
        return [program, *flags]


class BeanstalkdEach(Beanstalkd):
    name = "beanstalkd-f0"
    durability = "binlog, one fsync for each put and each delete"
    sync_every_ms = 0


class BeanstalkdLazy(Beanstalkd):
    name = "beanstalkd-f50"
    durability = "binlog, fsync every 50 ms at most; answers do not wait for it"
    sync_every_ms = 50


class ToyGroup(Peer):
    name = "toy-group"
    durability = "log, group commit, fdatasync before every answer; the yardstick (bench/toy_group.py)"
    caller_class = BeanstalkCaller
    producer_class = BeanstalkProducer
    consumer_class = BeanstalkConsumer
    member_class = BeanstalkMember
    recovers = False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.toy_group", str(self.port), str(self.folder)]
