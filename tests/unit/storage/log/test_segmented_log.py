"""SegmentedLog: written entries are read back, also beside a writer; after a failed write the log accepts nothing."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.disks.written_log import IDENTITY, RECORD, indexes, offset_of, open_log, payload, two_sealed, write
from wakeq.protocol.errors import SyncFailed, TooLarge
from wakeq.protocol.log.format import HEADER_BYTES, PAYLOAD_BYTES_MAX
from wakeq.storage import files
from wakeq.storage.log import segmented_log
from wakeq.storage.log.opening import OpenedSegments
from wakeq.storage.log.segmented_log import SegmentedLog


def test_written_entries_are_read_after_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 3)
    write(log, 2, term=4)
    log.close()

    again = open_log(tmp_path, committed=5)

    assert list(again.entries(1)) == [(i, 1 if i < 4 else 4, payload(i)) for i in range(1, 6)]
    assert (again.first_index, again.last_index, again.last_term, again.written_index) == (1, 5, 4, 5)
    assert (again.recovered.entries, again.recovered.torn_bytes) == (5, 0)


def test_appended_entry_is_not_on_disk_before_write(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 2)
    log.append_many(3, 1, [payload(3)])

    assert (log.last_index, log.written_index) == (3, 2)
    assert indexes(log) == [1, 2]
    log.close()
    assert open_log(tmp_path).last_index == 2


def test_append_is_allowed_while_a_batch_is_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_many(1, 1, [payload(1)])
    first = log.take_buffer()
    log.append_many(2, 1, [payload(2)])

    assert first is not None
    log.write(first)
    second = log.take_buffer()
    assert second is not None
    log.write(second)

    assert indexes(log) == [1, 2]
    assert log.take_buffer() is None


def test_buffered_bytes_are_those_appended_since_the_last_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_many(1, 1, [payload(1), payload(2)])
    before = log.buffered_bytes
    log.take_buffer()
    log.append_many(3, 1, [payload(3)])

    assert (before, log.buffered_bytes) == (2 * RECORD, RECORD)


def test_new_log_may_begin_behind_a_snapshot(tmp_path: Path) -> None:
    log = SegmentedLog.open(tmp_path, IDENTITY, committed_at_least=0, create_first_index=100, create_previous_term=7)

    assert (log.first_index, log.last_index, log.last_term) == (100, 99, 7)
    assert (log.term_at(99), log.term_at(98), log.term_at(100)) == (7, None, None)


def test_terms_are_known_across_segments_and_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 3, term=2)
    write(log, 3, term=5)
    log.roll(6)
    write(log, 2, term=5)
    write(log, 2, term=9)
    log.close()

    again = open_log(tmp_path)

    for each in (log, again):
        assert [each.term_at(i) for i in range(12)] == [0, 2, 2, 2, 5, 5, 5, 5, 5, 9, 9, None]


def test_payload_larger_than_a_read_is_read_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    big = os.urandom(9_000_000)
    log.append_many(1, 1, [b"a", big, b"", b"z"])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)
    log.close()

    again = open_log(tmp_path)

    assert [data for _index, _term, data in again.entries(1)] == [b"a", big, b"", b"z"]


def test_oversized_entry_is_refused_with_its_batch(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return PAYLOAD_BYTES_MAX + 1

    log = open_log(tmp_path)

    with pytest.raises(TooLarge):
        log.append_many(1, 1, [b"fine", Huge()])

    assert log.last_index == 0
    assert log.take_buffer() is None


def test_entries_are_read_from_the_middle_of_any_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        write(log, 6000)
        log.roll(log.last_index)
    write(log, 6000)

    assert indexes(log, 5990, 18010) == list(range(5990, 18011))
    assert indexes(log, 24000) == [24000]
    assert indexes(log, 24001) == []


# The disk fails -------------------------------------------------------------------------------------------------------


def test_write_after_a_failed_sync_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    write(log, 1)
    before = (tmp_path / "raft.log").read_bytes()[: offset_of(2)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _fail(errno.EIO))
        with pytest.raises(SyncFailed, match=r"raft\.log: sync failed: .*kernel's log"):
            write(log, 1)

    for action in (log.take_buffer, lambda: log.roll(9), lambda: log.cut_below(9), lambda: log.reset(9, 1)):
        with pytest.raises(SyncFailed, match="sync failed"):
            action()
    assert log.written_index == 1
    assert (tmp_path / "raft.log").read_bytes().startswith(before)


def test_io_error_without_free_space_is_reported_as_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    monkeypatch.setattr(os, "pwritev", _fail(errno.EIO))
    monkeypatch.setattr(files, "free_bytes", lambda path: 4096)

    with pytest.raises(SyncFailed, match="the disk is full"):
        write(log, 1)


def test_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: real(fd, parts[0][:-1], offset))

    with pytest.raises(SyncFailed, match="only 34 of 35 bytes"):
        write(log, 1)

    assert log.written_index == 0


def test_short_write_of_zeros_behind_a_batch_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: real(fd, parts[0], offset))

    write(log, 3)
    write(log, 3)

    assert indexes(log) == [1, 2, 3, 4, 5, 6]


def _fail(number: int) -> Callable[..., int]:
    def fail(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


# Reading beside a writer ----------------------------------------------------------------------------------------------


def test_reader_in_another_thread_sees_only_whole_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 10)
    stop, failures = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                found = indexes(log)
                assert found == list(range(1, len(found) + 1))
                assert len(found) >= 10
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(50):
        write(log, 10)
        if log.last_index % 100 == 0:
            log.roll(log.last_index)
    stop.set()
    thread.join()

    assert not failures


def test_read_only_log_changes_no_file_and_stops_at_a_torn_record(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    path = tmp_path / "raft.log"
    os.truncate(path, HEADER_BYTES + 9 * RECORD + 30)
    before = path.read_bytes()

    log = SegmentedLog.open(tmp_path, None, committed_at_least=None, read_only=True)

    assert indexes(log) == list(range(1, 30))
    assert log.recovered.torn_bytes == 30
    assert f"at offset {offset_of(10)} may still be in progress" in log.recovered.text
    assert path.read_bytes() == before


def test_read_only_log_is_opened_again_if_a_segment_was_just_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_sealed(tmp_path)
    real, calls = segmented_log.open_segments, []

    def renamed_meanwhile(*arguments: Any, **options: Any) -> OpenedSegments:
        calls.append(arguments)
        if len(calls) == 1:
            raise FileNotFoundError("raft.log")
        return real(*arguments, **options)

    monkeypatch.setattr(segmented_log, "open_segments", renamed_meanwhile)

    log = SegmentedLog.open(tmp_path, None, committed_at_least=None, read_only=True)

    assert indexes(log) == list(range(1, 31))


def test_closed_log_refuses_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_many(1, 1, [b"late"])

    log.close()
    log.close()

    with pytest.raises(SyncFailed, match="closed"):
        log.take_buffer()


def test_written_bytes_do_not_fall_when_segments_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 20)
    before = log.written_bytes
    assert log.roll(20)

    log.cut_below(21)

    assert log.written_bytes == before > log.size_bytes
