"""RabbitMQ: durable queues, persistent messages, publisher confirms, every message acknowledged by itself.

AMQP 0-9-1 by hand, as much as the three roles need, one channel on each connection.  In go bodies that fit
into one frame, out come confirmed publishes and delivery tags.  An acknowledgement has no answer in AMQP: it
counts as done when it was sent.

The server runs under a node name, ports, a data directory, a cookie and an epmd of its own, and is the only
one that is ever ended: an installed service, its files and its epmd are never touched.
"""

import asyncio
import os
import socket
import struct
import subprocess
from pathlib import Path

from bench.clients import Caller, Connection, Consumer, PeerFailed, Producer
from bench.flow import Flow, Load
from bench.peers.peer import Peer, find_program, free_port

METHOD_FRAME, HEADER_FRAME, BODY_FRAME = 1, 2, 3
FRAME = struct.Struct(">BHI")  # kind, channel, bytes of the payload; one END follows the payload
END = b"\xce"
CHANNEL = 1
BODY_BYTES_MAX = 131_072 - FRAME.size - len(END)  # of the frame size that the server proposes

START, START_OK = b"\x00\x0a\x00\x0a", b"\x00\x0a\x00\x0b"  # class and method, two bytes each
TUNE, TUNE_OK = b"\x00\x0a\x00\x1e", b"\x00\x0a\x00\x1f"
OPEN, OPEN_OK = b"\x00\x0a\x00\x28", b"\x00\x0a\x00\x29"
CHANNEL_OPEN, CHANNEL_OPEN_OK = b"\x00\x14\x00\x0a", b"\x00\x14\x00\x0b"
CONFIRM_SELECT, CONFIRM_SELECT_OK = b"\x00\x55\x00\x0a", b"\x00\x55\x00\x0b"
DECLARE, DECLARE_OK = b"\x00\x32\x00\x0a", b"\x00\x32\x00\x0b"
QOS, QOS_OK = b"\x00\x3c\x00\x0a", b"\x00\x3c\x00\x0b"
CONSUME, CONSUME_OK = b"\x00\x3c\x00\x14", b"\x00\x3c\x00\x15"
PUBLISH, DELIVER = b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x3c"
GET, GET_OK, GET_EMPTY = b"\x00\x3c\x00\x46", b"\x00\x3c\x00\x47", b"\x00\x3c\x00\x48"
ACK = b"\x00\x3c\x00\x50"  # of a delivery from us, and of a publish from the server

PASSIVE, DURABLE, NO_WAIT = 0b1, 0b10, 0b1000
TUNING = struct.Struct(">HIH")  # channels, bytes of a frame, seconds between heartbeats
POLL_EVERY_S = 0.001
EPMD_TRIES, EPMD_EVERY_S = 1_000, 0.005


# Frames -----------------------------------------------------------------------------------------------------


def frame(kind: int, payload: bytes, channel: int = CHANNEL) -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + END


def method(name: bytes, arguments: bytes = b"", channel: int = CHANNEL) -> bytes:
    return frame(METHOD_FRAME, name + arguments, channel)


def short(text: bytes) -> bytes:
    return b"%c%b" % (len(text), text)


def long(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def table(**fields: bytes) -> bytes:
    return long(b"".join([short(name.replace("_", "-").encode()) + b"S" + long(fields[name]) for name in fields]))


def cut(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """All whole frames as kind and payload, and what is left."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while len(data) - at >= FRAME.size:
        kind, _, size = FRAME.unpack_from(data, at)
        after = at + FRAME.size + size + len(END)
        if after > len(data):
            break
        if data[after - 1 : after] != END:
            raise PeerFailed(f"a frame that does not end: {data[at : at + 100]!r}")
        found.append((kind, data[at + FRAME.size : after - 1]))
        at = after
    return found, data[at:]


QUEUE = short(b"bench")
WORKER = short(b"w")  # the consumer's tag, unique on its channel
RESERVED = b"\x00\x00"
GET_ONE = method(GET, RESERVED + QUEUE + b"\x00")
LOOK = method(DECLARE, RESERVED + QUEUE + bytes([PASSIVE]) + table())


def declare(kind: bytes) -> bytes:
    return method(DECLARE, RESERVED + QUEUE + bytes([DURABLE]) + table(x_queue_type=kind))


def publish(body: bytes) -> bytes:
    """To the default exchange, which knows each queue by its name; persistent."""
    assert 0 < len(body) <= BODY_BYTES_MAX, f"a body of {len(body)} bytes does not fit into one frame"
    properties = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # only one is given: delivery mode 2
    start = method(PUBLISH, RESERVED + short(b"") + QUEUE + b"\x00")
    return start + frame(HEADER_FRAME, properties) + frame(BODY_FRAME, body)


def prefetch(messages: int) -> bytes:
    return method(QOS, struct.pack(">IHB", 0, messages, 0))


def consume(*, flags: int) -> bytes:
    return method(CONSUME, RESERVED + QUEUE + WORKER + bytes([flags]) + table())


def acknowledge(tag: bytes) -> bytes:
    return b"%b%b\x00\xce" % (ACK_HEAD, tag)


ACK_HEAD = FRAME.pack(METHOD_FRAME, CHANNEL, 13) + ACK
CONFIRM = struct.Struct(f">{len(ACK_HEAD)}sQBx")  # head, publish number, whether all before it are meant too
DELIVER_HEAD = FRAME.pack(METHOD_FRAME, CHANNEL, 4 + len(WORKER) + 8 + 1 + 1 + len(QUEUE)) + DELIVER + WORKER
DELIVERY = struct.Struct(  # head, tag, again, exchange, queue; of the next frame its size and that of the body
    f">{len(DELIVER_HEAD)}s8s1x1x{len(QUEUE)}x1x3xI4xQ"
)
DELIVERY_BYTES = len(DELIVER_HEAD) + 8 + 1 + 1 + len(QUEUE) + 2 * FRAME.size + 3 * len(END)  # and two payloads


def refused(data: bytes) -> PeerFailed:
    """A close has its reason in it: a code and words."""
    return PeerFailed(f"RabbitMQ answered {data[:200].decode(errors='replace')!r}")


# Clients ----------------------------------------------------------------------------------------------------


class RabbitCaller(Caller):
    """A reply is the payload of a method; one that brings a message is delivered after the message's body."""

    consuming = False
    arriving = b""

    def data_received(self, data: bytes) -> None:
        try:
            frames, self.rest = cut(self.rest + data)
        except PeerFailed as error:
            self.failed(error)
            return
        for kind, payload in frames:
            if kind == METHOD_FRAME:
                self.arriving = payload
            if kind == BODY_FRAME or (kind == METHOD_FRAME and payload[:4] not in (DELIVER, GET_OK)):
                self.deliver(self.arriving)

    def expect(self, reply: bytes, word: bytes) -> bytes:
        if not reply.startswith(word):
            raise refused(reply)
        return reply

    async def hello(self) -> None:
        self.expect(await self.call(b"AMQP\x00\x00\x09\x01"), START)
        login = table() + short(b"PLAIN") + long(b"\x00guest\x00guest") + short(b"en_US")
        offer = self.expect(await self.call(method(START_OK, login, channel=0)), TUNE)
        channels, frame_bytes, _ = TUNING.unpack_from(offer, 4)
        self.send(method(TUNE_OK, TUNING.pack(channels, frame_bytes, 0), channel=0))  # no heartbeats
        self.expect(await self.call(method(OPEN, short(b"/") + b"\x00\x00", channel=0)), OPEN_OK)
        self.expect(await self.call(method(CHANNEL_OPEN, short(b""))), CHANNEL_OPEN_OK)
        self.expect(await self.call(method(CONFIRM_SELECT, b"\x00")), CONFIRM_SELECT_OK)

    async def publish(self, body: bytes) -> None:
        self.expect(await self.call(publish(body)), ACK)

    async def fetch(self) -> bytes:
        while (reply := await self.call(GET_ONE)).startswith(GET_EMPTY):
            await asyncio.sleep(POLL_EVERY_S)
        return self.expect(reply, GET_OK)[4:12]

    async def ack(self, handle: bytes) -> None:
        self.send(acknowledge(handle))

    async def doze(self) -> None:
        """Once a consumer, the next message comes by itself when the one before is acknowledged."""
        if not self.consuming:
            self.consuming = True
            await self.prefetch(1)
            self.expect(await self.call(consume(flags=0)), CONSUME_OK)

    async def wake(self) -> bytes:
        start = len(DELIVER + WORKER)
        return self.expect(await self.reply(), DELIVER)[start : start + 8]

    async def ping(self) -> None:
        """There is no main loop; this is a question that the queue answers."""
        self.expect(await self.call(LOOK), DECLARE_OK)

    async def prefetch(self, messages: int) -> None:
        self.expect(await self.call(prefetch(messages)), QOS_OK)


async def opened(client: Connection, prefetched: int = 0) -> None:
    """Let a caller shake hands on the client's connection; only what is counted is left to the client."""
    caller = RabbitCaller()
    caller.connection_made(client.transport)
    client.transport.set_protocol(caller)
    await caller.hello()
    if prefetched:
        await caller.prefetch(prefetched)
    client.transport.set_protocol(client)


class RabbitProducer(Producer):
    """Confirms come in any order, and one may stand for all before it."""

    def __init__(self, flow: Flow, load: Load) -> None:
        super().__init__(flow, load)
        self.through = 0  # every publish up to this number is confirmed
        self.early: set[int] = set()  # and these, beyond it

    async def hello(self) -> None:
        await opened(self)

    def prepare(self, load: Load) -> None:
        self.one = publish(load.body)

    def requests(self, count: int) -> bytes:
        return self.one * count

    def confirmations(self, data: bytes) -> int:
        data = self.rest + data
        whole = len(data) // CONFIRM.size * CONFIRM.size
        self.rest = data[whole:]
        if not ACK_HEAD.startswith(self.rest[: len(ACK_HEAD)]):
            raise refused(data)
        before = self.through + len(self.early)
        for head, number, several in CONFIRM.iter_unpack(data[:whole]):
            if head != ACK_HEAD:  # a nack, or a close
                raise refused(data)
            if several:
                self.through = max(self.through, number)
                self.early = {other for other in self.early if other > number}
            else:
                self.early.add(number)
        while self.through + 1 in self.early:
            self.through += 1
            self.early.remove(self.through)
        return self.through + len(self.early) - before


class RabbitConsumer(Consumer):
    """The server pushes as many messages as are not yet acknowledged within the window."""

    async def hello(self) -> None:
        await opened(self, prefetched=self.window)

    def begin(self) -> None:
        self.send(consume(flags=NO_WAIT))

    def data_received(self, data: bytes) -> None:
        try:
            tags = self.tags(data)
        except PeerFailed as error:
            self.flow.fail(error)
            return
        if tags and not self.closing:
            self.send(b"".join([acknowledge(tag) for tag in tags]))
            self.flow.finish(len(tags))

    def tags(self, data: bytes) -> list[bytes]:
        """Of all messages that are wholly here.  A message is three frames, read as one."""
        data = self.rest + data
        found: list[bytes] = []
        at = 0
        while len(data) - at >= DELIVERY.size:
            head, tag, header_bytes, body_bytes = DELIVERY.unpack_from(data, at)
            if head != DELIVER_HEAD:
                raise refused(data[at:])
            after = at + DELIVERY_BYTES + header_bytes + body_bytes
            if after > len(data):
                break
            found.append(tag)
            at = after
        self.rest = data[at:]
        if not DELIVER_HEAD.startswith(self.rest[: len(DELIVER_HEAD)]):
            raise refused(self.rest)
        return found


# Servers ----------------------------------------------------------------------------------------------------


def server_script() -> Path:
    """The script itself: Debian's wrapper around it would change the user, and with it the environment."""
    found = find_program("rabbitmq-server")
    assert found is not None
    script = Path(found).parents[1] / "lib/rabbitmq/bin/rabbitmq-server"
    return script if script.exists() else Path(found)


class Epmd:
    """The name server that a node must be known to; without one of its own it would start a lasting one."""

    def __init__(self) -> None:
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        program = find_program("epmd")
        assert program is not None
        self.port = free_port()
        self.process = subprocess.Popen(
            [program, "-port", str(self.port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(EPMD_TRIES):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            await asyncio.sleep(EPMD_EVERY_S)
        raise PeerFailed("epmd did not open its port")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class RabbitMQ(Peer):
    program = "rabbitmq-server"
    caller_class = RabbitCaller
    producer_class = RabbitProducer
    consumer_class = RabbitConsumer
    queue_kind: bytes

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.epmd = Epmd()
        self.nodes_port = 0

    @classmethod
    def missing(cls) -> str | None:
        if sentence := super().missing():
            return sentence
        return None if find_program("epmd") else f"{cls.name} is skipped: epmd, a part of Erlang, is not on the PATH."

    @classmethod
    def version(cls) -> str:
        """Its directory is named after it."""
        return server_script().resolve().parents[1].name

    async def start(self, *, fresh: bool = True) -> None:
        await self.epmd.start()
        self.nodes_port = free_port()
        await super().start(fresh=fresh)

    async def stop(self, *, kill: bool = False) -> None:
        try:
            await super().stop(kill=kill)
        finally:
            self.epmd.stop()

    async def prepare(self) -> None:
        client = await self.caller()
        client.expect(await client.call(declare(self.queue_kind)), DECLARE_OK)
        client.close()

    def command(self) -> list[str]:
        return [str(server_script())]

    def environment(self) -> dict[str, str]:
        """Everything that could be shared with an installed service is moved into our own directory."""
        files = {
            "RABBITMQ_MNESIA_BASE": "data",
            "RABBITMQ_LOG_BASE": "log",
            "RABBITMQ_SCHEMA_DIR": "schema",
            "RABBITMQ_GENERATED_CONFIG_DIR": "config",
            "RABBITMQ_CONF_ENV_FILE": "none.env",  # what does not exist is not read
            "RABBITMQ_CONFIG_FILE": "none.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": "none.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": "no-plugins",
        }
        return {
            **os.environ,
            **{name: str(self.folder / file) for name, file in files.items()},
            "HOME": str(self.folder),  # its cookie is made there
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.nodes_port),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG": "error",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self.epmd.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, which then has our process id
        }


class RabbitQuorum(RabbitMQ):
    name = "rabbit-quorum"
    durability = "quorum queue of one node, log synced before the confirm; acks are not answered"
    queue_kind = b"quorum"


class RabbitClassic(RabbitMQ):
    name = "rabbit-classic"
    durability = "durable classic queue, message store synced before the confirm; acks are not answered"
    queue_kind = b"classic"
