"""The wire between nodes: what is said arrives, in whatever pieces, and nothing else is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.raft.membership import LEVEL, Config, Member
from wakeq.protocol.raft.messages import (
    Append,
    AppendAnswer,
    Disowned,
    Heartbeat,
    HeartbeatAnswer,
    RequestVote,
    SnapshotOffer,
    SnapshotRefused,
    TimeoutNow,
    Transfer,
    VoteAnswer,
)
from wakeq.protocol.wire.peer.frames import (
    BODY_BYTES_MAX,
    FRONT,
    HELLO_BYTES_MAX,
    MARK,
    BodyReader,
    Chunk,
    ChunkTaken,
    Entries,
    Frame,
    Hello,
    Proof,
    check_hello,
    decode_body,
    encode_body,
    framed,
)


class FrameReader:
    """What a session does with the bytes of a peer that it knows and whose frames are not sealed."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._reader = BodyReader(body_bytes_max)

    def receive(self, data: bytes) -> list[Frame]:
        self._reader.receive(data)
        return [decode_body(body) for body in iter(self._reader.next_body, None)]


def encode(frame: Frame) -> bytes:
    return framed(encode_body(frame))


CLUSTER = b"0123456789abcdef"
HELLO = Hello(MARK, 1, 2, CLUSTER, 2, 77, 5, {"worker": "b:2601"})
OWN = Hello(MARK, LEVEL, LEVEL, CLUSTER, 0, 7, 1, {})
HEADER = (1, 2, 77, 5, 9)
CONFIG = Config((Member(0, 7, True, "a:2603"), Member(1, 8, False, "b:2603")), founded=True)
APPEND = Append(*HEADER, 4, 8, 6, ((5, 8), (6, 9)), 4, 30, ((6, CONFIG),))
FRAMES: list[Frame] = [
    HELLO,
    RequestVote(*HEADER, 4, 8, True, False),
    VoteAnswer(*HEADER, True, False, 1_700_000_000_000, True),
    Append(*HEADER, 4, 8, 4, (), 4),
    Entries(APPEND, [b"five", b"six"]),
    AppendAnswer(*HEADER, 0, 4, 3, 2),
    Heartbeat(*HEADER, 12, 4, 1_700_000_000_000),
    HeartbeatAnswer(*HEADER, 12),
    SnapshotOffer(*HEADER, 4, 8, CONFIG, 99),
    SnapshotRefused(*HEADER, 99),
    TimeoutNow(*HEADER),
    Disowned(*HEADER, 77),
    Transfer(*HEADER, None),
    Chunk(99, 0, b"piece"),
    Chunk(99, 5, b"last", True, 123),
    ChunkTaken(99, 9),
    Proof(b"mac"),
]


@given(step=st.integers(1, 60))
def test_frames_arrive_in_any_pieces(step: int) -> None:
    wire = b"".join(map(encode, FRAMES))
    reader = FrameReader()

    heard = [frame for i in range(0, len(wire), step) for frame in reader.receive(wire[i : i + step])]

    assert heard == FRAMES


def test_encoded_hello_matches_the_protocol_page() -> None:
    spelled = "9a 64 aa77616b65712d70656572 01 02 c410" + CLUSTER.hex() + "02 4d 05 81 a6776f726b6572 a6623a32363031"
    spelled += "c400"  # no nonce

    assert encode(HELLO)[FRONT.size :] == bytes.fromhex(spelled)


@given(data=st.binary(max_size=200))
def test_garbage_is_refused_or_nothing_yet(data: bytes) -> None:
    try:
        assert FrameReader().receive(data) == []
    except PeerRefused:
        return


@pytest.mark.parametrize(
    "body",
    [
        encode_body(HELLO).replace(b"wakeq-peer", b"wakeq-pe\xff\xff"),
        encode_body(HELLO).replace(b"b:2601", b"\xff:2601"),
        bytes([encode_body(HELLO)[0] + 1]) + encode_body(HELLO)[1:] + b"\x91" * 3_900 + b"\x01",
    ],
    ids=["a mark that is no text", "an address that is no text", "a field more, nested too deep"],
)
def test_hello_that_cannot_be_decoded_is_refused(body: bytes) -> None:
    """Every peer that can connect can send such a hello; a traceback for each would fill the log."""
    with pytest.raises(PeerRefused, match="an unknown frame"):
        decode_body(body)


@given(place=st.integers(0, len(encode(FRAMES[4])) - 1), bit=st.integers(0, 7))
def test_frame_with_a_flipped_bit_is_never_accepted(place: int, bit: int) -> None:
    wire = bytearray(encode(FRAMES[4]))
    wire[place] ^= 1 << bit
    reader = FrameReader()
    reader.receive(encode(HELLO))

    try:
        heard = reader.receive(bytes(wire))
    except PeerRefused:
        heard = []

    assert heard == []


def test_frame_longer_than_a_hello_is_refused_before_the_hello() -> None:
    with pytest.raises(PeerRefused, match="which is too long"):
        FrameReader(HELLO_BYTES_MAX).receive(FRONT.pack(HELLO_BYTES_MAX + 1, 0))


@pytest.mark.parametrize(
    "payloads",
    [[], [b"five"], [b"five", b"six", b"seven"]],
)
def test_append_brings_exactly_the_entries_that_it_names(payloads: list[bytes]) -> None:
    with pytest.raises(PeerRefused, match="entries for 5 to 6"):
        FrameReader().receive(encode(Entries(APPEND, payloads)))


@pytest.mark.parametrize(
    ("hello", "match"),
    [
        (Heartbeat(*HEADER, 1, 1), "does not begin with a hello"),
        (Hello("other", 1, 1, CLUSTER, 2, 77, 5, {}), "does not begin with a hello"),
        (Hello(MARK, 1, 1, b"another cluster!", 2, 77, 5, {}), "is of cluster"),
        (Hello(MARK, 1, 1, CLUSTER, 0, 77, 5, {}), "says that it is node 0"),
        (Hello(MARK, 4, 5, CLUSTER, 2, 77, 5, {}), "works at levels 4 to 5, this one at level 3; run the same release"),
        (Hello(MARK, 1, 2, CLUSTER, 2, 77, 5, {}), "works at levels 1 to 2, this one at level 3; run the same release"),
    ],
)
def test_peer_with_an_unusable_hello_is_refused_with_the_reason(hello: Frame, match: str) -> None:
    with pytest.raises(PeerRefused, match=match):
        check_hello(hello, OWN)


@pytest.mark.parametrize(("lowest", "highest"), [(3, 3), (3, 4), (1, 3), (1, 9)])
def test_hello_of_a_node_that_knows_our_level_is_taken(lowest: int, highest: int) -> None:
    other = Hello(MARK, lowest, highest, CLUSTER, 2, 77, 5, {"worker": "b:2601"})

    assert check_hello(other, OWN) is other


@pytest.mark.parametrize(
    "address", ["b", "b:0", "b:99999", ":2601", "b c:2601", "u@b:2601", "b/x:2601", "b\n:26", "b" * 256 + ":1"]
)
def test_hello_with_an_address_that_is_none_is_refused(address: str) -> None:
    other = Hello(MARK, LEVEL, LEVEL, CLUSTER, 2, 77, 5, {"worker": address})

    with pytest.raises(PeerRefused, match="names an address for clients that is not HOST:PORT"):
        check_hello(other, OWN)


def test_hello_with_too_many_addresses_is_refused() -> None:
    other = Hello(MARK, LEVEL, LEVEL, CLUSTER, 2, 77, 5, {f"door-{number}": "b:2601" for number in range(17)})

    with pytest.raises(PeerRefused, match="names 17 addresses"):
        check_hello(other, OWN)


@pytest.mark.parametrize("address", ["b:2601", "b.example:2601", "10.0.0.1:2601", "[::1]:2601", "[fe80::1%eth0]:2601"])
def test_hello_with_any_real_address_is_taken(address: str) -> None:
    other = Hello(MARK, LEVEL, LEVEL, CLUSTER, 2, 77, 5, {"worker": address})

    assert check_hello(other, OWN) is other


BEYOND = 1 << 48


@pytest.mark.parametrize(
    "frame",
    [
        Heartbeat(1, 2, 77, 5, BEYOND, 12, 4),
        Heartbeat(1, 2, 77, BEYOND, 9, 12, 4),
        Heartbeat(*HEADER, BEYOND, 4),
        Heartbeat(*HEADER, 12, BEYOND),
        HeartbeatAnswer(*HEADER, BEYOND),
        RequestVote(*HEADER, BEYOND, 8),
        RequestVote(*HEADER, 4, (1 << 64) - 1),
        AppendAnswer(*HEADER, BEYOND),
        AppendAnswer(*HEADER, 0, BEYOND),
        AppendAnswer(*HEADER, 0, 4, BEYOND, 2),
        AppendAnswer(*HEADER, 0, 4, 3, BEYOND),
        AppendAnswer(*HEADER, -1),
        SnapshotOffer(*HEADER, BEYOND, 8, CONFIG, 99),
        SnapshotOffer(*HEADER, 4, BEYOND, CONFIG, 99),
        Append(*HEADER, BEYOND, 8, BEYOND, (), 4),
        Hello(MARK, 1, 2, CLUSTER, 65_536, 77, 5, {}),
        Hello(MARK, 1, 2, b"short", 2, 77, 5, {}),
        Hello(MARK, 1, 2, CLUSTER, 2, -1, 5, {}),  # a leader would tell of this disk, and nobody could read that
        Hello(MARK, 1, 2, CLUSTER, 2, 1 << 63, 5, {}),
    ],
)
def test_number_that_no_cluster_reaches_is_refused(frame: Frame) -> None:
    with pytest.raises(PeerRefused, match="an unknown frame"):
        FrameReader().receive(encode(frame))


@pytest.mark.parametrize(
    "frame",
    [
        Append(*HEADER, 4, 8, 6, ((5, 8),), 4),  # its entries did not come along
        Entries(Append(*HEADER, 4, 8, 6, ((5, 8), (5, 9)), 4), [b"five", b"six"]),
        Entries(Append(*HEADER, 4, 8, 6, ((5, 8), (7, 9)), 4), [b"five", b"six"]),
        Entries(Append(*HEADER, 4, 8, 6, ((5, 7), (6, 9)), 4), [b"five", b"six"]),  # a term below the one before
        Entries(Append(*HEADER, 4, 8, 6, ((5, 8), (6, 10)), 4), [b"five", b"six"]),  # above its sender's
        Append(*HEADER, 4, 8, 3, (), 4),
    ],
)
def test_append_whose_entries_contradict_it_is_refused(frame: Frame) -> None:
    with pytest.raises(PeerRefused, match="entries for"):
        FrameReader().receive(encode(frame))
