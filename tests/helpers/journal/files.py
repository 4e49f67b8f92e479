"""A data directory's log and journal made by hand, entry by entry, for those who read history.

write([...entries]) --> the log     outcomes(...) --> what became of them     seal() --> a segment of its own
"""

from pathlib import Path
from typing import Any

import pyarrow as pa

from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.rows import ALL, KINDS, Wanted
from wakeq.pipeline.journal.table import events_of
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import CreateQueue, Draft, Entry, Publish
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import Counter, Note, Outcomes
from wakeq.protocol.log.records import encode_entry
from wakeq.storage.log.journal import Journal, Keep, OutcomeFiles
from wakeq.storage.log.segmented_log import SegmentedLog

AT_MS = 1_700_000_000_000
CLUSTER = bytes(range(16))
JOBS = CreateQueue("jobs", Policies())


class JournalFiles:
    """One node's directory.  The moment of an entry is AT_MS and 1,000 ms for each entry before it."""

    def __init__(self, path: Path, *, node: int = 1, cluster: bytes = CLUSTER, first_index: int = 1) -> None:
        self.path = path
        (path / "consensus").mkdir(parents=True)
        identity = Identity(cluster, node)
        self.log = SegmentedLog.open(
            path / "consensus", identity, committed_at_least=0, create_first_index=first_index
        )  # fmt: skip
        self.log.journal = Journal(path / "journal", Keep(1 << 40, 1 << 40), lambda: 0.0)
        self._outcomes = OutcomeFiles(path / "journal", identity)

    def write(self, *entries: Entry, term: int = 1) -> None:
        """Append entries in one batch."""
        first = self.log.last_index + 1
        payloads = [encode_entry(entry, AT_MS + 1000 * (first + place)) for place, entry in enumerate(entries)]
        self.log.append_many(first, term, payloads)
        batch = self.log.take_buffer()
        assert batch is not None
        self.log.write(batch)

    def outcomes(self, after: int, *notes: Note, queues: list[Counter] | None = None, lists_all: bool = True) -> None:
        """Say what became of the entries behind `after`."""
        self._outcomes.write(Outcomes(after, self.log.last_index, lists_all, queues or [], list(notes)))

    def seal(self) -> None:
        assert self.log.roll(self.log.last_index)


EVERYTHING = Wanted(columns=tuple(KINDS))


def rows_of(*paths: Path | str, wanted: Wanted = ALL, cores: int = 1) -> list[dict[str, Any]]:
    """Return what the journal in these places tells."""
    spans = History(paths).spans(cores=cores, since_ms=wanted.since_ms, until_ms=wanted.until_ms)
    batches = [batch for span in spans for batch in events_of(span, wanted)]
    table = pa.Table.from_batches(batches, schema=wanted.schema)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def publish(*bodies: str, queue: str = "jobs") -> Publish:
    return Publish(queue, [Draft(body.encode()) for body in bodies], door=1, worker=9)


def short(path: Path, *more: Path) -> list[tuple[object, ...]]:
    return [(row["index"], row["event"], row["uid"], row["outcome"]) for row in rows_of(path, *more)]
