"""HandTaskFlux: one TaskFlux connection of the broker by hand, from packets to packets.

    client.ask(Dequeue("q")) --> bytes --> RequestReader --> TaskFluxSession ... --> encoder --> packets

Everything is served to the end before an answer is looked at, and no time passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tests.helpers.brokers.broker import Broker
from wakeq.actors.sessions.door import DOOR_TASKFLUX, Closed, Drained, Ended, Idle, Received, SendAway
from wakeq.actors.sessions.taskflux import TaskFluxServices, TaskFluxSession
from wakeq.protocol.wire.taskflux.answers import Known
from wakeq.protocol.wire.taskflux.codec import RequestReader, ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    OK,
    AuthorizationRequest,
    Bad,
    BootstrapRequest,
    BusinessError,
    ClusterMetadataResponse,
    Dequeue,
    Enqueue,
    ErrorCode,
    Packet,
    Record,
    Response,
)
from wakeq.protocol.wire.taskflux.dialects import LEGACY, SPEC, Dialect

PAYLOAD_BYTES_MAX = 1000  # of this node


class HandTaskFluxDoor:
    """A connection that keeps what it was told to send."""

    kind = DOOR_TASKFLUX
    peer = "test"
    is_welcome = False

    def __init__(self) -> None:
        self.sent: list[Response] = []
        self.ended = ""
        self.paused = self.is_congested = False
        self.kept_bytes = 0

    def welcome(self) -> None:
        self.is_welcome = True

    def send(self, replies: Sequence[Response], /) -> None:
        self.sent += replies

    def close(self, reason: str, /) -> None:
        self.ended = f"closed: {reason}"

    def drop(self, reason: str, /) -> None:
        self.ended = f"dropped: {reason}"

    def hang_up(self) -> None:
        self.ended = "hung up"

    def keep(self, size_bytes: int, /) -> bool:
        self.kept_bytes = size_bytes
        return True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class HandTaskFlux:
    """A client, as a test plays it."""

    def __init__(
        self,
        broker: Broker,
        dialect: Dialect = SPEC,
        *,
        addresses: tuple[str, ...] = ("a:1",),
        nodes: Callable[[], ClusterMetadataResponse] | None = None,
        greeting: Sequence[Packet] | None = None,
    ) -> None:
        self.broker = broker
        self.dialect = dialect
        self.door = HandTaskFluxDoor()
        listens_to = SPEC if dialect is LEGACY else dialect
        self._reader = RequestReader(listens_to)
        known = Known(
            broker.queues.catalog.find,
            nodes or (lambda: ClusterMetadataResponse(addresses, len(addresses) - 1, 0)),
            PAYLOAD_BYTES_MAX,
        )
        log = broker.raft_log
        services = TaskFluxServices(
            broker.assembly.lobby, broker.queues, broker.timers, broker.now_ms, known, withdrawal=log.withdrawal
        )
        self.process = broker.runtime.spawn(TaskFluxSession, self.door, listens_to, 77, services)
        version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
        self.say(*(greeting or (AuthorizationRequest(), version)))
        self.take()

    def send(self, data: bytes) -> None:
        """Let one read of the connection bring these bytes; nothing is served yet."""
        packets = self._reader.receive(data)
        if packets:
            self.process.tell(Received(packets, len(data)))

    def say(self, *packets: Packet) -> None:
        """Let one read bring these packets; nothing is served yet."""
        self.send(encode(packets, self.dialect))

    def take(self) -> list[Packet | Bad]:
        """Let everything come to rest; return what was sent since, as a client reads it."""
        self.broker.settle()
        sent, self.door.sent = self.door.sent, []
        return ResponseReader(self.dialect).receive(encode(sent, self.dialect))

    def ask(self, *packets: Packet) -> list[Packet | Bad]:
        """Send in one read; return what comes of it."""
        self.say(*packets)
        return self.take()

    def end(self) -> None:
        """Say that nothing more will be said."""
        self.process.tell(Ended())

    def close(self) -> None:
        """Lose the connection."""
        self.process.tell(Closed("gone"))
        self.broker.settle()

    def be_quiet(self) -> None:
        """Say nothing for the idle limit."""
        self.process.tell(Idle())
        self.broker.settle()

    def send_away(self) -> None:
        """Let the broker begin to stop."""
        self.process.tell(SendAway())
        self.broker.settle()

    def read_on(self) -> None:
        """Read everything that was sent, at last."""
        self.door.is_congested = False
        self.process.tell(Drained())
        self.broker.settle()


def stored(flux: HandTaskFlux, *payloads: bytes, queue: str = "", key: int = 0) -> None:
    """Put records on a queue."""
    answers = flux.ask(*[packet for payload in payloads for packet in (Enqueue(queue, key, payload), ACK)])
    assert answers == [OK, OK] * len(payloads)


def held(flux: HandTaskFlux, queue: str = "") -> Record:
    """Take a record and hold it."""
    (record,) = flux.ask(Dequeue(queue))
    assert isinstance(record, Record)
    return record


def error(code: ErrorCode, answers: list[Any]) -> bool:
    """Whether there is one answer, an error with this code."""
    return [type(answer) for answer in answers] == [BusinessError] and answers[0].code is code
