"""HandMonique: MoniQue's connections by hand, from commands to replies, on any runtime.

    client.ask(Ping(1)) --> MoniqueSession, MoniqueExchange --> replies, and messages that were pushed

Everything is served to the end before an answer is looked at, and no time passes.
"""

from collections.abc import Callable, Sequence

from tests.helpers.monique.component import packed
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.runtime import Process, Runtime
from wakeq.actors.sessions.door import DOOR_MONIQUE, Closed, Received
from wakeq.actors.sessions.monique import MoniqueSession
from wakeq.protocol.wire.monique.codec import decode_replies
from wakeq.protocol.wire.monique.commands import Command, PushedFromMq, PushToMq, Reply, Subscribe, Tagged
from wakeq.protocol.wire.monique.exchange import Subscription
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.transfers import Transfer


class HandMoniqueDoor:
    """A connection that keeps what it was told to send."""

    kind = DOOR_MONIQUE
    peer = "test"

    def __init__(self) -> None:
        self.sent: list[Reply] = []
        self.frames: list[bytes] = []  # as they were pushed: the very objects
        self.closed = ""
        self.paused = False

    def send(self, replies: Sequence[Reply], /) -> None:
        self.sent += replies

    def push(self, frames: Sequence[bytes], /) -> None:
        self.frames += frames
        self.sent += decode_replies([payload_of(frame) for frame in frames])

    def close(self, reason: str, /) -> None:
        self.closed = reason

    def hang_up(self) -> None:
        self.closed = "hung up"

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class HandMonique:
    """A client, as a test plays it."""

    def __init__(
        self,
        runtime: Runtime,
        exchange: Process,
        settle: Callable[[], None],
        counters: MoniqueCounters,
        *,
        worker: int = 1,
    ) -> None:
        self.door = HandMoniqueDoor()
        self.process = runtime.spawn(MoniqueSession, self.door, worker, exchange, counters, 0)
        self._settle = settle

    def say(self, *commands: Command) -> None:
        """Let one read of the connection bring these; nothing is served yet."""
        self.process.tell(Received(list(commands), 100 * len(commands)))

    def take(self) -> list[Reply]:
        """Let everything come to rest; return what was sent since."""
        self._settle()
        sent, self.door.sent = self.door.sent, []
        return sent

    def ask(self, *commands: Command) -> list[Reply]:
        self.say(*commands)
        return self.take()

    def pushed(self) -> list[str]:
        """The tags of what came since, which must be messages only."""
        tags = []
        for reply in self.take():
            assert isinstance(reply, PushedFromMq), reply
            tags.append(reply.data.tag)
        return tags

    def close(self) -> None:
        self.process.tell(Closed("gone"))
        self._settle()


def payload_of(frame: bytes) -> bytes:
    """What a whole frame of a server carries."""
    start = {126: 4, 127: 10}.get(frame[1], 2)
    assert frame[0] == 0x82
    return frame[start:]


def subscribe(*pairs: str) -> Subscribe:
    """`"a_b data"` is spec and type."""
    return Subscribe(tuple(Subscription(*pair.split()) for pair in pairs))


def transfer(what: str, **fields: object) -> Transfer:
    """`"data a_b"` is type and spec of a message."""
    type, spec = what.split()
    tag, message = packed(spec=spec, type=type, **fields)  # type: ignore[arg-type]
    return Transfer(read_tag(tag), message)


def push(what: str, **fields: object) -> PushToMq[str]:
    made = transfer(what, **fields)
    return PushToMq(Tagged(made.message, made.tag.text))
