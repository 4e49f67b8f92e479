"""PushPort: where the components of one spec connect to be given tasks, each of which goes to one that is named.

    PULL sockets --> who is there --> changed(components)          send(component, frames) --> that one

It speaks ZeroMQ by itself (`zmtp.py`): libzmq would choose the component, and say neither which one it was nor what
became of a task whose component went away.  What a component has not taken from us holds nobody else up; nothing waits
here behind it.  Its connections and what they hold count into what all doors may have.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from itertools import count
from typing import cast

from wakeq.actors.complaints import Complaints
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX, Admission
from wakeq.net.listening import KEEPALIVE_EVERY_S, KEEPALIVE_IDLE_S, KEEPALIVE_TRIES, cannot_listen, listening_socket
from wakeq.protocol.wire.zmtp import GREETING, BadPeer, Pusher, encode

COMPONENTS_MAX = 1_000  # of one port; who comes then waits until one of them has gone
ACCEPT_AGAIN_S = 1.0  # after there was no file for a connection
SILENT_S_MAX = KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVE_TRIES  # as long as keepalive takes without a task

logger = logging.getLogger("wakeq.monique")


class PushPort:
    """A port, and who is connected to it."""

    def __init__(
        self,
        host: str,
        port: int,
        changed: Callable[[Sequence[int]], None],
        admission: Admission,
        *,
        on_lease: bool = False,
    ) -> None:
        """Listen on a host, `*` for all of this machine's, and a port, 0 for a free one.

        `changed` is called with the components when one came or went, or when one can take something again.  What is
        given `on_lease` somebody else can have: a component that takes nothing for some seconds is let go of.
        """
        self._changed = changed
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._listening = _bound(host, port)
        if on_lease:  # without one, who has enough to do for longer than that would lose what it has not read yet
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S_MAX * 1000))
        self.address = "{}:{}".format(*self._listening.getsockname()[:2])
        self._complaints = Complaints(logger)
        self._ids = count(1)
        self._connections: set[Connection] = set()
        self._open: dict[int, Connection] = {}  # those that have said who they are, by the number they got here
        self._arrivals: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._accepts = False
        self._accept_again()

    @property
    def components(self) -> int:
        """How many are connected."""
        return len(self._open)

    def can_take(self, component: int) -> bool:
        """Whether this component is there, and has taken what it got before."""
        connection = self._open.get(component)
        return connection is not None and connection.can_take

    def send(self, component: int, frames: Sequence[bytes]) -> bool:
        """Give it to this component; False if it has gone, or has not taken what it got before."""
        connection = self._open.get(component)
        return connection is not None and connection.send(frames)

    def look(self) -> None:
        """Say who is connected."""
        self._changed(tuple(self._open))

    def close(self) -> None:
        """Let go of everybody; what a component has not taken is lost to it."""
        self._is_closed = True
        self._pause()
        self._listening.close()
        for arrival in self._arrivals:
            arrival.cancel()
        for connection in list(self._connections):
            connection.close()

    # --- arriving ---------------------------------------------------------------------------------------------------

    def _accept_again(self) -> None:
        if not self._accepts and not self._is_closed and len(self._connections) < COMPONENTS_MAX:
            self._accepts = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self) -> None:
        if self._accepts:
            self._accepts = False
            self._loop.remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        try:
            accepted, address = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no more files, most likely
            self._complaints.say(f"no component can be accepted at {self.address}: {error.strerror}")
            self._pause()
            self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again)
            return
        counted_at = address[0] if self._admission.counts_addresses else ""
        refusal = self._admission.enter(counted_at)
        if refusal:
            accepted.close()  # ZeroMQ has no words for it
            return
        accepted.setblocking(False)
        made = Connection(self, next(self._ids), "{}:{}".format(*address), counted_at)
        self._connections.add(made)
        if len(self._connections) >= COMPONENTS_MAX:
            self._pause()
        arrival = self._loop.create_task(self._arrive(made, accepted))
        self._arrivals.add(arrival)
        arrival.add_done_callback(self._arrivals.discard)

    async def _arrive(self, made: "Connection", accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: made, accepted)
        except (OSError, asyncio.CancelledError):  # it is gone already, or this port is
            if not made.is_connected:
                accepted.close()
                self.went(made)

    # --- what the connections tell it -------------------------------------------------------------------------------

    def came(self, connection: "Connection") -> None:
        """It has said that it is a component."""
        self._open[connection.id] = connection
        self.look()

    def took(self) -> None:
        """A component has taken what it was given."""
        if not self._is_closed:
            self.look()

    def hold(self, size_bytes: int) -> bool:
        """Count so much more, or less, as held for components; False if that is too much with what all doors hold."""
        self._admission.held_bytes += size_bytes
        return not self._admission.crowded

    def went(self, connection: "Connection") -> None:
        """It is gone."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._admission.leave(connection.counted_at)
        was_open = self._open.pop(connection.id, None) is not None
        if not self._is_closed:
            self._accept_again()
            if was_open:
                self.look()

    def complain(self, error: BadPeer, connection: "Connection") -> None:
        """Somebody connected who is no component."""
        self._complaints.say(f"{connection.peer} is not a component for {self.address}: {error}")


class Connection(asyncio.Protocol):
    """One component, or who is yet to say that it is one."""

    __slots__ = ("_deadline", "_held_bytes", "_port", "_pusher", "_transport", "counted_at", "id", "peer")

    def __init__(self, port: PushPort, id: int, peer: str, counted_at: str) -> None:
        self.id = id
        self.peer = peer
        self.counted_at = counted_at  # the address, if it matters where a connection comes from
        self._port = port
        self._pusher = Pusher()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._held_bytes = 0  # when it took no more; while there are any it is given nothing

    @property
    def is_connected(self) -> bool:
        """Whether the loop looks after it."""
        return self._transport is not None

    @property
    def can_take(self) -> bool:
        """Whether nothing that was written is still here."""
        return self._transport is not None and not self._transport.is_closing() and not self._held_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # a task had better wait where all can have it
        self._transport.write(GREETING)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None, "connected"
        was_open = self._pusher.is_open
        try:
            self._pusher.receive(data)
        except BadPeer as error:
            self._port.complain(error, self)
            self._transport.abort()
            return
        said = self._pusher.bytes_to_send()
        if said:
            self._transport.write(said)
        if self._pusher.is_open and not was_open:
            assert self._deadline is not None, "set when it connected"
            self._deadline.cancel()
            self._port.came(self)

    def send(self, frames: Sequence[bytes]) -> bool:
        """Write it, unless what was written before is still here."""
        if self._transport is None or not self.can_take:
            return False
        self._transport.write(encode(frames))
        return True

    def pause_writing(self) -> None:
        """Nothing more for it; nor is it asked what it wants, for it would not take the answer."""
        assert self._transport is not None, "connected"
        self._held_bytes = self._transport.get_write_buffer_size()
        self._transport.pause_reading()
        if not self._port.hold(self._held_bytes):
            self._transport.abort()

    def resume_writing(self) -> None:
        assert self._transport is not None, "connected"
        self._let_go()
        self._transport.resume_reading()
        self._port.took()

    def _let_go(self) -> None:
        self._port.hold(-self._held_bytes)
        self._held_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._let_go()
        if self._deadline is not None:
            self._deadline.cancel()
        self._port.went(self)

    def close(self) -> None:
        """End it; what is on its way to the component still goes there, unless it does not take it."""
        if self._transport is not None:
            self._transport.abort() if self._held_bytes else self._transport.close()


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise CannotListen."""
    try:
        name = "0.0.0.0" if host == "*" else host
        found = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)[0]  # as the other ports, by libzmq
        listening = listening_socket(found[0], found[4])
        listening.listen()
    except OSError as error:
        raise cannot_listen(f"tcp://{host}:{port}", error) from error
    return listening
