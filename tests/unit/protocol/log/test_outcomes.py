"""Outcomes as bytes: they are as docs/files.md says, and damage is noticed."""

import pytest

from wakeq.protocol.errors import DamagedFile, WrongVersion
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import (
    HEADER_BYTES,
    WHOLE,
    Outcomes,
    decode_header,
    decode_records,
    encode_header,
    encode_record,
)

IDENTITY = Identity(bytes(range(16)), 3)
FIRST = Outcomes(4, 9, True, [(3, 8, "jobs"), (2, 1, "")], [(7, WHOLE, -1), (8, 2, -13)])
GOLDEN = (
    "0000006a de86cb34"
    "0000000000000004 0000000000000009 00000001 00000002 00000002"
    "0000000000000003 0000000000000008 04 6a6f6273"
    "0000000000000002 0000000000000001 00"
    "0000000000000007 ffffffff ffffffffffffffff"
    "0000000000000008 00000002 fffffffffffffff3"
)


def test_record_on_disk_is_as_documented() -> None:
    assert encode_record(FIRST, IDENTITY).hex() == GOLDEN.replace(" ", "")


def test_records_round_trip() -> None:
    second = Outcomes(9, 12, False, [(3, 9, "jobs")], [])
    data = encode_header(IDENTITY, 5) + encode_record(FIRST, IDENTITY) + encode_record(second, IDENTITY)

    assert decode_header(data, "file") == (IDENTITY, 5)
    assert list(decode_records(data, IDENTITY, "file")) == [FIRST, second]


def test_unfinished_record_is_ignored_wherever_it_ends() -> None:
    first = encode_header(IDENTITY, 5) + encode_record(FIRST, IDENTITY)
    data = first + encode_record(FIRST, IDENTITY)

    for end in range(len(first), len(data)):
        assert list(decode_records(data[:end], IDENTITY, "file")) == [FIRST]


def test_damaged_record_before_others_is_refused() -> None:
    data = bytearray(encode_header(IDENTITY, 5) + 2 * encode_record(FIRST, IDENTITY))
    data[HEADER_BYTES + 20] ^= 1

    with pytest.raises(DamagedFile, match="wrong checksum"):
        list(decode_records(bytes(data), IDENTITY, "file"))


def test_invalid_header_is_refused() -> None:
    header = bytearray(encode_header(IDENTITY, 5))

    with pytest.raises(DamagedFile, match="marker"):
        decode_header(b"x" * HEADER_BYTES, "file")
    with pytest.raises(DamagedFile, match="checksum"):
        decode_header(bytes(header[:30] + b"\xff" + header[31:]), "file")
    with pytest.raises(WrongVersion, match="version 2"):
        decode_header(bytes(header[:7] + b"\x02" + header[8:]), "file")
