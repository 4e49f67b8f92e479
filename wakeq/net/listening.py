"""Listening: a port of any protocol, with TLS or without.

    host, port --> a bound socket --> accept --> each connection is served by a door of `make_door`

It knows no protocol.  Without TLS the doors count their connections themselves.
"""

import asyncio
import socket
from collections.abc import Callable
from errno import EADDRINUSE, EMFILE, ENFILE
from typing import Any, Protocol

from wakeq.actors.sessions.door import Admission
from wakeq.net.handshakes import Handshakes
from wakeq.net.tls import ServerTls, TlsServer
from wakeq.protocol.errors import CannotListen

KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TRIES = 5, 2, 3

Server = asyncio.Server | TlsServer


async def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the first address that a host has."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a valid host name") from error
    try:
        return listening_socket(found[0][0], found[0][4])
    except OSError as error:
        # A node has several ports, so the error must name one.
        raise OSError(error.errno, f"port {port}: {error.strerror}") from error


def listening_socket(family: int, address: Any) -> socket.socket:
    """Return a socket that is bound.  On Linux each accepted connection inherits its options."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)
        if family == socket.AF_INET6:
            # `::` serves IPv4 too, because the settings name only one host.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setblocking(False)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class SystemRefusal(Protocol):
    """An OSError, or the like of a library."""

    @property
    def errno(self) -> int | None: ...

    @property
    def strerror(self) -> str | None: ...


def cannot_listen(where: str, error: SystemRefusal) -> CannotListen:
    """Return the error of a ZeroMQ port that cannot be opened, with advice."""
    if error.errno in (EMFILE, ENFILE):
        hint = "allow the broker more open files"
    elif error.errno == EADDRINUSE:
        hint = "is another scheduler there?"
    else:
        hint = "name an IPv4 address of this machine, the name of one, or *"
    return CannotListen(f"cannot listen on {where}: {error.strerror}; {hint}")


async def accept(
    bound: socket.socket,
    make_door: Callable[[], asyncio.Protocol],
    *,
    backlog: int,
    tls: ServerTls | None,
    admission: Admission | Handshakes,
) -> Server:
    """Accept connections; with TLS `admission` counts each of them until its handshake is done."""
    if tls is None:
        return await asyncio.get_running_loop().create_server(make_door, sock=bound, backlog=backlog)
    bound.listen(backlog)
    return TlsServer(bound, tls, admission, make_door)
