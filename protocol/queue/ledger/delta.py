"""Delta: what changed in a ledger, as the state store writes it down; and what a queue counts.  Plain data."""

from collections.abc import Sequence

import msgspec

from wakeq.protocol.queue.ledger.chunks import Chunk
from wakeq.protocol.queue.ledger.publishers import Once, Session


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What changed in a ledger since it was last collected; the state store writes it down."""

    touched: Sequence[int] = ()  # living numbers whose Side changed
    chunks: Sequence[tuple[int, Chunk | None, Sequence[int]]] = ()  # id, columns (None: gone), offsets with a Side
    ids: Sequence[tuple[str, Once | None]] = ()
    sessions: Sequence[tuple[str, Session | None]] = ()
    staged: Sequence[tuple[tuple[str, str], bytes | None]] = ()  # kind and name -> what it is (None: gone)
    aliases_gone: Sequence[str] = ()  # uids of imported messages that are gone, of dead incarnations too


class Totals(msgspec.Struct, gc=False):
    """What ever happened in this incarnation."""

    published: int = 0
    delivered: int = 0
    acked: int = 0
    released: int = 0
    expired: int = 0
    dead: int = 0
    moved: int = 0  # by an operator, to another queue or for ever
