"""Parts of a record of outcomes, for readers who do not need the whole."""

import pytest

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import (
    Outcomes,
    bodies_in,
    counter_in,
    decode_records,
    encode_header,
    encode_record,
    notes_in,
    span_of,
)

ME = Identity(bytes(range(16)), 3)
TOLD = Outcomes(4, 9, False, [(3, 8, "jobs"), (2, 1, ""), (7, 5, "jobs.dead")], [(7, -1, -1), (8, 2, -13)])


def file_of(*records: Outcomes) -> bytes:
    return encode_header(ME, 5) + b"".join(encode_record(record, ME) for record in records)


def test_parts_of_a_record_are_those_of_the_whole() -> None:
    (body,) = bodies_in(file_of(TOLD), ME, "f")

    assert span_of(body) == (TOLD.after, TOLD.through)
    assert [counter_in(body, name) for _, _, name in TOLD.queues] == TOLD.queues
    assert list(notes_in(body)) == TOLD.notes
    assert list(decode_records(file_of(TOLD), ME, "f")) == [TOLD]


def test_queue_that_is_not_listed_is_unknown_unless_all_are_listed() -> None:
    some, every = bodies_in(file_of(TOLD, TOLD._replace(lists_all=True)), ME, "f")

    assert counter_in(some, "job") is None
    assert counter_in(every, "job") == (0, 0, "job")
    assert counter_in(every, "jobs") == (3, 8, "jobs")


def test_record_with_a_wrong_checksum_is_refused() -> None:
    data = bytearray(file_of(TOLD, TOLD))
    data[100] ^= 1

    with pytest.raises(DamagedFile):
        list(bodies_in(bytes(data), ME, "f"))
