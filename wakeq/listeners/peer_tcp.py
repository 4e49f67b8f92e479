"""The connections between the nodes of a cluster, over TCP.

    address --> connection, hello on both sides --> Introduced --> frames <--> the process of that peer

The node with the higher number dials the other, at once and again after a pause whenever the connection is lost; so
two nodes have one connection.  Must never look inside a message of the core.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

from wakeq.actors.door import Admission, Told
from wakeq.actors.neighbourhood import Introduced
from wakeq.actors.peer import Broken, Heard, Writable
from wakeq.listening import Server, accept
from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.wire.peer import NO_CLUSTER, Frame, FrameReader, Hello, check_hello, encode
from wakeq.tls import PeerTls

HELLO_S_MAX = 2.0  # for a connection to be made and its other end to say who it is
PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0  # between two attempts to connect
UNSENT_BYTES_MAX = 1 << 20  # beyond it the peer's process keeps what it has to say
CONNECTIONS_MAX = 256  # a cluster has a few; who else connects is not let in
ACCEPT_BACKLOG = 64
UNACKNOWLEDGED_MS_MAX = 3_000  # then the kernel gives a connection up ...
KEEPALIVE_S = 1  # ... and asks so often: two followers have nothing to say that would show that one of them is gone

HUNG_UP = "it hung up before it said which node it is; its log says why, or it wants TLS (tls.peer_ca_file)"

logger = logging.getLogger("wakeq.peers")


class PeerTcpDoor(asyncio.Protocol):
    """One connection, of either direction."""

    def __init__(self, tcp: "PeerTcp", expected: int | None = None) -> None:
        self._tcp = tcp
        self._expected = expected  # which node was dialled
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._hello: Hello | None = None
        self._told: Told | None = None
        self._early: list[Frame] = []  # came before anybody was there to hear it
        self._deadline: asyncio.TimerHandle | None = None
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
        if len(self._tcp.doors) > CONNECTIONS_MAX:
            self.close("there are too many connections")
            return
        self._transport.write(encode(self._tcp.hello()))

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.receive(data)
            if frames and self._hello is None:
                self._begin(frames.pop(0))
        except PeerRefused as error:
            self._tcp.refused(self._expected, self.peer, error)
            self.close(str(error))
            return
        if not frames:
            return
        if self._told is None:
            self._early += frames
        else:
            self._told.arrive(Heard(frames))

    def _begin(self, first: Frame) -> None:
        if isinstance(first, Hello) and first.cluster_id == NO_CLUSTER:  # it asked which one this is
            self.close("it was told")
            return
        hello = check_hello(first, self._tcp.hello())
        if self._expected not in (None, hello.node_id):
            raise PeerRefused(f"node {hello.node_id} answers where node {self._expected} should be; check `peers`")
        self._hello = hello
        if self._deadline is not None:
            self._deadline.cancel()
        who = "connected to node %d at %s" if self._expected is not None else "node %d has connected, from %s"
        logger.info(who, hello.node_id, self.peer)
        self._tcp.introduced(Introduced(self, hello))

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._told is not None:
            self._told.tell(Writable())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tcp.doors.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._hello is not None:
            logger.info("the connection to node %d is lost: %s", self._hello.node_id, exc or "it was closed")
        if self._told is not None:
            self._told.tell(Broken(self, str(exc or "closed")))
        if not self.lost.done():
            self.lost.set_result(self._hello is not None)

    # --- the process's side ---

    @property
    def peer(self) -> str:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "a connection that has ended"

    def begin(self, told: Told) -> None:
        self._told = told
        if self._transport is None:
            told.tell(Broken(self, "closed"))
        elif self._early:
            early, self._early = self._early, []
            told.tell(Heard(early))

    def send(self, frames: Sequence[Frame]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(map(encode, frames)))

    def close(self, reason: str) -> None:
        self.is_closed_here = True
        if self._transport is not None:
            self._transport.abort()


class PeerTcp:
    """All connections of one node to its peers."""

    def __init__(
        self, hello: Callable[[], Hello], introduced: Callable[[Introduced], None], tls: PeerTls | None = None
    ) -> None:
        self.hello = hello
        self.introduced = introduced
        self._tls = tls
        self.doors: set[PeerTcpDoor] = set()
        self._server: Server | None = None
        self._addresses: dict[int, tuple[str, int]] = {}
        self._dialers: dict[int, asyncio.Task[None]] = {}
        self._complained: dict[int | None, str] = {}
        self._hung_up: set[int] = set()  # nodes that did so without a word when they were dialled last

    @property
    def node_id(self) -> int:
        return self.hello().node_id

    async def start(self, bound: socket.socket) -> None:
        """Let other nodes connect at a bound socket."""
        self._server = await accept(
            bound,
            lambda: PeerTcpDoor(self),
            backlog=ACCEPT_BACKLOG,
            tls=None if self._tls is None else self._tls.accepting,
            admission=Admission(CONNECTIONS_MAX),  # of those whose handshake is not done
        )

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
        tls = None if self._tls is None else self._tls.dialing
        made = asyncio.get_running_loop().create_connection(lambda: PeerTcpDoor(self, node_id), host, port, ssl=tls)
        try:
            async with asyncio.timeout(HELLO_S_MAX):  # `wait_for` would miss being told to end in the moment it is made
                _transport, door = await made
        except ssl.SSLError as error:  # a certificate, most likely, which waiting will not mend
            self.refused(node_id, f"{host}:{port}", PeerRefused(f"no TLS with it: {error.reason or error}"))
            return False
        except (OSError, UnicodeError) as error:  # a timeout is one too; and a name that cannot be one of a host
            self._hung_up.discard(node_id)
            logger.debug("node %d does not answer at %s:%d: %s", node_id, host, port, error)
            return False
        was_of_use = bool(await door.lost)
        if was_of_use or door.is_closed_here:
            self._hung_up.discard(node_id)
        elif node_id not in self._hung_up:
            self._hung_up.add(node_id)  # it may have been ended in that moment
        else:
            self.refused(node_id, f"{host}:{port}", PeerRefused(HUNG_UP))
        return was_of_use

    def refused(self, expected: int | None, where: str, error: PeerRefused) -> None:
        """Say once what is wrong with an address."""
        if self._complained.get(expected) != str(error):
            self._complained[expected] = str(error)
            logger.error("the peer at %s is refused: %s", where, error)

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
