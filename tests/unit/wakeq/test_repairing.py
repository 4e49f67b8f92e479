"""What is said of a damaged data directory, and what is done about it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeq.opening import open_all
from wakeq.repairing import carry_out, examine
from wakeq.storage.environment import DATA_FILE


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

    found = examine(data_dir)
    done = carry_out(found)

    assert [step.why for step in found.steps] == ["the next start makes it again from the log"]
    assert done == [f"{data.parent} is now state.damaged-1"]
    assert examine(data_dir).steps == [], "once is enough"
    open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20).close()
    assert examine(data_dir).damage == []


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
