"""Deliveries: which messages of a queue are leased, and the record of each that ever was.

    extend, release, forget --> records, how many are leased          collect --> whose record has changed

A part of the ledger.  Pure.  A message that was never delivered costs nothing here; one that was has a DeliveryRecord
in memory until it is gone.
"""

from wakeq.protocol.log.entries import ANY_TOKEN, Reason, Result, Token
from wakeq.protocol.log.rows import DeliveryRecord
from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_SET

ERROR_CHARS_MAX = 16_000  # kept of a worker's error text; a stored message has room for 65,535 bytes of it


class Deliveries:
    """The records of one queue.

    The ledger writes deliveries and acknowledgements into these fields by itself: they are the hot path.
    """

    __slots__ = ("leased", "records", "touched")

    def __init__(self) -> None:
        self.records: dict[int, DeliveryRecord] = EMPTY_DICT  # by message number
        self.leased = 0  # how many of them are out with a worker
        self.touched: set[int] = EMPTY_SET  # whose record changed since it was collected; some may be gone

    def begin_to_write(self) -> None:
        """Make containers of its own: an idle queue is to be small."""
        if self.records is EMPTY_DICT:
            self.records = {}
        self.touched = set()

    def touch(self, number: int) -> None:
        """Remember that the record of this message changed."""
        if self.touched is EMPTY_SET:
            self.begin_to_write()
        self.touched.add(number)

    def is_leased(self, number: int) -> bool:
        record = self.records.get(number)
        return record is not None and record.until_ms > 0

    def extend(self, number: int, until_ms: int) -> bool:
        """Give a lease a later end; False if the message is not out."""
        record = self.records.get(number)
        if record is None or not record.until_ms:
            return False
        record.until_ms = until_ms
        self.touch(number)
        return True

    def release(self, number: int, due_ms: int, token: Token, reason: Reason, error: str) -> Result:
        """Take back what is out; STALE for a token older than the last delivery, UNKNOWN for what is not out."""
        record = self.records.get(number)
        if record is None or not record.until_ms:
            return Result.UNKNOWN
        if token != ANY_TOKEN and token < (record.term, record.sequence):
            return Result.STALE
        record.until_ms, record.due_ms = 0, due_ms
        record.nacks += reason == Reason.NACK
        record.timeouts += reason == Reason.TIMEOUT
        record.disconnects += reason == Reason.DISCONNECT
        if error:
            record.error = error[:ERROR_CHARS_MAX]
        self.leased -= 1
        self.touch(number)
        return Result.DONE

    def forget(self, number: int) -> None:
        """A message is gone."""
        record = self.records.pop(number, None) if self.records else None
        if record is not None and record.until_ms:
            self.leased -= 1

    def collect(self) -> list[int] | tuple[()]:
        """Return the messages whose record changed since the last call."""
        touched, self.touched = self.touched, EMPTY_SET
        return [number for number in touched if number in self.records] if touched else ()

    def restore(self, number: int, record: DeliveryRecord) -> None:
        """Take back the stored record of a message that has been delivered."""
        if self.records is EMPTY_DICT:
            self.records = {}
        self.records[number] = record
        self.leased += record.until_ms > 0
