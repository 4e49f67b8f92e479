"""Transport: one TCP connection to a broker, and the addresses that people write.

Knows sockets and how long to wait for them; knows no command.  A dead peer is found in about 11 seconds,
with or without traffic; whatever the system says of a broken connection rises as Disconnected or
BrokerUnreachable.
"""

import contextlib
import os
import socket

from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Disconnected

PORT = 2601
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"
READ_BYTES = 256 * 1024
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_PROBES = 5, 2, 3
USER_TIMEOUT_MS = (KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVE_PROBES) * 1000


def default_address() -> str:
    """Where the broker is if nobody says: WAKEQ_BROKER, or the usual port of this machine."""
    return os.environ.get("WAKEQ_BROKER") or DEFAULT_ADDRESS


def parse_address(address: str) -> tuple[str, int]:
    """`host`, `host:port`, `[::1]:port` as host and port."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise BadSettings(f"{address!r} is not an address of a broker; write HOST:PORT, as {DEFAULT_ADDRESS}")
    return host, int(port)


class Transport:
    """A connected socket."""

    def __init__(self, address: str, *, timeout_s: float) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(parse_address(address), timeout=timeout_s)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise BrokerUnreachable(
                f"no broker answers at {address} ({reason}); start it with `wakeq serve`, or name another"
            ) from error
        self._guard()

    def _guard(self) -> None:
        """Small writes leave at once; a peer that vanished is noticed."""
        sock = self._socket
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

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of it."""
        try:
            self._socket.settimeout(max(timeout_s, 0.001))
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, *, timeout_s: float) -> bytes:
        """Whatever has come, once something has; empty if nothing came in time."""
        try:
            self._socket.settimeout(max(timeout_s, 0.001))
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            if error.errno is not None:  # not our patience but the system's: the peer is dead
                raise self._lost(error) from error
            return b""
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise Disconnected(f"{self.address} closed the connection")
        return data

    def alive(self) -> bool:
        """False if the peer is known to be gone."""
        try:
            self._socket.setblocking(False)
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _lost(self, error: OSError) -> Disconnected:
        return Disconnected(f"the connection to {self.address} broke ({error.strerror or error})")

    def close(self) -> None:
        """End it, also for another thread that waits in it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
