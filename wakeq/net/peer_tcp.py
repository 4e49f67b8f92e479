"""The connections between the nodes of a cluster, over TCP.

    address --> connection, proof on both sides --> Introduced --> frames <--> the process of that peer

The node with the higher number dials the other, at once and again after a pause whenever the connection is lost; so
two nodes have one connection.  The host of a node is looked up each time, because a node that was started again may
have another address.  A peer that has not proved which node it is holds one of a bounded number of places, and
nothing else.  It must never look inside a message of the core.
"""

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from wakeq.actors.log.members import Introduced
from wakeq.actors.log.peer import Broken, Heard, Writable
from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.sessions.door import Told
from wakeq.net.handshakes import Handshakes, Place
from wakeq.net.listening import Server, accept
from wakeq.net.resolver import Resolver
from wakeq.net.tls import PeerTls, is_valid_for
from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.wire.peer.frames import NO_CLUSTER, Frame, Hello, split_address
from wakeq.protocol.wire.peer.session import NONCE_BYTES, PeerSession

# For a connection to be made and its peer to prove which node it is.
HELLO_S_MAX = 2.0
# A connection that ends sooner was refused by its peer, most likely.
OF_USE_S = 1.0
# Between two attempts to connect.
PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
# With more unsent bytes the process of the peer keeps its messages.
UNSENT_BYTES_MAX = 1 << 20
# Connected nodes that neither the members nor the settings name.
NEWCOMERS_MAX = 16
ACCEPT_BACKLOG = 64
# The kernel ends a connection on which bytes stay unacknowledged for so long.
UNACKNOWLEDGED_MS_MAX = 3_000
# Two followers send each other nothing, so only a keepalive shows that one of them is gone.
KEEPALIVE_S = 1

HUNG_UP = "it hung up before it said which node it is; its log says why, or it wants TLS (tls.peer_ca_file)"
HUNG_UP_KNOWN = "it hung up as soon as it knew which node this is; its log says why"
HUNG_UP_UNPROVED = (
    "it hung up before it proved which node it is: its log says why; is its cluster.secret_file the same?"
)

logger = logging.getLogger("wakeq.peers")


class Identity(NamedTuple):
    """The proof of which node this is, and the means to check that of a peer."""

    hello: Callable[[], Hello]
    secret: bytes | None = None
    tls: PeerTls | None = None
    # The address of a node in the settings, empty if they have none.
    address_of: Callable[[int], str] = lambda _: ""


class PeerTcpDoor(asyncio.Protocol):
    """One connection, of either direction."""

    def __init__(self, tcp: "PeerTcp", expected: int | None = None) -> None:
        self._tcp = tcp
        # The node that was dialled; None if the peer dialled.
        self._expected = expected
        self._transport: asyncio.Transport | None = None
        self._session = tcp.new_session(dials=expected is not None)
        # The node of the peer, once that is proved.
        self._node_id: int | None = None
        self._told: Told | None = None
        # Frames that arrived before `begin`.
        self._early: list[Frame] = []
        self._deadline: asyncio.TimerHandle | None = None
        # Its place among the peers that have not proved which node they are.
        self._place: Place | None = None
        self.is_full = False
        self.is_closed_here = False
        self.lost = asyncio.get_running_loop().create_future()

    # --- the socket's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _set_options(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 4)
        self._deadline = asyncio.get_running_loop().call_later(
            HELLO_S_MAX, self.close, "it did not say which node it is"
        )
        self._tcp.doors.add(self)
        if self._expected is None:
            source = transport.get_extra_info("peername") or ("",)
            self._place = self._tcp.handshakes.enter(source[0], lambda: self.close("others have come since"))
        self._transport.write(self._session.take_unsent())

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._session.receive(data)
            if self._node_id is None and self._transport is not None:
                if unsent := self._session.take_unsent():
                    self._transport.write(unsent)
                if self._session.peer is not None:
                    self._begin(self._session.peer)
        except PeerRefused as error:
            self.refuse(str(error))
            return
        if not frames or self._node_id is None:
            return
        if self._told is None:
            self._early += frames
        else:
            self._told.arrive(Heard(frames))

    def _begin(self, hello: Hello) -> None:
        """Check that the peer, which belongs to the cluster, is the node that it claims to be."""
        # A node that joins only asks for the id of the cluster, and has it now.
        if hello.cluster_id == NO_CLUSTER:
            assert self._transport is not None, "it has just received a hello"
            self._transport.close()
            return
        if self._expected not in (None, hello.node_id):
            raise PeerRefused(f"node {hello.node_id} answers where node {self._expected} should be; check `peers`")
        if self._expected is None:
            self._tcp.check_newcomer(hello.node_id, self._certificate())
        self._node_id = hello.node_id
        self._forget_place()
        self._tcp.log_connected(hello.node_id, self.peer, is_dialled=self._expected is not None)
        self._tcp.introduced(Introduced(self, hello))

    def _certificate(self) -> dict[str, Any]:
        shown = None if self._transport is None else self._transport.get_extra_info("peercert")
        return shown or {}

    def _forget_place(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._place is not None:
            self._tcp.handshakes.leave(self._place)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._told is not None:
            self._told.tell(Writable())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tcp.doors.discard(self)
        self._forget_place()
        if self._node_id is not None:
            self._tcp.log_lost(self._node_id, str(exc or "it was closed"))
        if self._told is not None:
            self._told.tell(Broken(self, str(exc or "closed")))
        if not self.lost.done():
            self.lost.set_result(self._node_id is not None)

    # --- the side of the peer's process ---

    @property
    def peer(self) -> str:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "a connection that has ended"

    @property
    def node_id(self) -> int | None:
        """The node of the peer, once that is proved."""
        return self._node_id

    @property
    def has_claimed(self) -> bool:
        """Whether the peer has named its node, and perhaps not proved it."""
        return self._session.claimed is not None

    def begin(self, told: Told) -> None:
        self._told = told
        if self._transport is None:
            told.tell(Broken(self, "closed"))
        elif self._early:
            early, self._early = self._early, []
            told.tell(Heard(early))

    def send(self, frames: Sequence[Frame]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._session.encode(frames))

    def refuse(self, reason: str) -> None:
        self._tcp.refused(self._expected, self.peer, reason)
        self.close(reason)

    def close(self, reason: str) -> None:
        self.is_closed_here = True
        if self._transport is not None:
            self._transport.abort()


class PeerTcp:
    """All connections of one node to its peers."""

    def __init__(self, identity: Identity, introduced: Callable[[Introduced], None]) -> None:
        self.introduced = introduced
        self._identity = identity
        self.doors: set[PeerTcpDoor] = set()
        self.handshakes = Handshakes()
        self._server: Server | None = None
        self._addresses: dict[int, tuple[str, int]] = {}
        self._dialers: dict[int, asyncio.Task[None]] = {}
        self._refusals = RateLimitedLog(logger)
        # Log lines about connections, by member (None: any other node) and kind.
        self._news: dict[tuple[int | None, str], RateLimitedLog] = {}
        # The last refusal that was logged, by the node that was dialled; None for peers that dialled.
        self._refused: dict[int | None, str] = {}
        # Nodes that hung up without a reason when they were dialled last.
        self._hung_up: set[int] = set()
        self._resolver = Resolver()
        # Nodes whose hosts have no address at this moment.
        self._unresolved: set[int] = set()

    @property
    def node_id(self) -> int:
        return self._identity.hello().node_id

    def new_session(self, *, dials: bool) -> PeerSession:
        """Return the session of a new connection."""
        own, secret, tls, _ = self._identity
        return PeerSession(own(), secret, secrets.token_bytes(NONCE_BYTES), dials=dials, seals=tls is None)

    async def start(self, bound: socket.socket) -> None:
        """Let other nodes connect at a bound socket."""
        tls = self._identity.tls
        self._server = await accept(
            bound,
            lambda: PeerTcpDoor(self),
            backlog=ACCEPT_BACKLOG,
            tls=None if tls is None else tls.accepting,
            admission=self.handshakes,
        )

    def check_newcomer(self, node_id: int, certificate: dict[str, Any]) -> None:
        """Refuse a peer with the certificate of another node, or one unknown node too many."""
        host = self._host_of(node_id)
        if self._identity.tls is not None:
            if not host:
                raise PeerRefused(
                    f"node {node_id} is not known here, so its certificate cannot be checked; run "
                    f"`wakeq cluster add {node_id} HOST:PORT`, or start this node with a list of peers that has it"
                )
            if not is_valid_for(certificate, host):
                raise PeerRefused(
                    f"its certificate is not for {host}, the host of node {node_id}; have one issued for that name"
                )
        newcomers = sum(door.node_id is not None and not self._host_of(door.node_id) for door in self.doors)
        if not host and newcomers >= NEWCOMERS_MAX:
            raise PeerRefused(f"node {node_id} is not known here, and {newcomers} other unknown nodes are connected")

    def _host_of(self, node_id: int) -> str:
        """Return the host of a node from the members or the settings; empty if neither has it."""
        if node_id in self._addresses:
            return self._addresses[node_id][0]
        address = self._identity.address_of(node_id)
        return split_address(address)[0] if address else ""

    def dial(self, node_id: int, address: tuple[str, int]) -> None:
        """Keep a connection to a node; one with a higher number dials us."""
        self._addresses[node_id] = address
        if node_id < self.node_id and node_id not in self._dialers:
            self._dialers[node_id] = asyncio.get_running_loop().create_task(self._keep(node_id))

    async def _keep(self, node_id: int) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            if await self._connect(node_id):
                pause_s = PAUSE_S_MIN
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _connect(self, node_id: int) -> bool:
        """Connect, and return once that is lost: whether it was of use."""
        host, port = self._addresses[node_id]
        tls = None if self._identity.tls is None else self._identity.tls.dialing
        try:
            # `wait_for` would miss a cancellation in the moment in which the connection is made.
            async with asyncio.timeout(HELLO_S_MAX):
                door = await self._made(node_id, await self._addresses_of(node_id, host, port), tls)
        except ssl.SSLError as error:
            # Most likely a certificate; another attempt will not help.
            self.refused(node_id, f"{host}:{port}", f"no TLS with it: {error.reason or error}")
            return False
        except (OSError, UnicodeError) as error:
            # This includes a timeout, and a host without an address.
            self._hung_up.discard(node_id)
            logger.debug("node %d does not answer at %s:%d: %s", node_id, host, port, error)
            return False
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        is_known = bool(await door.lost)
        was_of_use = is_known and loop.time() - since_s >= OF_USE_S
        if was_of_use or door.is_closed_here:
            self._hung_up.discard(node_id)
        elif node_id not in self._hung_up:
            # Once is no sign of a refusal: the peer may have been ended in that moment.
            self._hung_up.add(node_id)
        else:
            reason = HUNG_UP_UNPROVED if door.has_claimed else HUNG_UP
            self.refused(node_id, f"{host}:{port}", HUNG_UP_KNOWN if is_known else reason)
        return was_of_use

    async def _addresses_of(self, node_id: int, host: str, port: int) -> list[str]:
        """Look a node's host up; log the begin of a time in which that fails."""
        try:
            found = await self._resolver.addresses(host, port)
        except (OSError, UnicodeError) as error:
            if node_id not in self._unresolved:
                self._unresolved.add(node_id)
                logger.info("the host of node %d, %s, has no address: %s; trying again", node_id, host, error)
            raise
        self._unresolved.discard(node_id)
        return found

    async def _made(self, node_id: int, addresses: list[str], tls: ssl.SSLContext | None) -> PeerTcpDoor:
        """Connect to the first address of a node that answers."""
        loop, (host, port) = asyncio.get_running_loop(), self._addresses[node_id]
        failure = OSError("its host has no address")
        for address in addresses:
            # The certificate is for the name, whatever the address.
            made = loop.create_connection(
                lambda: PeerTcpDoor(self, node_id), address, port, ssl=tls, server_hostname=host if tls else None
            )
            try:
                _transport, door = await made
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
            else:
                return door
        raise failure

    # --- log lines -------------------------------------------------------------------------------------------------

    def refused(self, expected: int | None, where: str, reason: str) -> None:
        """Log why a peer is refused: the same reason once, changing reasons now and then."""
        if self._refused.get(expected) != reason:
            self._refused[expected] = reason
            self._refusals.log(f"the peer at {where} is refused: {reason}")

    def log_connected(self, node_id: int, where: str, *, is_dialled: bool) -> None:
        """Log that a node is connected."""
        text = (
            f"connected to node {node_id} at {where}" if is_dialled else f"node {node_id} has connected, from {where}"
        )
        self._log(node_id, "connected", text)

    def log_lost(self, node_id: int, reason: str) -> None:
        """Log that the connection to a node is lost."""
        self._log(node_id, "lost", f"the connection to node {node_id} is lost: {reason}")

    def _log(self, node_id: int, kind: str, text: str) -> None:
        key = node_id if node_id in self._addresses else None, kind
        if key not in self._news:
            self._news[key] = RateLimitedLog(logger, level=logging.INFO)
        self._news[key].log(text)

    def tick(self) -> None:
        """Log the number of suppressed lines; called now and then."""
        for complaints in (self._refusals, *self._news.values()):
            complaints.tick()

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for dialer in self._dialers.values():
            dialer.cancel()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)
        self._resolver.close()
        for door in list(self.doors):
            door.close("the node stops")


def _set_options(connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
