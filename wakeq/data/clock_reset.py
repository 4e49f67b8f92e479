"""ClockReset: makes the next start on a data directory begin with the wall clock.

    data directory, not in use --> the lag of its cluster clock behind the wall clock --> the mark removed

It asks no question: the caller tells the operator what a reset costs.
"""

from pathlib import Path

from wakeq.actors.runtime.clock import SystemClock
from wakeq.data.opening import METADATA_NAME, open_all, read_unused
from wakeq.storage.log.metadata import Metadata


def lag_ms(data_dir: Path) -> int | None:
    """Return how far a start would be behind the wall clock, or None if it would begin with the wall clock."""
    directory = read_unused(data_dir)
    metadata = Metadata.open(directory.consensus / METADATA_NAME, directory.identity, read_only=True)
    metadata.close()
    if metadata.state.clock is None:
        return None
    clock = SystemClock()
    wall_ms = clock.wall_ms()
    return wall_ms - metadata.state.clock.cluster_ms_at(wall_ms, clock.boot_ms(), clock.boot_id)


def forget_mark(data_dir: Path) -> None:
    """Remove the mark: the next start begins with the wall clock, or with the log's last stamp if that is later."""
    opened = open_all(data_dir, upgrade=False)
    try:
        opened.metadata.keep_clock(None)
    finally:
        opened.close()
