"""Transport: one TCP connection to a broker, for a thread that waits for it.

Knows sockets and how long to wait for them; knows no command.  A dead peer is found in about 11 seconds,
with or without traffic; whatever the system says of a broken connection rises as Disconnected or
BrokerUnreachable.
"""

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Protocol

from wakeq.client.core.route import parse_address
from wakeq.client.core.session import Silent
from wakeq.protocol.errors import BrokerUnreachable, Disconnected

if TYPE_CHECKING:
    import ssl

READ_BYTES = 64 * 1024  # a larger buffer is mapped anew for each read, which costs more than it saves
TIMEOUT_S_MIN = 0.001  # none at all would mean not to wait, which is another kind of socket
TIMEOUT_EXCESS = 0.1  # of a timeout, that does not matter
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_PROBES = 5, 2, 3
USER_TIMEOUT_MS = (KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVE_PROBES) * 1000


class Wire(Protocol):
    """A way to a broker, for a thread that waits; Transport is one.  Raises Disconnected when it is broken."""

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of it."""

    def receive(self, *, timeout_s: float) -> bytes:
        """Whatever has come, once something has; empty if nothing came in time."""

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended; None if it is not."""

    def close(self) -> None:
        """End it, also for another thread that waits in it."""


class Settable(Protocol):
    """What there is to set of a socket, also of one that an event loop owns."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def guard(sock: Settable) -> None:
    """Small writes leave at once; a peer that vanished is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_EVERY_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": USER_TIMEOUT_MS,
    }
    for name, value in wanted.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def unreachable(address: str, error: OSError) -> BrokerUnreachable:
    """The error for a connection that could not be made."""
    reason = error.strerror or str(error) or type(error).__name__
    if "SSL" in type(error).__name__:
        return BrokerUnreachable(
            f"no TLS with {address} ({reason}); see whether that port has TLS (tls=, WAKEQ_TLS) and who signed for it"
        )
    return BrokerUnreachable(
        f"no broker answers at {address} ({reason}); start it with `wakeq serve`, or give its address: "
        "WAKEQ_BROKER=HOST:PORT (TaskFlux and MoniQue: --address)"
    )


def broken(address: str, error: OSError) -> Disconnected:
    """The error for a connection that broke.

    Of a peer that vanished, the system says that it timed out, or, where the network knows, that no route leads to it.
    """
    kind = Silent if isinstance(error, TimeoutError) or error.errno == errno.EHOSTUNREACH else Disconnected
    return kind(f"the connection to {address} broke ({error.strerror or error})")


def closed(address: str) -> Disconnected:
    """The error for a connection that the peer ended."""
    return Disconnected(f"{address} closed the connection")


def dial(address: str, context: "ssl.SSLContext | None", *, timeout_s: float) -> Wire:
    """Connect to a broker, with TLS or without."""
    if context is None:
        return Transport(address, timeout_s=timeout_s)
    from wakeq.client.secured import Secured  # most connections stay within a machine

    return Secured(address, context, timeout_s=timeout_s)


class Transport:
    """A connected socket."""

    def __init__(self, address: str, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._made_in_pid = os.getpid()
        try:
            self._socket = socket.create_connection(parse_address(address), timeout=timeout_s)
        except OSError as error:
            raise unreachable(address, error) from error
        guard(self._socket)

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of it."""
        try:
            self._allow(max(timeout_s, TIMEOUT_S_MIN))
            self._socket.sendall(data)
        except OSError as error:
            raise broken(self.address, error) from error

    def receive(self, *, timeout_s: float) -> bytes:
        """Whatever has come, once something has; empty if nothing came in time."""
        try:
            self._allow(max(timeout_s, TIMEOUT_S_MIN))
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            if error.errno is not None:  # not our patience but the system's: the peer is dead
                raise broken(self.address, error) from error
            return b""
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed(self.address)
        return data

    def _allow(self, timeout_s: float) -> None:
        """Set the timeout, unless it is set so already or a little longer: that would be a system call for each use."""
        if not timeout_s <= self._timeout_s <= timeout_s * (1 + TIMEOUT_EXCESS):
            self._timeout_s = timeout_s
            self._socket.settimeout(timeout_s)

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended; None if it is not."""
        try:
            self._allow(0.0)
            return None if self._socket.recv(1, socket.MSG_PEEK) else closed(self.address)
        except BlockingIOError:
            return None
        except OSError as error:
            return broken(self.address, error)

    def close(self) -> None:
        """End it, also for another thread that waits in it; in a forked child only let go of it."""
        if os.getpid() == self._made_in_pid:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
