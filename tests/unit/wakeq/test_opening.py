"""Opening a data directory: what does not fit is refused, what is missing is never taken for a first start."""

from pathlib import Path

import pytest

from tests.helpers.broker import Broker
from wakeq.opening import open_all
from wakeq.protocol.errors import DamagedFile


def used(path: Path) -> Path:
    """Return a data directory that holds a promised message."""
    broker = Broker(path)
    broker.client().publish("q", "promised")
    broker.close()
    return path


def refused(path: Path) -> str:
    with pytest.raises(DamagedFile) as caught:
        open_all(path, upgrade=True, segment_bytes_max=1 << 20)
    return str(caught.value)


@pytest.mark.parametrize("empty", [False, True])
def test_a_missing_log_is_not_taken_for_a_first_start(tmp_path: Path, empty: bool) -> None:
    log = used(tmp_path / "data") / "consensus" / "raft.log"
    log.unlink()
    if empty:
        log.touch()

    message = refused(tmp_path / "data")

    assert "raft.log" in message
    assert "restore" in message


def test_missing_metadata_is_not_taken_for_a_first_start(tmp_path: Path) -> None:
    (used(tmp_path / "data") / "consensus" / "raft.metadata").unlink()

    assert "raft.metadata" in refused(tmp_path / "data")


def test_a_log_that_ends_before_the_state_is_refused(tmp_path: Path) -> None:
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
