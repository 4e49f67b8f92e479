"""MemoryConnection and MemoryDoor: the client's and the broker's end of a connection without a socket.

    Client --> MemoryConnection --> codec --> WorkerSession --> MemoryDoor --> codec --> MemoryConnection --> Client

The bytes are those of the worker protocol, encoded and decoded as over TCP. A client that waits for an answer runs the
broker: first everything that can happen now, then the driven time, one timer after the other, until the answer is
there. Nothing here ever waits for real.
"""

from collections.abc import Sequence

from wakeq.actors.sessions.door import DOOR_WORKER_TCP, Closed, Received
from wakeq.protocol.errors import Disconnected
from wakeq.protocol.wire.worker import codec as wire
from wakeq.testing.machine import Machine

# Error texts show this where a client has HOST:PORT.
ADDRESS = "memory"
# A restarted broker is there at once, and a client does not wait for one that is down.
RECONNECT_FOR_S = 0


class MemoryDoor:
    """The broker's end."""

    kind = DOOR_WORKER_TCP
    peer = "this test"
    access = None

    def __init__(self) -> None:
        # Bytes that the client has not received yet.
        self.unread = bytearray()
        # Why the connection ended; empty while it is open.
        self.closed = ""

    def welcome(self) -> None:
        """Do nothing: clients in memory need no token."""

    def send(self, replies: Sequence[wire.Reply], /) -> None:
        self.unread += wire.encode(replies)

    def close(self, reason: str, /) -> None:
        self.closed = self.closed or reason

    def hang_up(self) -> None:
        self.close("the client had nothing more to send")

    def pause(self) -> None:
        """Do nothing: there is no socket whose reading could be paused."""

    def resume(self) -> None:
        """Do nothing, as in `pause`."""

    def keep(self, size_bytes: int, /) -> bool:
        """Accept any size: memory is not limited here."""
        return True


class MemoryConnection:
    """The client's end, in place of a socket."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._door = MemoryDoor()
        with machine.turn():
            self._session = machine.connect(self._door).actor_ref
            self._incarnation = machine.incarnation

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Pass whole lines on to the broker, which runs them when a client waits for an answer."""
        # Another thread must not crash the broker between the two.
        with self._machine.turn():
            self._check()
            self._session.tell(Received(wire.decode(data), len(data)))

    def receive(self, *, timeout_s: float) -> bytes:
        """Run the broker, and driven time if necessary, until it has answered; empty if it does not answer in time."""
        machine, door = self._machine, self._door
        with machine.turn():
            self._check()
            machine.settle()
            until_s = machine.time.monotonic_s() + timeout_s
            while not door.unread and machine.advance_to_next(until_s - machine.time.monotonic_s()):
                self._check()
            if not door.unread:
                assert machine.time.waiting, "the broker owes an answer and has no timer that could bring one"
                machine.advance(max(0.0, until_s - machine.time.monotonic_s()))
            data = bytes(door.unread)
            door.unread.clear()
            return data

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not."""
        lost = self._lost
        return Disconnected(f"the connection to the broker in memory broke: {lost}") if lost else None

    def close(self) -> None:
        """Tell the broker that the client has closed the connection."""
        with self._machine.turn():
            if not self._lost:
                self._door.close("closed by the client")
                self._session.tell(Closed("closed by the client"))
                self._machine.settle()

    @property
    def _lost(self) -> str:
        if self._incarnation != self._machine.incarnation or not self._machine.is_up:
            return "the broker crashed"
        return self._door.closed

    def _check(self) -> None:
        if (error := self.fault()) is not None:
            raise error
