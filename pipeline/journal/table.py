"""The journal as a table: the history of a broker in Arrow batches, one row for each event.

    data directories or URLs --> History.spans --> events_of(span) --> record batches with the wanted columns

It needs no Spark: files in, columns out. An entry without effect can be recognised by its `outcome`.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from wakeq.pipeline.journal.columns import WITH_DRAFTS, Bools, Entries, Items, entries_of, items_of
from wakeq.pipeline.journal.numbers import Numbering
from wakeq.pipeline.journal.outcomes import Codes, codes_of, named_by, notes_in
from wakeq.pipeline.journal.plan import History, Span
from wakeq.pipeline.journal.rows import ALL, EVENT_WORDS, EventRows, Wanted
from wakeq.pipeline.journal.walk import Piece, first_moment_in, last_moment_in, pieces_of
from wakeq.protocol.log.entries import Kind, Result

_HAS_EVENT = np.array([word is not None for word in EVENT_WORDS])


def events_of(span: Span, wanted: Wanted = ALL) -> Iterator[pa.RecordBatch]:
    """Yield the events of a span."""
    for _index, batch in steps_of(span, wanted, Numbering(span.counters, complete=span.complete)):
        if batch.num_rows:
            yield batch


def steps_of(span: Span, wanted: Wanted, numbering: Numbering) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the last index and the events of each piece; the numbering has advanced as far."""
    reached = 0
    for stretch in span.stretches:
        for piece in pieces_of(replace(stretch, first_index=max(stretch.first_index, reached + 1))):
            reached = piece.first_index + len(piece.starts) - 1
            yield reached, _events_in(piece, span, numbering, wanted)


def period_of(history: History) -> tuple[int, int] | None:
    """Return the moments of the first and the last entry in ms, None if there is none."""
    stretches = history.stretches
    first = next((at_ms for at_ms in map(first_moment_in, stretches) if at_ms is not None), None)
    last = next((at_ms for at_ms in map(last_moment_in, reversed(stretches)) if at_ms is not None), None)
    return None if first is None or last is None else (first, last)


def _events_in(piece: Piece, span: Span, numbering: Numbering, wanted: Wanted) -> pa.RecordBatch:
    entries = entries_of(piece)
    noted = notes_in(entries, span.notes)
    items = items_of(entries, named_by(entries, noted))
    codes = codes_of(entries, items, noted, span.through)
    added = np.concatenate([[0], np.cumsum(codes.item >= 0)])
    bounds = np.append(items.first, len(items.entry))
    accepted = np.where(np.isin(entries.kind, WITH_DRAFTS), added[bounds[1:]] - added[bounds[:-1]], 0)
    numbered = numbering.number(entries, accepted, _without_effect(entries, codes))
    # The place of each item among those of its entry that were not refused.
    ordinal = added[:-1] - added[items.first][items.entry]
    rows = EventRows(entries, items, codes, numbered, ordinal, _chosen(entries, items, codes, wanted))
    return pa.RecordBatch.from_arrays([rows.column(name) for name in wanted.columns], schema=wanted.schema)


def _without_effect(entries: Entries, codes: Codes) -> Bools:
    """Return which entries are for a queue that does not exist, or left their queue unchanged.

    A creation that was skipped later made its queue all the same.
    """
    is_made = (entries.kind == Kind.CREATE) & (codes.entry == Result.SET_ASIDE)
    without: Bools = (codes.entry < 0) & ~is_made
    return without


def _chosen(entries: Entries, items: Items, codes: Codes, wanted: Wanted) -> Bools:
    """Return which rows are wanted."""
    chosen: Bools = _HAS_EVENT[entries.kind]
    at = entries.heads["at"].astype(np.int64)
    if wanted.since_ms is not None:
        chosen &= at >= wanted.since_ms
    if wanted.until_ms is not None:
        chosen &= at < wanted.until_ms
    if wanted.queue is not None:
        code = entries.names.index(wanted.queue) if wanted.queue in entries.names else -1
        chosen &= entries.name == code
    rows = chosen[items.entry]
    return rows & (codes.item == 0) if wanted.done_only else rows
