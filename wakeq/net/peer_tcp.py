"""The connections between the nodes of a cluster, over TCP.

    address --> connection, proof on both sides --> Introduced --> frames <--> the process of that peer

The node with the higher number dials the other, at once and again after a pause whenever the connection is lost; so
two nodes have one connection.  Whoever has not proved which node it is holds one of a bounded number of places, and
nothing else here.  Must never look inside a message of the core.
"""

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from wakeq.actors.complaints import Complaints
from wakeq.actors.log.members import Introduced
from wakeq.actors.log.peer import Broken, Heard, Writable
from wakeq.actors.sessions.door import Told
from wakeq.net.handshakes import Handshakes, Place
from wakeq.net.listening import Server, accept
from wakeq.net.tls import PeerTls, stands_for
from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.wire.peer.frames import NO_CLUSTER, Frame, Hello, split_address
from wakeq.protocol.wire.peer.session import NONCE_BYTES, PeerSession

HELLO_S_MAX = 2.0  # for a connection to be made and its other end to prove who it is
OF_USE_S = 1.0  # a connection that ends sooner was refused at its other end, most likely
PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0  # between two attempts to connect
UNSENT_BYTES_MAX = 1 << 20  # beyond it the peer's process keeps what it has to say
NEWCOMERS_MAX = 16  # connected nodes of which neither the members nor the settings know
ACCEPT_BACKLOG = 64
UNACKNOWLEDGED_MS_MAX = 3_000  # then the kernel gives a connection up ...
KEEPALIVE_S = 1  # ... and asks so often: two followers have nothing to say that would show that one of them is gone

HUNG_UP = "it hung up before it said which node it is; its log says why, or it wants TLS (tls.peer_ca_file)"
HUNG_UP_KNOWN = "it hung up as soon as it knew which node this is; its log says why"
HUNG_UP_UNPROVED = (
    "it hung up before it proved which node it is: its log says why; is its cluster.secret_file the same?"
)

logger = logging.getLogger("wakeq.peers")


class Identity(NamedTuple):
    """How this node says and proves which one it is, and what it needs to believe another one."""

    hello: Callable[[], Hello]
    secret: bytes | None = None
    tls: PeerTls | None = None
    address_of: Callable[[int], str] = lambda _: ""  # of a node as the settings have it, empty if they do not


class PeerTcpDoor(asyncio.Protocol):
    """One connection, of either direction."""

    def __init__(self, tcp: "PeerTcp", expected: int | None = None) -> None:
        self._tcp = tcp
        self._expected = expected  # which node was dialled
        self._transport: asyncio.Transport | None = None
        self._session = tcp.new_session(dials=expected is not None)
        self._node_id: int | None = None  # of the peer, once that is proved
        self._told: Told | None = None
        self._early: list[Frame] = []  # came before anybody was there to hear it
        self._deadline: asyncio.TimerHandle | None = None
        self._place: Place | None = None  # among those who have not proved who they are
        self.is_full = False
        self.is_closed_here = False
        self.lost = asyncio.get_running_loop().create_future()

    # --- the socket's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _set_options(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 4)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_S_MAX, self.close, "it did not say who it is")
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
        """The peer has proved that it belongs here; see whether it is the one that it says."""
        if hello.cluster_id == NO_CLUSTER:  # it asked which one this is, and was told
            assert self._transport is not None, "it has just said something"
            self._transport.close()
            return
        if self._expected not in (None, hello.node_id):
            raise PeerRefused(f"node {hello.node_id} answers where node {self._expected} should be; check `peers`")
        if self._expected is None:
            self._tcp.check_newcomer(hello.node_id, self._certificate())
        self._node_id = hello.node_id
        self._forget_place()
        self._tcp.say_connected(hello.node_id, self.peer, is_dialled=self._expected is not None)
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
            self._tcp.say_lost(self._node_id, str(exc or "it was closed"))
        if self._told is not None:
            self._told.tell(Broken(self, str(exc or "closed")))
        if not self.lost.done():
            self.lost.set_result(self._node_id is not None)

    # --- the process's side ---

    @property
    def peer(self) -> str:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "a connection that has ended"

    @property
    def node_id(self) -> int | None:
        """Which node is at the other end, once that is proved."""
        return self._node_id

    @property
    def has_said_who(self) -> bool:
        """Whether the other end has said who it is, and perhaps not proved it."""
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
        self._refusals = Complaints(logger)
        self._news: dict[tuple[int | None, str], Complaints] = {}  # by member (None: any other node) and what happened
        self._refused: dict[int | None, str] = {}  # what was said last of the node that was dialled, or that dialled
        self._hung_up: set[int] = set()  # nodes that did so without a word when they were dialled last

    @property
    def node_id(self) -> int:
        return self._identity.hello().node_id

    def new_session(self, *, dials: bool) -> PeerSession:
        """Begin a conversation."""
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
        """Refuse who has connected if its certificate stands for another node, or too many came that nobody knows."""
        host = self._host_of(node_id)
        if self._identity.tls is not None:
            if not host:
                raise PeerRefused(
                    f"node {node_id} is not known here, so its certificate cannot be checked; run "
                    f"`wakeq cluster add {node_id} HOST:PORT`, or start this node with a list of peers that has it"
                )
            if not stands_for(certificate, host):
                raise PeerRefused(
                    f"its certificate is not for {host}, the host of node {node_id}; have one issued for that name"
                )
        newcomers = sum(door.node_id is not None and not self._host_of(door.node_id) for door in self.doors)
        if not host and newcomers >= NEWCOMERS_MAX:
            raise PeerRefused(f"node {node_id} is not known here, and {newcomers} other unknown nodes are connected")

    def _host_of(self, node_id: int) -> str:
        """Return where a node is, as the members or the settings have it; empty if neither knows it."""
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
        made = asyncio.get_running_loop().create_connection(lambda: PeerTcpDoor(self, node_id), host, port, ssl=tls)
        try:
            async with asyncio.timeout(HELLO_S_MAX):  # `wait_for` would miss being told to end in the moment it is made
                _transport, door = await made
        except ssl.SSLError as error:  # a certificate, most likely, which waiting will not mend
            self.refused(node_id, f"{host}:{port}", f"no TLS with it: {error.reason or error}")
            return False
        except (OSError, UnicodeError) as error:  # a timeout is one too; and a name that cannot be one of a host
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
            self._hung_up.add(node_id)  # it may have been ended in that moment
        else:
            reason = HUNG_UP_UNPROVED if door.has_said_who else HUNG_UP
            self.refused(node_id, f"{host}:{port}", HUNG_UP_KNOWN if is_known else reason)
        return was_of_use

    # --- what the log is told --------------------------------------------------------------------------------------

    def refused(self, expected: int | None, where: str, reason: str) -> None:
        """Say what is wrong with an address, once; if it is always something else, now and then."""
        if self._refused.get(expected) != reason:
            self._refused[expected] = reason
            self._refusals.say(f"the peer at {where} is refused: {reason}")

    def say_connected(self, node_id: int, where: str, *, is_dialled: bool) -> None:
        """Say that a node is there."""
        text = (
            f"connected to node {node_id} at {where}" if is_dialled else f"node {node_id} has connected, from {where}"
        )
        self._say_of(node_id, "connected", text)

    def say_lost(self, node_id: int, reason: str) -> None:
        """Say that a node is not there any more."""
        self._say_of(node_id, "lost", f"the connection to node {node_id} is lost: {reason}")

    def _say_of(self, node_id: int, what: str, text: str) -> None:
        key = node_id if node_id in self._addresses else None, what
        if key not in self._news:
            self._news[key] = Complaints(logger, level=logging.INFO)
        self._news[key].say(text)

    def look(self) -> None:
        """Say what was left out; called now and then."""
        for complaints in (self._refusals, *self._news.values()):
            complaints.look()

    async def close(self) -> None:
        """End all of them."""
        if self._server is not None:
            self._server.close()
        for dialer in self._dialers.values():
            dialer.cancel()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)
        for door in list(self.doors):
            door.close("the node stops")


def _set_options(connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
