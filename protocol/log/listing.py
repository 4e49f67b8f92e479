"""Listing: which parts of a broker's history a node has, as its HTTP port lists them (`GET /api/v1/journal`).

    segments and outcomes of one node --> Listing --> JSON

A segment and a file of outcomes are named by their first entry; docs/files.md has their bytes.  This file is pure.
"""

import msgspec


class SegmentFacts(msgspec.Struct, frozen=True):
    """A segment of the log.  One that is not sealed is being written, and may have more entries by now."""

    first_index: int
    # first_index - 1 if it has no entry yet.
    last_index: int
    last_term: int
    # The moment of its first entry; null if it has none yet.
    first_ms: int | None
    size_bytes: int
    is_sealed: bool
    # Of a segment that is not sealed: entries and the offsets where they begin, for a reader of later entries only.  A
    # sealed one has them in its footer.
    blocks: list[tuple[int, int]] = []


class OutcomesFacts(msgspec.Struct, frozen=True):
    """A file with the outcomes of entries, from its first one on."""

    first_index: int
    size_bytes: int


class Listing(msgspec.Struct, frozen=True):
    """The history that a node has, in log order."""

    cluster: str
    node: int
    segments: list[SegmentFacts]
    outcomes: list[OutcomesFacts]
