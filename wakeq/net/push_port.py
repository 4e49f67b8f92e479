"""PushPort: the port at which the components of one spec connect to get tasks, each task for a named component.

    PULL sockets --> changed(connected components)          send(component, frames) --> that component

It speaks ZeroMQ by itself (`zmtp.py`): libzmq would choose the component, and would report neither its choice nor the
fate of a task whose component went away.  A component that does not read delays no other component, and no task waits
here for it.  The connections and their memory count into the bounds of all doors.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from itertools import count
from typing import cast

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX, Admission
from wakeq.net.listening import KEEPALIVE_EVERY_S, KEEPALIVE_IDLE_S, KEEPALIVE_TRIES, cannot_listen, listening_socket
from wakeq.protocol.wire.zmtp import GREETING, BadPeer, Pusher, encode

# Of one port; another component waits until one of them has gone.
COMPONENTS_MAX = 1_000
# The pause after the process had no file for a connection.
ACCEPT_AGAIN_S = 1.0
# A component whose kernel acknowledges no task is lost after as long as keepalive takes without a task.
SILENT_S_MAX = KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVE_TRIES

logger = logging.getLogger("wakeq.monique")


class PushPort:
    """A port and its connected components."""

    def __init__(
        self,
        host: str,
        port: int,
        changed: Callable[[Sequence[int]], None],
        admission: Admission,
        *,
        on_lease: bool = False,
    ) -> None:
        """Listen on a host, `*` for all addresses of this machine, and a port, 0 for a free one.

        `changed` is called with the components when one came or went, or when one can take a task again.  Tasks that
        are `on_lease` are redelivered if they get lost, so a component that acknowledges nothing is dropped soon.
        """
        self._changed = changed
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._listening = _bound(host, port)
        if on_lease:
            # Without leases a component that is busy for longer would lose the tasks that it has not read.
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S_MAX * 1000))
        self.address = "{}:{}".format(*self._listening.getsockname()[:2])
        self._complaints = RateLimitedLog(logger)
        self._ids = count(1)
        self._connections: set[Connection] = set()
        # The connections that have proved to be components, by their number.
        self._open: dict[int, Connection] = {}
        self._arrivals: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._accepts = False
        self._accept_again()

    @property
    def components(self) -> int:
        """How many components are connected."""
        return len(self._open)

    def can_take(self, component: int) -> bool:
        """Whether this component is connected, and nothing waits to be sent to it."""
        connection = self._open.get(component)
        return connection is not None and connection.can_take

    def send(self, component: int, frames: Sequence[bytes]) -> bool:
        """Send a task to this component; False if it has gone, or an earlier task still waits to be sent."""
        connection = self._open.get(component)
        return connection is not None and connection.send(frames)

    def report(self) -> None:
        """Call `changed` with the connected components."""
        self._changed(tuple(self._open))

    def close(self) -> None:
        """Close every connection; unsent tasks are lost."""
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
        except OSError as error:
            # There are no more files, most likely.
            self._complaints.log(f"no component can be accepted at {self.address}: {error.strerror}")
            self._pause()
            self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again)
            return
        counted_at = address[0] if self._admission.counts_addresses else ""
        refusal = self._admission.enter(counted_at)
        if refusal:
            # ZeroMQ has no message for a refusal.
            accepted.close()
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
        except (OSError, asyncio.CancelledError):
            # The connection is lost already, or this port was closed.
            if not made.is_connected:
                accepted.close()
                self.went(made)

    # --- called by the connections ----------------------------------------------------------------------------------

    def came(self, connection: "Connection") -> None:
        """Add a connection that has proved to be a component."""
        self._open[connection.id] = connection
        self.report()

    def took(self) -> None:
        """Report that a component can take a task again."""
        if not self._is_closed:
            self.report()

    def hold(self, size_bytes: int) -> bool:
        """Count so many bytes more, or less, as held for components; False if all doors together hold too much."""
        self._admission.held_bytes += size_bytes
        return not self._admission.crowded

    def went(self, connection: "Connection") -> None:
        """Remove a connection that is lost."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._admission.leave(connection.counted_at)
        was_open = self._open.pop(connection.id, None) is not None
        if not self._is_closed:
            self._accept_again()
            if was_open:
                self.report()

    def complain(self, error: BadPeer, connection: "Connection") -> None:
        """Log a connection that is no component."""
        self._complaints.log(f"{connection.peer} is not a component for {self.address}: {error}")


class Connection(asyncio.Protocol):
    """One connection: a component, once its handshake is done."""

    __slots__ = ("_deadline", "_held_bytes", "_port", "_pusher", "_transport", "counted_at", "id", "peer")

    def __init__(self, port: PushPort, id: int, peer: str, counted_at: str) -> None:
        self.id = id
        self.peer = peer
        # The address for which the connection is counted, if connections are counted by address.
        self.counted_at = counted_at
        self._port = port
        self._pusher = Pusher()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # Unsent bytes when writing was paused; while there are any, the component gets no task.
        self._held_bytes = 0

    @property
    def is_connected(self) -> bool:
        """Whether the loop has a transport for it."""
        return self._transport is not None

    @property
    def can_take(self) -> bool:
        """Whether it is connected and no unsent task waits."""
        return self._transport is not None and not self._transport.is_closing() and not self._held_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # A task had better wait in its queue, where every component can get it.
        self._transport.set_write_buffer_limits(high=0)
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
        """Write a task, unless an earlier one is still unsent."""
        if self._transport is None or not self.can_take:
            return False
        self._transport.write(encode(frames))
        return True

    def pause_writing(self) -> None:
        """Send nothing more, and read nothing: the component would not take the answers either."""
        assert self._transport is not None, "connected"
        self._held_bytes = self._transport.get_write_buffer_size()
        self._transport.pause_reading()
        if not self._port.hold(self._held_bytes):
            self._transport.abort()

    def resume_writing(self) -> None:
        assert self._transport is not None, "connected"
        self._release_held()
        self._transport.resume_reading()
        self._port.took()

    def _release_held(self) -> None:
        self._port.hold(-self._held_bytes)
        self._held_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._release_held()
        if self._deadline is not None:
            self._deadline.cancel()
        self._port.went(self)

    def close(self) -> None:
        """Close the connection; bytes on their way are still sent, unless the component does not read."""
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
