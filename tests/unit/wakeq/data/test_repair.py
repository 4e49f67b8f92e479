"""Repair: the diagnosis of a damaged data directory, and the steps that follow from it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.disks.written_log import RECORD, change, flip, offset_of, write
from wakeq.data.inspect import inspect
from wakeq.data.opening import DataFiles, open_all
from wakeq.data.repair import carry_out, examine
from wakeq.protocol.errors import DamagedFile, DirectoryInUse
from wakeq.protocol.log.format import RECORD_BYTES
from wakeq.storage.directory import DataDirectory
from wakeq.storage.state.environment import DATA_FILE
from wakeq.storage.state.store import QUEUES, Checkpoint


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    open_all(path, upgrade=False, segment_bytes_max=1 << 20).close()
    return path


def test_repair_of_a_sound_directory_does_nothing(data_dir: Path) -> None:
    found = examine(data_dir)

    assert (found.damage, found.steps, found.hopeless) == ([], [], "")


def test_damaged_state_is_renamed(data_dir: Path) -> None:
    data = data_dir / "state" / DATA_FILE
    data.write_bytes(bytes(data.stat().st_size))

    found = examine(data_dir)
    done = carry_out(data_dir, found)

    assert [step.why for step in found.steps] == ["the next start rebuilds it from the log"]
    assert done == [f"{data.parent} is now state.damaged-1"]
    assert examine(data_dir).steps == [], "one repair is enough"
    open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20).close()
    assert examine(data_dir).damage == []


def empty(state: Path) -> None:
    (state / DATA_FILE).write_bytes(b"")


def remove_file(state: Path) -> None:
    (state / DATA_FILE).unlink()


@pytest.mark.parametrize(
    ("lose", "what"), [(empty, "an empty file"), (remove_file, "no file"), (shutil.rmtree, "no file")]
)
def test_missing_state_needs_no_repair(data_dir: Path, lose: Callable[[Path], None], what: str) -> None:
    lose(data_dir / "state")

    found = examine(data_dir)

    assert found.damage == [
        f"state: {data_dir / 'state' / DATA_FILE}: at offset 0: expected an LMDB environment, found {what}; "
        "start the node on it, it makes a new one from its snapshot and its log"
    ]
    assert (found.steps, found.hopeless) == ([], "")
    open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20).close()
    assert examine(data_dir).damage == []


def with_batches(data_dir: Path, *, committed: int) -> DataFiles:
    """Append entries 1..30 to the log, ten at a time, and keep the directory open."""
    opened = open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20)
    for _ in range(3):
        write(opened.log, 10)
    opened.metadata.save(committed=committed)
    return opened


@pytest.mark.parametrize(
    ("index", "committed", "why"),
    [(15, 0, "was written after it had been synced"), (30, 30, "known to be committed")],
    ids=["in the middle", "committed"],
)
def test_damaged_log_is_reported_like_at_a_start(data_dir: Path, index: int, committed: int, why: str) -> None:
    with_batches(data_dir, committed=committed).close()
    flip(data_dir / "consensus" / "raft.log", offset_of(index) + RECORD_BYTES)

    found = examine(data_dir)

    with pytest.raises(DamagedFile, match=why) as refused:
        open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20)
    assert found.damage == [f"log: {refused.value}"]
    assert inspect(data_dir)["log"] == {"error": str(refused.value), "code": "DAMAGED"}
    assert "the log cannot be rebuilt from anything here: restore a backup" in found.hopeless


def test_log_that_ends_before_a_committed_entry_is_refused(data_dir: Path) -> None:
    with_batches(data_dir, committed=30).close()
    (data_dir / "consensus" / "raft.log").unlink()

    assert "entry 30, which is known to be committed" in inspect(data_dir)["log"]["error"]
    assert "restore a backup" in examine(data_dir).hopeless


def test_index_of_a_damaged_state_is_still_known(data_dir: Path) -> None:
    """Otherwise the end of the log, which the state has, could count as an unfinished write."""
    opened = with_batches(data_dir, committed=0)
    opened.store.commit(Checkpoint(30, 1, 100, [(QUEUES, [(bytes(8), b"no record")])], []))
    opened.close()
    flip(data_dir / "consensus" / "raft.log", offset_of(30) + RECORD_BYTES)

    state = inspect(data_dir)["state"]
    found = examine(data_dir)

    assert (state["applied_index"], "error" in state) == (30, True)
    assert "record 30, which is known to be committed" in found.damage[0]
    assert (found.steps, "restore a backup" in found.hopeless) == ([], True)


def test_repair_beside_a_broker_started_meanwhile_is_refused(data_dir: Path) -> None:
    data = data_dir / "state" / DATA_FILE
    data.write_bytes(bytes(data.stat().st_size))
    found = examine(data_dir)

    directory = DataDirectory.open(data_dir)
    with pytest.raises(DirectoryInUse):
        carry_out(data_dir, found)
    directory.close()

    assert data.exists()


def test_torn_end_of_the_log_needs_no_repair(data_dir: Path) -> None:
    with_batches(data_dir, committed=29).close()
    flip(data_dir / "consensus" / "raft.log", offset_of(30) + RECORD_BYTES)

    found = examine(data_dir)

    assert found.damage == [f"log: its last {RECORD} bytes are an unfinished write; a start removes them"]
    assert (found.steps, found.hopeless) == ([], "")


def test_unfinished_write_of_a_running_broker_is_not_damage(data_dir: Path) -> None:
    opened = with_batches(data_dir, committed=30)
    # The last write is only partly on disk.
    change(data_dir / "consensus" / "raft.log", offset_of(30) + RECORD_BYTES, b"?")

    log = inspect(data_dir)["log"]

    assert (log["last_index"], log["torn_bytes"]) == (29, RECORD)
    opened.close()
