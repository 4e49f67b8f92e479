"""SegmentedLog and its segments: a full one is sealed, old ones are removed, and a crash in between loses no entry."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.disks.written_log import IDENTITY, indexes, offset_of, open_log, payload, two_sealed, write
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import TRAILER_BYTES, decode_footer, footer_offset, record_seed
from wakeq.storage import files
from wakeq.storage.log import active_segment, segmented_log, segments
from wakeq.storage.log import opening as log_opening
from wakeq.storage.log.segmented_log import EntriesGone, SegmentedLog

# Sealing --------------------------------------------------------------------------------------------------------------


def test_sealed_segment_is_named_after_its_first_index(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)

    assert [path.name for path in paths] == ["raft.log.0000000000000000001", "raft.log.0000000000000000011"]
    again = open_log(tmp_path, committed=30)
    assert (again.first_index, again.last_index) == (1, 30)
    assert indexes(again) == list(range(1, 31))


def test_footer_contains_the_notes_of_the_caller(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[1]

    data = path.read_bytes()
    seed = record_seed(IDENTITY)
    at = footer_offset(data[-TRAILER_BYTES:], seed=seed)
    assert at is not None
    footer = decode_footer(data[at:], at, seed=seed)

    assert footer is not None
    assert (footer.count, footer.first_index, footer.last_index, footer.last_term) == (10, 11, 20, 1)
    assert (footer.notes, footer.terms, footer.blocks[0].first_index) == (b"notes", ((11, 1),), 11)


def test_footer_of_one_large_batch_has_a_block_for_every_4096_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 9000)

    log.roll(9000)

    footer = segments.load_sealed(segments.sealed_paths(tmp_path)[0], IDENTITY, verify=True).footer
    assert [(block.first_index, block.offset) for block in footer.blocks] == [
        (first, offset_of(first)) for first in (1, 4097, 8193)
    ]


def test_segment_with_uncommitted_entries_is_not_sealed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes_max=200)
    assert not log.roll(0)
    write(log, 10)

    assert log.roll_due
    assert not log.roll(9)
    assert log.roll(10)
    assert not log.roll_due
    assert not log.roll(10)


@pytest.mark.parametrize(("committed", "begins"), [(10, 11), (9, 1)])
def test_clean_stop_seals_a_long_committed_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: int, begins: int
) -> None:
    log = open_log(tmp_path)
    write(log, 10)

    # Reading so short a segment at a start takes no time.
    log.seal_for_start(10)
    assert log.active_first_index == 1

    monkeypatch.setattr(segmented_log, "WALKED_BYTES_MAX", log.size_bytes - 1)
    log.seal_for_start(committed)
    log.close()

    again = open_log(tmp_path, committed=committed)
    assert (again.active_first_index, indexes(again)) == (begins, list(range(1, 11)))


def test_entries_appended_during_sealing_go_to_the_next_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 3)
    log.append_many(4, 2, [payload(4)])

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
    ("footer synced", segmented_log, "rename_durably"),
    ("renamed", segmented_log, "create_active"),
    ("new header written", files, "rename_durably"),
]


@pytest.mark.parametrize(("step", "module", "name"), SEALING_STEPS)
def test_crash_while_sealing_loses_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, module: object, name: str
) -> None:
    log = open_log(tmp_path)
    write(log, 5)
    write(log, 5, term=2)

    def crash(*_arguments: object) -> None:
        raise Crash(step)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, crash)
        with pytest.raises(Crash):
            log.roll(10)

    again = open_log(tmp_path, committed=10)
    assert indexes(again) == list(range(1, 11))
    assert again.runs == [(1, 1), (6, 2)]
    write(again, 5, term=2)
    assert len(segments.sealed_paths(tmp_path)) == 1
    assert not list(tmp_path.glob("*.new"))
    again.close()
    assert indexes(open_log(tmp_path, committed=15)) == list(range(1, 16))


@pytest.mark.parametrize("name", ["rename_durably", "create_active"])
def test_crash_while_a_start_finishes_sealing_loses_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    log = open_log(tmp_path)
    write(log, 10)

    def crash(*_arguments: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(segmented_log, "rename_durably", crash)
        patch.setattr(log_opening, name, crash)
        with pytest.raises(Crash):
            log.roll(10)
        with pytest.raises(Crash):
            open_log(tmp_path, committed=10)

    assert indexes(open_log(tmp_path, committed=10)) == list(range(1, 11))
    assert not list(tmp_path.glob("*.new"))


FOOTERS: dict[str, Callable[[bytes], bytes]] = {
    **{f"{kept} bytes kept": lambda footer, kept=kept: footer[:kept] for kept in (1, 4, 11, 40, -1, -17)},  # type: ignore[misc]
    **{f"{lost} bytes lost": lambda footer, lost=lost: bytes(lost) + footer[lost:] for lost in (1, 4, 40)},  # type: ignore[misc]
    "only the trailer": lambda footer: bytes(len(footer) - TRAILER_BYTES) + footer[-TRAILER_BYTES:],
}


@pytest.mark.parametrize("torn", FOOTERS.values(), ids=FOOTERS)
@pytest.mark.parametrize("committed", [10, 9])
def test_torn_footer_is_removed(tmp_path: Path, torn: Callable[[bytes], bytes], committed: int) -> None:
    log = open_log(tmp_path)
    write(log, 10)
    log.roll(10)
    log.close()
    sealed = segments.sealed_paths(tmp_path)[0]
    whole, end = sealed.read_bytes(), offset_of(11)
    (tmp_path / "raft.log").write_bytes(whole[:end] + torn(whole[end:]))
    sealed.unlink()

    again = open_log(tmp_path, committed=committed)

    assert indexes(again) == list(range(1, 11))
    assert again.roll(10)


# Removing entries -----------------------------------------------------------------------------------------------------


def test_cut_removes_only_whole_sealed_segments(tmp_path: Path) -> None:
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


def test_term_before_the_first_entry_is_known_after_a_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for term in (1, 2, 3):
        write(log, 10, term=term)
        log.roll(log.last_index)

    log.cut_below(11)

    assert [log.term_at(index) for index in (9, 10, 11, 21)] == [None, 1, 2, 3]


def test_reader_behind_a_reset_is_told_that_the_entries_are_gone(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)
    reading = log.entries(1)
    next(reading)

    log.reset(101, 6)

    with pytest.raises(EntriesGone, match="entry 11 is gone, the log begins with 101"):
        list(reading)


def test_reader_continues_while_its_segment_is_removed(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)
    reading = log.entries(1)
    next(reading)

    log.cut_below(11)

    assert [index for index, _term, _data in reading] == list(range(2, 31))


def test_truncated_entries_can_be_written_again(tmp_path: Path) -> None:
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


def test_active_segment_can_be_truncated_completely(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)

    log.truncate_from(21)
    assert not log.roll(20)
    write(log, 1, term=2)
    log.close()

    assert indexes(open_log(tmp_path)) == list(range(1, 22))


def test_reset_log_begins_behind_the_snapshot(tmp_path: Path) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)

    log.reset(101, 6)
    assert (log.first_index, log.last_index, log.last_term, log.term_at(100)) == (101, 100, 6, 6)
    write(log, 2, term=6)
    log.close()

    again = open_log(tmp_path, committed=102)
    assert indexes(again) == [101, 102]
    assert [again.term_at(i) for i in (99, 100, 101, 102)] == [None, 6, 6, 6]


def test_crash_in_a_reset_leaves_a_log_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_sealed(tmp_path)
    log = open_log(tmp_path)
    calls = []

    def crash(path: Path) -> None:
        calls.append(path)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(segmented_log, "sync_directory", crash)
        with pytest.raises(Crash):
            log.reset(101, 6)

    assert calls
    assert indexes(open_log(tmp_path)) == list(range(11, 31))


# The disk fails -------------------------------------------------------------------------------------------------------


STEPS: dict[str, tuple[Callable[[SegmentedLog], object], tuple[str, ...]]] = {
    "roll": (lambda log: log.roll(30), ("ftruncate", "pwrite", "fdatasync", "rename", "fsync")),
    "truncate": (lambda log: log.truncate_from(25), ("ftruncate", "fdatasync")),
    "cut": (lambda log: log.cut_below(15), ("unlink", "fsync")),
    "reset": (lambda log: log.reset(101, 6), ("unlink", "pwrite", "fdatasync", "rename", "fsync")),
}


@pytest.mark.parametrize(("name", "step"), [(name, step) for name, (_, steps) in STEPS.items() for step in steps])
def test_log_refuses_every_step_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    def fail(*_args: object, **_options: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    two_sealed(tmp_path)
    log, (action, _) = open_log(tmp_path), STEPS[name]
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(SyncFailed, match="kernel's log"):
            action(log)

    # The disk may work again by now; nobody knows what it lost.
    for again in (SegmentedLog.take_buffer, STEPS["roll"][0], action):
        with pytest.raises(SyncFailed, match="kernel's log"):
            again(log)
