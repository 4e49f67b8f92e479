"""TLS of the doors: their certificate, and the handshake before each connection.

    accepted socket --> Admission --> handshake, in time --> the door, as if the connection had just been made

A connection is counted before its handshake, so that stalled handshakes are bounded like all connections.  `reload`
reads certificates again; existing connections stay.  It must never know the protocol inside.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX, Admission
from wakeq.net.handshakes import Handshakes
from wakeq.protocol.errors import BadSettings

ACCEPT_AGAIN_S = 1.0
# For the peer to acknowledge that we close.
CLOSE_S_MAX = 5.0

logger = logging.getLogger("wakeq.tls")


def server_context(cert_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ssl.SSLContext:
    """Make the context of a door; with a CA a client must show a certificate of it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert_file, key_file)
        if client_ca_file is not None:
            context.load_verify_locations(client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise _unusable(error, cert_file, key_file, client_ca_file) from error
    return context


def peer_context(cert_file: Path, key_file: Path, ca_file: Path) -> ssl.SSLContext:
    """Make the context for dialling a node: both show a certificate of the same CA."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(ca_file))
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(error, cert_file, key_file, ca_file) from error
    return context


def _unusable(error: OSError, *files: Path | None) -> BadSettings:
    named = ", ".join(str(file) for file in files if file is not None)
    reason = error.strerror or str(error)
    return BadSettings(f"no TLS is possible with {named}: {reason}; check tls.cert_file, tls.key_file and their rights")


class ServerTls:
    """The context of new connections; existing ones keep theirs."""

    def __init__(self, make_context: Callable[[], ssl.SSLContext]) -> None:
        self._make_context = make_context
        self.context = make_context()
        self.complaints = RateLimitedLog(logger)

    def reload(self) -> None:
        """Read the files again, or raise BadSettings and keep the old context."""
        self.context = self._make_context()


class PeerTls:
    """Both sides of the connections between nodes, which all show a certificate of the same authority."""

    def __init__(self, cert_file: Path, key_file: Path, ca_file: Path) -> None:
        self.accepting = ServerTls(lambda: server_context(cert_file, key_file, ca_file))
        self.dialing = peer_context(cert_file, key_file, ca_file)
        self._files = cert_file, key_file, ca_file

    def reload(self) -> None:
        """Read the files again; existing connections stay."""
        self.accepting.reload()
        self.dialing = peer_context(*self._files)


def is_valid_for(certificate: Mapping[str, Any], host: str) -> bool:
    """Whether a certificate of `getpeercert` is valid for this name or address (RFC 6125, and 2818 for addresses).

    The accepting side has to check this itself; for the dialling side OpenSSL does, by the same rules.
    """
    named: list[tuple[str, str]] = list(certificate.get("subjectAltName", ()))
    try:
        address = ip_address(host)
        return any(kind == "IP Address" and ip_address(name.strip()) == address for kind, name in named)
    except ValueError:
        pass
    names = [name for kind, name in named if kind == "DNS"]
    if not named:
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return any(_is_name_of(name, host) for name in names)


def _is_name_of(name: str, host: str) -> bool:
    """Compare by labels; the first one of a certificate may be `*`, which matches any one label."""
    name_labels, labels = name.lower().rstrip(".").split("."), host.lower().rstrip(".").split(".")
    if name_labels[0] == "*" and len(name_labels) > 2:
        name_labels, labels = name_labels[1:], labels[1:] if labels[0] else []
    return name_labels == labels


class TlsServer:
    """A port with TLS: it accepts and counts connections, and makes a door after each handshake."""

    def __init__(
        self,
        listening: socket.socket,
        tls: ServerTls,
        admission: Admission | Handshakes,
        make_door: Callable[[], asyncio.Protocol],
    ) -> None:
        self.admission = admission
        self.make_door = make_door
        self._tls = tls
        self._listening = listening
        loop = asyncio.get_running_loop()
        self._arrivals: set[asyncio.Task[None]] = set()
        self._accepting = loop.create_task(self._accept(loop))

    def close(self) -> None:
        """Accept nothing more; connections whose handshake is done stay."""
        for task in (self._accepting, *self._arrivals):
            task.cancel()
        self._listening.close()

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError as error:
                # There are no more files, most likely.
                self._tls.complaints.log(f"no connection can be accepted: {error.strerror}")
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            arrival = Arrival(self, accepted, str(address[0]))
            if arrival.enters():
                task = loop.create_task(self._secure(loop, accepted, arrival))
                self._arrivals.add(task)
                task.add_done_callback(self._arrivals.discard)
            else:
                # Before the handshake no reason can be sent.
                accepted.close()

    async def _secure(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, arrival: "Arrival") -> None:
        try:
            await loop.connect_accepted_socket(
                lambda: arrival,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
                ssl_shutdown_timeout=CLOSE_S_MAX,
            )
        except OSError as error:
            # SSLError and TimeoutError are OSErrors.
            self._tls.complaints.log(f"no TLS with {arrival.address}: {_reason(error)}")
        finally:
            arrival.leaves()


class Arrival(asyncio.Protocol):
    """A connection until its handshake is done; then its door counts and serves it."""

    def __init__(self, server: TlsServer, accepted: socket.socket, address: str) -> None:
        self.address = address
        self._server = server
        self._accepted = accepted
        # Ends the counting of the connection.
        self._leave: Callable[[], None] | None = None

    def enters(self) -> bool:
        """Count the connection; return whether there is room for it."""
        admission, address = self._server.admission, self.address
        if isinstance(admission, Handshakes):
            self._leave = partial(admission.leave, admission.enter(address, self._end))
            return True
        counted_at = address if admission.counts_addresses else ""
        if admission.enter(counted_at):
            return False
        self._leave = partial(admission.leave, counted_at)
        return True

    def _end(self) -> None:
        """Make room for another connection: the handshake fails, whatever it waits for."""
        # The connection may have ended already.
        with suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)

    def leaves(self) -> None:
        """Stop counting: the handshake failed, or a door counts the connection."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.leaves()
        door = self._server.make_door()
        cast(asyncio.Transport, transport).set_protocol(door)
        door.connection_made(transport)


def _reason(error: BaseException) -> str:
    """Return a short reason; texts of OpenSSL have nothing of the peer in them."""
    return (getattr(error, "reason", None) or str(error) or type(error).__name__).replace("\n", " ")
