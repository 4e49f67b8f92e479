"""Redis as a reliable list: LPUSH, LMOVE to a list of the worker's own, LREM; synced before every answer.

It has no timeout, delay or priority: a message of a worker that died waits in that worker's list for
somebody who looks.  It is here as the aim for speed, not as a like.
"""

import itertools
import re

from bench.load.clients import Caller, Member, PeerFailed, PollingConsumer, Producer
from bench.load.flow import Flow, Load
from bench.peers.peer import Peer, find_program, output_of

MARK_BYTES = 12  # LREM finds a message by its value, so each body begins with a number of its own
_numbers = itertools.count(1)
BULK = re.compile(rb"\$(\d+)\r\n")


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class RedisCaller(Caller):
    def __init__(self) -> None:
        super().__init__()
        self.own_list = b"worker-%d" % next(_numbers)

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        at = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            after = line_end + 2
            if found := BULK.match(data, at):
                after += int(found[1]) + 2
                if after > len(data):
                    break
                self.deliver(data[line_end + 2 : after - 2])
            else:
                self.deliver(data[at:line_end])
            at = after
        self.rest = data[at:]

    async def hello(self) -> None:
        await self.ping()  # refused while it still loads its files

    async def publish(self, body: bytes) -> None:
        self.expect(await self.call(command(b"LPUSH", b"bench", body)), b":")

    async def fetch(self) -> bytes:
        await self.doze()
        return await self.wake()

    async def ack(self, handle: bytes) -> None:
        self.expect(await self.call(command(b"LREM", self.own_list, b"-1", handle)), b":1")

    async def doze(self) -> None:
        self.send(command(b"BLMOVE", b"bench", self.own_list, b"RIGHT", b"LEFT", b"0"))

    async def wake(self) -> bytes:
        body = await self.reply()
        assert isinstance(body, bytes)
        return body

    async def ping(self) -> None:
        self.expect(await self.call(command(b"PING")), b"PONG")


class RedisProducer(Producer):
    def prepare(self, load: Load) -> None:
        size = max(load.body_bytes, MARK_BYTES)
        self.head = b"*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n$%d\r\n" % size
        self.tail = b"x" * (size - MARK_BYTES) + b"\r\n"

    def requests(self, count: int) -> bytes:
        head, tail = self.head, self.tail
        return b"".join([b"%b%012d%b" % (head, next(_numbers), tail) for _ in range(count)])

    def confirmations(self, data: bytes) -> int:
        if data.startswith(b"-"):
            raise PeerFailed(data[:200].decode(errors="replace"))
        return data.count(b"\n")


class RedisConsumer(PollingConsumer):
    """Bodies are digits and x, so that answers can be told apart by patterns without walking them."""

    answers = re.compile(rb"\$\d+\r\n(\d{12}x*)\r\n|([$*]-1\r\n)|(:\d+\r\n)")

    def begin(self) -> None:
        self.own_list = b"worker-%d" % next(_numbers)
        self.poll = command(b"LMOVE", b"bench", self.own_list, b"RIGHT", b"LEFT")
        self.remove = command(b"LREM", self.own_list, b"-1", b"")[: -len(b"$0\r\n\r\n")]
        super().begin()

    def parse(self, data: bytes) -> tuple[list[bytes], int, int]:
        data = self.rest + data
        handles: list[bytes] = []
        empty = acked = end = 0
        for found in self.answers.finditer(data):
            if found.start() != end:
                raise PeerFailed(f"unexpected answer {data[end : end + 100]!r}")
            end = found.end()
            match found.lastindex:
                case 1:
                    handles.append(found[1])
                case 2:
                    empty += 1
                case _:
                    acked += 1
        self.rest = data[end:]
        return handles, empty, acked

    def acknowledge(self, handles: list[bytes]) -> bytes:
        remove = self.remove
        return b"".join([b"%b$%d\r\n%b\r\n" % (remove, len(handle), handle) for handle in handles])

    def fetches(self, count: int) -> bytes:
        return self.poll * count

    def blocking_fetch(self) -> bytes:
        return command(b"BLMOVE", b"bench", self.own_list, b"RIGHT", b"LEFT", b"1")


class RedisMember(Member):
    """Its own list holds one message at most, so that bodies need no numbers to be told apart."""

    stored, removed = b":", b":1"

    def __init__(self, flow: Flow, body: bytes, queue: str) -> None:
        super().__init__(flow, body, queue)
        name, own_list = queue.encode(), b"worker-%d" % next(_numbers)
        self._push = command(b"LPUSH", name, body)
        self._move = command(b"LMOVE", name, own_list, b"RIGHT", b"LEFT")
        self._remove = command(b"LREM", own_list, b"-1", body)
        self._delivered = b"$%d\r\n%b\r\n" % (len(body), body)

    def is_whole(self, answer: bytes) -> bool:
        is_message = answer.startswith(b"$") and not answer.startswith(b"$-1")
        return answer.endswith(b"\r\n") and (not is_message or len(answer) >= len(self._delivered))

    def publish(self) -> bytes:
        return self._push

    def fetch(self) -> bytes:
        return self._move

    def acknowledge(self, answer: bytes) -> bytes:
        self.expect(answer, self._delivered)
        return self._remove


class RedisList(Peer):
    name = "redis-list-always"
    durability = "append-only file, fsync before the answers of each turn of its loop"
    program = "redis-server"
    caller_class = RedisCaller
    producer_class = RedisProducer
    consumer_class = RedisConsumer
    member_class = RedisMember

    @classmethod
    def version(cls) -> str:
        return " ".join(output_of(find_program("redis-server") or "", "--version").split()[:3])

    def command(self) -> list[str]:
        program = find_program("redis-server")
        assert program is not None
        settings = {
            "bind": "127.0.0.1",
            "protected-mode": "no",  # workers come from several loopback addresses
            "port": str(self.port),
            "dir": str(self.folder),
            "maxclients": "20000",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        return [program, *(word for key, value in settings.items() for word in (f"--{key}", value))]
