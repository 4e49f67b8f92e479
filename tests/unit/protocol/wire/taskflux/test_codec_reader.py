"""The TaskFlux codec under any input: round trip in each dialect, any cut of the stream, garbage, and lengths."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.steps import peak_bytes, steps
from tests.helpers.taskflux.apart import apart
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.taskflux.codec import PacketReader, RequestReader, ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import (
    Ack,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BadBody,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Empty,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    Nack,
    NotLeader,
    Ok,
    Packet,
    PacketTooLong,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Record,
    UnexpectedPacket,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, DIALECTS, LEGACY, SPEC, Dialect

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
NAMES = st.text(st.characters(max_codepoint=255), max_size=255) | st.text(st.characters(max_codepoint=126), max_size=9)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAYLOADS = st.binary(max_size=60)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
QUEUES = st.lists(st.builds(QueueInfo, NAMES, INT32, PAIRS), max_size=4).map(tuple)
REASONS = st.tuples(st.just(True), st.just("")) | st.tuples(st.just(False), TEXTS)


def requests(dialect: Dialect) -> st.SearchStrategy[Packet]:
    """Whatever a client may say in this dialect behind the handshake."""
    common = st.builds(Enqueue, NAMES, INT64, PAYLOADS) | st.builds(Count, NAMES)
    if dialect is LEGACY:
        return common | st.builds(Dequeue, NAMES)
    return st.one_of(
        common,
        st.builds(Dequeue, NAMES, UINT32),
        st.builds(CreateQueue, NAMES, INT32, INT32, INT32, st.none() | st.tuples(INT64, INT64)),
        st.builds(DeleteQueue, NAMES),
        st.sampled_from([Ack(), Nack(), ListQueues(), ClusterMetadataRequest()]),
    )


def responses(dialect: Dialect) -> st.SearchStrategy[Packet]:
    """Whatever a server may say in this dialect."""
    ids = st.integers(0, 2**64 - 1) if dialect is CSHARP else st.just(0)
    codes = st.just(0) if dialect is LEGACY else INT32
    common = st.one_of(
        REASONS.map(lambda pair: AuthorizationResponse(*pair)),
        REASONS.map(lambda pair: BootstrapResponse(*pair)),
        st.builds(ErrorResponse, codes, TEXTS),
        st.builds(NotLeader, INT32),
        st.builds(Record, INT64, PAYLOADS, ids),
        st.just(Empty()),
        st.builds(CountResponse, INT32),
        st.builds(BusinessError, st.sampled_from(dialect.error_codes), TEXTS),
    )
    if dialect is LEGACY:
        return common | st.builds(EnqueueResponse, st.booleans())
    return st.one_of(
        common,
        st.just(Ok()),
        st.builds(ClusterMetadataResponse, st.lists(TEXTS, max_size=4).map(tuple), INT32, INT32),
        st.builds(ListQueuesResponse, QUEUES),
        st.builds(GeneralViolation, TEXTS),
        st.builds(QueueSizeViolation, INT32),
        st.builds(PayloadSizeViolation, INT32),
        st.builds(KeyRangeViolation, INT64, INT64),
    )


def handshake(dialect: Dialect) -> list[Packet]:
    return [AuthorizationRequest(), BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)]


def ready_reader(dialect: Dialect = SPEC, packet_bytes_max: int = 1000) -> RequestReader:
    reader = RequestReader(SPEC if dialect is LEGACY else dialect, packet_bytes_max)
    assert reader.receive(encode(handshake(dialect), dialect)) == handshake(dialect)
    return reader


def read_in_pieces(reader: PacketReader, data: bytes, cuts: list[int]) -> list[Packet | Bad]:
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return apart(packet for start, end in pairwise(ends) for packet in reader.receive(data[start:end]))


CUTS = st.lists(st.integers(0, 400), max_size=12)
EACH_DIALECT = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


# --- any cut of the stream ---


@EACH_DIALECT
@given(data=st.data(), cuts=CUTS)
def test_requests_survive_any_cut_of_the_stream(dialect: Dialect, data: st.DataObject, cuts: list[int]) -> None:
    packets = [*handshake(dialect), *data.draw(st.lists(requests(dialect), max_size=6))]
    reader = RequestReader(SPEC if dialect is LEGACY else dialect)

    got = read_in_pieces(reader, encode(packets, dialect), cuts)

    assert got == packets
    assert reader.is_between_packets
    assert reader.dialect is dialect


@EACH_DIALECT
@given(data=st.data(), cuts=CUTS)
def test_responses_survive_any_cut_of_the_stream(dialect: Dialect, data: st.DataObject, cuts: list[int]) -> None:
    packets = data.draw(st.lists(responses(dialect), max_size=6))
    reader = ResponseReader(dialect)

    got = read_in_pieces(reader, encode(packets, dialect), cuts)

    assert got == packets
    assert reader.waiting_bytes == 0


@EACH_DIALECT
@given(data=st.data())
def test_packet_without_its_last_byte_waits(dialect: Dialect, data: st.DataObject) -> None:
    packet = data.draw(requests(dialect))
    wire = encode([packet], dialect)
    reader = ready_reader(dialect, 10_000)

    assert reader.receive(wire[:-1]) == []
    assert reader.waiting_bytes == len(wire) - 1
    assert reader.is_between_packets == (len(wire) == 1)
    assert reader.receive(wire[-1:]) == [packet]


# --- garbage ---


@EACH_DIALECT
@settings(max_examples=examples(300))
@given(data=st.data(), cuts=CUTS)
def test_garbage_is_packets_or_a_stated_error_and_the_same_in_any_pieces(
    dialect: Dialect, data: st.DataObject, cuts: list[int]
) -> None:
    begun = data.draw(st.lists(requests(dialect) | responses(dialect), max_size=3))
    wire = bytearray(encode(begun, dialect) + data.draw(st.binary(max_size=30)))
    for place in data.draw(st.lists(st.integers(0, 200), max_size=3)):
        if place < len(wire):
            wire[place] = data.draw(st.integers(0, 255))

    for make in (lambda: ready_reader(dialect), lambda: ResponseReader(dialect, 1000)):
        whole = apart(make().receive(bytes(wire)))
        pieces = read_in_pieces(make(), bytes(wire), cuts)
        assert [shown(packet) for packet in pieces] == [shown(packet) for packet in whole]


def shown(packet: Packet | Bad) -> Any:
    """Return what can be compared: errors by their type and text."""
    if not isinstance(packet, Bad):
        return packet
    assert isinstance(packet.error, WakeqError)
    return type(packet.error), str(packet.error)


def only_bad(packets: list[Packet | Bad]) -> Bad:
    (bad,) = packets
    assert isinstance(bad, Bad), f"was not refused: {bad}"
    return bad


def test_bytes_behind_an_error_that_closes_are_not_read() -> None:
    reader = ready_reader()
    only_bad(reader.receive(b"Z" + encode([Ack()], SPEC)))

    assert reader.receive(encode([Ack()], SPEC)) == []
    assert reader.waiting_bytes == 0


@pytest.mark.parametrize(
    ("hexed", "text"),
    [
        ("5a", "byte 0 of the packet: 0x5A is not a marker of a packet; expected 0x43, 0x51, 0x4E, 0x4D"),
        ("4b", "byte 0 of the packet: 0x4B, Ack of the dialect csharp, cannot come here"),
        ("6b", "byte 0 of the packet: 0x6B, Ok, cannot come here"),
        ("435a", "byte 1 of the packet: 0x5A is not a marker of a command; expected 0x45, 0x44, 0x43, 0x51, 0x52"),
        ("434501710000000000000001ffffffff", "byte 12 of the packet: the length of the payload is -1, it must be 0"),
        ("4345017100000000000000017fffffff", "byte 12 of the packet: the length of the payload is 2147483647, the"),
        ("51435a", "byte 1 of the packet: 0x5A is not a marker of a command"),
    ],
)
def test_error_names_the_byte_its_value_and_the_allowed_values(hexed: str, text: str) -> None:
    bad = ready_reader().receive(bytes.fromhex(hexed))[-1]

    assert isinstance(bad, Bad)
    assert str(bad.error).startswith(text)
    assert bad.error.closes


@pytest.mark.parametrize(
    ("hexed", "text"),
    [
        ("43000000015a", "byte 0 of the body: 0x5A is not a marker of a command; expected 0x45, 0x44, 0x43"),
        ("4300000000", "the body has 0 bytes and ends within a field"),
        ("43000000084300000064616263", "the body has 8 bytes and ends within a field"),
        (
            "4300000005430000ffff",
            "byte 1 of the body: the length of the queue name is 65535, the packet has room for 996",
        ),
        ("430000000543ffffffff", "byte 1 of the body: the length of the queue name is -1, it must be 0 or more"),
        ("43000000064300000000ab", "the command ends at byte 5 of the body, which has 6"),
    ],
)
def test_frame_with_a_bad_body_leaves_the_stream_in_step(hexed: str, text: str) -> None:
    bad, count = ready_reader(LEGACY).receive(bytes.fromhex(hexed) + encode([Count("q")], LEGACY))

    assert isinstance(bad, Bad)
    assert isinstance(bad.error, BadBody)
    assert str(bad.error) == text
    assert count == Count("q")


def test_body_may_be_framed_wrongly_by_no_server() -> None:
    for hexed in ("63000000015a", "6300000000", "6300000006630000000100", "63fffffffb"):
        assert only_bad(ResponseReader(LEGACY).receive(bytes.fromhex(hexed))).error.closes


# --- the handshake ---


def test_handshake_is_read_before_anything_else_is_kept() -> None:
    for first in (encode([Enqueue("q", 1, b"x" * 500)], SPEC)[:9], encode([BootstrapRequest(1, 0, 0)], SPEC)):
        reader = RequestReader()
        assert isinstance(only_bad(reader.receive(first)).error, UnexpectedPacket)
        assert reader.waiting_bytes == 0

    reader = RequestReader()
    packets = reader.receive(encode([AuthorizationRequest(), Ack()], SPEC))
    assert isinstance(packets[1], Bad)


def test_version_decides_how_the_bytes_behind_it_are_read_in_the_same_read() -> None:
    for listener in (SPEC, CSHARP):
        reader = RequestReader(listener)
        packets = [*handshake(LEGACY), Count("q")]

        assert reader.receive(encode(packets, LEGACY)) == packets


# --- lengths ---


def test_packet_of_just_the_limit_is_read_and_one_byte_more_is_not() -> None:
    overhead = len(encode([Enqueue("q", 1, b"")], SPEC)) - 2  # the limit does not count the two markers

    assert ready_reader().receive(encode([Enqueue("q", 1, bytes(1000 - overhead))], SPEC)) != []
    bad = only_bad(ready_reader().receive(encode([Enqueue("q", 1, bytes(1001 - overhead))], SPEC)[:20]))

    assert isinstance(bad.error, PacketTooLong)
    assert bad.error.closes


@pytest.mark.parametrize(
    "hexed",
    [
        "61007fffffff",  # a reason
        "6500000000000003e9",  # details
        "63780000000100000fff",
        "63640100000000000000010000ffff",
        "6d00000101",  # 257 addresses
        "6d00000001000003e9",
        "636c00000001017100000000000003e8",  # metadata of one queue
        "636c000000010171000000000000000100000fff",
    ],
)
def test_oversized_announcement_of_a_server_is_refused_before_it_is_kept(hexed: str) -> None:
    reader = ResponseReader(SPEC, 1000)

    assert only_bad(reader.receive(bytes.fromhex(hexed))).error.closes
    assert reader.waiting_bytes == 0


def test_list_of_queues_is_bounded_as_a_whole() -> None:
    queues = tuple(QueueInfo("q" * 100, 1) for _ in range(50))
    reader = ResponseReader(SPEC, 1000)
    wire = encode([ListQueuesResponse(queues)], SPEC)

    got = [packet for at in range(0, len(wire), 7) for packet in reader.receive(wire[at : at + 7])]

    assert shown(only_bad(got)) == shown(only_bad(ResponseReader(SPEC, 1000).receive(wire)))
    assert ResponseReader(SPEC, 10_000).receive(wire) == [ListQueuesResponse(queues)]


def test_long_payload_in_small_pieces_is_not_copied_for_each() -> None:
    size = 1 << 18
    wire = encode([Enqueue("q", 1, bytes(size))], SPEC)

    def read_all_but_the_end() -> None:
        reader = ready_reader(SPEC, 1 << 24)
        for at in range(0, size, 64):
            assert reader.receive(wire[at : at + 64]) == []

    assert peak_bytes(read_all_but_the_end) < 1.5 * size, "a copy for each piece would make it two"


def test_long_list_in_small_pieces_costs_in_proportion_to_its_length() -> None:
    def cost(count: int) -> int:
        queues = tuple(QueueInfo("q" * 50, 1, (("max-queue-size", "1"),)) for _ in range(count))
        wire = encode([ListQueuesResponse(queues)], SPEC)
        return steps(lambda: read_in_pieces(ResponseReader(SPEC, 1 << 24), wire, [*range(0, len(wire), 64)]))

    assert cost(400) < 9 * cost(50), "eight times the length; read anew for each piece it would be sixty-four times"


# --- what a newer server may say ---


@pytest.mark.parametrize(("dialect", "hexed"), [(SPEC, "63780000000a00000000"), (CSHARP, "63650000000900000000")])
def test_error_code_that_is_not_known_is_an_unknown_error(dialect: Dialect, hexed: str) -> None:
    assert ResponseReader(dialect).receive(bytes.fromhex(hexed)) == [BusinessError(ErrorCode.UNKNOWN)]


def test_policy_that_is_not_known_has_no_length_and_ends_the_stream() -> None:
    bad = only_bad(ResponseReader(SPEC).receive(bytes.fromhex("637000000004")))

    assert str(bad.error) == "byte 2 of the packet: the policy's code is 4, it must be from 0 to 3"
