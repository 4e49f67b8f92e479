"""Peer: another node of the cluster, and the connection to it.

    RaftLog --Outgoing--> what must not wait, at once; the rest in order, as fast as the connection takes it
    listener --Connected, Heard, Broken, Writable--> FromPeer --> RaftLog

Without a connection everything is dropped, as on any network: the core asks again.  What a peer lacks and is no
longer in memory is read from the log, meanwhile what comes behind it waits.  It knows no rule of consensus.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from wakeq.actors.runtime import Process
from wakeq.protocol.raft.messages import AnyMessage, Append, Heartbeat, HeartbeatAnswer, RequestVote, VoteAnswer
from wakeq.protocol.wire.peer.frames import Chunk, ChunkTaken, Entries, Frame, Hello, Proof

QUEUED_MAX = 4_096  # frames; more than the windows of the core let come
AHEAD = (Heartbeat, HeartbeatAnswer, RequestVote, VoteAnswer)

Payloads = list[bytes]
Read = Callable[[Append, Callable[[Payloads | None], None]], None]  # whose entries, whom to tell


class PeerDoor(Protocol):
    """A connection to another node, as its process sees it."""

    def begin(self, told: Process, /) -> None:
        """From now on this process hears what comes; first what has come already."""

    def send(self, frames: Sequence[Frame], /) -> None:
        """Write frames, in their order, in one write."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be written that more should wait here; Writable follows."""

    def close(self, reason: str, /) -> None:
        """Close at once; Broken follows."""

    def refuse(self, reason: str, /) -> None:
        """Close at once, and let the log say what was wrong with the peer."""


class Connected(msgspec.Struct, frozen=True, gc=False):
    """There is a connection, and the peer has said who it is."""

    door: PeerDoor
    hello: Hello


class Heard(msgspec.Struct, frozen=True, gc=False):
    """What one read brought."""

    frames: list[Frame]


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A connection has ended."""

    door: PeerDoor
    reason: str


class Writable(msgspec.Struct, frozen=True, gc=False):
    """The connection takes more."""


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The peer has said what no node can say that works as it should."""

    reason: str


class ToSend(NamedTuple):
    """A message to a peer; an Append with its entries if they were at hand."""

    message: AnyMessage | Chunk | ChunkTaken
    payloads: Payloads | None = None


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """What the peer is to hear."""

    messages: list[ToSend]


class FromPeer(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: what a peer said."""

    node_id: int
    frames: list[AnyMessage | Entries]


class PeerChunks(msgspec.Struct, frozen=True, gc=False):
    """To Images: pieces of an image, or the news that some have arrived; `peer` is whom to answer."""

    node_id: int
    peer: Process
    frames: list[Chunk | ChunkTaken]


class PeerLost(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog and Images: a connection to a peer has ended."""

    node_id: int
    door: PeerDoor


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """Entries were read; None if they are not there any more, or others are."""

    append: Append
    payloads: Payloads | None


class Peer(Process):
    """One other node; it exists before there is a connection and between two connections."""

    def __init__(self, node_id: int, me: int, raft_log: Process, images: Process, read: Read) -> None:
        super().__init__()
        self.node_id = node_id
        self._me = me  # this node
        self._raft_log = raft_log  # hears what the peer says of consensus ...
        self._images = images  # ... and of images
        self._read = read  # reads entries that are no longer in memory
        self._door: PeerDoor | None = None  # the connection, if there is one
        self._life = (0, 0)  # disk and incarnation of the peer, as it said when it connected
        self._queue: deque[ToSend] = deque()  # what waits to be sent
        self._reading: Append | None = None  # what stands in front, whose entries are being read

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_connected(self, message: Connected) -> None:
        """Take a new connection; the peer made it because the old one is of no use any more."""
        old, self._door = self._door, message.door
        self._life = message.hello.disk_id, message.hello.incarnation
        self._queue.clear()
        self._reading = None
        if old is not None:
            old.close(f"node {self.node_id} has connected again")
        message.door.begin(self)

    def on_broken(self, message: Broken) -> None:
        if message.door is self._door:
            self._door = None
            self._queue.clear()
            self._reading = None
            lost = PeerLost(self.node_id, message.door)
            self._raft_log.tell(lost)
            self._images.tell(lost)

    def on_refuse(self, message: Refuse) -> None:
        if self._door is not None:
            self._door.refuse(message.reason)

    def on_heard(self, message: Heard) -> None:
        said: list[AnyMessage | Entries] = []
        chunks: list[Chunk | ChunkTaken] = []
        for frame in message.frames:
            if isinstance(frame, Chunk | ChunkTaken):
                chunks.append(frame)
            elif not isinstance(frame, Hello | Proof) and self._is_ours(frame):
                said.append(frame)
        if said:
            self._raft_log.tell(FromPeer(self.node_id, said))
        if chunks:
            self._images.tell(PeerChunks(self.node_id, self, chunks))

    def _is_ours(self, frame: AnyMessage | Entries) -> bool:
        message = frame.append if isinstance(frame, Entries) else frame
        is_between_us = message.sender == self.node_id and message.receiver == self._me
        return is_between_us and (message.disk_id, message.incarnation) == self._life

    # --- out -------------------------------------------------------------------------------------------------------

    def on_outgoing(self, message: Outgoing) -> None:
        door = self._door
        if door is None:
            return
        ahead: list[Frame] = []
        for to_send in message.messages:
            if isinstance(to_send.message, AHEAD):
                ahead.append(to_send.message)
            elif len(self._queue) < QUEUED_MAX:
                self._queue.append(to_send)
        if ahead:
            door.send(ahead)
        self._send_queued(door)

    def _send_queued(self, door: PeerDoor) -> None:
        """Write what waits, until the connection is full or something has to be read first."""
        frames: list[Frame] = []
        while self._queue and self._reading is None and not door.is_full:
            message, payloads = self._queue[0]
            if not (isinstance(message, Append) and message.last_index > message.prev_index):
                self._queue.popleft()
                frames.append(message)
                continue
            if payloads is None:
                self._begin_reading(message)
                break
            self._queue.popleft()
            frames.append(Entries(message, payloads))
            door.send(frames)  # large: see first whether the connection takes more
            frames = []
        if frames:
            door.send(frames)

    def on_writable(self, message: Writable) -> None:
        if self._door is not None:
            self._send_queued(self._door)

    def _begin_reading(self, append: Append) -> None:
        self._reading = append
        self._read(append, lambda payloads: self.tell(Loaded(append, payloads)))

    def on_loaded(self, message: Loaded) -> None:
        """Go on with the entries in hand; if they are gone, the core will see that the peer needs an image."""
        if message.append is not self._reading or self._door is None:
            return
        self._reading = None
        self._queue.popleft()
        if message.payloads is not None:
            self._queue.appendleft(ToSend(message.append, message.payloads))
        self._send_queued(self._door)


_HANDLERS: dict[type, Callable[[Peer, Any], None]] = {
    Connected: Peer.on_connected,
    Broken: Peer.on_broken,
    Heard: Peer.on_heard,
    Refuse: Peer.on_refuse,
    Writable: Peer.on_writable,
    Outgoing: Peer.on_outgoing,
    Loaded: Peer.on_loaded,
}
