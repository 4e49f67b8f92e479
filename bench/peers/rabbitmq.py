"""RabbitMQ: durable queues, persistent messages, publisher confirms, every message acknowledged by itself.

AMQP 0-9-1 as far as the three roles need it, one channel on each connection; pamqp writes and reads the frames.  In go
bodies that fit into one frame, out come confirmed publishes and delivery tags.  Confirms and deliveries, which come in
great numbers, are counted in the bytes: a whole client, such as aio-pika, has a core to itself at a tenth of what the
server can do, and its figures would be those of the client.  An acknowledgement has no answer in AMQP: it counts as
done when it was sent.

The server runs under a node name, ports, a data directory, a cookie and an epmd of its own, and is the only
one that is ever ended: an installed service, its files and its epmd are never touched.
"""

import asyncio
import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import TypeVar

from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Queue
from pamqp.commands import Connection as Login
from pamqp.constants import FRAME_HEADER_SIZE, FRAME_MAX_SIZE
from pamqp.exceptions import UnmarshalingException
from pamqp.frame import FrameTypes, frame_parts, marshal, unmarshal
from pamqp.header import ContentHeader, ProtocolHeader

from bench.load.clients import Caller, Connection, Consumer, PeerFailed, Producer, connect
from bench.load.flow import Flow, Load
from bench.peers.peer import Peer, find_program, free_port

CHANNEL = 1
QUEUE = "bench"
WORKER = "w"  # the consumer's tag, unique on its channel
END_BYTES = 1  # of a frame, behind its payload
BODY_BYTES_MAX = FRAME_MAX_SIZE - FRAME_HEADER_SIZE - END_BYTES
POLL_EVERY_S = 0.001
EPMD_TRIES, EPMD_EVERY_S = 1_000, 0.005

FrameT = TypeVar("FrameT", bound=Frame)


# Frames -----------------------------------------------------------------------------------------------------


def written(method: Frame) -> bytes:
    return marshal(method, CHANNEL)


def cut(data: bytes) -> tuple[list[FrameTypes], bytes]:
    """All whole frames, and what is left."""
    found: list[FrameTypes] = []
    at = 0
    while len(data) - at >= FRAME_HEADER_SIZE:
        size = frame_parts(data[at : at + FRAME_HEADER_SIZE])[2] or 0
        after = at + FRAME_HEADER_SIZE + size + END_BYTES
        if after > len(data):
            break
        try:
            found.append(unmarshal(data[at:after])[2])
        except UnmarshalingException as error:
            raise PeerFailed(f"a frame that cannot be read ({error}): {data[at : at + 100]!r}") from error
        at = after
    return found, data[at:]


GET_ONE = written(Basic.Get(queue=QUEUE))
LOOK = written(Queue.Declare(queue=QUEUE, passive=True))


def publish(body: bytes) -> bytes:
    """To the default exchange, which knows each queue by its name; persistent."""
    assert 0 < len(body) <= BODY_BYTES_MAX, f"a body of {len(body)} bytes does not fit into one frame"
    header = ContentHeader(body_size=len(body), properties=Basic.Properties(delivery_mode=2))
    frames = Basic.Publish(routing_key=QUEUE), header, ContentBody(body)
    return b"".join([marshal(frame, CHANNEL) for frame in frames])


def consume(*, nowait: bool) -> bytes:
    return written(Basic.Consume(queue=QUEUE, consumer_tag=WORKER, nowait=nowait))


TAG_BYTES = 8
AFTER_TAG_BYTES = 2 + len(QUEUE) + 1 + END_BYTES  # of a delivery: whether it is one again, exchange, queue
ACK_HEAD = written(Basic.Ack())[: -TAG_BYTES - 1 - END_BYTES]
CONFIRM = struct.Struct(f">{len(ACK_HEAD)}sQBx")  # head, publish number, whether all before it are meant too
_DELIVER = written(Basic.Deliver(WORKER, 0, False, "", QUEUE))
DELIVER_HEAD = _DELIVER[: -TAG_BYTES - AFTER_TAG_BYTES]
DELIVERY = struct.Struct(  # head, tag; of the next frame its size and that of the body
    f">{len(DELIVER_HEAD)}s{TAG_BYTES}s{AFTER_TAG_BYTES}x3xI4xQ"
)
DELIVERY_BYTES = len(_DELIVER) + 2 * (FRAME_HEADER_SIZE + END_BYTES)  # and two payloads


def acknowledge(tag: bytes) -> bytes:
    return b"%b%b\x00\xce" % (ACK_HEAD, tag)


def refused(answer: bytes | FrameTypes) -> PeerFailed:
    """A close has its reason in it: a code and words."""
    said = f"{answer.name} {dict(answer)}" if isinstance(answer, Frame) else repr(answer)
    return PeerFailed(f"RabbitMQ answered {said[:200]}")


# Clients ----------------------------------------------------------------------------------------------------


class RabbitCaller(Caller):
    """A reply is a method; one that brings a message is delivered after the message's body."""

    consuming = False
    arriving: FrameTypes | None = None

    def data_received(self, data: bytes) -> None:
        try:
            frames, self.rest = cut(self.rest + data)
        except PeerFailed as error:
            self.failed(error)
            return
        for frame in frames:
            if isinstance(frame, Frame):
                self.arriving = frame
            if isinstance(frame, ContentBody) or (isinstance(frame, Frame) and not isinstance(frame, BRINGS)):
                self.deliver(self.arriving)

    async def ask(self, request: bytes, kind: type[FrameT]) -> FrameT:
        return read_as(await self.call(request), kind)

    async def hello(self) -> None:
        await self.ask(ProtocolHeader().marshal(), Login.Start)
        login = Login.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
        offer = await self.ask(marshal(login, 0), Login.Tune)
        self.send(marshal(Login.TuneOk(offer.channel_max, offer.frame_max, 0), 0))  # no heartbeats
        await self.ask(marshal(Login.Open("/"), 0), Login.OpenOk)
        await self.ask(written(Channel.Open()), Channel.OpenOk)
        await self.ask(written(Confirm.Select()), Confirm.SelectOk)

    async def publish(self, body: bytes) -> None:
        await self.ask(publish(body), Basic.Ack)

    async def fetch(self) -> bytes:
        while isinstance(reply := await self.call(GET_ONE), Basic.GetEmpty):
            await asyncio.sleep(POLL_EVERY_S)
        return tag_of(read_as(reply, Basic.GetOk))

    async def ack(self, handle: bytes) -> None:
        self.send(acknowledge(handle))

    async def doze(self) -> None:
        """Once a consumer, the next message comes by itself when the one before is acknowledged."""
        if not self.consuming:
            self.consuming = True
            await self.prefetch(1)
            await self.ask(consume(nowait=False), Basic.ConsumeOk)

    async def wake(self) -> bytes:
        return tag_of(read_as(await self.reply(), Basic.Deliver))

    async def ping(self) -> None:
        """There is no main loop; this is a question that the queue answers."""
        await self.ask(LOOK, Queue.DeclareOk)

    async def prefetch(self, messages: int) -> None:
        await self.ask(written(Basic.Qos(prefetch_count=messages)), Basic.QosOk)


BRINGS = (Basic.Deliver, Basic.GetOk)  # a message, in frames of its own


def read_as(reply: FrameTypes, kind: type[FrameT]) -> FrameT:
    if not isinstance(reply, kind):
        raise refused(reply)
    return reply


def tag_of(method: Basic.Deliver | Basic.GetOk) -> bytes:
    assert method.delivery_tag is not None, "each has one"
    return method.delivery_tag.to_bytes(TAG_BYTES, "big")


async def opened(client: Connection, prefetched: int = 0) -> None:
    """Let a caller do the handshake on the client's connection; the client only counts."""
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
        self.send(consume(nowait=True))

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
    queue_kind: str

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
        client = await connect(RabbitCaller(), self.port)
        declare = Queue.Declare(queue=QUEUE, durable=True, arguments={"x-queue-type": self.queue_kind})
        await client.ask(written(declare), Queue.DeclareOk)
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
    queue_kind = "quorum"


class RabbitClassic(RabbitMQ):
    name = "rabbit-classic"
    durability = "durable classic queue, message store synced before the confirm; acks are not answered"
    queue_kind = "classic"
