"""PeerSession: one connection between two nodes, from the first byte on.  Sans-IO.

    bytes --> receive --> frames of the peer, once it has proved who it is; PeerRefused if it cannot
    frames --> encode --> bytes;  what the session itself has to say waits in `take_unsent`

    dialer    Hello -->                 Proof -->              frames
    acceptor            <-- Hello                 <-- Proof    frames

With a secret each side proves that it knows it, by a MAC over both Hellos and the direction, and never sends it.  The
dialer proves first: who only connects gets nothing by which a weak secret could be guessed.  If the session `seals`,
every later frame carries a MAC over its number and its bytes, so that nobody in between can change, repeat or drop one.
Without a secret a Hello alone is believed.  Nonces are given to it.  Must never believe a length, or take anything but
a Hello and a Proof, before the peer has proved who it is.
"""

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final

import msgspec

from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.wire.peer.frames import (
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    BodyReader,
    Frame,
    Hello,
    Proof,
    check_hello,
    decode_body,
    encode_body,
    framed,
)

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 16
DIALER_PROVES: Final = b"wakeq-peer: the dialer proves"
ACCEPTOR_PROVES: Final = b"wakeq-peer: the acceptor proves"
DIALER_SEALS: Final = b"wakeq-peer: the dialer seals"
ACCEPTOR_SEALS: Final = b"wakeq-peer: the acceptor seals"

SAME_SECRET: Final = "give every node the same file (cluster.secret_file)"


class Seal:
    """The MACs of one direction of a connection: each frame has a number, which is never sent."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def mac(self, body: bytes) -> bytes:
        """Return the MAC of the next frame."""
        number, self._number = self._number, self._number + 1
        return digest(self._key, number.to_bytes(8, "big") + body, "sha256")[:MAC_BYTES]


class PeerSession:
    """See the head of this file.  `peer` is None until the other end has proved who it is."""

    def __init__(self, own: Hello, secret: bytes | None, nonce: bytes, *, dials: bool, seals: bool) -> None:
        self.own = own if secret is None else msgspec.structs.replace(own, nonce=nonce)
        self.peer: Hello | None = None
        self.claimed: Hello | None = None  # the peer's Hello, before it is proved
        self._secret = secret
        self._dials = dials
        self._seals = seals and secret is not None
        self._own_body = encode_body(self.own)
        self._reader = BodyReader(HELLO_BYTES_MAX)
        self._unsent = [framed(self._own_body)]
        self._hellos = b""  # digests of both Hellos, the dialer's first
        self._outgoing: Seal | None = None
        self._incoming: Seal | None = None

    # --- in --------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Frame]:
        """Take what the socket gave; return the frames of a peer that is known that are whole by now."""
        reader = self._reader
        reader.receive(data)
        frames: list[Frame] = []
        while (body := reader.next_body(0 if self._incoming is None else MAC_BYTES)) is not None:
            if self.peer is None:
                self._get_to_know(body)
            else:
                frames.append(self._open(body))
        return frames

    def _open(self, body: bytes) -> Frame:
        if self._incoming is not None:
            body, mac = body[:-MAC_BYTES], body[-MAC_BYTES:]
            if not compare_digest(self._incoming.mac(body), mac):
                raise PeerRefused("a frame that was changed, repeated or left out on the way")
        return decode_body(body)

    def _get_to_know(self, body: bytes) -> None:
        """Take the two frames that may come before the peer is known."""
        frame = decode_body(body)
        if self.claimed is None:
            self.claimed = self._check_hello(frame)
            if self._secret is None:
                self._believe()
                return
            digests = [sha256(self._own_body).digest(), sha256(body).digest()]
            self._hellos = b"".join(digests if self._dials else reversed(digests))
            if self._dials:
                self._prove(DIALER_PROVES)
            return
        proof = self._mac(ACCEPTOR_PROVES if self._dials else DIALER_PROVES)
        if not isinstance(frame, Proof) or not compare_digest(frame.mac, proof):
            raise PeerRefused(f"node {self.claimed.node_id} does not know the secret of this node; {SAME_SECRET}")
        if not self._dials:
            self._prove(ACCEPTOR_PROVES)
        self._believe()

    def _check_hello(self, frame: Frame) -> Hello:
        hello = check_hello(frame, self.own)
        if bool(hello.nonce) != bool(self.own.nonce):
            names = f"node {hello.node_id}", "this node"
            has, lacks = names if hello.nonce else reversed(names)
            raise PeerRefused(f"{has} asks for the secret of the cluster, and {lacks} has none; {SAME_SECRET}")
        if hello.nonce and len(hello.nonce) != NONCE_BYTES:
            raise PeerRefused(f"node {hello.node_id} sends a challenge of {len(hello.nonce)} bytes")
        return hello

    def _believe(self) -> None:
        self.peer = self.claimed
        self._reader.body_bytes_max = BODY_BYTES_MAX
        if self._seals:
            seals = [Seal(self._mac(DIALER_SEALS)), Seal(self._mac(ACCEPTOR_SEALS))]
            self._outgoing, self._incoming = seals if self._dials else reversed(seals)

    # --- out -------------------------------------------------------------------------------------------------------

    def take_unsent(self) -> bytes:
        """Return what the session has to say: a Hello, a Proof, or nothing."""
        unsent, self._unsent = self._unsent, []
        return b"".join(unsent)

    def encode(self, frames: Sequence[Frame]) -> bytes:
        """Return the bytes of frames, in their order; only once the peer is known."""
        assert self.peer is not None, "nothing is said to a stranger"
        bodies = map(encode_body, frames)
        seal = self._outgoing
        if seal is None:
            return b"".join(map(framed, bodies))
        return b"".join(framed(body) + seal.mac(body) for body in bodies)

    def _prove(self, purpose: bytes) -> None:
        self._unsent.append(framed(encode_body(Proof(self._mac(purpose)))))

    def _mac(self, purpose: bytes) -> bytes:
        assert self._secret is not None, "asked before"
        return digest(self._secret, purpose + self._hellos, "sha256")
