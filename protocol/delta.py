"""Delta: what changed in a ledger, as the state store writes it down; and what a queue counts.  Plain data."""

import msgspec

from wakeq.protocol.chunks import Chunk
from wakeq.protocol.publishers import Once, Session


class Delta(msgspec.Struct):
    """What changed in a ledger since it was last collected; the state store writes it down."""

    touched: list[int]  # living numbers whose Side changed
    chunks: list[tuple[int, Chunk | None, list[int]]]  # id, columns (None: gone), offsets with a Side
    ids: list[tuple[str, Once | None]]
    sessions: list[tuple[str, Session | None]]
    staged: list[
        tuple[tuple[str, str], bytes | None]
    ] = []  # kind and name of what is staged -> what it is (None: gone)
    aliases_gone: list[str] = []  # uids of imported messages that are gone, of dead incarnations too


class Totals(msgspec.Struct):
    """What ever happened in this incarnation."""

    published: int = 0
    delivered: int = 0
    acked: int = 0
    released: int = 0
    expired: int = 0
    dead: int = 0
    moved: int = 0  # by an operator, to another queue or for ever
