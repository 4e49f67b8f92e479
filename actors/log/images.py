"""Images: sends the image of the state to a peer that needs it, and receives one.

    WantImage (raft log) --> open, or have one written --> ImageOffer --> pieces, as the peer takes them
    FetchImage (raft log) --> pieces into a file --> ImageFetched, or ImageBroken

The receiver asks for every piece, so a slow disk there slows the sender.  Whatever goes wrong with one transfer is told
to RaftLog and begins again from the first byte.  It must never hold up the loop: files are read and written in a thread
that lives as long as there is something to transfer.
"""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wakeq.actors.log.peer import Outgoing, PeerChunks, PeerLost, ToSend
from wakeq.actors.mail import Tick
from wakeq.actors.runtime import Process
from wakeq.actors.snapshots import ImageWritten, WriteImage
from wakeq.protocol.errors import Busy, DamagedFile, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.peer.frames import Chunk, ChunkTaken
from wakeq.storage.state.images import ImageReader, ImageWriter
from wakeq.storage.thread import Disk

PIECE_BYTES = 256 << 10
FLYING_BYTES_MAX = 1 << 20  # sent and not yet on the receiver's disk
TICK_S = 5.0  # between two checks for transfers that stand still

logger = logging.getLogger("wakeq.images")


class WantImage(msgspec.Struct, frozen=True, gc=False):
    """A peer lacks entries that were cut off; the log begins behind `from_index`."""

    node_id: int
    from_index: int


class TakeImage(msgspec.Struct, frozen=True, gc=False):
    """An operator wants an image to be written now."""

    asker: ReplyTo


class FetchImage(msgspec.Struct, frozen=True, gc=False):
    """Receive this stream from a peer; any other one is over."""

    peer: Process
    stream: int


class DropImage(msgspec.Struct, frozen=True, gc=False):
    """What was received is not wanted any more."""


class ImageOffer(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: an image at this index is at hand for a peer."""

    node_id: int
    index: int
    stream: int


class ImageFailed(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: a peer does not get its image; the stream is 0 if there was none."""

    node_id: int
    stream: int = 0


class ImageFetched(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: the whole image is on disk, and fits its checksums."""

    stream: int


class ImageBroken(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: a stream broke off."""

    stream: int


class Done(NamedTuple):
    """The thread's report: what to go on with, and what it returned or raised."""

    go_on: Callable[[Any], None]
    result: Any


class Sending(msgspec.Struct, gc=False, eq=False):
    """An image on its way to a peer."""

    node_id: int
    stream: int
    reader: ImageReader
    flying_bytes: int = 0
    is_begun: bool = False  # the peer wants it: it may also have found that it needs none
    is_reading: bool = False
    has_moved: bool = True  # since the last check


class Receiving(msgspec.Struct, gc=False, eq=False):
    """An image on its way here."""

    peer: Process
    stream: int
    writer: ImageWriter
    has_moved: bool = True


class Images(Process):
    """All transfers of images, from this node and to it: one to each peer at most, and one that is received."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        snapshots: Process,
        new_thread: Callable[[], Disk],
        room_bytes: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        super().__init__()
        self._path = path  # of the image of this node
        self._identity = identity  # that an image must have
        self._snapshots = snapshots  # writes images
        self._new_thread = new_thread
        self._room_bytes = room_bytes  # that an image may take on the disk; asked in the thread
        self._call_later = call_later
        self._raft_log: Process | None = None  # hears what has become of each transfer
        self._thread: Disk | None = None  # reads and writes images; only while there is something to transfer
        self._is_tick_set = False  # another check will come
        self._wanted: dict[int, int] = {}  # by peer: the least index that is of use, until there is an image
        self._askers: list[ReplyTo] = []  # operators who wait for a new image
        self._sending: dict[int, Sending] = {}  # by peer
        self._tried: set[int] = set()  # peers that took of an image on the connection that they have now
        self._receiving: Receiving | None = None  # the image that is coming here

    def begin(self, raft_log: Process) -> None:
        """Know whom to report to; only before any mail."""
        self._raft_log = raft_log

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def _tell_log(self, message: object) -> None:
        assert self._raft_log is not None, "begun first"
        self._raft_log.tell(message)

    # --- the thread ------------------------------------------------------------------------------------------------

    def _work(self, work: Callable[[], Any], go_on: Callable[[Any], None]) -> None:
        """Do something with files in the thread, and go on with what it returned or raised."""
        if self._thread is None:
            self._thread = self._new_thread()
        self._thread.submit(work, lambda result: self.tell(Done(go_on, result)))
        if not self._is_tick_set:
            self._is_tick_set = True
            self._call_later(TICK_S, lambda: self.tell(Tick("images")))

    def on_done(self, message: Done) -> None:
        message.go_on(message.result)

    def on_tick(self, message: Tick) -> None:
        """End what stands still; without anything to transfer the thread is not needed."""
        self._is_tick_set = False
        for sending in list(self._sending.values()):
            if not sending.has_moved:
                self._end_sending(sending, "nothing was taken of it for a while")
            sending.has_moved = False
        receiving = self._receiving
        if receiving is not None:
            if not receiving.has_moved:
                self._end_receiving("nothing came of it for a while")
            receiving.has_moved = False
        if self._sending or self._receiving is not None:
            self._is_tick_set = True
            self._call_later(TICK_S, lambda: self.tell(Tick("images")))
        elif self._thread is not None and not self._thread.busy:
            self._thread.close(wait=False)
            self._thread = None

    # --- sending ---------------------------------------------------------------------------------------------------

    def on_want(self, message: WantImage) -> None:
        """Offer what there is; but who has taken of it already could not use it, for it has rotted, or its disk has."""
        node_id = message.node_id
        self._wanted[node_id] = message.from_index
        if node_id in self._tried:
            self._tried.discard(node_id)
            logger.warning("node %d could not use the image that it received; sending a new one", node_id)
            self._call_later(TICK_S, lambda: self._snapshots.tell(WriteImage(self)))
        else:
            self._open(node_id)

    def _open(self, node_id: int, *, is_new: bool = False) -> None:
        path, identity = self._path, self._identity
        self._work(
            lambda: ImageReader.open(path, identity), lambda result: self._opened(node_id, result, is_new=is_new)
        )

    def _opened(self, node_id: int, result: ImageReader | BaseException | None, *, is_new: bool) -> None:
        """Offer the image that there is if it is of use; else have one written."""
        if isinstance(result, DamagedFile) and not is_new:
            logger.warning("%s; writing another image", result)
            result = None
        if isinstance(result, BaseException):
            raise result
        from_index = self._wanted.get(node_id)
        if from_index is None:
            if result is not None:
                result.close()
            return
        if result is None or result.header.last_index < from_index:
            if result is not None:
                result.close()
            if is_new:
                del self._wanted[node_id]
                self._tell_log(ImageFailed(node_id))
            else:
                self._snapshots.tell(WriteImage(self))
            return
        del self._wanted[node_id]
        sending = Sending(node_id, secrets.randbits(62) + 1, result)
        before, self._sending[node_id] = self._sending.get(node_id), sending
        if before is not None:
            before.reader.close()
        self._tell_log(ImageOffer(node_id, result.header.last_index, sending.stream))

    def on_take(self, message: TakeImage) -> None:
        self._askers.append(message.asker)
        self._snapshots.tell(WriteImage(self))

    def on_written(self, message: ImageWritten) -> None:
        """There is a new image, or there could be none."""
        askers, self._askers = self._askers, []
        for asker in askers:
            refusal = Refusal(Busy.code, "no image could be written now: the node's log says why; try again")
            answer = {"index": message.index} if message.is_there else refusal
            asker.tell(answer)
        for node_id in list(self._wanted):
            if message.is_there:
                self._open(node_id, is_new=True)
            else:
                del self._wanted[node_id]
                self._tell_log(ImageFailed(node_id))

    def on_chunks(self, message: PeerChunks) -> None:
        for frame in message.frames:
            if isinstance(frame, Chunk):
                self._take(frame)
            else:
                sending = self._sending.get(message.node_id)
                if sending is not None and sending.stream == frame.stream:
                    if not sending.is_begun:
                        logger.info(
                            "sending the state to node %d, which needs entries that the log no longer has",
                            sending.node_id,
                        )
                    sending.is_begun = sending.has_moved = True
                    self._tried.add(message.node_id)
                    sending.flying_bytes -= frame.size_bytes
                    self._send(sending, message.peer)

    def _send(self, sending: Sending, peer: Process) -> None:
        """Send the next piece, if the receiver has room; one at a time is being read."""
        if sending.is_reading or sending.flying_bytes >= FLYING_BYTES_MAX or sending.reader.is_at_end:
            return
        sending.is_reading = True
        offset = sending.reader.offset
        self._work(
            lambda: sending.reader.read(PIECE_BYTES), lambda result: self._send_piece(sending, peer, offset, result)
        )

    def _send_piece(self, sending: Sending, peer: Process, offset: int, result: bytes | BaseException) -> None:
        sending.is_reading = False
        if self._sending.get(sending.node_id) is not sending:
            sending.reader.close()
            return
        if isinstance(result, BaseException):
            raise result
        sending.flying_bytes += len(result)
        is_last = sending.reader.is_at_end
        chunk = Chunk(sending.stream, offset, result, is_last, sending.reader.crc if is_last else 0)
        peer.tell(Outgoing([ToSend(chunk)]))
        if is_last:
            del self._sending[sending.node_id]
            sending.reader.close()
        else:
            self._send(sending, peer)

    def _end_sending(self, sending: Sending, why: str) -> None:
        del self._sending[sending.node_id]
        if not sending.is_reading:
            sending.reader.close()
        if sending.is_begun:
            logger.warning("stopped sending the state to node %d: %s", sending.node_id, why)
        self._tell_log(ImageFailed(sending.node_id, sending.stream))

    def on_peer_lost(self, message: PeerLost) -> None:
        self._wanted.pop(message.node_id, None)
        self._tried.discard(message.node_id)
        sending = self._sending.get(message.node_id)
        if sending is not None:
            self._end_sending(sending, "the connection is lost")

    # --- receiving -------------------------------------------------------------------------------------------------

    def on_fetch(self, message: FetchImage) -> None:
        if self._receiving is not None:
            self._work(self._receiving.writer.close, _expect_none)
            self._receiving = None
        consensus = self._path.parent
        self._work(lambda: ImageWriter(consensus), lambda result: self._begin_receiving(message, result))

    def _begin_receiving(self, message: FetchImage, result: ImageWriter | BaseException) -> None:
        if isinstance(result, BaseException):
            raise result
        before, self._receiving = self._receiving, Receiving(message.peer, message.stream, result)
        if before is not None:  # two were offered while the thread was busy
            self._work(before.writer.close, _expect_none)
        message.peer.tell(Outgoing([ToSend(ChunkTaken(message.stream, 0))]))

    def _take(self, chunk: Chunk) -> None:
        receiving = self._receiving
        if receiving is None or receiving.stream != chunk.stream:
            return  # of an earlier transfer
        receiving.has_moved = True
        writer, identity, room_bytes = receiving.writer, self._identity, self._room_bytes

        def work() -> None:
            if room_bytes() < len(chunk.data):
                raise StorageError(f"{writer.path}: no room for it beside what is kept for acknowledgements; make some")
            writer.write(chunk.offset, chunk.data)
            if chunk.is_last:
                writer.finish(chunk.crc, identity)

        self._work(work, lambda result: self._taken(receiving, chunk, result))

    def _taken(self, receiving: Receiving, chunk: Chunk, result: BaseException | None) -> None:
        if self._receiving is not receiving:
            return
        if isinstance(result, StorageError):
            self._end_receiving(str(result))
        elif result is not None:
            raise result
        elif chunk.is_last:
            self._receiving = None
            self._work(receiving.writer.close, _expect_none)
            self._tell_log(ImageFetched(receiving.stream))
        else:
            receiving.peer.tell(Outgoing([ToSend(ChunkTaken(receiving.stream, len(chunk.data)))]))

    def _end_receiving(self, why: str) -> None:
        receiving, self._receiving = self._receiving, None
        assert receiving is not None, "asked before"
        logger.warning("stopped receiving an image: %s", why)
        self._work(receiving.writer.discard, _expect_none)
        self._tell_log(ImageBroken(receiving.stream))

    def on_drop(self, message: DropImage) -> None:
        logger.info("the received image is no longer needed")


def _expect_none(result: object) -> None:
    if isinstance(result, BaseException):
        raise result


_HANDLERS: dict[type, Callable[[Images, Any], None]] = {
    Done: Images.on_done,
    Tick: Images.on_tick,
    WantImage: Images.on_want,
    TakeImage: Images.on_take,
    ImageWritten: Images.on_written,
    PeerChunks: Images.on_chunks,
    PeerLost: Images.on_peer_lost,
    FetchImage: Images.on_fetch,
    DropImage: Images.on_drop,
}
