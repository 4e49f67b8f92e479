"""ClockReset: a data directory whose next start is to begin with the wall clock.

    data directory, nobody using it --> how far its cluster clock is behind the wall clock --> the mark forgotten

What that costs is told by whoever asks for it: nothing here asks.
"""

from pathlib import Path

from wakeq.actors.runtime.clock import SystemClock
from wakeq.data.opening import METADATA_NAME, open_all
from wakeq.protocol.errors import DirectoryInUse
from wakeq.storage.directory import DataDirectory
from wakeq.storage.log.metadata import Metadata


def lag_ms(data_dir: Path) -> int | None:
    """Return how far a start would be behind the wall clock; None if it would begin with that."""
    directory = DataDirectory.read_only(data_dir)
    pid = directory.holder_pid
    if pid is not None:
        raise DirectoryInUse(f"{data_dir}: in use by the node with pid {pid or 'unknown'}; stop it first")
    metadata = Metadata.open(directory.consensus / METADATA_NAME, directory.identity, read_only=True)
    metadata.close()
    if metadata.state.clock is None:
        return None
    clock = SystemClock()
    wall_ms = clock.wall_ms()
    return wall_ms - metadata.state.clock.cluster_ms_at(wall_ms, clock.boot_ms(), clock.boot_id)


def forget_mark(data_dir: Path) -> None:
    """Have the next start begin with the wall clock, or with the last stamp of the log if that is later."""
    opened = open_all(data_dir, upgrade=False)
    try:
        opened.metadata.keep_clock(None)
    finally:
        opened.close()
