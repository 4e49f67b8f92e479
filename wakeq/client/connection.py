"""Connection: one connection to a broker, for a thread that waits for it; TcpConnection is the one without TLS.

    address, Credentials (token, TLS)  -->  dial  -->  Connection: send, receive, close

It knows sockets and timeouts, and no command. A dead peer is detected within about 11 seconds, with or without traffic.
Every error of the operating system is raised as Disconnected or BrokerUnreachable. No token appears in an error or log.
This file imports neither asyncio nor ssl: both are slow, and most programs need neither.
"""

import builtins
import contextlib
import errno
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from wakeq.client.route import parse_address
from wakeq.client.session import PeerSilent
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Disconnected, OnEventLoop

if TYPE_CHECKING:
    import ssl

# With this variable set, calls that wait are accepted on a loop.
ALLOW_VARIABLE = "WAKEQ_ALLOW_ON_LOOP"
# This value of WAKEQ_TLS stands for the certificate authorities that the system trusts.
# As Python writes the number of an error of the system.
ERRNO = re.compile(r"\[Errno (\d+)\]")
SYSTEM = "system"

Tls: TypeAlias = "bool | str | os.PathLike[str] | ssl.SSLContext | None"
Token: TypeAlias = "str | os.PathLike[str] | None"
TokenSource: TypeAlias = Callable[[], str | None]

# The allocator maps a larger buffer anew for each read, which costs more than it saves.
READ_BYTES = 64 * 1024
# A timeout of 0 would make the socket non-blocking.
TIMEOUT_S_MIN = 0.001
# The part by which a timeout that is set already may exceed the timeout that is wanted.
TIMEOUT_EXCESS = 0.1
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_PROBES = 5, 2, 3
USER_TIMEOUT_MS = (KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVE_PROBES) * 1000


def refuse_on_loop(call: str, instead: str) -> None:
    """Raise OnEventLoop if an event loop runs in this thread; `instead` says what to write.

    A call that waits would block the loop, perhaps for as long as the broker is away.
    """
    # A program that has not imported asyncio runs no loop.
    events = sys.modules.get("asyncio.events")
    # The attribute is missing while another thread imports asyncio.
    running = getattr(events, "_get_running_loop", None)
    if running is None or running() is None:
        return
    # Each cell of a notebook runs on a loop of its own that does nothing else. The variable is for other notebooks.
    if hasattr(builtins, "__IPYTHON__") or os.environ.get(ALLOW_VARIABLE):
        return
    raise OnEventLoop(f"{call} waits for its answer and would block the event loop that runs in this thread; {instead}")


def refuse_client_on_loop(client: str) -> None:
    """Raise OnEventLoop for a call of a client that has an `Async` sibling."""
    refuse_on_loop(f"a call of {client}", f"use Async{client}, or await asyncio.to_thread(...) with the call")


def no_token() -> str | None:
    """Return no token: the client shows none."""
    return None


def token_source(token: Token) -> TokenSource:
    """Return a function that gives the token for the next connection.

    A token file, which is a path, is read again for each connection, so a new token needs no restart.
    """
    if isinstance(token, os.PathLike):
        return lambda: _from_file(os.fspath(token))
    return _from_environment if token is None else lambda: token


class Credentials(NamedTuple):
    """The credentials of a new connection."""

    token: TokenSource
    context: "ssl.SSLContext | None"


NO_CREDENTIALS = Credentials(no_token, None)


def _from_environment() -> str | None:
    token = os.environ.get("WAKEQ_TOKEN")
    name = os.environ.get("WAKEQ_TOKEN_FILE")
    return _from_file(name) if name and not token else token or None


def _from_file(name: str) -> str | None:
    try:
        return Path(name).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSettings(
            f"the token file {name} cannot be read: {reason}; check --token-file or WAKEQ_TOKEN_FILE"
        ) from error


def tls_context(tls: Tls) -> "ssl.SSLContext | None":
    """Return the context for TLS connections, or None for connections without TLS.

    True stands for the certificate authorities that the system trusts; a path names a file of others to trust instead.
    """
    if tls is None:
        tls = os.environ.get("WAKEQ_TLS") or False
    if tls is False:
        return None
    # This import is slow, and most connections stay within one machine.
    import ssl

    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is True or tls == SYSTEM:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=tls)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"tls: {tls} is not a file of certificates ({error}); give one, or {SYSTEM!r}") from error


class Connection(Protocol):
    """A connection for a thread that waits. Its methods raise Disconnected when it is broken."""

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of the data."""

    def receive(self, *, timeout_s: float) -> bytes:
        """Wait for data and return it; empty if nothing arrives in time."""

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not."""

    def close(self) -> None:
        """Close the connection, also for another thread that waits in `receive`."""


class Settable(Protocol):
    """A socket whose options can be set, also one that an event loop owns."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def configure_socket(sock: Settable) -> None:
    """Send small writes at once, and detect a peer that has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_EVERY_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": USER_TIMEOUT_MS,
    }
    for name, value in wanted.items():
        # Not every system has all of these options.
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def unreachable(address: str, error: OSError) -> BrokerUnreachable:
    """Return the error for a connection that could not be made."""
    reason = _reason(error)
    if "SSL" in type(error).__name__:
        return BrokerUnreachable(
            f"no TLS with {address} ({reason}); check whether that port has TLS (tls=, WAKEQ_TLS) and who signed its "
            "certificate"
        )
    return BrokerUnreachable(
        f"no broker answers at {address} ({reason}); start it with `wakeq serve`, or give its address: "
        "WAKEQ_BROKER=HOST:PORT (HTTP and MoniQue: WAKEQ_HTTP, TaskFlux: WAKEQ_TASKFLUX)"
    )


def _reason(error: OSError) -> str:
    """Return why a connection was not made, in the words of the system.

    asyncio has words of its own, and joins the errors of the addresses that a name has.
    """
    numbers = set(map(int, ERRNO.findall(str(error))))
    if len(numbers) == 1 and (number := numbers.pop()) in errno.errorcode:
        return os.strerror(number)
    nameless = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    return error.strerror or str(error) or nameless


def broken(address: str, error: OSError) -> Disconnected:
    """Return the error for a connection that broke.

    For a peer that has vanished the system reports a timeout or, if the network knows more, that there is no route.
    """
    kind = PeerSilent if isinstance(error, TimeoutError) or error.errno == errno.EHOSTUNREACH else Disconnected
    return kind(f"the connection to {address} broke ({error.strerror or error})")


def closed_by_peer(address: str) -> Disconnected:
    """Return the error for a connection that the peer closed."""
    return Disconnected(f"{address} closed the connection")


def dial(address: str, context: "ssl.SSLContext | None", *, timeout_s: float) -> Connection:
    """Connect to a broker, with TLS or without."""
    if context is None:
        return TcpConnection(address, timeout_s=timeout_s)
    # The import of `ssl` is slow, and most connections stay within one machine.
    from wakeq.client.tls_connection import TlsConnection

    return TlsConnection(address, context, timeout_s=timeout_s)


class TcpConnection:
    """A connected socket without TLS."""

    def __init__(self, address: str, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._made_in_pid = os.getpid()
        try:
            self._socket = socket.create_connection(parse_address(address), timeout=timeout_s)
        except OSError as error:
            raise unreachable(address, error) from error
        configure_socket(self._socket)

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of the data."""
        try:
            self._set_timeout(max(timeout_s, TIMEOUT_S_MIN))
            self._socket.sendall(data)
        except OSError as error:
            raise broken(self.address, error) from error

    def receive(self, *, timeout_s: float) -> bytes:
        """Wait for data and return it; empty if nothing arrives in time."""
        try:
            self._set_timeout(max(timeout_s, TIMEOUT_S_MIN))
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            # An errno comes from the system: it has given up a dead peer. Without one, our own timeout has passed.
            if error.errno is not None:
                raise broken(self.address, error) from error
            return b""
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed_by_peer(self.address)
        return data

    def _set_timeout(self, timeout_s: float) -> None:
        """Set the timeout, unless nearly the same one is set: each change costs a system call."""
        if not timeout_s <= self._timeout_s <= timeout_s * (1 + TIMEOUT_EXCESS):
            self._timeout_s = timeout_s
            self._socket.settimeout(timeout_s)

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not."""
        try:
            self._set_timeout(0.0)
            return None if self._socket.recv(1, socket.MSG_PEEK) else closed_by_peer(self.address)
        except BlockingIOError:
            return None
        except OSError as error:
            return broken(self.address, error)

    def close(self) -> None:
        """Close the connection, also for a thread that waits in `receive`. A forked child closes only its own copy."""
        if os.getpid() == self._made_in_pid:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
