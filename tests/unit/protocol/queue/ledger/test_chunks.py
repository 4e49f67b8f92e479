"""Chunks byte by byte, and their columns: what stands on disk may only change together with its page and version."""

import struct
import zlib

import pytest

from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.queue.ledger.chunks import Chunk, decode_chunk, encode_chunk


def small_chunk() -> Chunk:
    chunk = Chunk(1)
    chunk.fill("priorities", [0, -2])
    chunk.fill("timeouts", [0, 0])
    chunk.sizes.extend([3, 1])
    chunk.living = 2
    chunk.level()
    return chunk


def test_encoded_chunk_matches_the_format_page() -> None:
    head = bytes.fromhex("01 11 0003")  # version, priorities and sides, rows
    body = bytes.fromhex("00000000 00000003 00000001" + "00" * 16 + "fffffffffffffffe" + "0002")

    assert encode_chunk(small_chunk(), [2]) == head + struct.pack(">I", zlib.crc32(head + body)) + body


def test_column_begins_when_a_value_needs_it() -> None:
    chunk = small_chunk()
    chunk.fill("dues", [5])
    chunk.sizes.append(1)
    chunk.level()

    copy, sides = decode_chunk(encode_chunk(chunk, []))

    assert list(copy.sizes) == [0, 3, 1, 1]
    assert list(copy.priorities or []) == [0, 0, -2, 0]
    assert list(copy.dues or []) == [0, 0, 0, 5]
    assert copy.expiries is copy.timeouts is None
    assert (copy.living, sides) == (3, [])


@pytest.mark.parametrize("place", range(8))
def test_damaged_head_of_a_chunk_is_noticed(place: int) -> None:
    value = bytearray(encode_chunk(small_chunk(), [2]))
    value[place] ^= 1

    with pytest.raises(BadRecord):
        decode_chunk(bytes(value))


@pytest.mark.parametrize(("flags", "body"), [(0, "00000001"), (1, "00000001" * 2), (16, "00000001" * 2 + "00")])
def test_chunk_that_has_not_as_many_rows_as_it_says_is_damage(flags: int, body: str) -> None:
    head, rest = struct.pack(">BBH", 1, flags, 2), bytes.fromhex(body)

    with pytest.raises(BadRecord, match="2 rows"):
        decode_chunk(head + struct.pack(">I", zlib.crc32(head + rest)) + rest)


def test_chunk_of_a_later_version_is_named() -> None:
    head = bytes.fromhex("02 00 0000")

    with pytest.raises(BadRecord, match="version 2"):
        decode_chunk(head + struct.pack(">I", zlib.crc32(head)))
    with pytest.raises(BadRecord, match="at least 8"):
        decode_chunk(head)


def test_copy_does_not_change_with_its_original() -> None:
    chunk = small_chunk()
    copy = chunk.copied()
    before = encode_chunk(copy, [])

    chunk.fill("priorities", [7])
    chunk.fill("dues", [8])
    chunk.sizes[1] = 0
    chunk.sizes.append(1)
    chunk.living = 1

    assert encode_chunk(copy, []) == before
    assert copy.living == 2


def test_chunk_of_sizes_only_has_the_bytes_of_any_other() -> None:
    short, long = Chunk(1), Chunk(1)
    for chunk in (short, long):
        chunk.sizes.extend([3, 0, 1])
    long.only_sizes = False  # takes the way of those with columns

    assert encode_chunk(short, []) == encode_chunk(long, [])
