"""The archive: each event once, only what is settled, and the same on every kind of place."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.helpers.journal.files import AT_MS, CLUSTER, JournalFiles
from tests.helpers.lakes.lives import add, history, rows_in, told_by, without_cluster
from tests.helpers.lakes.places import EXCLUSIVE, Kind
from wakeq.pipeline.lake import archiving
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.notes import Notes
from wakeq.pipeline.lake.reading import Lake
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadSettings, DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log.entries import CreateQueue, Draft, Publish

DAY_ENTRIES = 24 * 3600


def files_of(lake: Path) -> list[Path]:
    return sorted(lake.glob("date=*/*.parquet"))


def note_of(lake: Path) -> Path:
    (path,) = (lake / "_wakeq" / CLUSTER.hex()).glob("*.json")
    return path


def test_lake_has_each_event_once_and_a_second_run_adds_new_events(kind: Kind, memory: Path) -> None:
    files, lake = history(memory), kind.address()

    first = archive([files.path], lake, bodies=True)
    idle = archive([files.path], lake, bodies=True)
    add(files, 4)
    second = archive([files.path], lake, bodies=True)

    assert (first.events, idle.events, second.events) == (21, 0, 5)
    assert without_cluster(rows_in(lake)) == told_by(files.path)


def test_bodies_are_archived_only_if_they_are_asked_for(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"

    archive([files.path], lake)

    assert all("body" not in row for row in rows_in(lake))


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


@pytest.mark.parametrize("version", [3, 5])
def test_lake_of_another_version_is_refused_for_adding_and_for_reading(tmp_path: Path, version: int) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    archive([files.path], lake)
    path = lake / "_wakeq" / "lake.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))

    for refused in (lambda: archive([files.path], lake), lambda: Lake(lake)):
        with pytest.raises(WrongVersion, match=f"holds version {version}, this release reads 4; .* an empty folder"):
            refused()


def test_lake_of_a_release_without_facts_is_refused(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    (lake / "_wakeq").mkdir(parents=True)
    (lake / "_wakeq" / f"{CLUSTER.hex()}.json").write_text('{"version": 3}')

    for refused in (lambda: archive([files.path], lake), lambda: Lake(lake)):
        with pytest.raises(WrongVersion, match="holds version 3 or an earlier one, this release reads 4"):
            refused()


def test_entries_without_an_outcome_are_left_for_a_later_archive(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    files.write(Publish("jobs", [Draft(b"open")]))

    archive([files.path], lake)
    before = [row["outcome"] for row in rows_in(lake)]
    files.outcomes(files.log.last_index - 1, queues=[(1, 14, "jobs")])
    archive([files.path], lake)

    assert "open" not in before
    assert len(rows_in(lake)) == len(before) + 1
    assert rows_in(lake)[-1]["outcome"] == "done"


def test_numbers_continue_at_the_end_of_the_lake_within_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, lake = history(tmp_path, batches=1), tmp_path / "lake"
    monkeypatch.setattr(archiving, "STEP_EVENTS", 1)
    archive([files.path], lake)
    files.log.cut_below(4)
    add(files, 1)
    for path in (files.path / "journal").glob("outcomes.*"):
        if int(path.name.rpartition(".")[2]) < 4:
            path.unlink()

    archive([files.path], lake)

    uids = [row["uid"] for row in rows_in(lake) if row["event"] == "published"]
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
    assert rows_in(lake)[0]["index"] == 4


def test_lake_waits_for_missing_entries_until_it_may_skip_them(tmp_path: Path) -> None:
    files, lake, skipping = history(tmp_path), tmp_path / "lake", tmp_path / "skipping"
    shutil.copytree(files.path, tmp_path / "other")
    files.log.cut_below(6)
    sorted((files.path / "journal").glob("raft.log.*"))[1].unlink()

    for _ in range(2):
        with pytest.raises(StorageError, match=r"entries 4 to 5 are in none .* other nodes .* --skip-gaps"):
            archive([files.path], lake, bodies=True)
        assert [row["index"] for row in rows_in(lake)] == [1, 2, 2, 2, 3, 3]
    skipped = archive([files.path], skipping, bodies=True, skip_gaps=True)
    archive([files.path, tmp_path / "other"], lake, bodies=True)

    assert (skipped.missing, skipped.events) == (2, 16)
    assert without_cluster(rows_in(lake)) == told_by(tmp_path / "other")


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
    before = rows_in(lake)
    archive([files.path, other], lake, bodies=True)

    assert [row["index"] for row in before] == [1, 2, 2, 2, 3, 3]
    assert without_cluster(rows_in(lake)) == told_by(files.path, other)
    assert {row["outcome"] for row in rows_in(lake)} == {"done", "unknown"}


def test_lakes_keep_clusters_apart(tmp_path: Path) -> None:
    one, lake = history(tmp_path / "one"), tmp_path / "lake"
    two = JournalFiles(tmp_path / "two" / "data", cluster=CLUSTER[::-1])
    two.write(CreateQueue("other", Policies()))
    two.outcomes(0, queues=[(1, 1, "other")])

    done = [archive([path], lake).events for path in (one.path, two.path, one.path, two.path)]

    assert done == [21, 1, 0, 0]
    assert len(rows_in(lake)) == 22


def test_clusters_with_similar_ids_do_not_touch_each_others_files(tmp_path: Path) -> None:
    one, lake = history(tmp_path / "one"), tmp_path / "lake"
    two = JournalFiles(tmp_path / "two" / "data", cluster=CLUSTER[:15] + b"?")
    two.write(CreateQueue("other", Policies()))
    two.outcomes(0, queues=[(1, 1, "other")])

    for path in (one.path, two.path, one.path):
        archive([path], lake)

    assert len(rows_in(lake)) == 22


def test_power_loss_keeps_every_file_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, lake = history(tmp_path), tmp_path / "some" / "where" / "lake"
    monkeypatch.setattr(archiving, "STEP_EVENTS", 6)
    # What each folder holds, and the size of each file, also after a loss of power.
    synced: dict[Path, set[str]] = {}
    written: dict[int, int] = {}
    fsync, link, unlink = os.fsync, os.link, os.unlink

    def remember(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            synced[path] = {entry.name for entry in path.iterdir()}
        else:
            written[path.stat().st_ino] = path.stat().st_size
        fsync(descriptor)

    def survives(path: Path) -> bool:
        ways = (one for one in (path, *path.parents) if tmp_path in one.parents)
        return all(one.name in synced.get(one.parent, ()) for one in ways) and written[path.stat().st_ino] > 0

    def check_unfinished(source: Path, target: Path) -> None:
        if target.parent.name == CLUSTER.hex():
            note = json.loads(source.read_text())
            assert all(survives(lake / name) for name in note["files"])
            checked.append(target.name)
        link(source, target)

    def check_finished(path: Path) -> None:
        if path.suffix == ".json" and path.parent.name == CLUSTER.hex():
            assert survives(note_before[0]), "the note that takes its place"
            assert all(survives(one) for one in files_of(lake))
            checked.append(path.name)
        unlink(path)

    checked: list[str] = []
    note_before: list[Path] = []
    monkeypatch.setattr(os, "fsync", remember)
    monkeypatch.setattr(os, "link", check_unfinished)
    monkeypatch.setattr(os, "unlink", lambda path: check_finished(Path(path)))
    monkeypatch.setattr(
        Notes, "_finish", lambda self, *args, finish=Notes._finish: (
            note_before.insert(0, lake / self._name(self._number)), finish(self, *args)
        )
    )  # fmt: skip

    archive([files.path], lake)

    assert survives(note_of(lake))
    assert len(checked) >= 5


def test_step_ends_at_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    monkeypatch.setattr(archiving, "STEP_BYTES", 1)

    assert archive([files.path], lake, bodies=True).files == 4
    assert without_cluster(rows_in(lake)) == told_by(files.path)


def test_damaged_note_and_damaged_facts_are_refused(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    archive([files.path], lake)
    note_of(lake).write_text("{", encoding="utf-8")

    with pytest.raises(DamagedFile, match=r"0001.json: .* what an archive has written, found '{'; restore the lake"):
        archive([files.path], lake)
    (lake / "_wakeq" / "lake.json").write_text("{}")
    with pytest.raises(DamagedFile, match=r"lake.json"):
        archive([files.path], lake)


def test_directory_in_which_nothing_happened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "consensus").mkdir(parents=True)

    with pytest.raises(StorageError, match="nothing has happened"):
        archive([tmp_path / "empty"], tmp_path / "lake")


@pytest.mark.parametrize("kind", EXCLUSIVE, indirect=True)
def test_two_first_archives_that_differ_in_bodies_make_one_lake(kind: Kind, memory: Path) -> None:
    files, address = history(memory), kind.address()

    def another() -> None:
        archive([files.path], address, bodies=True)

    with kind.at_write(1, another, after=False), pytest.raises(BadSettings, match="has bodies; archive with --bodies"):
        archive([files.path], address)

    assert without_cluster(rows_in(address)) == told_by(files.path)


def test_archive_says_whether_its_place_creates_a_name_once(kind: Kind, memory: Path) -> None:
    files, address = history(memory), kind.address()

    assert [archive([files.path], address).is_exclusive for _ in range(2)] == [kind.name in EXCLUSIVE] * 2
