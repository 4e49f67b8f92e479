"""The rows of the journal: which columns there are (KINDS, Wanted), and how each is made (EventRows).

    entries, items, outcomes, numbers --> EventRows --> an Arrow array for each wanted column

A column that is not wanted is not made. Uids, names and words become Arrow arrays without a Python object for each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wakeq.pipeline.journal.columns import (
    CANCELLED,
    OF_QUEUES,
    OF_STASHES,
    REQUEUED,
    REVEALED,
    SIZE_FIELD,
    WITH_DRAFTS,
    WITH_WORKERS,
    Bools,
    Entries,
    Ints,
    Items,
    windows,
)
from wakeq.pipeline.journal.numbers import Numbered
from wakeq.pipeline.journal.outcomes import OPEN, Codes
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.log.entries import ClaimAction, Kind, Reason, Result
from wakeq.protocol.log.layout import FLAG_ID, FLAG_SESSION, ITEM
from wakeq.protocol.queue.dead_letters import REASON
from wakeq.protocol.uid import NUMBER_DIGITS, PAIR_BASE, PAIRS, UID_CHARACTERS, prefix

MOMENT = pa.timestamp("us", tz="UTC")
KINDS: dict[str, pa.DataType] = {
    "at": MOMENT,
    "queue": pa.string(),
    "uid": pa.string(),
    "event": pa.string(),
    "outcome": pa.string(),
    "priority": pa.int64(),
    "delivery": pa.int64(),
    "worker": pa.int64(),
    "door": pa.string(),
    "reason": pa.string(),
    "size": pa.int32(),
    "until": MOMENT,
    "index": pa.int64(),
    "place": pa.int32(),
    "body": pa.binary(),
    "incarnation": pa.int64(),
    "number": pa.int64(),
}
SPARK_TYPES = {
    MOMENT: "timestamp", pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", pa.binary(): "binary"
}  # fmt: skip
# The other columns are read only if they are asked for.
USUAL = tuple(KINDS)[:14]

_PAIR_CODES = np.frombuffer("".join(PAIRS).encode(), dtype="u2")
_QUAD_BASE = PAIR_BASE**2

EVENTS: dict[int, str] = {
    Kind.PUBLISH: "published", Kind.DELIVERED: "delivered", Kind.EXTENDED: "extended", Kind.RELEASED: "released",
    Kind.ACK: "acked", Kind.EXPIRED: "expired", Kind.DEAD: "dead", Kind.CREATE: "created", Kind.UPDATE: "updated",
    Kind.DELETE: "deleted", Kind.PURGE: "purged", Kind.MOVED: "moved", REQUEUED: "requeued", Kind.STASH: "stashed",
    REVEALED: "published", Kind.UNSTASH: "dropped", CANCELLED: "cancelled",
}  # fmt: skip
# These entries change no message.
WITHOUT_EVENT = {Kind.NOOP, Kind.SET_ASIDE, Kind.IMPORTED, Kind.MEMBERS, Kind.PAUSE}
READ_AS_OTHERS = {Kind.CLAIM}
assert EVENTS.keys() | WITHOUT_EVENT | READ_AS_OTHERS == {*Kind, REQUEUED, REVEALED, CANCELLED}, (
    "each kind of entry has an event, or none on purpose"
)
EVENT_WORDS: list[str | None] = [EVENTS.get(kind) for kind in range(256)]
REASON_WORDS: list[str | None] = [None] + [reason.name.lower() for reason in Reason if reason]
# As in actors/sessions/door.py.
DOOR_WORDS: list[str | None] = ["broker", "worker", "websocket", "taskflux", "monique", "other"]
_OUTCOMES = {int(result): result.name.lower() for result in Result} | {OPEN: "open"}
_OUTCOME_LOWEST = min(_OUTCOMES)
_OUTCOME_WORDS: list[str | None] = [_OUTCOMES.get(code, "refused") for code in range(_OUTCOME_LOWEST, OPEN + 1)]
LENGTH_FIELD = np.dtype([("size", ">u2")])
_WITH_UNTIL = (*WITH_DRAFTS, Kind.DELIVERED, Kind.EXTENDED, Kind.RELEASED)
_WITH_DELIVERY = (Kind.DELIVERED, Kind.RELEASED, Kind.ACK, Kind.DEAD)
_REASON_CODES = {word: code for code, word in enumerate(REASON_WORDS) if word}
_US_A_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns of which events; moments in ms, `until_ms` is not included."""

    columns: tuple[str, ...] = USUAL
    since_ms: int | None = None
    until_ms: int | None = None
    queue: str | None = None
    done_only: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in KINDS]
        if unknown or not self.columns:
            raise BadSettings(
                f"there is no column {', '.join(unknown) or 'wanted'}; the journal has {', '.join(KINDS)}"
            )

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, KINDS[name]) for name in self.columns])

    @property
    def ddl(self) -> str:
        """The schema in the form of Spark."""
        return ", ".join(f"`{name}` {SPARK_TYPES[KINDS[name]]}" for name in self.columns)


ALL = Wanted()


def moment_ms(text: str) -> int:
    """Return a moment in ISO 8601 as milliseconds since 1970; without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def uids_of(queue_ids: Ints, numbers: Ints, known: Bools) -> pa.Array:
    """Return the uid of each message; null where it is not known."""
    size = len(numbers)
    text = np.zeros((size, UID_CHARACTERS // 2), dtype="u2")
    ids, which = _distinct(np.where(known, queue_ids, 0))
    prefixes = np.frombuffer("".join(prefix(int(queue_id)) for queue_id in ids).encode(), dtype="u8")
    text.view("u8")[:, 0] = prefixes[which]
    high, low = np.divmod(np.where(known, numbers, 0), _QUAD_BASE)
    for column, half in ((4, high), (6, low)):
        if half.any():
            first, second = np.divmod(half.astype(np.int32), np.int32(PAIR_BASE))
            text[:, column], text[:, column + 1] = _PAIR_CODES[first], _PAIR_CODES[second]
        else:
            text[:, column : column + 2] = _PAIR_CODES[0]
    offsets = np.arange(size + 1, dtype=np.int32) * UID_CHARACTERS
    return pa.Array.from_buffers(pa.string(), size, [bitmap(known), pa.py_buffer(offsets), pa.py_buffer(text)])


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, and for each value its place among them; cheap if there are few."""
    if len(values) and (values == values[0]).all():
        return values[:1], np.zeros(len(values), dtype=np.int64)
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)


def words(texts: list[str | None], which: npt.NDArray[np.int32]) -> pa.Array:
    """Return the text for each number.

    `pa.array` would import pandas if it is installed, which takes longer than to read a small journal.
    """
    encoded = [(text or "").encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    known = bitmap(np.array([text is not None for text in texts], dtype=np.bool_))
    data = [known, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), data).take(column(which, pa.int32()))


def bitmap(known: Bools) -> pa.Buffer | None:
    """Return Arrow's validity bits; None if all values are valid."""
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def column(values: npt.NDArray[np.generic], kind: pa.DataType, known: Bools | None = None) -> pa.Array:
    """Return numbers as a column; null where they are not known."""
    raw = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(raw), [None if known is None else bitmap(known), pa.py_buffer(raw)])


assert UID_CHARACTERS == 2 * NUMBER_DIGITS, "a uid is four pairs of the queue and four of the number"


class EventRows:
    """The events of one piece of the log that are wanted, in log order."""

    def __init__(
        self, entries: Entries, items: Items, codes: Codes, numbered: Numbered, ordinal: Ints, chosen: Bools
    ) -> None:
        self._entries = entries
        self._items = items
        self._numbered = numbered
        self._keep = slice(None) if chosen.all() else np.flatnonzero(chosen)
        self._entry = items.entry[self._keep]
        self._fields = items.rows[self._keep]
        self._code = codes.item[self._keep]
        self._found = codes.found[self._keep]
        self._ordinal = ordinal[self._keep]
        self._heads = entries.heads[self._entry]
        self._is_extra = items.is_extra[self._keep]
        kind = np.where(codes.cancelled[self._keep], CANCELLED, entries.kind[self._entry])
        kind = np.where(codes.dropped[self._keep], int(Kind.UNSTASH), kind)
        self._kind = np.where(self._is_extra, int(Kind.DELIVERED), kind)
        self._is_new = np.isin(self._kind, WITH_DRAFTS)

    def column(self, name: str) -> pa.Array:
        """Return one column."""
        return _COLUMNS[name](self)

    # --- which message ---------------------------------------------------------------------------------------------

    @cached_property
    def _number(self) -> Ints:
        """The number of each message; that of a new message follows from the order, others are in the log."""
        own = np.where(self._found > 0, self._found, self._fields["number"])
        return np.where(self._is_new, self._numbered.first_number[self._entry] + self._ordinal, own)

    @cached_property
    def _queue_id(self) -> Ints:
        in_log = self._heads["queue_id"].astype(np.int64)
        by_name = self._is_new | np.isin(self._kind, OF_STASHES)
        return np.where(by_name, self._numbered.queue_id[self._entry], in_log)

    @cached_property
    def _has_uid(self) -> Bools:
        of_queue = np.isin(self._kind, OF_QUEUES)
        refused = self._is_new & (self._code < 0)
        known: Bools = ~of_queue & ~refused & (self._queue_id > 0) & (self._number > 0)
        return known

    def uid(self) -> pa.Array:
        return uids_of(self._queue_id, self._number, self._has_uid)

    def incarnation(self) -> pa.Array:
        return column(self._queue_id, pa.int64(), self._queue_id > 0)

    def number(self) -> pa.Array:
        return column(self._number, pa.int64(), self._has_uid)

    def queue(self) -> pa.Array:
        return words(list(self._entries.names), self._entries.name[self._entry].astype(np.int32))

    # --- what happened ---------------------------------------------------------------------------------------------

    def at(self) -> pa.Array:
        return column(self._heads["at"].astype(np.int64) * _US_A_MS, KINDS["at"])

    def event(self) -> pa.Array:
        return words(EVENT_WORDS, self._kind.astype(np.int32))

    def outcome(self) -> pa.Array:
        return words(_OUTCOME_WORDS, (np.maximum(self._code, _OUTCOME_LOWEST) - _OUTCOME_LOWEST).astype(np.int32))

    def until(self) -> pa.Array:
        """The moment until which the message is not available; null for a delivery that is acknowledged at once."""
        moment = self._fields["moment"].astype(np.int64)
        is_known = np.isin(self._kind, _WITH_UNTIL) & (moment > 0) & ~self._is_extra
        is_known &= ~((self._kind == Kind.RELEASED) & (self._heads["kind"] == Kind.CLAIM))
        moment = np.where(self._is_new, self._heads["at"].astype(np.int64) + moment, moment)
        return column(moment * _US_A_MS, KINDS["until"], is_known)

    def priority(self) -> pa.Array:
        return column(self._fields["third"].astype(np.int64), pa.int64(), self._is_new)

    def delivery(self) -> pa.Array:
        sequence = self._fields["fourth"].astype(np.int64)
        return column(sequence, pa.int64(), np.isin(self._kind, _WITH_DELIVERY) & (sequence > 0))

    def worker(self) -> pa.Array:
        """The connection in the item, if its entry is of several connections; else the connection in the head."""
        heads, fields = self._heads, self._fields
        # As what an entry was written decides: a claim is read as a delivery, but has no connections in its items.
        has_own = np.isin(heads["kind"], WITH_WORKERS)
        is_plain = (heads["kind"] == Kind.PUBLISH) & (heads["flags"] & FLAG_SESSION == 0)
        own = np.where(has_own, fields["fifth"], np.where(is_plain, fields["number"], 0)).astype(np.int64)
        worker = np.where(own > 0, own, heads["worker"])
        return column(worker, pa.int64(), worker > 0)

    def door(self) -> pa.Array:
        return words(DOOR_WORDS, np.minimum(self._heads["door"], len(DOOR_WORDS) - 1).astype(np.int32))

    def reason(self) -> pa.Array:
        """The reason why a delivery ended; that of a dead letter is in its headers."""
        reasons = np.where(self._kind == Kind.RELEASED, self._fields["reason"], 0).astype(np.int32)
        of_claim = (self._kind == Kind.RELEASED) & (self._heads["kind"] == Kind.CLAIM)
        is_lapse = self._heads["flags"] == ClaimAction.LAPSED
        reasons[of_claim] = np.where(is_lapse, int(Reason.TIMEOUT), int(Reason.RETURNED))[of_claim]
        for row in np.flatnonzero(self._kind == Kind.DEAD).tolist():
            reasons[row] = self._reason_in_letter(int(self._entry[row]) + 1)
        return words(REASON_WORDS, reasons)

    def _reason_in_letter(self, letter: int) -> int:
        entries = self._entries
        if letter >= len(entries.kind) or not entries.is_follow_up[letter]:
            return 0
        _, headers_size, size = ITEM.unpack_from(entries.data, int(entries.items_at[letter]))[:3]
        start = int(entries.items_end[letter]) + size
        headers = msgspec.msgpack.decode(entries.data[start : start + headers_size]) if headers_size else {}
        return _REASON_CODES.get(headers.get(REASON, ""), 0)

    # --- where it stands, and what it was about --------------------------------------------------------------------

    def index(self) -> pa.Array:
        return column(self._entries.index[self._entry], pa.int64())

    def place(self) -> pa.Array:
        """The place of an event among those of its record; a follow-up is in the record of its acknowledgement."""
        entries, items = self._entries, self._items
        first = items.first[np.searchsorted(entries.index, entries.index)]
        rows = np.arange(len(items.entry))[self._keep]
        return column((rows - first[self._entry]).astype(np.int32), pa.int32())

    def size(self) -> pa.Array:
        return column(self._fields["size"].astype(np.int32), pa.int32(), self._is_new)

    def body(self) -> pa.Array:
        """The bodies of new messages, which follow all items of their entry."""
        items = self._items
        if not len(items.entry):
            return pa.array([], pa.binary())
        sizes = items.rows["size"].astype(np.int64)
        used = sizes + items.rows["headers_size"] + items.rows["alias_size"]
        before = np.cumsum(used) - used
        firsts = before[np.minimum(items.first, len(before) - 1)]
        starts = self._bodies_at()[items.entry] + before - firsts[items.entry]
        data = memoryview(self._entries.data)
        rows = zip(
            self._is_new.tolist(), starts[self._keep].tolist(), sizes[self._keep].tolist(), strict=True
        )  # fmt: skip
        return pa.array([data[start : start + size] if is_one else None for is_one, start, size in rows], pa.binary())

    def _bodies_at(self) -> Ints:
        """Return where the bodies of a publish begin: after its id and session, or after the description of a stash."""
        entries = self._entries
        end = entries.items_end.copy()
        lengths = windows(entries.data, LENGTH_FIELD)
        for flag in (FLAG_ID, FLAG_SESSION):
            chosen = np.flatnonzero((entries.heads["flags"] & flag > 0) & (entries.heads["kind"] == Kind.PUBLISH))
            end[chosen] += 2 + lengths[end[chosen]]["size"].astype(np.int64)
        stashes = np.flatnonzero(entries.heads["kind"] == Kind.STASH)
        end[stashes] += 4 + windows(entries.data, SIZE_FIELD)[end[stashes]]["size"].astype(np.int64)
        return end


_COLUMNS: dict[str, Callable[[EventRows], pa.Array]] = {name: getattr(EventRows, name) for name in KINDS}
