"""TcpListener: a port; it accepts and counts connections, and watches those that are not at rest.

    connections --> a door each, from a subclass --> sessions

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

# Connections that the kernel keeps until they are accepted.
ACCEPT_BACKLOG = 4096
# Connections that are closed in one turn of the loop.
CLOSE_SLICE = 128
# For peers to read that we stop, and to close.
GOODBYE_S_MAX = 1.0


class TcpListener(Generic[DoorT]):
    """One port; a subclass knows the protocol."""

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
        # Connections that were turned away because there were too many.
        self.refused = 0
        self._make_subscriber = make_subscriber
        self._tls = tls
        # The time in which a peer must authenticate; None if it need not.
        self._handshake_s = handshake_s
        # Connections that have not authenticated, and since when they are open; the oldest first.
        self._strangers: dict[DoorT, float] = {}
        # Connections that are not at rest.
        self._watched: set[DoorT] = set()
        # Connections whose peers have closed, and that are still to be closed here.
        self._departed: deque[DoorT] = deque()
        self._sweeping = Sweeping(self.sweep)
        self._server: Server | None = None
        self._empty = asyncio.Event()

    @abstractmethod
    def make_door(self) -> DoorT:
        """Return the door of a new connection."""

    async def start(self, bound: socket.socket) -> int:
        """Accept connections at a bound socket; return its port."""
        self._server = await accept(
            bound, self.make_door, backlog=ACCEPT_BACKLOG, tls=self._tls, admission=self.admission
        )
        return int(bound.getsockname()[1])

    def stop_reading(self) -> None:
        """Accept no more connections and commands; accepted commands are still answered."""
        if self._server is not None:
            self._server.close()
        for door in self.doors:
            door.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Accept nothing more, then close all connections, a few in each turn of the loop."""
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

    # --- called by the doors ---

    def enter(self, door: DoorT) -> None:
        """Give a new connection a session, or turn it away."""
        self.doors.add(door)
        # An address costs memory for as long as the connection lasts.
        if self.admission.counts_addresses:
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
        """Note that the peer of this connection has authenticated."""
        self._strangers.pop(door, None)

    def is_stranger(self, door: DoorT) -> bool:
        """Whether the peer of this connection must authenticate and has not."""
        return door in self._strangers

    def leave(self, door: DoorT, *, entered: bool) -> None:
        """Forget a connection that is gone."""
        self.doors.discard(door)
        self._watched.discard(door)
        self._strangers.pop(door, None)
        if entered:
            self.admission.leave(door.counted_at)
        if not self.doors:
            self._empty.set()

    def depart(self, door: DoorT) -> None:
        """Close this connection, whose peer has closed, in one of the next turns of the loop."""
        if not self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)
        self._departed.append(door)

    def _finish_some(self) -> None:
        for _ in range(min(CLOSE_SLICE, len(self._departed))):
            self._departed.popleft().finish()
        if self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)

    def watch(self, door: DoorT) -> None:
        """Check this connection every second."""
        self._watched.add(door)
        self._sweeping.begin()

    def unwatch(self, door: DoorT) -> None:
        self._watched.discard(door)

    def sweep(self) -> bool:
        """Check all connections that are not at rest; return whether any are left."""
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
            door.expel(f"it did not authenticate within {self._handshake_s:g} s")
