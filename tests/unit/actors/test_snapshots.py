"""Snapshots: taken when due, the log cut behind them, the state rebuilt from what is left."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.clusters.by_hand import Operator
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.snapshots import BYTES_A_SECOND_MIN, CheckImage, StateWritten, WriteImage
from wakeq.protocol.errors import Busy, DiskFull
from wakeq.storage.state.snapshot import read_snapshot, verify_snapshot
from wakeq.storage.state.store import INDEX, MESSAGES, View

Q = "q"
SEGMENT_BYTES = 16 << 10
DUE_BYTES = 64 << 10
BODY = "x" * 1_000


@pytest.fixture
def broker(directory: Path) -> Iterator[Broker]:
    made = Broker(directory, segment_bytes_max=SEGMENT_BYTES, snapshot_bytes_min=DUE_BYTES, flush_bytes=8 << 10)
    yield made
    made.close()


def fill(broker: Broker, count: int, name: str = Q) -> list[str]:
    """Publish in small pieces, with time to write them down."""
    client = broker.client()
    uids: list[str] = []
    for _ in range(0, count, 10):
        uids += client.call("PUB", name, messages=[BODY] * 10)["uids"]
        broker.advance(1.1)
    return uids


def snapshot_keys(broker: Broker) -> list[tuple[int, bytes]]:
    _, items = read_snapshot(broker.files.snapshot_path, broker.files.identity)
    return [(table, key) for table, key, _ in items]


def test_snapshot_is_taken_when_the_log_has_grown_and_not_before(broker: Broker) -> None:
    fill(broker, 40)
    before = broker.snapshots.taken
    fill(broker, 60)

    assert before == 0
    assert broker.snapshots.taken == 1
    assert broker.files.snapshot_path.exists()


def test_log_is_cut_behind_a_snapshot(broker: Broker) -> None:
    fill(broker, 200)

    assert broker.files.log.first_index > 1
    header, _ = read_snapshot(broker.files.snapshot_path, broker.files.identity)
    assert broker.files.log.first_index <= header.last_index + 1


def test_state_is_rebuilt_from_snapshot_and_log(broker: Broker) -> None:
    uids = fill(broker, 150)
    client = broker.client()
    taken = [client.fetch(Q) for _ in range(3)]
    client.call("ACK", Q, uid=taken[0]["uid"])
    broker.advance(2)
    assert broker.files.log.first_index > 1

    broker.crash()
    shutil.rmtree(broker.path / "state")
    broker.restart()

    client = broker.client()
    figures = client.figures(Q)
    assert (figures["ready"], figures["leased"]) == (147, 2)
    assert [client.fetch(Q)["uid"] for _ in range(147)] == uids[3:]
    broker.check(Q)


@pytest.mark.parametrize("way", ["ACK", "PURGE"])
def test_image_of_removed_messages_is_rewritten_smaller_once(broker: Broker, way: str) -> None:
    uids = fill(broker, 300)
    client = broker.client()
    size_before, taken_before = broker.files.snapshot_path.stat().st_size, broker.snapshots.taken

    if way == "ACK":
        while (reply := client.call("FET", Q, count=50))["cmd"] == "msgs":
            client.call("ACK", Q, uids=[message["uid"] for message in reply["messages"]])
    else:
        client.call("PURGE", Q)
    broker.advance(2)
    taken = broker.snapshots.taken
    fill(broker, 10)

    assert len(uids) == 300
    assert size_before > 200_000
    assert broker.files.snapshot_path.stat().st_size < size_before // 4
    assert taken_before < taken <= taken_before + 2
    assert broker.snapshots.taken == taken


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
def test_snapshot_never_holds_a_dead_incarnation(broker: Broker, end: str) -> None:
    fill(broker, 50, "other")
    client = broker.client()
    client.call("PUB", Q, messages=["m"] * 1_500)
    broker.advance(2)
    before = broker.snapshots.taken
    old_id = broker.queue(Q).ledger.id
    client.call(end, Q)
    broker.queues.flusher.sweep = lambda: None  # type: ignore[method-assign]  # its records are still there
    for _ in range(50):
        if broker.snapshots.taken == before:
            fill(broker, 20, "other")

    keys = snapshot_keys(broker)

    assert broker.snapshots.taken > before
    assert broker.files.store.stats().records[MESSAGES] > 1_500
    assert not [key for table, key in keys if table == MESSAGES and key.startswith(b"q-")]
    assert not [key for table, key in keys if table == INDEX and key.startswith(old_id.to_bytes(8, "big"))]


@pytest.mark.parametrize(
    "error",
    [DiskFull("no room for a snapshot"), Busy("the view was closed meanwhile; read again")],
    ids=["room", "view"],
)
def test_snapshot_that_fails_for_room_or_view_is_taken_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object, **__: object) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("wakeq.actors.snapshots.write_snapshot", full)
        fill(broker, 100)
    none = broker.snapshots.taken
    fill(broker, 20)

    assert none == 0
    assert broker.snapshots.taken >= 1


def test_snapshot_leaves_the_room_that_is_kept_for_acknowledgements(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that it fills to the brim is one on which the log ends the node."""
    monkeypatch.setattr("wakeq.actors.snapshots.SMALL_BLOCKS", 0)
    rooms = iter([1 << 30, 1 << 30, 0])  # when it begins, before its first block, and from then on
    broker.snapshots._room_bytes = lambda: next(rooms, 0)
    fill(broker, 200)
    unfinished = sorted(path.name for path in broker.files.snapshot_path.parent.glob("raft.snapshot*"))
    broker.snapshots._room_bytes = lambda: 1 << 30
    fill(broker, 20)

    assert (broker.snapshots.taken, unfinished) == (1, [])
    assert "kept for acknowledgements" in caplog.text


def test_small_snapshot_is_written_although_there_is_hardly_any_room(broker: Broker) -> None:
    """The image of a queue that has since been emptied may be what fills the disk."""
    broker.snapshots._room_bytes = lambda: 0

    fill(broker, 100)

    assert broker.snapshots.taken == 1


def test_first_snapshot_of_much_that_lives_has_time_for_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an import there is no earlier snapshot whose size could tell."""
    seconds = iter([0.0, *[100.0] * 1_000])  # when it is begun, and from its first block on
    broker.snapshots.tell(StateWritten(200 * BYTES_A_SECOND_MIN))
    broker.settle()
    monkeypatch.setattr("wakeq.actors.snapshots.time", SimpleNamespace(monotonic=lambda: next(seconds)))

    broker.snapshots.tell(WriteImage(broker.queues))
    with monkeypatch.context() as patch:
        patch.setattr(Queues, "on_receive", lambda *_: None)
        broker.settle()

    assert broker.snapshots.taken == 1
    assert "not written in time" not in caplog.text


def test_image_names_its_last_entry_and_the_log_keeps_the_later_ones(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(directory, segment_bytes_max=1)  # so that each entry has a segment of its own
    fill(broker, 10)
    store, applied = broker.files.store, broker.files.store.applied()
    broker.snapshot_disk.held = True
    broker.snapshots.tell(WriteImage(broker.runtime.spawn(Operator)))
    broker.settle()
    read = store.read

    @contextmanager
    def read_while_more_is_written() -> Iterator[View]:
        with read() as view:
            monkeypatch.undo()
            fill(broker, 20)
            yield view

    monkeypatch.setattr(store, "read", read_while_more_is_written)
    broker.snapshot_disk.held = False
    broker.snapshot_disk.complete()
    broker.settle()

    header = verify_snapshot(broker.files.snapshot_path, broker.files.identity)
    assert (header.last_index, header.last_term, header.clock_ms) == applied
    assert store.applied().log_index > applied.log_index
    assert 1 < broker.files.log.first_index <= header.last_index + 1
    broker.crash()
    shutil.rmtree(broker.path / "state")
    broker.restart()
    assert broker.client().figures(Q)["ready"] == 30
    broker.close()


def test_work_goes_on_while_a_snapshot_is_written(broker: Broker) -> None:
    broker.snapshot_disk.held = True
    uids = fill(broker, 150)
    client = broker.client()

    message = client.fetch(Q)
    client.call("ACK", Q, uid=message["uid"])
    broker.advance(2)
    waiting = broker.snapshot_disk.waiting
    broker.snapshot_disk.held = False
    broker.snapshot_disk.complete()
    broker.settle()

    assert waiting == 1
    assert message["uid"] == uids[0]
    assert broker.snapshots.taken == 1


def test_damaged_image_is_found_after_a_start_and_replaced(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    fill(broker, 100)
    path, taken = broker.files.snapshot_path, broker.snapshots.taken
    sound = path.read_bytes()
    path.write_bytes(sound[:-500] + bytes([sound[-500] ^ 1]) + sound[-499:])

    broker.snapshots.tell(CheckImage())
    broker.advance(1)

    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"{path}: at offset" in caplog.text
    assert "another image replaces it" in caplog.text
    assert broker.snapshots.taken == taken + 1
    verify_snapshot(path, broker.files.identity)


def test_sound_image_is_left_as_it_is_after_a_start(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    fill(broker, 100)
    taken = broker.snapshots.taken

    broker.snapshots.tell(CheckImage())
    broker.advance(1)

    assert (broker.snapshots.taken, caplog.messages) == (taken, [])
