"""The journal's reader over files live, stopped, copied, torn, damaged, old, or of several nodes."""

import pickle
import shutil
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from socket import gethostname

import pytest

from tests.helpers.journal.files import CLUSTER, EVERYTHING, JOBS, JournalFiles, publish, rows_of, short
from wakeq.pipeline.journal import directory as journal_directory
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.journal.files import OpenSegment
from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.journal.table import events_of
from wakeq.protocol.errors import DamagedFile, HistoryGone, StorageError
from wakeq.protocol.log.entries import Delivered, PurgeQueue
from wakeq.protocol.log.format import HEADER_BYTES
from wakeq.protocol.uid import uid_of


def test_torn_tail_ends_at_the_last_valid_record(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), publish("b"))
    files.outcomes(0)
    log = files.path / "consensus" / "raft.log"
    whole = log.read_bytes().rstrip(b"\0")

    log.write_bytes(whole[:-1])

    assert [row["index"] for row in rows_of(files.path)] == [1, 2]


def test_rotten_record_of_the_active_log_is_not_its_end(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path)
    for body in ("a", "b", "c"):
        files.write(publish(body))
    log = tmp_path / "consensus" / "raft.log"
    whole = log.read_bytes()
    second = HEADER_BYTES + (len(whole.rstrip(b"\0")) - HEADER_BYTES) // 3  # all three are of one size
    log.write_bytes(whole[: second + 60] + b"!" + whole[second + 61 :])

    with pytest.raises(DamagedFile, match=f"raft.log: at offset {second}: expected entry 2"):
        short(tmp_path)


def test_record_written_during_the_check_of_the_end_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(tmp_path)
    files.write(publish("a"))
    read, looks = OpenSegment.read, list[int]()

    def read_before_two_more_are_written(segment: OpenSegment, offset: int, size: int) -> bytes:
        data = read(segment, offset, size)
        looks.append(offset)
        if looks.count(offset) == 1 and offset > HEADER_BYTES:
            files.write(publish("b"))
            files.write(publish("c"))
        return data

    monkeypatch.setattr(OpenSegment, "read", read_before_two_more_are_written)

    assert [row[0] for row in short(tmp_path)] == [1]


def test_record_cut_off_during_the_check_of_the_end_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node that follows another leader from now on: what it had not confirmed is not what it was."""
    files = JournalFiles(tmp_path)
    for body in ("a", "b", "c"):
        files.write(publish(body))
    log = tmp_path / "consensus" / "raft.log"
    whole = log.read_bytes()
    second = HEADER_BYTES + (len(whole.rstrip(b"\0")) - HEADER_BYTES) // 3  # all three are of one size
    half_written = whole[:second] + bytes(100) + whole[second + 100 :]
    log.write_bytes(half_written)
    read, looks = OpenSegment.read, list[int]()

    def read_before_it_is_cut_off(segment: OpenSegment, offset: int, size: int) -> bytes:
        data = read(segment, offset, size)
        looks.append(offset)
        if looks.count(second) == 2:
            log.write_bytes(whole[:second])
        return data

    monkeypatch.setattr(OpenSegment, "read", read_before_it_is_cut_off)

    assert [row[0] for row in short(tmp_path)] == [1]


def test_damaged_block_of_a_sealed_segment_is_reported(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a" * 1000))
    files.seal()
    files.outcomes(0)
    path = next((files.path / "consensus").glob("raft.log.0*"))
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedFile, match="the block of entry 1"):
        rows_of(files.path)


def test_log_without_outcomes_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data", first_index=50)
    files.write(publish("a"), Delivered("jobs", 7, [3], [99_000], 1), PurgeQueue("jobs"), publish("b"))

    assert short(files.path) == [
        (50, "published", None, "open"),
        (51, "delivered", uid_of(7, 3), "open"),
        (52, "purged", None, "open"),
        (53, "published", uid_of(52, 1), "open"),
    ]


def test_history_is_one_over_sealed_segments_the_journal_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_plan, "SPAN_BYTES_MIN", 1)
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.seal()
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("b"))
    files.seal()
    files.write(publish("c"))
    files.outcomes(2, queues=[(1, 4, "jobs")])

    files.log.cut_below(3)

    assert [path.name for path in (files.path / "journal").glob("raft.log.*")] == [f"raft.log.{1:019d}"]
    assert len(History([files.path]).spans(cores=1000)) > 1
    assert [row["uid"] for row in rows_of(files.path, cores=1000)][1:] == [uid_of(1, number) for number in (1, 2, 3)]


def test_entries_of_several_nodes_are_read_once(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", node=2)
    for files in (one, two):
        files.write(JOBS, publish("a"))
    one.seal()
    for files in (one, two):
        files.write(publish("b"))
    two.seal()
    one.write(publish("c"))
    one.outcomes(0)
    two.outcomes(0)

    assert [row["index"] for row in rows_of(one.path, two.path)] == [1, 2, 3, 4]
    assert [row["index"] for row in rows_of(two.path, one.path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_entries_of_a_lost_leader_do_not_replace_committed_ones(tmp_path: Path, is_sealed: bool) -> None:
    lost, winner, third = (JournalFiles(tmp_path / str(node), node=node) for node in (1, 2, 3))
    for files in (lost, winner, third):
        files.write(JOBS, publish("a"))
    lost.outcomes(0, queues=[(1, 2, "jobs")])
    lost.write(publish("ghost"), publish("ghost"), publish("ghost"))
    for files in (winner, third):
        files.write(publish("b"), term=2)
    third.outcomes(0, queues=[(1, 3, "jobs")])
    winner.write(publish("c"), term=2)
    winner.outcomes(0, queues=[(1, 4, "jobs")])
    winner.write(publish("open"), term=2)
    if is_sealed:
        lost.seal()
        third.seal()

    expected = rows_of(winner.path, wanted=EVERYTHING)

    assert [(row["body"], row["outcome"]) for row in expected[1:]] == [
        (b"a", "done"), (b"b", "done"), (b"c", "done"), (b"open", "open"),
    ]  # fmt: skip
    for order in permutations([lost.path, winner.path, third.path]):
        assert rows_of(*order, wanted=EVERYTHING) == expected
    assert rows_of(lost.path, third.path, wanted=EVERYTHING) == expected[:3], "the lost one has the lower term"


def test_entries_in_the_active_log_of_one_node_are_read_though_another_has_removed_them(tmp_path: Path) -> None:
    slow, fast = (JournalFiles(tmp_path / str(node), node=node) for node in (1, 2))
    for files in (slow, fast):
        files.write(JOBS, publish("a"))
    fast.seal()
    for files in (slow, fast):
        files.write(publish("b"))
    fast.seal()
    fast.write(publish("c"))
    slow.outcomes(0, queues=[(1, 3, "jobs")])
    fast.outcomes(0, queues=[(1, 4, "jobs")])
    next((fast.path / "consensus").glob("raft.log.*1")).unlink()

    assert [row["index"] for row in rows_of(slow.path, fast.path)] == [1, 2, 3, 4]


def test_sealed_entries_of_a_directory_without_outcomes_are_read(tmp_path: Path) -> None:
    old, new = JournalFiles(tmp_path / "old"), JournalFiles(tmp_path / "new", node=2, first_index=3)
    old.write(JOBS, publish("a"))
    old.seal()
    old.write(publish("ghost"))
    new.write(publish("b"))
    new.outcomes(2, queues=[(1, 3, "jobs")])

    for order in permutations([old.path, new.path]):
        rows = rows_of(*order, wanted=EVERYTHING)
        assert [(row["body"], row["outcome"]) for row in rows] == [(None, "open"), (b"a", "open"), (b"b", "done")]


def test_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", cluster=CLUSTER[::-1])

    with pytest.raises(StorageError, match="different clusters"):
        History([one.path, two.path])


def test_segment_sealed_or_moved_during_a_read_is_found_again(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    segment = History([files.path]).stretches[0].segment

    files.seal()
    files.write(publish("b"))
    files.log.cut_below(3)

    opened = segment.open()
    assert Path(opened.name).parent.name == "journal"
    opened.close()
    shutil.rmtree(files.path / "journal")
    with pytest.raises(HistoryGone, match="removed meanwhile"):
        segment.open()


@pytest.mark.parametrize("look", [1, 2, 3])
def test_segment_sealed_between_two_listings_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    segment = History([files.path]).stretches[0].segment
    looks, open_segment = 0, journal_directory.open_segment

    def sealed_meanwhile(path: Path) -> OpenSegment:
        nonlocal looks
        looks += 1
        if looks == look:
            files.seal()
        return open_segment(path)

    monkeypatch.setattr(journal_directory, "open_segment", sealed_meanwhile)

    opened = segment.open()
    assert Path(opened.name).name == f"raft.log.{1:019d}"
    opened.close()


def test_first_segment_sealed_between_two_listings_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    exists, active = Path.exists, files.path / "consensus" / "raft.log"
    seals = [files.seal]

    def exists_after_a_seal(path: Path) -> bool:
        if path == active and seals:
            seals.pop()()
            files.write(publish("b"))
        return exists(path)

    monkeypatch.setattr(Path, "exists", exists_after_a_seal)

    assert History([files.path]).first_index == 1


def after_listing(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object], *folders: str) -> None:
    """Call `then` once, after one of these folders was listed."""
    glob, calls = Path.glob, [then]

    def glob_and_call(path: Path, pattern: str) -> list[Path]:
        found = list(glob(path, pattern))
        if calls and path.name in folders:
            calls.pop()()
        return found

    monkeypatch.setattr(Path, "glob", glob_and_call)


def test_segment_moved_into_the_journal_between_two_listings_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(tmp_path / "data")
    for body in ("a", "b", "c"):
        files.write(publish(body))
        files.seal()
    files.write(publish("d"))
    after_listing(monkeypatch, lambda: files.log.cut_below(2), "consensus", "journal")

    assert [stretch.first_index for stretch in History([files.path]).stretches] == [1, 2, 3, 4]


@pytest.mark.parametrize("has_next", [True, False])
def test_segment_sealed_after_the_log_was_listed_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_next: bool
) -> None:
    files = JournalFiles(tmp_path / "data")
    for body in ("a", "b"):
        files.write(publish(body))
        files.seal()
    files.write(publish("c"))

    def seal() -> None:
        files.seal()
        if not has_next:
            (files.path / "consensus" / "raft.log").unlink()

    after_listing(monkeypatch, seal, "consensus")

    assert [row[0] for row in short(files.path)] == [1, 2, 3]


def test_queue_and_time_choose_rows(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), publish("b", queue="other"), publish("c"))
    files.outcomes(0)
    at = {row["index"]: int(row["at"].timestamp() * 1000) for row in rows_of(files.path)}

    chosen = rows_of(files.path, wanted=Wanted(queue="jobs", since_ms=at[2], until_ms=at[4]))

    assert [row["index"] for row in chosen] == [2]
    assert rows_of(files.path, wanted=Wanted(queue="nowhere")) == []


def test_segments_of_another_time_are_not_read(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS)
    for after in range(6):
        files.write(publish("a"))
        files.outcomes(after + (after > 0), queues=[(1, 2 + after, "jobs")])
        files.seal()
    everything = rows_of(files.path)
    at = {row["index"]: int(row["at"].timestamp() * 1000) for row in everything}

    chosen = Wanted(since_ms=at[4], until_ms=at[6])
    (span,) = History([files.path]).spans(cores=1, since_ms=at[4], until_ms=at[6])

    assert [stretch.first_index for stretch in span.stretches] == [3, 4, 5], "entry 3 may be of the same moment as 4"
    assert rows_of(files.path, wanted=chosen) == [row for row in everything if 4 <= row["index"] < 6]
    assert rows_of(files.path, wanted=Wanted(since_ms=at[7] + 1)) == []
    assert rows_of(files.path, wanted=Wanted(until_ms=at[1])) == []


def test_path_of_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"{tmp_path / 'nowhere'}: does not exist"):
        History([tmp_path / "nowhere"])
    with pytest.raises(StorageError, match="not a data directory"):
        History([tmp_path])


def test_relative_path_is_absolute_for_tasks_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    monkeypatch.chdir(tmp_path)
    (span,) = History(["data"]).spans(cores=1)

    monkeypatch.chdir("/")

    assert [batch.num_rows for batch in events_of(pickle.loads(pickle.dumps(span)))] == [2]


def test_directory_that_a_task_does_not_see_is_named_with_its_machine(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    (span,) = History([files.path]).spans(cores=1)

    files.path.rename(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match=f"^{gethostname()} does not see {files.path}: read from the HTTP port"):
        list(events_of(span))


def test_directory_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    (span,) = History([files.path]).spans(cores=1)

    def refuse(path: Path, _: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(journal_directory.os, "open", refuse)

    with pytest.raises(StorageError, match=r"raft\.log: Permission denied; read it as the user of the broker"):
        History([files.path])
    with pytest.raises(StorageError, match="Permission denied"):
        list(events_of(span))
