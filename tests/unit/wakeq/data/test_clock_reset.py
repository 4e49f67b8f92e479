"""ClockReset: the mark is removed only after confirmation, and the question says what that costs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from wakeq.actors.runtime.clock import SystemClock
from wakeq.cli.broker.data import reset_clock
from wakeq.data.opening import METADATA_NAME, DataFiles, open_all
from wakeq.protocol.clock import Mark
from wakeq.protocol.errors import DirectoryInUse
from wakeq.storage.directory import DataDirectory
from wakeq.storage.log.metadata import Metadata


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    opened(path).close()
    return path


def opened(path: Path) -> DataFiles:
    return open_all(path, upgrade=False, segment_bytes_max=1 << 20)


def save_mark(data_dir: Path, behind_ms: int) -> Mark:
    clock = SystemClock()
    mark = Mark(clock.wall_ms() - behind_ms, clock.wall_ms(), clock.boot_ms(), clock.boot_id)
    node = opened(data_dir)
    node.metadata.keep_clock(mark)
    node.close()
    return mark


def saved_mark(data_dir: Path) -> Mark | None:
    directory = DataDirectory.read_only(data_dir)
    metadata = Metadata.open(directory.consensus / METADATA_NAME, directory.identity, read_only=True)
    metadata.close()
    return metadata.state.clock


def test_clock_mark_is_removed_after_confirmation(data_dir: Path) -> None:
    save_mark(data_dir, 10_000)

    result = CliRunner().invoke(reset_clock, [str(data_dir), "--yes"])

    assert (result.exit_code, saved_mark(data_dir)) == (0, None)
    assert "begins with the wall clock" in result.output


@pytest.mark.parametrize(
    ("behind_ms", "cost"),
    [
        (600_000, "every present lease, delay and expiry ends 600."),
        (-600_000, "s ahead now, and goes back no further"),
    ],
)
def test_clock_reset_without_an_answer_changes_nothing(data_dir: Path, behind_ms: int, cost: str) -> None:
    mark = save_mark(data_dir, behind_ms)

    result = CliRunner().invoke(reset_clock, [str(data_dir)])

    assert result.exit_code != 0
    assert cost in result.output
    assert saved_mark(data_dir) == mark


def test_clock_reset_without_a_mark_does_nothing(data_dir: Path) -> None:
    result = CliRunner().invoke(reset_clock, [str(data_dir)])

    assert result.exit_code == 0
    assert "nothing to do" in result.output


def test_clock_reset_beside_a_running_broker_is_refused(data_dir: Path) -> None:
    node = opened(data_dir)

    result = CliRunner().invoke(reset_clock, [str(data_dir), "--yes"])

    assert isinstance(result.exception, DirectoryInUse)
    node.close()
