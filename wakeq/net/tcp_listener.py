"""TcpListener: a port; it accepts connections, keeps count of them, and looks after those that are not at rest.

    connections --> a door each, from a subclass --> subscribers

One timer serves the whole port, and none runs while every connection is at rest.  It knows no protocol.
"""

import asyncio
import contextlib
import socket
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from wakeq.actors.sessions.door import Admission, Told
from wakeq.net.listening import Server, accept
from wakeq.net.sweeping import Sweeping
from wakeq.net.tcp_door import TcpDoor
from wakeq.net.tls import ServerTls

DoorT = TypeVar("DoorT", bound=TcpDoor[Any])

ACCEPT_BACKLOG = 4096  # connections that the kernel keeps until they are accepted
CLOSE_SLICE = 128  # connections closed in one turn of the loop
GOODBYE_S_MAX = 1.0  # for peers to hear that we stop, and to close


class TcpListener(Generic[DoorT]):
    """See the head of this file."""

    def __init__(
        self,
        make_subscriber: Callable[[DoorT], Told],
        *,
        admission: Admission | None = None,
        clock: Callable[[], float] | None = None,
        tls: ServerTls | None = None,
        handshake_s: float | None = None,
    ) -> None:
        self.admission = admission or Admission()
        self.clock = clock or asyncio.get_running_loop().time
        self.doors: set[DoorT] = set()
        self.refused = 0  # connections turned away because there were too many
        self._make_subscriber = make_subscriber
        self._tls = tls
        self._handshake_s = handshake_s  # a peer must say who it is in that time; None: it need not
        self._strangers: dict[DoorT, float] = {}  # those who have not, and since when; the longest first
        self._watched: set[DoorT] = set()
        self._departed: deque[DoorT] = deque()  # their peers have closed, they have not
        self._sweeping = Sweeping(self.sweep)
        self._server: Server | None = None
        self._empty = asyncio.Event()

    @abstractmethod
    def make_door(self) -> DoorT:
        """Return what is to serve a new connection."""

    async def start(self, bound: socket.socket) -> int:
        """Accept connections at a bound socket; return its port."""
        self._server = await accept(
            bound, self.make_door, backlog=ACCEPT_BACKLOG, tls=self._tls, admission=self.admission
        )
        return int(bound.getsockname()[1])

    def stop_reading(self) -> None:
        """Take no more connections and no more commands; what was taken is still answered."""
        if self._server is not None:
            self._server.close()
        for door in self.doors:
            door.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Accept nothing more, then close what is open, a few in each turn of the loop."""
        if self._server is not None:
            self._server.close()
        self._empty.clear()
        for door in list(self.doors):
            door.close(reason)
        if self.doors:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), GOODBYE_S_MAX)
        for place, door in enumerate(list(self.doors)):
            door.finish()
            if place % CLOSE_SLICE == CLOSE_SLICE - 1:
                await asyncio.sleep(0)
        if self.doors:
            await self._empty.wait()
        self._sweeping.stop()

    # --- what the doors tell it ---

    def enter(self, door: DoorT) -> None:
        """A connection was made: give it a subscriber, or turn it away."""
        self.doors.add(door)
        if self.admission.counts_addresses:  # to ask for it costs memory for as long as the connection lasts
            door.counted_at = sys.intern(door.peer.rpartition(":")[0])
        refusal = self.admission.enter(door.counted_at)
        if refusal:
            self.refused += 1
            door.turn_away(refusal)
            return
        door.begin(self._make_subscriber(door))
        if self._handshake_s is not None:
            self._strangers[door] = self.clock()
            self._sweeping.begin()

    def welcome(self, door: DoorT) -> None:
        """The peer of this connection has said who it is."""
        self._strangers.pop(door, None)

    def is_stranger(self, door: DoorT) -> bool:
        """Whether the peer of this connection has not said who it is, and should."""
        return door in self._strangers

    def leave(self, door: DoorT, *, entered: bool) -> None:
        """A connection is gone."""
        self.doors.discard(door)
        self._watched.discard(door)
        self._strangers.pop(door, None)
        if entered:
            self.admission.leave(door.counted_at)
        if not self.doors:
            self._empty.set()

    def depart(self, door: DoorT) -> None:
        """The peer of this connection has closed."""
        if not self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)
        self._departed.append(door)

    def _finish_some(self) -> None:
        for _ in range(min(CLOSE_SLICE, len(self._departed))):
            self._departed.popleft().finish()
        if self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)

    def watch(self, door: DoorT) -> None:
        """Look at this connection from time to time."""
        self._watched.add(door)
        self._sweeping.begin()

    def unwatch(self, door: DoorT) -> None:
        self._watched.discard(door)

    def sweep(self) -> bool:
        """Look at all connections that are not at rest; return whether any are left."""
        now_s = self.clock()
        for door in list(self._watched):
            door.check(now_s)
        self._drop_strangers(now_s)
        return bool(self._watched or self._strangers)

    def _drop_strangers(self, now_s: float) -> None:
        while self._strangers and self._handshake_s is not None:
            door, since_s = next(iter(self._strangers.items()))
            if now_s - since_s < self._handshake_s:
                return
            del self._strangers[door]
            door.expel(f"it did not say who it is within {self._handshake_s:g} s")
