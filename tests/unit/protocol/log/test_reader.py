"""The moment of the first record of a segment, read from its beginning."""

from wakeq.protocol.log.entries import Noop
from wakeq.protocol.log.format import HEADER_BYTES, Identity, encode_records, record_seed
from wakeq.protocol.log.reader import first_moment
from wakeq.protocol.log.records import encode_entry

SEED = record_seed(Identity(bytes(16), 1))


def segment(*moments: int) -> bytes:
    parts = [bytes(HEADER_BYTES)]
    payloads = [encode_entry(Noop(), at_ms) for at_ms in moments]
    encode_records(parts, payloads, first_index=7, term=1, first_place=0, seed=SEED)
    return b"".join(parts)


def moment_in(data: bytes) -> int | None:
    return first_moment(lambda offset, size: data[offset : offset + size], end=len(data), seed=SEED, index=7)


def test_moment_of_the_first_record_is_found() -> None:
    assert moment_in(segment(123_456, 200_000)) == 123_456


def test_record_that_is_not_whole_has_no_moment() -> None:
    whole = segment(123_456)

    assert [moment_in(whole[:size]) for size in range(len(whole))] == [None] * len(whole)
    assert moment_in(whole[:HEADER_BYTES] + bytes(1000)) is None, "zeros are written ahead"
