"""Connection: both ends of a connection that has no socket: what the broker writes to, and what a client reads from.

    Client --> MemoryConnection --> codec --> Subscriber --> MemoryDoor --> codec --> MemoryConnection --> Client

The bytes are those of the worker protocol, coded and decoded as over TCP.  Whoever waits for an answer runs the broker:
first everything that can happen now, then time, one due thing after the other, until the answer is there.  It must
never wait for real.
"""

from collections.abc import Sequence

from wakeq.actors.sessions.door import DOOR_WORKER_TCP, Closed, Received
from wakeq.protocol.errors import Disconnected
from wakeq.protocol.wire.worker import codec as wire
from wakeq.testing.machine import Machine

ADDRESS = "memory"  # stands in messages where a client has HOST:PORT
RECONNECT_FOR_S = 0  # a broker that was restarted is there at once, and one that is down is not waited for


class MemoryDoor:
    """The broker's end.  `unread` is what the client has not taken yet."""

    kind = DOOR_WORKER_TCP
    peer = "this test"
    access = None

    def __init__(self) -> None:
        self.unread = bytearray()
        self.closed = ""

    def welcome(self) -> None:
        """Nobody is asked who he is."""

    def send(self, replies: Sequence[wire.Reply], /) -> None:
        self.unread += wire.encode(replies)

    def close(self, reason: str, /) -> None:
        self.closed = self.closed or reason

    def hang_up(self) -> None:
        self.close("the client had nothing more to say")

    def pause(self) -> None:
        """Nothing is held back here that reading later would bring later."""

    def resume(self) -> None:
        """See pause."""

    def keep(self, size_bytes: int, /) -> bool:
        """Memory is as large as it is."""
        return True


class MemoryConnection:
    """The client's end: what a Client holds instead of a socket."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._door = MemoryDoor()
        with machine.turn():
            self._subscriber = machine.connect(self._door)
            self._incarnation = machine.incarnation

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Hand whole lines to the broker, which looks at them when somebody waits for an answer."""
        with self._machine.turn():
            self._check()
            self._subscriber.tell(Received(wire.decode(data), len(data)))

    def receive(self, *, timeout_s: float) -> bytes:
        """Run the broker until it has answered, and driven time too if it must pass for that; empty if not in time."""
        machine, door = self._machine, self._door
        with machine.turn():
            self._check()
            machine.settle()
            until_s = machine.time.monotonic_s() + timeout_s
            while not door.unread and machine.advance_to_next(until_s - machine.time.monotonic_s()):
                self._check()
            if not door.unread:
                assert machine.time.waiting, "the broker owes an answer and nothing will make it give one"
                machine.advance(max(0.0, until_s - machine.time.monotonic_s()))
            data = bytes(door.unread)
            door.unread.clear()
            return data

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended; None if it is not."""
        lost = self._lost
        return Disconnected(f"the connection to the broker in memory broke: {lost}") if lost else None

    def close(self) -> None:
        """Let the broker know that nobody is here any more."""
        with self._machine.turn():
            if not self._lost:
                self._door.close("closed by the client")
                self._subscriber.tell(Closed("closed by the client"))
                self._machine.settle()

    @property
    def _lost(self) -> str:
        if self._incarnation != self._machine.incarnation or not self._machine.is_up:
            return "the broker crashed"
        return self._door.closed

    def _check(self) -> None:
        if (error := self.fault()) is not None:
            raise error
