"""A session between nodes: who knows the secret is believed, and nobody in between can say anything."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.raft.messages import Heartbeat
from wakeq.protocol.wire.peer.frames import (
    FRONT,
    HELLO_BYTES_MAX,
    MARK,
    NO_CLUSTER,
    Chunk,
    Frame,
    Hello,
    Proof,
    decode_body,
    encode_body,
    framed,
)
from wakeq.protocol.wire.peer.session import MAC_BYTES, NONCE_BYTES, PeerSession

CLUSTER = b"0123456789abcdef"
SECRET = b"a secret of thirty-two bytes, or more"
DIALER = Hello(MARK, LEVEL, LEVEL, CLUSTER, 2, 77, 5, {"worker": "b:2601"})
ACCEPTOR = Hello(MARK, LEVEL, LEVEL, CLUSTER, 0, 66, 4, {"worker": "a:2601"})
BEAT = Heartbeat(2, 0, 77, 5, 9, 12, 4)
LONG = Chunk(1, 0, bytes(HELLO_BYTES_MAX + 1))


def dialer(secret: bytes | None = SECRET, hello: Hello = DIALER, *, seals: bool = True) -> PeerSession:
    return PeerSession(hello, secret, b"d" * NONCE_BYTES, dials=True, seals=seals)


def acceptor(secret: bytes | None = SECRET, hello: Hello = ACCEPTOR, *, seals: bool = True) -> PeerSession:
    return PeerSession(hello, secret, b"a" * NONCE_BYTES, dials=False, seals=seals)


def get_acquainted(one: PeerSession, two: PeerSession) -> bytes:
    """Let both say what they have to say, until neither has more; return all that was on the wire."""
    wire = b""
    while (said := one.take_unsent()) or two.peer is None or one.peer is None:
        answer = two.take_unsent()
        assert said or answer, "both wait"
        two.receive(said)
        one.receive(answer)
        wire += said + answer
    return wire


@pytest.mark.parametrize("secret", [None, SECRET])
@pytest.mark.parametrize("seals", [False, True])
def test_nodes_with_the_same_secret_or_none_know_each_other(secret: bytes | None, seals: bool) -> None:
    one, two = dialer(secret, seals=seals), acceptor(secret, seals=seals)

    get_acquainted(one, two)

    assert one.peer is not None
    assert two.peer is not None
    assert (one.peer.node_id, two.peer.node_id) == (0, 2)
    assert two.receive(one.encode([BEAT, LONG])) == [BEAT, LONG]
    assert one.receive(two.encode([LONG])) == [LONG]


def test_secret_is_never_on_the_wire() -> None:
    assert SECRET not in get_acquainted(dialer(), acceptor())


def test_sessions_send_the_bytes_that_the_protocol_page_names() -> None:
    """docs/protocols/peer.md, spelled out by hand."""
    one, two = dialer(), acceptor()
    hello_of_one, hello_of_two = one.take_unsent(), two.take_unsent()
    hellos = sha256(hello_of_one[FRONT.size :]).digest() + sha256(hello_of_two[FRONT.size :]).digest()

    def mac(purpose: bytes) -> bytes:
        return hmac.digest(SECRET, purpose + hellos, "sha256")

    one.receive(hello_of_two)
    proof_of_one = one.take_unsent()
    two.receive(hello_of_one + proof_of_one)
    proof_of_two = two.take_unsent()
    one.receive(proof_of_two)

    assert proof_of_one == framed(encode_body(Proof(mac(b"wakeq-peer: the dialer proves"))))
    assert proof_of_two == framed(encode_body(Proof(mac(b"wakeq-peer: the acceptor proves"))))
    body = encode_body(BEAT)
    sealed = [
        hmac.digest(mac(b"wakeq-peer: the dialer seals"), number.to_bytes(8, "big") + body, "sha256")[:MAC_BYTES]
        for number in range(2)
    ]
    assert one.encode([BEAT, BEAT]) == b"".join(framed(body) + mac for mac in sealed)


def test_dialer_with_another_secret_is_refused_and_learns_nothing() -> None:
    one, two = dialer(b"another secret of thirty-two bytes"), acceptor()
    one.receive(two.take_unsent())

    with pytest.raises(PeerRefused, match=r"node 2 does not know the secret .* \(cluster\.secret_file\)"):
        two.receive(one.take_unsent())

    assert (two.peer, two.take_unsent()) == (None, b"")


def test_acceptor_that_does_not_know_the_secret_is_refused() -> None:
    one, two = dialer(), acceptor(b"another secret of thirty-two bytes")
    hello = two.take_unsent()
    one.receive(hello)

    with pytest.raises(PeerRefused, match="node 0 does not know the secret"):
        one.receive(framed(encode_body(Proof(b"x" * 32))))

    assert one.peer is None


@pytest.mark.parametrize(
    ("secrets", "match"),
    [
        ((None, SECRET), "node 2 has none; give every node the same file"),
        ((SECRET, None), "node 2 asks for the secret of the cluster, and this node has none"),
    ],
)
def test_secret_on_one_side_only_is_refused_in_words(secrets: tuple[bytes | None, bytes | None], match: str) -> None:
    one, two = dialer(secrets[0]), acceptor(secrets[1])

    with pytest.raises(PeerRefused, match=match):
        two.receive(one.take_unsent())


def test_proof_sent_back_to_its_sender_is_refused() -> None:
    one = dialer()
    mirrored = acceptor()  # somebody without the secret, who repeats what the dialer says
    one.receive(mirrored.take_unsent())
    proof = one.take_unsent()[-len(framed(encode_body(Proof(b"x" * 32)))) :]

    with pytest.raises(PeerRefused, match="does not know the secret"):
        one.receive(proof)


def test_proof_of_another_connection_is_refused() -> None:
    recorded = get_acquainted(dialer(), acceptor())
    again = PeerSession(ACCEPTOR, SECRET, b"n" * NONCE_BYTES, dials=False, seals=True)

    with pytest.raises(PeerRefused):
        again.receive(recorded)


def test_hello_that_was_changed_on_the_way_is_refused() -> None:
    """A peer in between must not send clients somewhere else."""
    one, two = dialer(), acceptor()
    one.receive(two.take_unsent())
    said = one.take_unsent()
    hello = framed(encode_body(one.own))
    other = Hello(
        *[getattr(one.own, name) for name in Hello.__struct_fields__[:-2]], {"worker": "evil:1"}, one.own.nonce
    )

    with pytest.raises(PeerRefused, match="does not know the secret"):
        two.receive(framed(encode_body(other)) + said[len(hello) :])


@pytest.mark.parametrize("size", [0, 16, 31])
def test_beginning_of_a_proof_is_no_proof(size: int) -> None:
    one, two = dialer(), acceptor()
    hello = one.take_unsent()
    one.receive(two.take_unsent())
    proof = decode_body(one.take_unsent()[FRONT.size :])
    assert isinstance(proof, Proof)

    with pytest.raises(PeerRefused, match="node 2 does not know the secret"):
        two.receive(hello + framed(encode_body(Proof(proof.mac[:size]))))

    assert (two.peer, two.take_unsent()) == (None, b"")


@pytest.mark.parametrize("frame", [BEAT, Chunk(1, 0, b"x"), DIALER])
def test_frame_other_than_a_proof_is_refused_before_the_proof(frame: Frame) -> None:
    one, two = dialer(), acceptor()

    with pytest.raises(PeerRefused, match="does not know the secret"):
        two.receive(one.take_unsent() + framed(encode_body(frame)))


def test_long_frame_before_the_proof_is_refused_by_its_length() -> None:
    one, two = dialer(), acceptor()

    with pytest.raises(PeerRefused, match="which is too long"):
        two.receive(one.take_unsent() + FRONT.pack(HELLO_BYTES_MAX + 1, 0))


@given(place=st.integers(FRONT.size, len(framed(encode_body(BEAT))) + MAC_BYTES - 1), bit=st.integers(0, 7))
def test_sealed_frame_that_was_changed_is_refused(place: int, bit: int) -> None:
    """A peer in between could also mend the checksum, which is no secret."""
    one, two = dialer(), acceptor()
    get_acquainted(one, two)
    wire = bytearray(one.encode([BEAT]))
    wire[place] ^= 1 << bit
    body = bytes(wire[FRONT.size : -MAC_BYTES])

    with pytest.raises(PeerRefused, match="changed, repeated or left out"):
        two.receive(framed(body) + bytes(wire[-MAC_BYTES:]))


@pytest.mark.parametrize("order", [(0, 0), (1, 0), (1,)])
def test_sealed_frame_that_is_repeated_or_left_out_is_noticed(order: tuple[int, ...]) -> None:
    one, two = dialer(), acceptor()
    get_acquainted(one, two)
    frames = [one.encode([BEAT]), one.encode([LONG])]

    with pytest.raises(PeerRefused, match="changed, repeated or left out"):
        two.receive(b"".join(frames[place] for place in order))


def test_sealed_frame_sent_back_to_its_sender_is_refused() -> None:
    one, two = dialer(), acceptor()
    get_acquainted(one, two)

    with pytest.raises(PeerRefused, match="changed, repeated or left out"):
        one.receive(one.encode([BEAT]))


@given(step=st.integers(1, 300))
def test_proof_and_sealed_frames_arrive_in_any_pieces(step: int) -> None:
    one, two = dialer(), acceptor()
    two.receive(one.take_unsent())
    one.receive(two.take_unsent())
    two.receive(one.take_unsent())
    wire = two.take_unsent() + two.encode([BEAT, LONG, BEAT])

    frames = [frame for at in range(0, len(wire), step) for frame in one.receive(wire[at : at + step])]

    assert frames == [BEAT, LONG, BEAT]


@pytest.mark.parametrize("secret", [None, SECRET])
def test_node_that_joins_is_told_which_cluster_it_is(secret: bytes | None) -> None:
    one = dialer(secret, Hello(MARK, LEVEL, LEVEL, NO_CLUSTER, 3, 0, 0, {}))
    two = acceptor(secret)

    get_acquainted(one, two)

    assert one.peer is not None
    assert one.peer.cluster_id == CLUSTER


def test_joining_node_refuses_a_peer_without_the_secret() -> None:
    one = dialer(SECRET, Hello(MARK, LEVEL, LEVEL, NO_CLUSTER, 3, 0, 0, {}))

    with pytest.raises(PeerRefused, match="node 0 has none"):
        one.receive(acceptor(None).take_unsent())
