"""SkippedEntries: which entries are skipped, and what a flush writes down of them."""

import msgspec

from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.protocol.log.entries import SetAside

ENTRY = SetAside("q", 7, "ZeroDivisionError: poisoned")


def test_skipped_entry_is_written_down_once_with_its_reason() -> None:
    skipped = SkippedEntries()
    skipped.restore([3])

    skipped.skip(ENTRY)

    assert skipped.indexes == {3, 7}
    assert skipped.has_unwritten
    (record,) = skipped.take_unwritten().items()
    assert (record[0], msgspec.msgpack.decode(record[1])) == (7, {"queue": "q", "reason": ENTRY.reason})
    assert not skipped.has_unwritten
    assert skipped.take_unwritten() == {}


def test_foreseen_entry_is_skipped_and_written_down_only_when_it_is_reached() -> None:
    skipped = SkippedEntries()

    skipped.foresee([ENTRY])

    assert skipped.indexes == {7}
    assert not skipped.has_unwritten
    assert [skipped.take_foreseen(index) for index in (6, 7, 7)] == [None, ENTRY, None]
