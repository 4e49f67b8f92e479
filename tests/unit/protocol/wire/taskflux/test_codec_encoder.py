"""What the TaskFlux encoder refuses, and that a batch is one."""

import pytest

from wakeq.protocol.errors import BadCommand, BadField, Refused
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    OK,
    BusinessError,
    Count,
    CreateQueue,
    Dequeue,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ListQueuesResponse,
    Packet,
    QueueInfo,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect


def test_batch_is_its_packets_one_after_the_other() -> None:
    packets: list[Packet] = [Enqueue("q", 1, b"a"), ACK, Count("q")]

    assert encode(packets, SPEC) == b"".join(encode([packet], SPEC) for packet in packets)
    assert encode([], SPEC) == b""


@pytest.mark.parametrize(
    "packet",
    [
        Enqueue("q", 2**63, b""),
        Enqueue("q" * 256, 1, b""),
        Enqueue("п", 1, b""),
        Dequeue("q", 2**32),
        CreateQueue("q", 2**31),
        ListQueuesResponse((QueueInfo("q" * 256, 1),)),
        BusinessError(ErrorCode.UNKNOWN, "\ud800"),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_packet_with_a_value_too_large_for_its_field_is_refused_by_name(packet: Packet) -> None:
    with pytest.raises(BadField, match=type(packet).__name__):
        encode([packet], SPEC)


@pytest.mark.parametrize(
    ("packet", "dialect"),
    [(OK, LEGACY), (ACK, LEGACY), (CreateQueue("q"), LEGACY), (EnqueueResponse(True), SPEC)],
)
def test_packet_that_the_dialect_does_not_have_is_refused(packet: Packet, dialect: Dialect) -> None:
    with pytest.raises(BadCommand, match=f"does not exist in the dialect {dialect.name}"):
        encode([packet], dialect)


def test_error_without_a_number_in_the_dialect_is_an_unknown_one() -> None:
    for dialect in (CSHARP, LEGACY):
        known, unknown = BusinessError(ErrorCode.UNKNOWN, "x"), BusinessError(ErrorCode.KEY_OUTSIDE, "x")

        assert encode([unknown], dialect) == encode([known], dialect)


def test_id_of_a_record_is_written_by_csharp_only() -> None:
    record = Record(5, b"x", 77)

    assert len(encode([record], CSHARP)) == len(encode([record], SPEC)) + 8


def test_refusals_are_of_the_class_that_clients_catch() -> None:
    assert issubclass(BadField, Refused)
    assert issubclass(BadCommand, Refused)
