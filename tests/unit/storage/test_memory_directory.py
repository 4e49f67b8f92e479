"""MemoryDirectory: written entries are kept, appended ones are lost, and `close` frees everything."""

import os

import pytest

from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.memory_directory import MemoryDirectory


@pytest.fixture
def directory() -> MemoryDirectory:
    return MemoryDirectory()


def write(log: SegmentedLog, *payloads: bytes, term: int = 1) -> None:
    log.append_many(log.last_index + 1, term, payloads)
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)


def test_written_entries_are_read_by_the_next_open(directory: MemoryDirectory) -> None:
    first = directory.open_log()
    write(first, b"one", b"two")
    write(first, b"three", term=2)
    first.close()

    log = directory.open_log()

    assert list(log.entries(1)) == [(1, 1, b"one"), (2, 1, b"two"), (3, 2, b"three")]
    assert (log.last_index, log.last_term, log.term_at(2)) == (3, 2, 1)
    write(log, b"four", term=2)
    assert [index for index, _, _ in log.entries(1)] == [1, 2, 3, 4]


def test_appended_entry_is_lost_when_its_log_is_closed(directory: MemoryDirectory) -> None:
    first = directory.open_log()
    write(first, b"written")
    first.append_many(2, 1, [b"appended"])
    first.close()

    assert list(directory.open_log().entries(1)) == [(1, 1, b"written")]


def test_log_in_memory_is_never_due_to_be_sealed(directory: MemoryDirectory) -> None:
    log = directory.open_log()
    write(log, bytes(200_000), bytes(200_000))

    assert not log.roll_due
    assert log.sealed_bytes == 0


def test_metadata_keeps_term_and_vote(directory: MemoryDirectory) -> None:
    directory.metadata.save(term=3, vote=1)
    directory.metadata.save(committed=7)

    state = directory.metadata.state
    assert (state.term, state.vote, state.committed) == (3, 1, 7)


def test_directories_share_nothing() -> None:
    one, other = MemoryDirectory(), MemoryDirectory()
    write(one.open_log(), b"of one")

    assert other.open_log().last_index == 0
    assert one.identity != other.identity


def test_close_leaves_no_open_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    directory = MemoryDirectory()
    directory.open_log().close()

    directory.close()
    directory.close()

    assert set(os.listdir("/proc/self/fd")) == before
