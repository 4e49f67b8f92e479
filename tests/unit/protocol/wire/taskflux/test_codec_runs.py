"""Runs read in one piece: the same packets as read one by one; nothing that is torn, wrong or without its Ack."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.taskflux.apart import apart
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.codec import RequestReader, Runs, encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    TAKEN_TOGETHER_MAX,
    AuthorizationRequest,
    Bad,
    BootstrapRequest,
    Count,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    Packet,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, SPEC, Dialect

LIMIT_BYTES = 40
NAMES = st.text(st.characters(codec="latin-1"), max_size=3)
PACKETS = st.one_of(
    st.builds(Enqueue, NAMES, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=30)),
    st.builds(Dequeue, NAMES, st.integers(0, 2**32 - 1)),
    st.sampled_from([ACK, ACK, ACK, NACK, Count("q")]),
)
SAID = st.lists(
    PACKETS.flatmap(lambda packet: st.sampled_from([[packet], [packet, ACK], [packet, ACK] * 3])), max_size=4
)


def read(data: bytes, dialect: Dialect, *, in_runs: bool) -> list[Packet | Bad]:
    reader = RequestReader(dialect, LIMIT_BYTES)
    reader.receive(encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], dialect))
    if not in_runs:
        reader._runs = None
    return [*reader.receive(data), *reader.receive(b"C")]  # so that the place where the next begins is compared too


def comparable(packets: list[Packet | Bad]) -> list[object]:
    return [str(packet.error) if isinstance(packet, Bad) else packet for packet in packets]


@pytest.mark.parametrize("dialect", [SPEC, CSHARP], ids=lambda dialect: dialect.name)
@given(SAID, st.binary(max_size=12), st.integers(0, 20))
def test_run_is_read_as_its_packets_one_by_one_are(
    dialect: Dialect, said: list[list[Packet]], garbage: bytes, cut: int
) -> None:
    data = encode([packet for packets in said for packet in packets], dialect)
    data = data[: len(data) - cut] + garbage

    assert comparable(apart(read(data, dialect, in_runs=True))) == comparable(read(data, dialect, in_runs=False))


@pytest.mark.parametrize("dialect", [SPEC, CSHARP], ids=lambda dialect: dialect.name)
def test_packets_of_one_kind_in_a_row_are_one_value(dialect: Dialect) -> None:
    q, r = [Draft(b"a", -1), Draft(b"", 2), Draft(bytes(20), 0)], [Draft(b"r", 1), Draft(b"r", 1)]
    run, other = Enqueues("q", q, 72), Enqueues("r", r, 36)
    runs: list[Packet] = [run, other, Dequeues(Dequeue("q", 5), 3), Dequeues(Dequeue("q", 6), 2)]

    packets = read(encode(apart(runs), dialect), dialect, in_runs=True)

    assert packets == runs


def test_dequeues_in_a_row_are_one_value_up_to_a_bound() -> None:
    pairs: list[Packet] = [Dequeue("q"), ACK]

    packets = read(encode(pairs * (TAKEN_TOGETHER_MAX + 1), SPEC), SPEC, in_runs=True)

    assert packets == [Dequeues(Dequeue("q"), TAKEN_TOGETHER_MAX), *pairs]


@pytest.mark.parametrize("pair", [[Enqueue("q", 1, b"abc"), ACK], [Dequeue("q", 5), ACK]], ids=["enqueue", "dequeue"])
def test_run_ends_before_a_packet_that_it_does_not_take(pair: list[Packet]) -> None:
    run = encode(pair * 2, SPEC)
    too_long = b"CE\x01q" + struct.pack(">qi", 1, LIMIT_BYTES) + bytes(LIMIT_BYTES) + b"Q"
    negative = b"CE\x01q" + struct.pack(">qi", 1, -1) + b"Q"
    alone = encode(pair[:1], SPEC)
    for behind in (b"", alone, alone[:-1], alone + b"N", b"C", b"CE", b"CD\xff", b"N", b"Q", b"Z", too_long, negative):
        packets: list[Packet | Bad] = []

        assert Runs(b"Q", LIMIT_BYTES).read(run + behind, 0, packets) == len(run)

        assert apart(packets) == pair * 2
        if behind:
            assert Runs(b"Q", LIMIT_BYTES).read(behind, 0, packets) == 0
