"""Journal: segments are moved into it and removed by age and size; outcomes stay as long as the segments."""

import errno
import os
from pathlib import Path

import pytest

from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import Outcomes, decode_records
from wakeq.storage.log import journal
from wakeq.storage.log.journal import Journal, Keep, OutcomeFiles
from wakeq.storage.log.segmented_log import SegmentedLog

IDENTITY = Identity(bytes(range(16)), 1)
NOW_S = 1_000_000.0


def open_log(path: Path, keep: Keep) -> SegmentedLog:
    folder = path / "consensus"
    folder.mkdir()
    log = SegmentedLog.open(folder, IDENTITY, committed_at_least=0)
    log.journal = Journal(path / "journal", keep, lambda: NOW_S)
    return log


def write_segments(log: SegmentedLog, count: int) -> None:
    """Write and seal segments of ten entries; each is 100 s older than the next."""
    for place in range(count):
        first = log.last_index + 1
        log.append_many(first, 1, [b"payload"] * 10)
        batch = log.take_buffer()
        assert batch is not None
        log.write(batch)
        log.roll(log.last_index)
        path = log.directory / f"raft.log.{first:019d}"
        when_s = NOW_S - 100 * (count - place)
        os.utime(path, (when_s, when_s))


def names(path: Path) -> list[int]:
    return [int(found.name.rpartition(".")[2]) for found in sorted((path / "journal").glob("raft.log.*"))]


def test_segment_removed_from_the_log_is_moved_not_copied(tmp_path: Path) -> None:
    log = open_log(tmp_path, Keep(10_000, 1 << 30))
    write_segments(log, 3)
    before = (tmp_path / "consensus" / f"raft.log.{1:019d}").stat().st_ino

    log.cut_below(21)

    assert names(tmp_path) == [1, 11]
    assert (tmp_path / "journal" / f"raft.log.{1:019d}").stat().st_ino == before
    assert log.first_index == 21


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Keep(10_000, 1 << 30), [1, 11, 21]),
        (Keep(250, 1 << 30), [11, 21]),
        (Keep(10_000, 1), []),
        (Keep(0, 1 << 30), []),
        (Keep(10_000, 0), []),
    ],
)
def test_trim_removes_oldest_segments_by_age_or_size(tmp_path: Path, keep: Keep, left: list[int]) -> None:
    log = open_log(tmp_path, keep)
    write_segments(log, 3)

    log.cut_below(31)

    assert names(tmp_path) == left


def test_record_that_lists_all_queues_begins_an_outcomes_file(tmp_path: Path) -> None:
    files = OutcomeFiles(tmp_path / "journal", IDENTITY)
    first = [Outcomes(0, 5, True, [(2, 3, "q")], []), Outcomes(5, 9, False, [], [(6, 0, -1)])]
    later = Outcomes(9, 12, True, [(2, 4, "q")], [])

    for outcomes in (*first, later):
        files.write(outcomes)
    files.close()

    found = sorted((tmp_path / "journal").glob("outcomes.*"))
    assert [path.name for path in found] == [f"outcomes.{1:019d}", f"outcomes.{10:019d}"]
    assert list(decode_records(found[0].read_bytes(), IDENTITY, found[0])) == first
    assert list(decode_records(found[1].read_bytes(), IDENTITY, found[1])) == [later]


def test_outcomes_record_is_synced_before_write_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(journal, "sync_data", lambda descriptor, path: synced.append(path.stat().st_size))
    files = OutcomeFiles(tmp_path / "journal", IDENTITY)

    files.write(Outcomes(0, 5, True, [], []))
    files.write(Outcomes(5, 9, False, [], []))

    assert synced == sorted(set(synced))
    assert len(synced) == 2


def test_outcomes_are_removed_with_their_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path, Keep(150, 1 << 30))
    log.outcomes = OutcomeFiles(tmp_path / "journal", IDENTITY)
    for after in (0, 10, 20):
        log.outcomes.write(Outcomes(after, after + 10, True, [], []))
    write_segments(log, 3)

    log.cut_below(31)

    assert names(tmp_path) == [21]
    assert [path.name for path in sorted((tmp_path / "journal").glob("outcomes.*"))] == [f"outcomes.{21:019d}"]


def test_clear_removes_and_counts_all_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, Keep(10_000, 1 << 30))
    write_segments(log, 3)
    log.cut_below(21)
    assert log.journal is not None

    cleared = log.journal.clear(), log.journal.clear()

    assert cleared == (2, 0)
    assert names(tmp_path) == []


def test_trim_ignores_segment_that_another_thread_removes(tmp_path: Path) -> None:
    log = open_log(tmp_path, Keep(10_000, 1 << 30))
    assert log.journal is not None
    write_segments(log, 2)
    log.cut_below(11)
    # This file is listed, but cannot be found afterwards.
    (tmp_path / "journal" / f"raft.log.{0:019d}").symlink_to("nowhere")

    log.journal.trim()

    assert log.journal.size_bytes() == (tmp_path / "journal" / f"raft.log.{1:019d}").stat().st_size


def full(monkeypatch: pytest.MonkeyPatch, call: str, code: int = errno.ENOSPC) -> None:
    """Make a system call fail as on a full disk."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_full_disk_drops_history_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    log = open_log(tmp_path, Keep(10_000, 1 << 30))
    write_segments(log, 2)
    log.cut_below(11)
    files = OutcomeFiles(tmp_path / "journal", IDENTITY)
    files.write(Outcomes(0, 5, True, [], []))

    with monkeypatch.context() as patch:
        full(patch, call)
        files.write(Outcomes(5, 9, False, [], []))
        files.write(Outcomes(9, 10, False, [], []))
    files.write(Outcomes(10, 11, False, [], []))

    assert names(tmp_path) == []
    (path,) = (tmp_path / "journal").glob("outcomes.*")
    found = [outcomes.through for outcomes in decode_records(path.read_bytes(), IDENTITY, path)]
    assert found in ([5], [5, 9])
    assert [record.message[:39] for record in caplog.records] == ["the disk is full: removed 1 segments of"]


def test_history_resumes_after_full_disk_when_all_queues_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OutcomeFiles(tmp_path / "journal", IDENTITY)
    with monkeypatch.context() as patch:
        full(patch, "pwrite")
        files.write(Outcomes(0, 5, True, [], []))
    without = list((tmp_path / "journal").iterdir())

    files.write(Outcomes(9, 12, True, [], []))
    files.write(Outcomes(12, 15, False, [], []))

    (path,) = (tmp_path / "journal").glob("outcomes.*")
    # Readers would take a file without a header for a damaged one.
    assert without == []
    assert [outcomes.through for outcomes in decode_records(path.read_bytes(), IDENTITY, path)] == [12, 15]


def test_broken_disk_raises_from_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OutcomeFiles(tmp_path / "journal", IDENTITY)
    full(monkeypatch, "pwrite", errno.EIO)

    with pytest.raises(SyncFailed, match="may be failing"):
        files.write(Outcomes(0, 5, True, [], []))


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_segment_without_room_in_the_journal_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    keeper = Journal(tmp_path / "journal", Keep(10_000, 1 << 30), lambda: NOW_S)
    path = tmp_path / f"raft.log.{1:019d}"
    path.write_bytes(b"history")
    full(monkeypatch, call)

    keeper.take(path)

    assert not path.exists()


def test_broken_disk_raises_when_a_segment_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Journal(tmp_path / "journal", Keep(10_000, 1 << 30), lambda: NOW_S)
    full(monkeypatch, "replace", errno.EIO)

    with pytest.raises(SyncFailed):
        keeper.take(tmp_path / "raft.log")
