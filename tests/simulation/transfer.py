"""Transfer: the way of an image of the state between two simulated nodes, piece by piece.

    offer --> Fetch --> Ask(offset) <--> Piece(offset) --> complete and correct: fetched, restored; otherwise: failed

It works like a driver: pieces belong to a stream, are requested in order and again if they do not arrive, and the
image is checked as a whole before it is used.
"""

from typing import TYPE_CHECKING

import msgspec

from tests.simulation.disk import Image
from wakeq.protocol.raft.messages import Fetch

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

ASKS_MAX = 8
FORMER_SHARE = 0.5  # the share of streams at whose begin a piece of an earlier stream arrives again


class Ask(msgspec.Struct, frozen=True):
    sender: int
    receiver: int
    stream: int
    offset: int


class Piece(msgspec.Struct, frozen=True):
    """A part of an image.  `bits` is the part of its state; all other fields of the image are in every piece."""

    sender: int
    receiver: int
    stream: int
    offset: int
    bits: int
    image: Image  # its state is used only to check the whole image


class Sender:
    """The images that a leader is sending."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self._images: dict[int, tuple[int, Image, int]] = {}  # peer -> (stream, image, asks so far)

    def offer(self, peer: int) -> None:
        machine = self.machine
        image, stream = machine.disk.store, machine.world.next_stream()
        if not machine.core.leads:
            return
        self._images[peer] = (stream, image, 0)
        machine.core.leader().offer_image(peer, image.index, stream)
        self._watch(peer, stream, 0)

    def _watch(self, peer: int, stream: int, asks: int) -> None:
        world = self.machine.world
        world.at(world.knobs.settings.election_ms * 2000, self._check_progress, (self.machine.life, peer, stream, asks))

    def _check_progress(self, what: tuple[int, int, int, int]) -> None:
        """Give up a stream without new requests."""
        life, peer, stream, asks = what
        machine = self.machine
        found = self._images.get(peer)
        if life != machine.life or machine.is_paused(self._check_progress, what) or found is None or found[0] != stream:
            return
        if found[2] > asks:
            self._watch(peer, stream, found[2])
            return
        del self._images[peer]
        if machine.core.leads:
            machine.core.leader().image_failed(peer, stream)
            machine.drive()

    def on_ask(self, ask: Ask) -> None:
        machine = self.machine
        found = self._images.get(ask.sender)
        if found is None or found[0] != ask.stream:
            return
        stream, image, asks = found
        self._images[ask.sender] = (stream, image, asks + 1)
        bits = (image.state & MASK) >> (64 // machine.world.knobs.chunks * ask.offset)
        piece = Piece(machine.node_id, ask.sender, stream, ask.offset, bits & machine.world.piece_mask, image)
        machine.world.network.send(piece, [])


MASK = (1 << 64) - 1


class Receiver:
    """The image that a follower is fetching."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self._fetch: Fetch | None = None
        self._source = 0
        self._pieces: list[Piece] = []
        self._former: Piece | None = None  # the first piece of the first stream, which may arrive again
        self._asks = 0  # for this stream

    def begin(self, source: int, fetch: Fetch) -> None:
        """Drop the pieces of an earlier stream and request the first piece."""
        self._fetch, self._source, self._pieces, self._asks = fetch, source, [], 0
        self._ask()
        world = self.machine.world
        if self._former is not None and not world.network.is_quiet and world.random() < FORMER_SHARE:
            world.network.send(self._former, [])

    def _ask(self) -> None:
        assert self._fetch is not None
        machine, stream, offset = self.machine, self._fetch.stream, len(self._pieces)
        self._asks += 1
        machine.world.network.send(Ask(machine.node_id, self._source, stream, offset), [])
        again_us = machine.world.knobs.settings.election_ms * 300
        machine.world.at(again_us, self._ask_again, (machine.life, stream, offset))

    def _ask_again(self, what: tuple[int, int, int]) -> None:
        life, stream, offset = what
        fetch, machine = self._fetch, self.machine
        if life != machine.life or fetch is None or fetch.stream != stream or offset != len(self._pieces):
            return
        if machine.is_paused(self._ask_again, what):
            return
        if self._asks < ASKS_MAX + machine.world.knobs.chunks:
            self._ask()
            return
        self._fetch = None
        machine.core.fetch_failed(stream)
        machine.drive()

    def belongs(self, piece: Piece) -> bool:
        """Whether a piece is the next one of the stream that is being fetched."""
        return self._fetch is not None and piece.stream == self._fetch.stream and piece.offset == len(self._pieces)

    def on_piece(self, piece: Piece) -> None:
        if not self.belongs(piece):
            return
        self._pieces.append(piece)
        self._former = self._former or piece
        if len(self._pieces) < self.machine.world.knobs.chunks:
            self._ask()
            return
        assert self._fetch is not None
        fetch, self._fetch = self._fetch, None
        image = self._whole()
        restore = self.machine.core.fetched(fetch.stream)
        if restore is not None:
            self.machine.restore(restore, image)
        self.machine.drive()

    def _whole(self) -> Image:
        """Put the pieces together; the other fields of the image come from the first piece."""
        state = 0
        for place, piece in enumerate(self._pieces):
            state |= piece.bits << (64 // self.machine.world.knobs.chunks * place)
        signed = state - (1 << 64) if state >> 63 else state
        return msgspec.structs.replace(self._pieces[0].image, state=signed)
