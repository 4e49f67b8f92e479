"""The archive: each event once, whatever stops a run, and only what is settled."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.helpers.journal.files import AT_MS, CLUSTER, EVERYTHING, JournalFiles, rows_of
from wakeq.pipeline import lake as archive_module
from wakeq.pipeline.journal import walk as journal_walk
from wakeq.pipeline.lake import archive, check_lake
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadSettings, DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log.entries import Ack, CreateQueue, Draft, Publish

DAY_ENTRIES = 24 * 3600


class Killed(BaseException):
    """The run ends here."""


def files_of(lake: Path) -> list[Path]:
    return sorted(lake.glob("date=*/*.parquet"))


def archived(lake: Path) -> list[dict[str, Any]]:
    tables = [parquet.ParquetFile(path).read() for path in files_of(lake)]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return sorted(rows, key=lambda row: (row["index"], row["place"]))


def history(tmp_path: Path, batches: int = 4) -> JournalFiles:
    """Some batches of lives, each in a segment of its own; all but the last message are acknowledged."""
    files = JournalFiles(tmp_path / "data")
    files.write(CreateQueue("jobs", Policies()))
    for batch in range(batches):
        add(files, batch)
    return files


def add(files: JournalFiles, batch: int) -> None:
    after, first = files.log.last_index, 3 * batch + 1
    files.write(
        Publish("jobs", [Draft(b"body %d" % place) for place in range(3)]),
        Ack("jobs", 1, [first, first + 1], [(1, 1), (1, 2)]),
    )
    files.outcomes(after if batch else 0, (files.log.last_index, 1, -1), queues=[(1, first + 3, "jobs")])
    files.seal()


def same(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    return rows == [{name: row[name] for name in archive_module.COLUMNS[True]} for row in expected]


def test_lake_has_each_event_once_and_a_second_run_adds_new_events(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"

    first = archive([files.path], lake, bodies=True)
    idle = archive([files.path], lake, bodies=True)
    add(files, 4)
    second = archive([files.path], lake, bodies=True)

    assert (first.events, idle.events, second.events) == (21, 0, 5)
    assert same(archived(lake), rows_of(files.path, wanted=EVERYTHING))


def test_bodies_are_archived_only_if_they_are_asked_for(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"

    archive([files.path], lake)

    assert all("body" not in row for row in archived(lake))


@pytest.mark.parametrize("bodies", [True, False])
def test_lake_with_bodies_takes_no_archive_without_them_nor_the_reverse(tmp_path: Path, bodies: bool) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    other = JournalFiles(tmp_path / "two" / "data", cluster=CLUSTER[::-1])
    other.write(CreateQueue("other", Policies()))
    other.outcomes(0, queues=[(1, 1, "other")])
    archive([files.path], lake, bodies=bodies)

    for path in (files.path, other.path):
        with pytest.raises(BadSettings, match="or into another folder"):
            archive([path], lake, bodies=not bodies)

    assert archive([other.path], lake, bodies=bodies).events == 1


@pytest.mark.parametrize("version", [2, 4])
def test_lake_of_another_version_is_refused_for_adding_and_for_reading(tmp_path: Path, version: int) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    archive([files.path], lake)
    (path,) = (lake / "_wakeq").glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))

    for refused in (lambda: archive([files.path], lake), lambda: check_lake(lake)):
        with pytest.raises(WrongVersion, match=f"holds version {version}, this release reads 3; .* an empty folder"):
            refused()


def test_concurrent_archives_do_not_touch_each_others_files(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    heard: list[str] = []

    def begin_another(_events: int, _through: int) -> None:
        with pytest.raises(StorageError, match="another archive is writing to it") as refused:
            archive([files.path], lake)
        heard.append(str(refused.value))

    archive([files.path], lake, tell=begin_another)

    assert heard
    assert archive([files.path], lake).events == 0


def test_entries_without_an_outcome_are_left_for_a_later_archive(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    files.write(Publish("jobs", [Draft(b"open")]))

    archive([files.path], lake)
    before = [row["outcome"] for row in archived(lake)]
    files.outcomes(files.log.last_index - 1, queues=[(1, 14, "jobs")])
    archive([files.path], lake)

    assert "open" not in before
    assert len(archived(lake)) == len(before) + 1
    assert archived(lake)[-1]["outcome"] == "done"


def test_archive_survives_a_kill_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, lake = history(tmp_path, batches=6), tmp_path / "lake"
    monkeypatch.setattr(archive_module, "STEP_EVENTS", 5)
    monkeypatch.setattr(journal_walk, "PIECE_BYTES", 1)
    replace, kills = os.replace, 0

    for moment in range(200):
        calls = 0

        def killing(source: Path, target: Path, moment: int = moment) -> None:
            nonlocal calls
            calls += 1
            if calls > moment % 3:
                if moment % 2:
                    replace(source, target)
                raise Killed
            replace(source, target)

        monkeypatch.setattr(archive_module.os, "replace", killing)
        try:
            archive([files.path], lake, bodies=True)
        except Killed:
            kills += 1
        else:
            break

    assert kills >= 3
    assert same(archived(lake), rows_of(files.path, wanted=EVERYTHING))
    assert not list(lake.glob("date=*/.*"))


def test_numbers_continue_at_the_end_of_the_lake_within_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, lake = history(tmp_path, batches=1), tmp_path / "lake"
    monkeypatch.setattr(archive_module, "STEP_EVENTS", 1)
    archive([files.path], lake)
    files.log.cut_below(4)
    add(files, 1)
    for path in (files.path / "journal").glob("outcomes.*"):
        if int(path.name.rpartition(".")[2]) < 4:
            path.unlink()

    archive([files.path], lake)

    uids = [row["uid"] for row in archived(lake) if row["event"] == "published"]
    assert len(set(uids)) == len(uids) == 6


def test_files_of_a_lake_cover_one_day(tmp_path: Path) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    until_midnight = DAY_ENTRIES - AT_MS // 1000 % DAY_ENTRIES
    files.write(*[Publish("jobs", [Draft(b"")]) for _ in range(until_midnight + 10)])
    files.outcomes(0, queues=[(1, until_midnight + 11, "jobs")])

    archive([files.path], lake)

    assert [path.parent.name for path in files_of(lake)] == ["date=2023-11-14", "date=2023-11-15"]
    for path in files_of(lake):
        days = {row["at"].strftime("date=%Y-%m-%d") for row in parquet.ParquetFile(path).read(["at"]).to_pylist()}
        assert days == {path.parent.name}


def test_entries_removed_before_the_archive_are_counted(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    files.log.cut_below(4)
    next((files.path / "journal").glob("raft.log.*")).unlink()

    done = archive([files.path], lake)

    assert done.missing == 3
    assert archived(lake)[0]["index"] == 4


def test_lake_waits_for_missing_entries_until_it_may_skip_them(tmp_path: Path) -> None:
    files, lake, skipping = history(tmp_path), tmp_path / "lake", tmp_path / "skipping"
    shutil.copytree(files.path, tmp_path / "other")
    files.log.cut_below(6)
    sorted((files.path / "journal").glob("raft.log.*"))[1].unlink()

    for _ in range(2):
        with pytest.raises(StorageError, match=r"entries 4 to 5 are in none .* other nodes .* --skip-gaps"):
            archive([files.path], lake, bodies=True)
        assert [row["index"] for row in archived(lake)] == [1, 2, 2, 2, 3, 3]
    skipped = archive([files.path], skipping, bodies=True, skip_gaps=True)
    archive([files.path, tmp_path / "other"], lake, bodies=True)

    assert (skipped.missing, skipped.events) == (2, 16)
    assert same(archived(lake), rows_of(tmp_path / "other", wanted=EVERYTHING))


def test_entries_without_any_outcome_are_a_gap(tmp_path: Path) -> None:
    files, lake, other = history(tmp_path, batches=1), tmp_path / "lake", tmp_path / "other"
    files.write(Publish("jobs", [Draft(b"refused")]))
    shutil.copytree(files.path, other)
    files.outcomes(3, queues=[(1, 4, "jobs")])
    shutil.copytree(files.path / "journal", other / "journal", dirs_exist_ok=True)
    for path in (files.path / "journal").glob(f"outcomes.{4:019d}"):
        path.unlink()
    add(files, 1)

    with pytest.raises(StorageError, match="or nothing in them says what became of them"):
        archive([files.path], lake, bodies=True)
    before = archived(lake)
    archive([files.path, other], lake, bodies=True)

    assert [row["index"] for row in before] == [1, 2, 2, 2, 3, 3]
    assert same(archived(lake), rows_of(files.path, other, wanted=EVERYTHING))
    assert {row["outcome"] for row in archived(lake)} == {"done", "unknown"}


def test_lakes_keep_clusters_apart(tmp_path: Path) -> None:
    one, lake = history(tmp_path / "one"), tmp_path / "lake"
    two = JournalFiles(tmp_path / "two" / "data", cluster=CLUSTER[::-1])
    two.write(CreateQueue("other", Policies()))
    two.outcomes(0, queues=[(1, 1, "other")])

    done = [archive([path], lake).events for path in (one.path, two.path, one.path, two.path)]

    assert done == [21, 1, 0, 0]
    assert len(archived(lake)) == 22


def test_clusters_with_similar_ids_do_not_touch_each_others_files(tmp_path: Path) -> None:
    one, lake = history(tmp_path / "one"), tmp_path / "lake"
    two = JournalFiles(tmp_path / "two" / "data", cluster=CLUSTER[:15] + b"?")
    two.write(CreateQueue("other", Policies()))
    two.outcomes(0, queues=[(1, 1, "other")])

    for path in (one.path, two.path, one.path):
        archive([path], lake)

    assert len(archived(lake)) == 22


def test_power_loss_keeps_every_file_that_the_note_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, lake = history(tmp_path), tmp_path / "some" / "where" / "lake"
    synced: dict[Path, set[str]] = {}  # what each folder holds also after a loss of power
    fsync, replace = os.fsync, os.replace

    def remember(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            synced[path] = {entry.name for entry in path.iterdir()}
        fsync(descriptor)

    def survives(path: Path) -> bool:
        ways = (one for one in (path, *path.parents) if tmp_path in one.parents)
        return all(one.name in synced.get(one.parent, ()) for one in ways)

    def check(source: Path, target: Path) -> None:
        replace(source, target)
        if target.suffix == ".json":
            assert all(survives(path) for path in files_of(lake))

    monkeypatch.setattr(archive_module.os, "fsync", remember)
    monkeypatch.setattr(archive_module.os, "replace", check)

    archive([files.path], lake)

    assert survives(next((lake / "_wakeq").glob("*.json")))
    assert files_of(lake)


def test_damaged_note_and_empty_directory_are_refused(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    archive([files.path], lake)
    next((lake / "_wakeq").glob("*.json")).write_text("{}")
    (tmp_path / "empty" / "consensus").mkdir(parents=True)

    with pytest.raises(DamagedFile, match="how far this lake has come"):
        archive([files.path], lake)
    with pytest.raises(StorageError, match="nothing has happened"):
        archive([tmp_path / "empty"], lake)
