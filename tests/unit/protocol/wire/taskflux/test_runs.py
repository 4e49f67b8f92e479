"""Runs read in one piece: the same packets as read one by one, and nothing of what is torn or wrong."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.wire.taskflux.dialects import CSHARP, SPEC, Dialect
from wakeq.protocol.wire.taskflux.encoder import encode
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    NACK,
    AuthorizationRequest,
    Bad,
    BootstrapRequest,
    Count,
    Dequeue,
    Enqueue,
    Packet,
)
from wakeq.protocol.wire.taskflux.reader import RequestReader
from wakeq.protocol.wire.taskflux.runs import Runs

LIMIT_BYTES = 40
NAMES = st.text(st.characters(codec="latin-1"), max_size=3)
PACKETS = st.one_of(
    st.builds(Enqueue, NAMES, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=30)),
    st.builds(Dequeue, NAMES, st.integers(0, 2**32 - 1)),
    st.sampled_from([ACK, ACK, ACK, NACK, Count("q")]),
)


def read(data: bytes, dialect: Dialect, *, in_runs: bool) -> list[Packet | Bad]:
    reader = RequestReader(dialect, LIMIT_BYTES)
    reader.receive(encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], dialect))
    if not in_runs:
        reader._runs = None
    packets = reader.receive(data)
    return [*packets, *reader.receive(b"C")]  # so that the place where the next packet begins is compared too


def comparable(packets: list[Packet | Bad]) -> list[object]:
    return [str(packet.error) if isinstance(packet, Bad) else packet for packet in packets]


@pytest.mark.parametrize("dialect", [SPEC, CSHARP], ids=lambda dialect: dialect.name)
@given(st.lists(PACKETS, max_size=6), st.binary(max_size=12), st.integers(0, 20))
def test_a_run_is_read_as_its_packets_one_by_one_are(
    dialect: Dialect, packets: list[Packet], garbage: bytes, cut: int
) -> None:
    data = encode(packets, dialect)
    data = data[: len(data) - cut] + garbage

    assert comparable(read(data, dialect, in_runs=True)) == comparable(read(data, dialect, in_runs=False))


def test_a_run_ends_before_what_it_does_not_take() -> None:
    run = encode([Enqueue("q", 1, b"abc"), ACK, Dequeue("q", 5), ACK, Dequeue("r")], SPEC)
    too_long = b"CE\x01q" + struct.pack(">qi", 1, LIMIT_BYTES) + bytes(LIMIT_BYTES)
    negative = b"CE\x01q" + struct.pack(">qi", 1, -1)
    for behind in (b"", b"C", b"CE\x01q", b"CD\x01q\x00", encode([NACK], SPEC), b"Z", too_long, negative):
        packets: list[Packet | Bad] = []

        assert Runs(b"Q", LIMIT_BYTES).read(run + behind, 0, packets) == len(run)

        assert packets == [Enqueue("q", 1, b"abc"), ACK, Dequeue("q", 5), ACK, Dequeue("r")]
