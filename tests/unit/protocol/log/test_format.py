"""The log's bytes: golden examples of every piece, and the search that tells a torn tail from damage."""

import random

import pytest

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import (
    Batch,
    Block,
    Footer,
    Identity,
    SegmentHeader,
    Walk,
    batch_start_after,
    decode_footer,
    decode_header,
    encode_footer,
    encode_header,
    encode_records,
    record_seed,
)

IDENTITY = Identity(bytes(range(16)), 3)
SEED = record_seed(IDENTITY)


def batch(first_index: int, *payloads: bytes, seed: int = SEED) -> Batch:
    parts: list[bytes] = []
    size = encode_records(parts, payloads, first_index=first_index, term=2, first_place=0, seed=seed)
    data = b"".join(parts)
    assert len(data) == size
    return Batch(data, first_index, first_index + len(payloads) - 1)


def test_header_on_disk_is_as_documented() -> None:
    header = SegmentHeader(IDENTITY, 258, 7)

    data = encode_header(header)

    assert data.hex() == (
        "2f6f0f2f00000002000102030405060708090a0b0c0d0e0f00000003"
        "00000000000001020000000000000007" + "00" * 16 + "5c8b7d46"
    )
    assert decode_header(data, "raft.log") == header
    for position in range(8, 64):
        with pytest.raises(DamagedFile):
            decode_header(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], "raft.log")


def test_records_on_disk_are_as_documented() -> None:
    assert batch(5, b"abc", b"").data.hex() == (
        "00000003b8cb5f510000000000000005000000000000000200000000616263"
        "0000000050e80b770000000000000006000000000000000200000001"
    )


def test_walk_yields_all_records() -> None:
    payloads = [bytes([size % 251]) * size for size in range(0, 3000, 7)]
    data = batch(1, *payloads).data

    walk = Walk(lambda offset, size: data[offset : offset + size], offset=0, end=len(data), seed=SEED, next_index=1)

    assert [payload for _index, _term, payload in walk] == payloads
    assert (walk.offset, walk.next_index, walk.problem) == (len(data), len(payloads) + 1, "")


def test_walk_ends_where_the_file_was_truncated() -> None:
    data = batch(1, b"a" * 100, b"b" * 100).data
    shorter = data[:-10]

    walk = Walk(lambda offset, size: shorter[offset : offset + size], offset=0, end=len(data), seed=SEED, next_index=1)

    assert [index for index, *_ in walk] == [1]
    assert "past the end of the file" in walk.problem


def test_footer_round_trips_and_no_part_of_it_is_accepted() -> None:
    blocks = (Block(1, 64, 0xDEADBEEF), Block(4097, 9000, 1))
    footer = Footer(100_000, 5000, 1, 5000, 9, blocks, ((1, 3), (77, 9)), b"notes")
    data = encode_footer(footer, seed=SEED)

    assert decode_footer(data, 100_000, seed=SEED) == footer
    assert decode_footer(data, 99_999, seed=SEED) is None
    assert decode_footer(data, 100_000, seed=SEED + 1) is None
    for size in range(len(data)):
        assert decode_footer(data[:size], 100_000, seed=SEED) is None
    for position in range(len(data)):
        bad = data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]
        assert decode_footer(bad, 100_000, seed=SEED) is None


@pytest.mark.parametrize("bad_index", [1, 255, (1 << 16) - 1, (1 << 24) - 1, (1 << 40) - 1])
def test_later_batch_behind_a_bad_record_is_found_anywhere(bad_index: int) -> None:
    source = random.Random(bad_index)

    for size in range(400):
        filler = source.randbytes(size) + bytes(source.choice([0, 1, 7, 8, 9, 5000]))
        later = batch(bad_index + 1, source.randbytes(size % 40))
        data = bytes(9) + filler + later.data + bytes(source.choice([0, 3, 100]))
        assert batch_start_after(data, seed=SEED, bad_index=bad_index) == (9 + len(filler), bad_index + 1)


def test_records_of_the_same_batch_or_another_log_prove_nothing() -> None:
    same = batch(7, b"bad", b"good", b"good")
    strange = batch(9, b"good", seed=SEED + 1)

    assert batch_start_after(b"\xff" + same.data[1:] + strange.data, seed=SEED, bad_index=7) is None
    later = batch(10, b"good")
    assert batch_start_after(b"\xff" + same.data[1:] + later.data, seed=SEED, bad_index=7) == (len(same.data), 10)


def test_search_in_crafted_payloads_ends_as_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wakeq.protocol.log.format.SEARCH_CRC_BYTES_MAX", 10_000)
    crafted = bytearray(batch(8, bytes(900)).data)
    crafted[4] ^= 1

    assert batch_start_after(bytes(crafted) * 10, seed=SEED, bad_index=7) is None
    assert batch_start_after(bytes(crafted) * 20, seed=SEED, bad_index=7) is not None


def test_checksum_that_ends_in_zeros_does_not_hide_its_record() -> None:
    candidates = (batch(2, b"%d" % number) for number in range(5000))
    ending_in_zero = [each for each in candidates if each.data[7] == 0]

    assert ending_in_zero
    for later in ending_in_zero:
        assert batch_start_after(bytes(50) + later.data, seed=SEED, bad_index=1) == (50, 2)
