"""Deliveries: which messages of a queue are out with a worker, and the record (Side) of each that ever was.

    Delivered, Extended, Released --> deliver, extend, release --> results, and until when each message is out or away

The middle layer of Ledger, on Columns.  Pure.  A message that was never delivered costs nothing here; one that was has
a Side in memory until it is gone.
"""

from collections.abc import Sequence
from itertools import count

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, Delivered, Extended, Reason, Released, Result, Results
from wakeq.protocol.log.rows import Side
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.ledger.chunks import CHUNK_SHIFT
from wakeq.protocol.queue.ledger.columns import MASK, Columns
from wakeq.protocol.queue.ledger.delta import Totals
from wakeq.protocol.queue.ledger.staging import UNENDING_MS

_UNKNOWN = int(Result.UNKNOWN)
ERROR_CHARS_MAX = 16_000  # kept of a worker's error text; a stored message has room for 65,535 bytes of it


class Deliveries(Columns):
    """See the head of this file."""

    __slots__ = ("_touched", "id", "out", "policies", "sides", "totals")

    id: int
    policies: Policies

    def clear(self) -> None:
        """Begin with nothing."""
        super().clear()
        self.sides: dict[int, Side] = EMPTY_DICT
        self.out = 0
        self.totals = Totals()
        self._touched: set[int] | None = None  # made when needed: an idle queue is to be small

    # --- looking ---------------------------------------------------------------------------------------------------

    def timeout_of(self, number: int) -> int:
        """Return the timeout of a living message: its own, or the queue's."""
        column = self.chunks[number >> CHUNK_SHIFT].timeouts
        own = 0 if column is None else column[number & MASK]
        return own or self.policies.timeout * 1000

    def due_of(self, number: int) -> int:
        """Return the moment from which a living message that is not out may be handed out; 0 for always."""
        side = self.sides.get(number)
        if side is not None:
            return side.due_ms
        column = self.chunks[number >> CHUNK_SHIFT].dues
        due_ms = 0 if column is None else column[number & MASK]
        return due_ms if due_ms >= 0 else UNENDING_MS  # stashed

    def is_plain(self, number: int) -> bool:
        """Whether a living message has no priority, delay or expiry and never came back."""
        chunk = self.chunks[number >> CHUNK_SHIFT]
        if chunk.priorities is None and chunk.dues is None and chunk.expiries is None:
            return number not in self.sides
        return False

    def is_out(self, number: int) -> bool:
        side = self.sides.get(number)
        return side is not None and side.until_ms > 0

    # --- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, entry: Delivered, term: int) -> Results:
        """Note that messages are out; the result of one that is gone is UNKNOWN."""
        if entry.queue_id != self.id:
            return [_UNKNOWN] * len(entry.numbers)
        if self.sides is EMPTY_DICT:
            self.sides = {}
        sides, known = self.sides, self.sides.get
        delivered = 0
        for sequence, number, until_ms in zip(count(entry.first_sequence), entry.numbers, entry.untils_ms):
            if not self.lives(number):
                continue
            delivered += 1
            side = known(number)
            if side is None:
                sides[number] = Side(1, 0, 0, 0, term, sequence, until_ms, 0, "")
                self.out += 1
            else:
                self.out += side.until_ms == 0
                side.deliveries += 1
                side.term, side.sequence, side.until_ms, side.due_ms = term, sequence, until_ms, 0
        self._touch(entry.numbers)
        self._dirty_chunks.update(dict.fromkeys([number >> CHUNK_SHIFT for number in entry.numbers]))
        self.totals.delivered += delivered
        if delivered == len(entry.numbers):
            return entry.numbers
        return [number if self.lives(number) else _UNKNOWN for number in entry.numbers]

    def extend(self, entry: Extended) -> Results:
        """Give leases a later end; UNKNOWN for what is not out."""
        if entry.queue_id != self.id:
            return [_UNKNOWN] * len(entry.numbers)
        results = []
        for number, until_ms in zip(entry.numbers, entry.untils_ms, strict=True):
            side = self.sides.get(number)
            if side is not None and side.until_ms:
                side.until_ms = until_ms
                self._touch((number,))
                results.append(number)
            else:
                results.append(_UNKNOWN)
        return results

    def release(self, entry: Released) -> Results:
        """Take back what is out; STALE for a token older than the last delivery, UNKNOWN for what is not out."""
        if entry.queue_id != self.id:
            return [Result.UNKNOWN] * len(entry.numbers)
        rows = zip(entry.numbers, entry.dues_ms, entry.tokens, strict=True)
        return [self._release(number, due, token, entry) for number, due, token in rows]

    def _release(self, number: int, due_ms: int, token: tuple[int, int], entry: Released) -> int:
        side = self.sides.get(number)
        if side is None or not side.until_ms:
            return Result.UNKNOWN
        if token != ANY_TOKEN and token < (side.term, side.sequence):
            return Result.STALE
        side.until_ms, side.due_ms = 0, due_ms
        side.nacks += entry.reason == Reason.NACK
        side.timeouts += entry.reason == Reason.TIMEOUT
        side.disconnects += entry.reason == Reason.DISCONNECT
        if entry.error:
            side.error = entry.error[:ERROR_CHARS_MAX]
        self.out -= 1
        self.totals.released += 1
        self._touch((number,))
        return Result.DONE

    # --- writing down, and coming back -----------------------------------------------------------------------------

    def _touch(self, numbers: Sequence[int]) -> None:
        """Remember that the sides of these changed."""
        if self._touched is None:
            self._touched = set(numbers)
        else:
            self._touched.update(numbers)

    def restore_side(self, number: int, side: Side) -> None:
        """Take back the stored Side of a message that has been delivered."""
        if self.sides is EMPTY_DICT:
            self.sides = {}
        self.sides[number] = side
        self.out += side.until_ms > 0
