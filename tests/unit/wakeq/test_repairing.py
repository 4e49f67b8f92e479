"""What is said of a damaged data directory, and what is done about it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.broker import Broker
from tests.helpers.written_log import RECORD, change, flip, offset_of, write
from wakeq.inspect import inspect
from wakeq.opening import Opened, open_all
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log_format import RECORD_BYTES
from wakeq.repairing import carry_out, examine
from wakeq.storage.environment import DATA_FILE
from wakeq.storage.store import MESSAGES, Cut


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    open_all(path, upgrade=False, segment_bytes_max=1 << 20).close()
    return path


def test_a_sound_directory_needs_nothing(data_dir: Path) -> None:
    found = examine(data_dir)

    assert (found.damage, found.steps, found.hopeless) == ([], [], "")


def test_a_state_whose_pages_are_damaged_is_set_aside(data_dir: Path) -> None:
    data = data_dir / "state" / DATA_FILE
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(DamagedFile, match="; run `wakeq repair DATA_DIR`: it sets the state aside if"):
        open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20)

    found = examine(data_dir)
    done = carry_out(found)

    assert [step.why for step in found.steps] == ["the next start makes it again from the log"]
    assert done == [f"{data.parent} is now state.damaged-1"]
    assert examine(data_dir).steps == [], "once is enough"
    open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20).close()
    assert examine(data_dir).damage == []


def spoil(row: bytes) -> bytes:
    return row[:-1] + b"X"


def lose_it(_: bytes) -> None:
    return None


@pytest.mark.parametrize(
    ("damage", "what"), [(spoil, "a stored message with a wrong checksum"), (lose_it, "and not in the table")]
)
def test_a_state_with_a_message_that_would_end_the_broker_once_it_is_read_is_set_aside(
    tmp_path: Path, damage: Callable[[bytes], bytes | None], what: str
) -> None:
    broker = Broker(tmp_path)
    uid = broker.client().publish("q", "body")
    broker.flush()
    store, key = broker.files.store, f"q-{uid}".encode()
    (row,) = store.get_many([key])
    assert row is not None
    spoilt = damage(row)
    puts, deletes = ([], [(MESSAGES, [key])]) if spoilt is None else ([(MESSAGES, [(key, spoilt)])], [])
    store.commit(Cut(*store.applied(), puts, deletes))
    broker.close()

    found = examine(broker.path)

    assert what in found.damage[0]
    assert f"q-{uid}" in found.damage[0]
    assert [step.path.name for step in found.steps] == ["state"]
    carry_out(found)
    again = Broker(tmp_path)
    assert again.client().fetch("q")["msg"] == "body"
    again.close()


def empty(state: Path) -> None:
    (state / DATA_FILE).write_bytes(b"")


def remove_file(state: Path) -> None:
    (state / DATA_FILE).unlink()


@pytest.mark.parametrize(
    ("lose", "what"), [(empty, "an empty file"), (remove_file, "no file"), (shutil.rmtree, "no file")]
)
def test_a_state_that_is_not_there_needs_nothing_but_a_start(
    data_dir: Path, lose: Callable[[Path], None], what: str
) -> None:
    lose(data_dir / "state")

    found = examine(data_dir)

    assert found.damage == [
        f"state: {data_dir / 'state' / DATA_FILE}: at offset 0: expected an LMDB environment, found {what}; "
        "start the node on it, it makes a new one from its snapshot and its log"
    ]
    assert (found.steps, found.hopeless) == ([], "")
    open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20).close()
    assert examine(data_dir).damage == []


def with_batches(data_dir: Path, *, committed: int) -> Opened:
    """Put entries 1..30 into the log, ten at a time, and hold the directory."""
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
def test_a_log_that_has_rotted_is_refused_in_the_words_of_a_start(
    data_dir: Path, index: int, committed: int, why: str
) -> None:
    with_batches(data_dir, committed=committed).close()
    flip(data_dir / "consensus" / "raft.log", offset_of(index) + RECORD_BYTES)

    found = examine(data_dir)

    with pytest.raises(DamagedFile, match=why) as refused:
        open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20)
    assert found.damage == [f"log: {refused.value}"]
    assert inspect(data_dir)["log"] == {"error": str(refused.value), "code": "DAMAGED"}
    assert "the log cannot be made again from anything here: restore a backup" in found.hopeless


def test_what_a_crash_has_left_at_the_end_of_the_log_needs_nothing_but_a_start(data_dir: Path) -> None:
    with_batches(data_dir, committed=29).close()
    flip(data_dir / "consensus" / "raft.log", offset_of(30) + RECORD_BYTES)

    found = examine(data_dir)

    assert found.damage == [f"log: {RECORD} bytes at its end were never completed; a start cuts them off"]
    assert (found.steps, found.hopeless) == ([], "")


def test_beside_a_broker_that_writes_half_a_write_is_no_damage(data_dir: Path) -> None:
    opened = with_batches(data_dir, committed=30)
    change(data_dir / "consensus" / "raft.log", offset_of(30) + RECORD_BYTES, b"?")  # not all of it is on disk yet

    log = inspect(data_dir)["log"]

    assert (log["last_index"], log["torn_bytes"]) == (29, RECORD)
    opened.close()
