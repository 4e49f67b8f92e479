"""A lake as its readers get it: its files, its columns, and the SQL by which a message arrives.

    address --> Lake: checked, with the addresses of its files --> DuckDB, Spark, pyarrow
    a table of events --> SQL of the messages that were published

Every file in a folder `date=...` counts, also while an archive is running.
"""

import re
from pathlib import Path
from typing import Any

from wakeq.pipeline.lake.facts import NOTE_FOLDER, read_facts
from wakeq.pipeline.lake.place import place_at
from wakeq.protocol.errors import StorageError

# The key of a message: clusters may share a lake, and their numbers repeat.
MESSAGE = ("cluster", "queue", "uid")
# These columns are known when a message is stashed, not when it is published.
OF_STASHED = ("priority", "size", "until", "body")
_CLUSTER = re.compile(r"[0-9a-f]+")


class Lake:
    """A lake at a path or an address.  It is read when this object is made; files that are added later do not count."""

    def __init__(self, address: str | Path) -> None:
        self._place = place_at(address)
        # As the user wrote it: Spark and DuckDB have their own credentials for it.
        self.address = self._place.address
        facts = read_facts(self._place)
        # Relative to the place, by date, then by cluster and entry.
        self._names = self._place.data_files() if facts is not None else []
        if facts is None or not self._names:
            raise StorageError(
                f"{self.address}: is not a lake, or has no events yet; make one with wakeq pipeline archive DATA_DIR "
                "--to LAKE"
            )
        self.has_bodies = facts.bodies
        self.schema = facts.schema

    @property
    def files(self) -> list[str]:
        """The addresses of all files; of a local lake, whole paths."""
        return [self._place.address_of(name) for name in self._names]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def clusters(self) -> list[str]:
        """The clusters that were archived there."""
        return [name for name in self._place.names(NOTE_FOLDER) if _CLUSTER.fullmatch(name)]

    def dataset(self, cluster: str | None = None) -> Any:
        """Return the events, of one cluster or of all, as a dataset of pyarrow; DuckDB reads it as a table."""
        import pyarrow.compute as compute
        import pyarrow.dataset as dataset

        # Files that somebody has made of several ones may have any name.
        others = tuple(f"{other}-" for other in self.clusters if other != cluster) if cluster else ()
        names = [name for name in self._names if not name.rpartition("/")[2].startswith(others)]
        paths = [self._place.path_of(name) for name in names]
        files = dataset.dataset(paths, schema=self.schema, filesystem=self._place.filesystem, format="parquet")
        return files if cluster is None else files.filter(compute.field("cluster") == cluster)


def arrivals_sql(events: str, columns: tuple[str, ...]) -> str:
    """Return a query of published messages, for DuckDB and Spark; `events` is a table of a lake or a subquery of it.

    Messages of a stash have priority, size, moment and body from the stashing; a stash that was never published is left
    out, and so is a publish that was refused.
    """
    later = [name for name in OF_STASHED if name in columns]
    chosen = ", ".join(
        f"coalesce(p.{name}, s.{name}) AS {name}" if name in later else f"p.{name}" for name in columns
    )  # fmt: skip
    told = ", ".join((*MESSAGE, *later))
    same = " AND ".join(f"p.{name} = s.{name}" for name in MESSAGE)
    return (
        f"SELECT {chosen} FROM {events} p "
        f"LEFT JOIN (SELECT {told} FROM {events} WHERE event = 'stashed' AND outcome = 'done') s ON {same} "
        "WHERE p.event = 'published' AND p.outcome = 'done' AND coalesce(p.size, s.size) IS NOT NULL"
    )
