"""Opening: files that do not fit together are refused, and a missing file never counts as a first start."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker
from wakeq.data import opening
from wakeq.data.opening import open_all
from wakeq.protocol.errors import DamagedFile, WrongVersion
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.state.images import mark_for_rebuild
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.store import INDEX, MESSAGES, QUEUES, Checkpoint


def used(path: Path) -> Path:
    """Return a data directory that holds a promised message."""
    broker = Broker(path)
    broker.client().publish("q", "promised")
    broker.close()
    return path


def with_a_skipped_entry(path: Path, *, cut: bool = False) -> Path:
    """Return a data directory whose flushed state has an entry that other nodes skip; `cut` removes the log's start."""
    broker = Broker(path)
    broker.client().publish("q")
    broker.flush()
    log = broker.files.log
    # A node without room for an image does this.
    if cut:
        log.roll(log.last_index)
        log.cut_below(log.last_index + 1)
    broker.close()
    mark_for_rebuild(path / "consensus", 2)
    return path


def refused(path: Path) -> str:
    with pytest.raises(DamagedFile) as caught:
        open_all(path, upgrade=True, segment_bytes_max=1 << 20)
    return str(caught.value)


@pytest.mark.parametrize("names", [["raft.log"], ["raft.metadata"], ["raft.log", "raft.metadata", "raft.snapshot"]])
def test_empty_files_count_as_a_first_start(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "consensus").mkdir()
    for name in names:
        (tmp_path / "consensus" / name).touch()

    with closing(open_all(tmp_path, upgrade=True, segment_bytes_max=1 << 20)) as opened:
        assert opened.imported is None
        assert (opened.metadata.state.term, opened.log.last_index) == (0, 0)


def test_missing_version_of_a_used_directory_is_not_imported_as_version_1(tmp_path: Path) -> None:
    (used(tmp_path / "data") / "VERSION").unlink()

    assert "VERSION: at offset 0: expected 'wakeq data directory 2', found no such file" in refused(tmp_path / "data")


@pytest.mark.parametrize("left", ["", "raft.log", "raft.log.v1"])
def test_missing_log_of_a_used_directory_is_refused(tmp_path: Path, left: str) -> None:
    log = used(tmp_path / "data") / "consensus" / "raft.log"
    log.unlink()
    if left:
        (log.parent / left).touch()

    message = refused(tmp_path / "data")

    assert "raft.log" in message
    assert "restore" in message


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("with_log", [False, True])
def test_missing_metadata_of_a_used_directory_is_refused(tmp_path: Path, with_log: bool, empty: bool) -> None:
    consensus = used(tmp_path / "data") / "consensus"
    (consensus / "raft.metadata").unlink()
    if empty:
        (consensus / "raft.metadata").touch()
    if not with_log:
        (consensus / "raft.log").unlink()
    before = {path.name: path.read_bytes() for path in consensus.iterdir()}

    message = refused(tmp_path / "data")

    assert "raft.metadata" in message
    assert "restore the whole data directory" in message
    assert {path.name: path.read_bytes() for path in consensus.iterdir()} == before


def test_log_that_ends_before_the_state_is_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    log = tmp_path / "data" / "consensus" / "raft.log"
    early = log.read_bytes()
    client = broker.client()
    for _ in range(10):
        client.publish("q")
    broker.flush()
    broker.close()
    log.write_bytes(early)

    assert "raft.log" in refused(tmp_path / "data")


def test_missing_state_is_rebuilt_from_the_image_and_stays_writable_by_its_thread(tmp_path: Path) -> None:
    path = without_state(tmp_path / "data")

    opened = open_all(path, upgrade=True, segment_bytes_max=1 << 20)
    index, term, clock_ms = opened.store.applied()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(opened.store.commit, Checkpoint(index + 1, term, clock_ms, [])).result()

    assert index > 0
    assert opened.store.applied().log_index == index + 1
    opened.close()


@pytest.mark.parametrize(
    ("offset", "put", "said"),
    [(0, b"XXXX", "at offset 0: expected file prefix"), (8, b"another cluster.", "header checksum")],
    ids=["marker", "header"],
)
def test_damaged_image_header_is_refused_beside_a_sound_state(
    tmp_path: Path, offset: int, put: bytes, said: str
) -> None:
    image = image_beside_its_state(tmp_path / "data")
    with image.open("r+b") as file:
        file.seek(offset)
        file.write(put)

    message = refused(tmp_path / "data")

    assert message.startswith(f"{image}: at offset ")
    assert said in message
    assert message.endswith("the state is sound: `wakeq repair` renames this file, and the next snapshot replaces it")


def test_image_of_a_newer_release_is_refused_beside_a_sound_state(tmp_path: Path) -> None:
    image = image_beside_its_state(tmp_path / "data")
    with image.open("r+b") as file:
        file.seek(4)
        file.write((-99).to_bytes(4, "big", signed=True))

    with pytest.raises(WrongVersion, match="found 99; use its own release"):
        open_all(tmp_path / "data", upgrade=True, segment_bytes_max=1 << 20)


def test_damaged_image_creates_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = without_state(tmp_path / "data")
    damage(path / "consensus" / "raft.snapshot")
    monkeypatch.setattr(opening, "LOAD_BATCH", 1)

    message = refused(path)

    assert "raft.snapshot" in message
    identity = Metadata.open(path / "consensus" / "raft.metadata", None, read_only=True).identity
    with closing(StateStore.open(path / "state", cluster_id=identity.cluster_id, node_id=identity.node_id)) as store:
        assert not sum(store.stats().records[table] for table in (MESSAGES, INDEX, QUEUES))


def test_import_of_version_1_logs_what_it_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    consensus = tmp_path / "data" / "consensus"
    consensus.mkdir(parents=True)
    # To the queue n, which nobody created.
    enqueue = bytes.fromhex("45 016e 0000000000000005 00000001 78")
    entry = bytes.fromhex("00000001") + len(enqueue).to_bytes(4, "big") + enqueue
    (consensus / "raft.log").write_bytes(bytes.fromhex("2f6f0f2f 00000001") + 2 * entry + entry[:-1])
    caplog.set_level("INFO", "wakeq.opening")

    open_all(tmp_path / "data", upgrade=True, segment_bytes_max=1 << 20).close()

    said = [record.message for record in caplog.records]
    assert "importing version 1: 1 queues, 0 messages" in said
    assert "version 1: a message for queue 'n', which did not exist, is left out (2 times)" in said
    assert any("entry 2 is incomplete" in line for line in said)


# Remains of a crash, and images that wait to be installed -----------------------------------------------------------


def with_image(path: Path) -> Path:
    """Return a data directory with a received image that is newer than the state."""
    broker = Broker(path)
    client = broker.client()
    client.publish("q", "promised")
    broker.flush()
    assert client.call("CLUSTER", do="snapshot")["cmd"] == "cluster"
    broker.close()
    (path / "consensus" / "raft.snapshot").rename(path / "consensus" / "raft.install")
    return path


def image_beside_its_state(path: Path) -> Path:
    """Return the image of a complete data directory."""
    consensus = with_image(path) / "consensus"
    return (consensus / "raft.install").rename(consensus / "raft.snapshot")


def without_state(path: Path) -> Path:
    """Return a data directory with an image and a log, but without its state."""
    image_beside_its_state(path)
    shutil.rmtree(path / "state")
    return path


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_unfinished_images_are_removed_at_the_next_start(tmp_path: Path) -> None:
    consensus = used(tmp_path / "data") / "consensus"
    left = [consensus / "raft.received", consensus / "raft.snapshot.new"]
    for path in left:
        path.write_bytes(bytes(1000))

    open_all(tmp_path / "data", upgrade=True, segment_bytes_max=1 << 20).close()

    assert not any(path.exists() for path in left)


def test_damaged_received_image_is_discarded_beside_a_sound_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = with_image(tmp_path / "data")
    damage(path / "consensus" / "raft.install")

    opened = open_all(path, upgrade=True, segment_bytes_max=1 << 20)

    assert opened.store.applied().log_index > 0
    opened.close()
    assert not (path / "consensus" / "raft.install").exists()
    assert "discarding it: the leader sends another one" in caplog.text


def test_damaged_received_image_without_a_state_explains_how_to_rejoin(tmp_path: Path) -> None:
    path = with_image(tmp_path / "data")
    damage(path / "consensus" / "raft.install")
    shutil.rmtree(path / "state")

    message = refused(path)

    assert "raft.install" in message
    assert "start this one again with --join" in message


def test_state_with_a_skipped_entry_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    path = with_a_skipped_entry(tmp_path / "data")

    opened = open_all(path, upgrade=True, segment_bytes_max=1 << 20)

    assert opened.store.applied().log_index == 0
    opened.close()
    open_all(path, upgrade=True, segment_bytes_max=1 << 20).close()
    assert not (path / "consensus" / "state.spoilt").exists()


def test_spoilt_mark_without_an_entry_index_is_refused(tmp_path: Path) -> None:
    path = with_a_skipped_entry(tmp_path / "data")
    (path / "consensus" / "state.spoilt").write_bytes(b"\xff2")

    message = refused(path)

    assert "state.spoilt" in message
    assert "start this one again with --join" in message
    assert any((path / "state").iterdir())


def test_image_with_a_skipped_entry_is_not_used_for_a_rebuild(tmp_path: Path) -> None:
    path = with_image(tmp_path / "data")
    (path / "consensus" / "raft.install").rename(path / "consensus" / "raft.snapshot")
    mark_for_rebuild(path / "consensus", 2)

    message = refused(path)

    assert "which the other nodes skip" in message
    assert "start this one again with --join" in message


def test_log_that_begins_after_a_skipped_entry_explains_how_to_rejoin(tmp_path: Path) -> None:
    message = refused(with_a_skipped_entry(tmp_path / "data", cut=True))

    assert "start this one again with --join" in message
