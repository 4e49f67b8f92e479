"""HistoryFiles: what a node lists, and what it opens, while its log is written, sealed and cut."""

from pathlib import Path

import pytest

from tests.helpers.journal.files import AT_MS, CLUSTER, JOBS, JournalFiles, publish
from wakeq.protocol.errors import DamagedFile, HistoryGone, StorageError
from wakeq.protocol.log.format import BLOCK_BYTES, HEADER_BYTES
from wakeq.storage.log import history as log_history
from wakeq.storage.log.history import HistoryFile, HistoryFiles
from wakeq.storage.log.segmented_log import ActiveCopy


def made(path: Path) -> JournalFiles:
    """A history of a segment in the journal, a sealed one in the log, and an active one."""
    files = JournalFiles(path / "data")
    files.write(JOBS, publish("a"))
    files.seal()
    files.outcomes(0)
    files.write(publish("b"), term=2)
    files.seal()
    files.write(publish("c"), publish("d"), term=3)
    files.log.cut_below(3)
    return files


def test_listing_has_the_journal_the_log_and_the_active_segment(tmp_path: Path) -> None:
    files = made(tmp_path)

    listing = HistoryFiles(files.log).listing()

    assert (listing.cluster, listing.node) == (CLUSTER.hex(), 1)
    assert [(one.first_index, one.last_index, one.last_term, one.is_sealed) for one in listing.segments] == [
        (1, 2, 1, True), (3, 3, 2, True), (4, 5, 3, False),
    ]  # fmt: skip
    assert [one.first_ms for one in listing.segments] == [AT_MS + 1000 * index for index in (1, 3, 4)]
    assert [(one.first_index, one.size_bytes > 0) for one in listing.outcomes] == [(1, True)]


def test_listing_of_an_empty_active_segment_names_the_entry_before_it(tmp_path: Path) -> None:
    files = made(tmp_path)
    files.seal()

    newest = HistoryFiles(files.log).listing().segments[-1]

    assert (newest.first_index, newest.last_index, newest.last_term, newest.first_ms) == (6, 5, 3, None)
    assert newest.size_bytes == HEADER_BYTES


def test_listing_of_a_node_without_history_has_its_log(tmp_path: Path) -> None:
    files = made(tmp_path)
    files.log.journal = None

    listing = HistoryFiles(files.log).listing()

    assert [one.first_index for one in listing.segments] == [3, 4]
    assert listing.outcomes == []


def test_listing_names_the_blocks_of_the_active_segment(tmp_path: Path) -> None:
    files = made(tmp_path)
    for _ in range(4):
        files.write(publish("x" * (BLOCK_BYTES // 2)), term=3)

    newest = HistoryFiles(files.log).listing().segments[-1]

    assert (newest.last_index, newest.last_term) == (9, 3)
    assert [index for index, _ in newest.blocks] == [4, 8]
    assert newest.blocks[0][1] == HEADER_BYTES
    assert newest.blocks[1][1] > BLOCK_BYTES


def test_segment_sealed_while_the_list_is_made_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    copy_active = files.log.copy_active

    def copy_before_a_seal() -> ActiveCopy:
        copy = copy_active()
        if files.log.active_first_index == 4:
            files.seal()
        return copy

    monkeypatch.setattr(files.log, "copy_active", copy_before_a_seal)
    listing = HistoryFiles(files.log).listing()

    assert [(one.first_index, one.is_sealed) for one in listing.segments] == [(1, True), (3, True), (4, False)]


def test_segment_removed_while_the_list_is_made_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    history, journal = HistoryFiles(files.log), files.log.journal
    assert journal is not None
    open_segment = history.open_segment

    def open_after_a_removal(first_index: int) -> HistoryFile:
        journal.clear()
        return open_segment(first_index)

    monkeypatch.setattr(history, "open_segment", open_after_a_removal)

    assert [one.first_index for one in history.listing().segments] == [3, 4]


def test_block_that_begins_behind_the_end_is_not_the_last_one(tmp_path: Path) -> None:
    """The end moves after a block was marked, and before the marks of removed entries go."""
    files = made(tmp_path)
    active = files.log._active
    active.marks.append((6, active.end))

    newest = HistoryFiles(files.log).listing().segments[-1]

    assert (newest.last_index, newest.last_term, newest.blocks) == (5, 3, [(4, HEADER_BYTES)])


def test_last_entry_of_a_segment_that_is_cut_off_meanwhile_is_one_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = made(tmp_path)
    for _ in range(4):
        files.write(publish("x" * (BLOCK_BYTES // 2)), term=3)
    copy_active = files.log.copy_active

    def copy_before_a_truncation() -> ActiveCopy:
        copy = copy_active()
        files.log.truncate_from(7)
        return copy

    monkeypatch.setattr(files.log, "copy_active", copy_before_a_truncation)
    newest = HistoryFiles(files.log).listing().segments[-1]

    assert [index for index, _ in newest.blocks] == [4, 8], "as they were"
    assert (newest.last_index, newest.last_term) == (6, 3)


def test_log_that_was_closed_is_told_as_that(tmp_path: Path) -> None:
    files = made(tmp_path)
    files.log.close()

    with pytest.raises(StorageError, match=r"raft\.log: the log is closed"):
        HistoryFiles(files.log).open_segment(4)


def test_segment_that_is_sealed_during_the_search_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    copy_active, looks = files.log.copy_active, list[int]()

    def copy_of_a_later_segment() -> ActiveCopy:
        looks.append(1)
        if len(looks) == 1:
            files.seal()
        return copy_active()

    monkeypatch.setattr(files.log, "copy_active", copy_of_a_later_segment)
    file = HistoryFiles(files.log).open_segment(4)

    assert file.path.name == f"raft.log.{4:019d}"
    file.close()


def test_segment_that_is_moved_during_the_search_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    opened, looks = log_history._opened, list[Path]()

    def opened_after_a_move(path: Path) -> HistoryFile:
        looks.append(path)
        if len(looks) == 1:
            files.log.cut_below(4)
        return opened(path)

    monkeypatch.setattr(log_history, "_opened", opened_after_a_move)
    file = HistoryFiles(files.log).open_segment(3)

    assert [path.parent.name for path in looks] == ["consensus", "journal"]
    file.close()


def test_segment_that_was_removed_is_gone(tmp_path: Path) -> None:
    files = made(tmp_path)
    assert files.log.journal is not None
    files.log.journal.clear()

    with pytest.raises(HistoryGone, match=r"segment from entry 1 was removed; read again, and set journal\.keep_s"):
        HistoryFiles(files.log).open_segment(1)
    with pytest.raises(HistoryGone, match="the outcomes from entry 3 were removed"):
        HistoryFiles(files.log).open_outcomes(3)
    assert [one.first_index for one in HistoryFiles(files.log).listing().segments] == [3, 4]


def test_open_segment_stays_readable_when_it_is_removed(tmp_path: Path) -> None:
    files = made(tmp_path)
    file = HistoryFiles(files.log).open_segment(1)
    whole = file.read(0, file.size_bytes)

    assert files.log.journal is not None
    files.log.journal.clear()

    assert file.read(0, file.size_bytes) == whole
    file.close()


def test_active_segment_ends_behind_its_last_entry(tmp_path: Path) -> None:
    files = made(tmp_path)

    file = HistoryFiles(files.log).open_segment(4)

    data = (files.path / "consensus" / "raft.log").read_bytes()
    assert file.size_bytes == len(data.rstrip(b"\0"))
    assert len(data) > file.size_bytes, "zeros are written ahead"
    file.close()


def test_damaged_segment_is_named(tmp_path: Path) -> None:
    files = made(tmp_path)
    path = files.path / "consensus" / f"raft.log.{3:019d}"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(DamagedFile, match=path.name):
        HistoryFiles(files.log).listing()
