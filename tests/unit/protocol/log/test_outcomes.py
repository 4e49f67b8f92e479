"""What became of entries, as bytes: they are those of docs/files.md, and damage is not taken for them."""

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
TOLD = Outcomes(4, 9, True, [(3, 8, "jobs"), (2, 1, "")], [(7, WHOLE, -1), (8, 2, -13)])
GOLDEN = (
    "0000006a de86cb34"
    "0000000000000004 0000000000000009 00000001 00000002 00000002"
    "0000000000000003 0000000000000008 04 6a6f6273"
    "0000000000000002 0000000000000001 00"
    "0000000000000007 ffffffff ffffffffffffffff"
    "0000000000000008 00000002 fffffffffffffff3"
)


def test_a_record_is_what_the_page_of_files_says() -> None:
    assert encode_record(TOLD, IDENTITY).hex() == GOLDEN.replace(" ", "")


def test_records_come_back() -> None:
    second = Outcomes(9, 12, False, [(3, 9, "jobs")], [])
    data = encode_header(IDENTITY, 5) + encode_record(TOLD, IDENTITY) + encode_record(second, IDENTITY)

    assert decode_header(data, "file") == (IDENTITY, 5)
    assert list(decode_records(data, IDENTITY, "file")) == [TOLD, second]


def test_a_record_that_was_not_finished_is_left_out_wherever_it_ends() -> None:
    first = encode_header(IDENTITY, 5) + encode_record(TOLD, IDENTITY)
    data = first + encode_record(TOLD, IDENTITY)

    for end in range(len(first), len(data)):
        assert list(decode_records(data[:end], IDENTITY, "file")) == [TOLD]


def test_a_damaged_record_before_others_is_refused() -> None:
    data = bytearray(encode_header(IDENTITY, 5) + 2 * encode_record(TOLD, IDENTITY))
    data[HEADER_BYTES + 20] ^= 1

    with pytest.raises(DamagedFile, match="wrong checksum"):
        list(decode_records(bytes(data), IDENTITY, "file"))


def test_a_header_that_does_not_fit_is_refused() -> None:
    header = bytearray(encode_header(IDENTITY, 5))

    with pytest.raises(DamagedFile, match="marker"):
        decode_header(b"x" * HEADER_BYTES, "file")
    with pytest.raises(DamagedFile, match="checksum"):
        decode_header(bytes(header[:30] + b"\xff" + header[31:]), "file")
    with pytest.raises(WrongVersion, match="version 2"):
        decode_header(bytes(header[:7] + b"\x02" + header[8:]), "file")
