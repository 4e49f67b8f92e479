"""SegmentedLog: what is written comes back; what a crash leaves is cut; what has rotted is refused and left alone."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeq.protocol.errors import DamagedFile, StorageError, SyncFailed, TooLarge, WrongVersion
from wakeq.protocol.log_format import (
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    RECORD_BYTES,
    TRAILER_BYTES,
    Identity,
    decode_footer,
    footer_offset,
    record_seed,
)
from wakeq.storage import active_segment, files, raft_log, segments
from wakeq.storage.raft_log import EntriesGone, SegmentedLog

IDENTITY = Identity(bytes(range(16)), 1)
RECORD = RECORD_BYTES + 7  # the payloads of `write` have 7 bytes


def open_log(
    directory: Path, *, committed: int = 0, identity: Identity = IDENTITY, segment_bytes_max: int = 1 << 20
) -> SegmentedLog:
    return SegmentedLog.open(directory, identity, committed_at_least=committed, segment_bytes_max=segment_bytes_max)


def payload(index: int) -> bytes:
    return b"%07d" % index


def write(log: SegmentedLog, count: int, *, term: int = 1) -> None:
    """Append and write one batch."""
    first = log.last_index + 1
    log.append_many(first, term, [payload(index) for index in range(first, first + count)])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)


def indexes(log: SegmentedLog, first: int | None = None, last: int | None = None) -> list[int]:
    found = []
    for index, _term, data in log.entries(first or log.first_index, last):
        assert data == payload(index)
        found.append(index)
    return found


def three_batches(directory: Path) -> Path:
    """Leave a log of entries 1..30, written ten at a time, and return its file."""
    log = open_log(directory)
    for _ in range(3):
        write(log, 10)
    log.close()
    return directory / "raft.log"


def offset_of(index: int) -> int:
    return HEADER_BYTES + (index - 1) * RECORD


def change(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, offset: int) -> None:
    change(path, offset, bytes([path.read_bytes()[offset] ^ 0x40]))


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 3)
    write(log, 2, term=4)
    log.close()

    again = open_log(tmp_path, committed=5)

    assert list(again.entries(1)) == [(i, 1 if i < 4 else 4, payload(i)) for i in range(1, 6)]
    assert (again.first_index, again.last_index, again.last_term, again.written_index) == (1, 5, 4, 5)
    assert (again.recovered.entries, again.recovered.torn_bytes) == (5, 0)


def test_what_was_only_appended_is_not_on_disk(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 2)
    log.append(3, 1, payload(3))

    assert (log.last_index, log.written_index) == (3, 2)
    assert indexes(log) == [1, 2]
    log.close()
    assert open_log(tmp_path).last_index == 2


def test_the_loop_may_append_while_a_batch_is_being_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(1, 1, payload(1))
    first = log.take_buffer()
    log.append(2, 1, payload(2))

    assert first is not None
    log.write(first)
    second = log.take_buffer()
    assert second is not None
    log.write(second)

    assert indexes(log) == [1, 2]
    assert log.take_buffer() is None


def test_a_log_can_begin_behind_a_snapshot(tmp_path: Path) -> None:
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


def test_a_payload_larger_than_a_read_comes_back_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    big = os.urandom(9_000_000)
    log.append_many(1, 1, [b"a", big, b"", b"z"])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)
    log.close()

    again = open_log(tmp_path)

    assert [data for _index, _term, data in again.entries(1)] == [b"a", big, b"", b"z"]


def test_an_entry_beyond_the_limit_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return PAYLOAD_BYTES_MAX + 1

    log = open_log(tmp_path)

    with pytest.raises(TooLarge):
        log.append_many(1, 1, [b"fine", Huge()])

    assert log.last_index == 0
    assert log.take_buffer() is None


def test_entries_can_be_read_from_the_middle_of_any_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        write(log, 6000)
        log.roll(log.last_index)
    write(log, 6000)

    assert indexes(log, 5990, 18010) == list(range(5990, 18011))
    assert indexes(log, 24000) == [24000]
    assert indexes(log, 24001) == []


# The disk fails ---------------------------------------------------------------------------------------------


def test_after_a_failed_sync_nothing_is_written_ever_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    log = open_log(tmp_path)
    monkeypatch.setattr(os, "pwritev", _fail(number))

    with pytest.raises(SyncFailed, match="the disk is full"):
        write(log, 1)


def test_an_io_error_without_space_left_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    monkeypatch.setattr(os, "pwritev", _fail(errno.EIO))
    monkeypatch.setattr(files, "free_bytes", lambda path: 4096)

    with pytest.raises(SyncFailed, match="the disk is full"):
        write(log, 1)


def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: real(fd, parts[0][:-1], offset))

    with pytest.raises(SyncFailed, match="only 34 of 35 bytes"):
        write(log, 1)

    assert log.written_index == 0


def test_zeros_that_find_no_room_behind_a_whole_batch_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# What a crash leaves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, RECORD_BYTES - 4, RECORD_BYTES, RECORD - 1])
def test_a_torn_record_is_cut_off_and_reported(tmp_path: Path, kept: int) -> None:
    path = three_batches(tmp_path)
    os.truncate(path, offset_of(30) + kept)
    if kept < 4:
        change(path, offset_of(30), b"\x01")  # a record's first bytes are zeros: nothing to see

    log = open_log(tmp_path, committed=29)

    assert log.last_index == 29
    assert log.recovered.torn_bytes == kept
    assert f"{kept} bytes of an unfinished write at offset {offset_of(30)}" in log.recovered.text
    assert path.stat().st_size == offset_of(30)
    write(log, 2)
    assert indexes(log) == list(range(1, 32))


def test_any_part_of_the_last_write_may_be_missing_after_a_power_cut(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, offset_of(23), bytes(2 * RECORD))  # later records of the same write made it

    log = open_log(tmp_path, committed=20)

    assert log.last_index == 22
    assert log.recovered.torn_bytes == 8 * RECORD


def test_zeros_written_ahead_are_no_records(tmp_path: Path) -> None:
    path = three_batches(tmp_path)

    assert path.stat().st_size > offset_of(31) + 100_000
    log = open_log(tmp_path)

    assert (log.last_index, log.recovered.torn_bytes) == (30, 0)


def test_a_file_of_0_bytes_is_a_file_that_was_never_written(tmp_path: Path) -> None:
    (tmp_path / "raft.log").touch()

    log = open_log(tmp_path)

    assert log.last_index == 0
    write(log, 1)
    assert indexes(log) == [1]


# Damage: refused, and the file stays as it is ---------------------------------------------------------------


def refused(directory: Path, *, committed: int = 0, match: str, error: type[StorageError] = DamagedFile) -> str:
    """Expect a refusal that leaves every file as it was; return its message."""
    before = {path: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(error, match=match) as caught:
        open_log(directory, committed=committed)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    return str(caught.value)


@pytest.mark.parametrize("byte", [0, 4, 9, 23, 26, RECORD_BYTES, RECORD - 1])
def test_a_bad_record_that_was_synced_is_damage(tmp_path: Path, byte: int) -> None:
    path = three_batches(tmp_path)
    flip(path, offset_of(15) + byte)

    message = refused(tmp_path, match=f"at offset {offset_of(15)}: expected record 15, .*after it had been synced")

    assert f"record 21 at offset {offset_of(21)}" in message
    assert "restore" in message


def test_a_zeroed_stretch_before_later_writes_is_damage(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, offset_of(12), bytes(5 * RECORD))

    refused(tmp_path, match="expected record 12, .*found a record with index 0")


def test_a_bad_record_that_is_committed_is_damage_even_in_the_last_write(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    flip(path, offset_of(30) + RECORD_BYTES)

    refused(tmp_path, committed=30, match="expected record 30, which is known to be committed")
    assert open_log(tmp_path, committed=29).last_index == 29


def test_a_log_that_ends_before_what_is_committed_is_damage(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    os.truncate(path, offset_of(25))

    refused(tmp_path, committed=25, match="expected entry 25, which is known to be committed")
    path.unlink()
    refused(tmp_path, committed=1, match="expected entry 1, which is known to be committed")


def test_a_record_inside_a_payload_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = open_log(tmp_path / "other", identity=Identity(b"x" * 16, 1))
    for _ in range(9):
        write(other, 1)
    stranger = (tmp_path / "other" / "raft.log").read_bytes()[HEADER_BYTES : offset_of(10)]
    (tmp_path / "log").mkdir()
    log = open_log(tmp_path / "log")
    write(log, 4)
    log.append_many(5, 1, [stranger, b"last"])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)
    log.close()
    flip(tmp_path / "log" / "raft.log", offset_of(5) + RECORD_BYTES + 3)

    again = open_log(tmp_path / "log", committed=4)

    assert again.last_index == 4


def test_files_that_are_not_ours_are_refused_by_name(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, 0, bytes.fromhex("1276ad55"))
    refused(tmp_path, match=r"raft\.log: at offset 0: expected file prefix 2f6f0f2f, found 1276ad55")
    change(path, 0, bytes.fromhex("2f0f6f2f"))
    refused(tmp_path, match="found 2f0f6f2f; it is little-endian")
    change(path, 0, bytes.fromhex("2f6f0f2f00000003"))
    refused(tmp_path, match="expected version 2, found 3", error=WrongVersion)
    change(path, 0, bytes.fromhex("2f6f0f2f00000001"))
    refused(tmp_path, match="expected version 2, found 1", error=WrongVersion)


def test_a_bad_header_is_refused(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    whole = path.read_bytes()
    flip(path, 30)
    refused(tmp_path, match="at offset 60: expected header checksum")
    path.write_bytes(whole[:40])
    refused(tmp_path, match="expected a header of 64 bytes, found a file of 40 bytes")


@pytest.mark.parametrize("other", [Identity(b"x" * 16, 1), Identity(IDENTITY.cluster_id, 2)])
def test_the_log_of_another_node_is_refused(tmp_path: Path, other: Identity) -> None:
    three_batches(tmp_path)

    with pytest.raises(DamagedFile, match=r"expected cluster .*, found cluster .*belongs to another node"):
        open_log(tmp_path, identity=other)


# Sealing ----------------------------------------------------------------------------------------------------


def two_sealed(directory: Path) -> list[Path]:
    """Leave two sealed segments (1..10, 11..20) and an active one (21..30)."""
    log = open_log(directory)
    for _ in range(2):
        write(log, 10)
        assert log.roll(log.last_index, b"notes")
    write(log, 10)
    log.close()
    return segments.sealed_paths(directory)


def test_a_full_segment_is_sealed_under_the_index_it_begins_with(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)

    assert [path.name for path in paths] == ["raft.log.0000000000000000001", "raft.log.0000000000000000011"]
    again = open_log(tmp_path, committed=30)
    assert (again.first_index, again.last_index) == (1, 30)
    assert indexes(again) == list(range(1, 31))


def test_the_footer_keeps_the_notes_of_its_caller(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[1]

    data = path.read_bytes()
    seed = record_seed(IDENTITY)
    at = footer_offset(data[-TRAILER_BYTES:], seed=seed)
    assert at is not None
    footer = decode_footer(data[at:], at, seed=seed)

    assert footer is not None
    assert (footer.count, footer.first_index, footer.last_index, footer.last_term) == (10, 11, 20, 1)
    assert (footer.notes, footer.terms, footer.blocks[0].first_index) == (b"notes", ((11, 1),), 11)


def test_nothing_is_sealed_that_is_not_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes_max=200)
    assert not log.roll(0)
    write(log, 10)

    assert log.roll_due
    assert not log.roll(9)
    assert log.roll(10)
    assert not log.roll_due
    assert not log.roll(10)


def test_records_appended_while_a_segment_is_sealed_go_to_the_next_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 3)
    log.append(4, 2, payload(4))

    assert log.roll(3)
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)
    log.close()

    again = open_log(tmp_path)
    assert indexes(again) == [1, 2, 3, 4]
    assert [again.term_at(i) for i in (3, 4)] == [1, 2]


class Crash(BaseException):
    """The process ends here."""


SEALING_STEPS = [
    ("footer written", active_segment, "sync_data"),
    ("footer synced", raft_log, "rename_durably"),
    ("renamed", raft_log, "create_active"),
    ("new header written", files, "rename_durably"),
]


@pytest.mark.parametrize(("step", "module", "name"), SEALING_STEPS)
def test_a_crash_while_sealing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, module: object, name: str
) -> None:
    log = open_log(tmp_path)
    write(log, 10)

    def crash(*_arguments: object) -> None:
        raise Crash(step)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, crash)
        with pytest.raises(Crash):
            log.roll(10)

    again = open_log(tmp_path, committed=10)
    assert indexes(again) == list(range(1, 11))
    write(again, 5)
    assert len(segments.sealed_paths(tmp_path)) == 1
    assert not list(tmp_path.glob("*.new"))
    again.close()
    assert indexes(open_log(tmp_path, committed=15)) == list(range(1, 16))


@pytest.mark.parametrize("kept", [1, 4, 11, 40, -1, -17])
def test_an_unfinished_footer_is_cut_off(tmp_path: Path, kept: int) -> None:
    log = open_log(tmp_path)
    write(log, 10)
    log.roll(10)
    log.close()
    sealed = segments.sealed_paths(tmp_path)[0]
    footer = sealed.read_bytes()[offset_of(11) :]
    (tmp_path / "raft.log").write_bytes(sealed.read_bytes()[: offset_of(11)] + footer[:kept])
    sealed.unlink()

    again = open_log(tmp_path, committed=10)

    assert indexes(again) == list(range(1, 11))
    assert again.roll(10)


def test_a_bad_last_record_before_a_footer_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 10)
    log.roll(10)
    log.close()
    segments.sealed_paths(tmp_path)[0].rename(tmp_path / "raft.log")
    flip(tmp_path / "raft.log", offset_of(10) + RECORD_BYTES)

    refused(tmp_path, match="expected record 10: the segment is sealed behind it")


def test_a_bad_byte_in_a_sealed_segment_is_found_at_start_and_when_read(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[0]
    flip(path, offset_of(4) + RECORD_BYTES)

    message = refused(tmp_path, match="expected record 4 of a sealed segment, found a record with a wrong checksum")
    assert f"{path}: at offset {offset_of(4)}" in message
    log = SegmentedLog.open(tmp_path, IDENTITY, committed_at_least=0, verify=False)
    with pytest.raises(DamagedFile, match="expected record 4"):
        indexes(log)
    with pytest.raises(DamagedFile, match="expected record 4"):
        log.verify()


def test_a_sealed_segment_without_a_whole_footer_is_damage(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused(tmp_path, match="expected the trailer of a sealed segment")
    path.write_bytes(whole[: offset_of(11)])
    refused(tmp_path, match="expected the trailer of a sealed segment")
    path.write_bytes(whole)
    flip(path, offset_of(11) + 20)
    refused(tmp_path, match="expected the footer of a sealed segment")


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)
    paths[1].unlink()

    refused(tmp_path, match="expected 11, for a segment is missing between, found first index 21")


def test_a_segment_under_a_wrong_name_is_damage(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)
    paths[0].rename(paths[0].with_name("raft.log.0000000000000000002"))

    refused(tmp_path, match="expected the index in the file's name, found first index 1")


# Cutting ----------------------------------------------------------------------------------------------------


def test_only_whole_sealed_segments_are_cut(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)
    log = open_log(tmp_path)

    assert log.cut_below(10) == 0
    assert log.cut_below(11) == 1
    assert [path.exists() for path in paths] == [False, True]
    assert (log.first_index, log.term_at(10), log.term_at(11), log.term_at(9)) == (11, 1, 1, None)
    assert log.cut_below(31) == 1
    assert indexes(log) == list(range(21, 31))
    with pytest.raises(EntriesGone, match="begins with 21"):
        log.entries(20)


def test_a_reader_goes_on_while_its_segment_is_cut(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)
    reading = log.entries(1)
    next(reading)

    log.cut_below(11)

    assert [index for index, _term, _data in reading] == list(range(2, 31))


def test_truncated_entries_are_gone_and_can_be_written_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 10, term=1)
    write(log, 10, term=2)

    log.truncate_from(8)
    assert (log.last_index, log.last_term, log.term_at(8)) == (7, 1, None)
    write(log, 3, term=3)
    log.close()

    again = open_log(tmp_path)
    assert indexes(again) == list(range(1, 11))
    assert [again.term_at(i) for i in (7, 8, 10)] == [1, 3, 3]


def test_the_whole_active_segment_can_be_truncated(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)

    log.truncate_from(21)
    assert not log.roll(20)
    write(log, 1, term=2)
    log.close()

    assert indexes(open_log(tmp_path)) == list(range(1, 22))


def test_a_reset_log_begins_behind_the_snapshot(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)

    log.reset(101, 6)
    assert (log.first_index, log.last_index, log.last_term, log.term_at(100)) == (101, 100, 6, 6)
    write(log, 2, term=6)
    log.close()

    again = open_log(tmp_path, committed=102)
    assert indexes(again) == [101, 102]
    assert [again.term_at(i) for i in (99, 100, 101, 102)] == [None, 6, 6, 6]


def test_a_crash_in_a_reset_leaves_a_log_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)
    calls = []

    def crash(path: Path) -> None:
        calls.append(path)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(raft_log, "sync_directory", crash)
        with pytest.raises(Crash):
            log.reset(101, 6)

    assert calls
    assert indexes(open_log(tmp_path)) == list(range(11, 31))


# Reading beside a writer ------------------------------------------------------------------------------------


def test_a_reader_in_another_thread_sees_only_whole_entries(tmp_path: Path) -> None:
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


def test_a_read_only_log_changes_nothing_and_stops_at_a_half_write(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    path = tmp_path / "raft.log"
    os.truncate(path, HEADER_BYTES + 9 * RECORD + 30)
    before = path.read_bytes()

    log = SegmentedLog.open(tmp_path, None, committed_at_least=0, read_only=True)

    assert indexes(log) == list(range(1, 30))
    assert log.recovered.torn_bytes == 30
    assert path.read_bytes() == before


def test_a_closed_log_takes_nothing_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(1, 1, b"late")

    log.close()
    log.close()

    with pytest.raises(SyncFailed, match="closed"):
        log.take_buffer()


def test_what_was_written_only_grows_though_the_log_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 20)
    before = log.written_bytes
    assert log.roll(20)

    log.cut_below(21)

    assert log.written_bytes == before > log.size_bytes
