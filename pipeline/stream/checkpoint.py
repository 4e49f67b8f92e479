"""Checkpoints of streaming queries: the offsets that Spark has written there, on any file system.

    a path, or an address as a lake may have it --> the offsets of the last finished batch, and of the last planned one

It only reads, and a running query does not notice.
"""

from typing import Any

from wakeq.pipeline.lake.place import place_at
from wakeq.pipeline.stream.offsets import offset_of
from wakeq.protocol.errors import BadSettings

# The first two lines of a file of offsets are a version and Spark's own data.
HEAD_LINES = 2


class Checkpoint:
    """The checkpoint of one query."""

    def __init__(self, address: str) -> None:
        self._place = place_at(address)
        if "offsets" not in self._place.names(""):
            raise BadSettings(f"{address} is not the checkpoint of a streaming query: it has no directory offsets")

    def finished(self) -> list[dict[str, Any]]:
        """Return the offsets of our queues at the end of the last finished batch; empty if there is none."""
        return self._offsets("commits")

    def planned(self) -> list[dict[str, Any]]:
        """Return the offsets of our queues at the end of the last batch, which may not be finished."""
        return self._offsets("offsets")

    def _offsets(self, folder: str) -> list[dict[str, Any]]:
        """Return the offsets of the last batch that is noted in a folder."""
        numbers = [int(name) for name in self._place.names(folder) if name.isdecimal()]
        if not numbers:
            return []
        name = f"offsets/{max(numbers)}"
        try:
            lines = self._place.read(name).decode(errors="replace").splitlines()[HEAD_LINES:]
        except FileNotFoundError:
            raise BadSettings(f"{self._place.address} is not a whole checkpoint: it has no file {name}") from None
        offsets = [offset for offset in map(offset_of, lines) if offset is not None]
        if not offsets:
            raise BadSettings(f"{self._place.address}: no stream of its query is a queue of wakeq")
        return offsets
