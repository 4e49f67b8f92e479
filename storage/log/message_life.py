"""MessageLife: what the log, and the journal behind it, say of one message, whether it is finished or not.

    queue, queue id, number --> step(), again and again until it is done --> events, the message as it was published

A step reads a piece of the files and belongs to a thread that may wait for a disk.  The outcomes say in which stretch
of the log a message got its number, so nothing before that is read, and nothing behind the end of its life.  Of what is
read, most blocks are passed over: an entry that names a message holds its number behind six zero bytes.  It must never
take an entry whose checksum is wrong or whose outcome is unknown, nor say anything about a message of another queue.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice, pairwise
from typing import NamedTuple
from zlib import crc32

from wakeq.protocol.errors import HistoryGone
from wakeq.protocol.log.entries import (
    Ack,
    DeleteQueue,
    Draft,
    Kind,
    Publish,
    PurgeQueue,
    Stash,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.events import EXTENDED, MessageEvent, events_at, events_in, published
from wakeq.protocol.log.format import RECORD, RECORD_BYTES
from wakeq.protocol.log.layout import HEAD
from wakeq.protocol.log.outcomes import (
    HEADER_BYTES,
    WHOLE,
    bodies_in,
    counter_in,
    decode_header,
    notes_in,
    span_of,
)
from wakeq.protocol.log.outcomes import (
    RECORD as OUTCOMES_RECORD,
)
from wakeq.protocol.log.reader import decode_entry
from wakeq.storage.log.history import HistoryFiles, Part, PartBlock

# A search for bytes keeps all other threads of Python waiting: about 1 ms for so many.
WINDOW_BYTES = 1 << 20
# The first and the newest events are kept; so many in all.
EVENTS_MAX = 1_000
# No pattern is longer: zeros, the length of a queue's name, the name.
PATTERN_BYTES_MAX = 512
# In the head of an entry: the id of the queue, and what stands before the length of its name when there is no id.
ID = slice(16, 24)
NO_ID_NO_WORKER = bytes(12)
# In an item that names a message: no headers and no body, then the number.
NO_SIZES = bytes(6)
WITH_NUMBERS = frozenset(
    (
        Kind.DELIVERED, Kind.EXTENDED, Kind.RELEASED, Kind.ACK, Kind.EXPIRED, Kind.DEAD, Kind.CLAIM, Kind.MOVED,
    )
)  # fmt: skip
# New messages, of their own or as follow-ups.
WITH_DRAFTS = frozenset((Kind.PUBLISH, Kind.STASH, Kind.ACK, Kind.DEAD, Kind.MOVED))
ENDS_OF_QUEUES = frozenset((Kind.PURGE, Kind.DELETE))


class _Record(NamedTuple):
    """The outcomes of the entries behind `after`, up to `through`, as bytes."""

    after: int
    through: int
    body: bytes


class MessageLife:
    """The search for the life of one message.  `is_living`: the queue has it, so no entry can have ended it."""

    def __init__(self, files: HistoryFiles, queue: str, queue_id: int, number: int, *, is_living: bool) -> None:
        # What is known so far, in the order of the log.
        self.events: list[MessageEvent] = []
        # Events in the middle that are left out, because there are too many.
        self.left_out = 0
        # The message as it was published; None until it is found.
        self.draft: Draft | None = None
        # Whether all of its life was read: from its publication to its end, or to the newest entry.
        self.is_complete = False
        # The moment of the oldest entry that is kept.
        self.since_ms: int | None = None
        self._files = files
        self._queue = queue
        self._queue_id = queue_id
        self._number = number
        self._is_living = is_living
        # The entry that published it; 0 while it is not known.
        self._published_in = 0
        # The outcomes of the entries that are being read, in the order of the log.
        self._outcomes: list[_Record] = []
        # Whether an entry could not be read.
        self._has_gap = False
        # Whether an entry is left out because its outcome is not written down, or not yet.
        self._has_untold = False
        self._is_over = False
        self._work = self._search()

    def step(self) -> bool:
        """Read a piece; return whether this was the last one."""
        return next(self._work, True) is True

    def close(self) -> None:
        """End the search and close its files."""
        self._work.close()

    def _search(self) -> Generator[None]:
        name = self._queue.encode()
        in_name = bytes([len(name)]) + name
        self.since_ms = self._files.first_moment()
        yield
        yield from self._find_publication(in_name)
        if self._is_over:
            return
        self._outcomes = []
        patterns = (NO_SIZES + self._number.to_bytes(8, "big"), NO_ID_NO_WORKER + in_name)
        for entry in self._entries(max(self._published_in, self._queue_id) + 1, None, patterns):
            if entry is None:
                yield
            else:
                self._take(*entry)
            if self._is_over:
                break
        self.is_complete = bool(self._published_in) and not (self._has_gap or self._has_untold)

    # --- where it was published --------------------------------------------------------------------------------------

    def _find_publication(self, in_name: bytes) -> Iterator[None]:
        """Count the messages of the queue in the stretch of the log in which it got its number."""
        after, number, through, end_number = self._queue_id - 1, 0, None, 0
        for record in self._records_of_outcomes(self._first_outcomes()):
            if record is None:
                yield
                continue
            counter = counter_in(record.body, self._queue)
            if counter is None or record.through < self._queue_id:
                continue
            queue_id, next_number, _ = counter
            if 0 < queue_id < self._queue_id:
                # The queue was there all the time, so the uid is of another queue.
                self._is_over = True
                return
            if queue_id != self._queue_id or next_number > self._number:
                through = record.through
                end_number = next_number if queue_id == self._queue_id else 0
                break
            after, number = record.through, next_number
        # Without the outcomes nobody knows which publishes were refused.
        if through is None or self._files.indexes()[0] > after + 1:
            return
        for entry in self._entries(after + 1, through, (in_name,)):
            if entry is None:
                yield
                continue
            index, payload = entry
            if index == self._queue_id:
                number = 1
            if number:
                number = self._count(index, payload, number)
        if self._has_gap or self._has_untold or (end_number and number != end_number):
            # The outcomes of some entries are not known, so what was found may be another message.
            self._published_in, self.draft, self.events, self._has_untold = 0, None, [], False

    def _count(self, index: int, payload: bytes, number: int) -> int:
        """Count the new messages of an entry; take the one with our number.  Return the number of the next one."""
        if payload[1] not in WITH_DRAFTS:
            return number
        if not self._is_told(index):
            return number
        entry, at_ms = decode_entry(payload)
        source = entry if isinstance(entry, Ack) else None
        codes = self._codes_of(index)
        if codes.get(WHOLE, 0) < 0:
            return number
        for publish in [entry] if source is None else source.publishes:
            if not isinstance(publish, Publish | Stash) or publish.queue != self._queue:
                continue
            # The notes about an acknowledgement are about its own items, not about those of its follow-ups.
            refused = set() if source is not None else {place for place, code in codes.items() if code < 0}
            accepted = [place for place in range(len(publish.drafts)) if place not in refused]
            place = self._number - number
            if 0 <= place < len(accepted):
                self._publish(index, publish, at_ms, accepted[place], source)
            number += len(accepted)
        return number

    def _publish(self, index: int, publish: Publish | Stash, at_ms: int, place: int, source: Ack | None) -> None:
        self._published_in, self.draft = index, publish.drafts[place]
        if isinstance(publish, Stash):
            self.events = [MessageEvent(at_ms, "stashed", publish.worker)]
        else:
            self.events = [published(publish, at_ms, place, source=source)]

    def _first_outcomes(self) -> int:
        """Return the first entry of the file of outcomes from which the number can be found."""
        oldest = 0
        for facts in reversed(self._files.outcomes()):
            body = self._first_record(facts.first_index)
            if body is None:
                continue
            oldest = facts.first_index
            _, through = span_of(body)
            counter = counter_in(body, self._queue)
            is_before = counter is not None and counter[0] == self._queue_id and counter[1] <= self._number
            if through < self._queue_id or is_before:
                break
        return oldest

    def _first_record(self, first_index: int) -> bytes | None:
        try:
            with closing(self._files.open_outcomes(first_index)) as file:
                identity, _ = decode_header(file.read(0, HEADER_BYTES), file.path)
                size = OUTCOMES_RECORD.size + int.from_bytes(file.read(HEADER_BYTES, 4), "big")
                data = file.read(0, HEADER_BYTES + size)
                return next(bodies_in(data, identity, file.path), None)
        except HistoryGone:
            return None

    # --- what became of it -------------------------------------------------------------------------------------------

    def _take(self, index: int, payload: bytes) -> None:
        """Take what an entry behind the publication says of the message."""
        kind = payload[1]
        if kind == Kind.UNSTASH or kind in ENDS_OF_QUEUES:
            self._take_of_queue(index, payload)
            return
        if kind not in WITH_NUMBERS or payload[ID] != self._queue_id.to_bytes(8, "big"):
            return
        entry, at_ms = decode_entry(payload)
        if entry.queue != self._queue or not self._is_told(index):
            return
        codes = self._codes_of(index)
        if codes.get(WHOLE, 0) < 0:
            return
        numbers = getattr(entry, "numbers", [])
        if self._number in numbers:
            code = codes.get(numbers.index(self._number), 0)
            self._add(events_in(entry, at_ms, self._number, code))
        elif isinstance(entry, Ack):
            places = (place for place in entry.foreign if codes.get(place) == self._number)
            for place in places:
                self._add(events_at(entry, at_ms, place))

    def _take_of_queue(self, index: int, payload: bytes) -> None:
        entry, at_ms = decode_entry(payload)
        if entry.queue != self._queue or not self._is_told(index) or self._codes_of(index).get(WHOLE, 0) < 0:
            return
        if isinstance(entry, PurgeQueue | DeleteQueue):
            word = "purged" if isinstance(entry, PurgeQueue) else "deleted with its queue"
            self._add([MessageEvent(at_ms, word, is_end=True)])
        elif isinstance(entry, Unstash):
            runs = [(place, first) for place, first in self._notes_of(index) if first > 0]
            for place, first in runs:
                size = place if place >= 0 else WHOLE - place
                if not first <= self._number < first + size:
                    continue
                is_dropped = place < 0
                word = "dropped" if is_dropped else "published"
                reason = "lapsed" if entry.action is UnstashAction.LAPSED else ""
                self._add([MessageEvent(at_ms, word, reason=reason, is_end=is_dropped)])

    def _add(self, events: list[MessageEvent]) -> None:
        ends = any(event.is_end for event in events)
        # It lives, so nothing has ended it.
        if ends and self._is_living:
            return
        for event in events:
            if event.event == EXTENDED and self.events and self.events[-1].event == EXTENDED:
                self.events[-1] = event._replace(times=self.events[-1].times + 1)
            else:
                self.events.append(event)
        while len(self.events) > EVENTS_MAX:
            del self.events[EVENTS_MAX // 2]
            self.left_out += 1
        self._is_over = self._is_over or ends

    # --- the outcomes of entries -------------------------------------------------------------------------------------

    def _codes_of(self, index: int) -> dict[int, int]:
        """Return the outcomes of an entry's items by place, where it did not just do what it asks for."""
        return dict(self._notes_of(index))

    def _is_told(self, index: int) -> bool:
        """Whether the outcome of an entry is known; until then it may have been refused, and is no event."""
        start = bisect_left(self._outcomes, index, key=lambda record: record.through)
        is_told = any(record.after < index for record in islice(self._outcomes, start, start + 1))
        self._has_untold = self._has_untold or not is_told
        return is_told

    def _notes_of(self, index: int) -> list[tuple[int, int]]:
        """Return (place, outcome) of each note about an entry."""
        start = bisect_left(self._outcomes, index, key=lambda record: record.through)
        notes = []
        for record in islice(self._outcomes, start, None):
            if record.after >= index:
                break
            notes += [(place, code) for noted, place, code in notes_in(record.body) if noted == index]
        return notes

    def _records_of_outcomes(self, first_index: int) -> Iterator["_Record | None"]:
        """Yield the records of this file of outcomes and of those behind it, and None before each file."""
        for facts in self._files.outcomes():
            if first_index and facts.first_index >= first_index:
                yield None
                yield from self._read_outcomes(facts.first_index)

    def _read_outcomes(self, first_index: int) -> Iterator["_Record"]:
        try:
            with closing(self._files.open_outcomes(first_index)) as file:
                data = file.read(0, file.size_bytes)
        except HistoryGone:
            return
        # A crash may leave a file without a header; the next start makes another one.
        if len(data) >= HEADER_BYTES:
            identity, _ = decode_header(data[:HEADER_BYTES], file.path)
            for body in bodies_in(data, identity, file.path):
                yield _Record(*span_of(body), body)

    def _load_outcomes(self, first: int, last: int) -> None:
        """Have the outcomes of these entries, and drop those of entries before them."""
        self._outcomes = [record for record in self._outcomes if record.through >= first]
        known = self._outcomes[-1].through if self._outcomes else 0
        firsts = [facts.first_index for facts in self._files.outcomes()]
        for index, following in pairwise([*firsts, last + 2]):
            if index <= last and following > max(first, known + 1):
                have = {record[:2] for record in self._outcomes}
                more = (record for record in self._read_outcomes(index) if record.through >= first)
                self._outcomes += [record for record in more if record[:2] not in have]
        self._outcomes.sort(key=lambda record: record.through)

    # --- entries -----------------------------------------------------------------------------------------------------

    def _entries(self, first: int, last: int | None, patterns: tuple[bytes, ...]) -> Iterator[tuple[int, bytes] | None]:
        """Yield (index, payload) of entries that hold a pattern or that a note names, and None after each piece."""
        indexes, expected = self._files.indexes(), 0
        for place, index in enumerate(indexes):
            is_before = place + 1 < len(indexes) and indexes[place + 1] <= first
            if is_before or (last is not None and index > last):
                continue
            try:
                part = self._files.open_part(index)
            except HistoryGone:
                self._has_gap = True
                continue
            with closing(part.file):
                self._has_gap = self._has_gap or (0 < expected != index)
                expected = part.last_index + 1
                self._load_outcomes(max(first, index), part.last_index)
                yield None
                yield from self._entries_of(part, first, last, patterns)

    def _entries_of(
        self, part: Part, first: int, last: int | None, patterns: tuple[bytes, ...]
    ) -> Iterator[tuple[int, bytes] | None]:
        named = self._named_by_notes()
        for block in part.blocks:
            if block.last_index < first or (last is not None and block.first_index > last):
                continue
            data = part.file.read(block.start, block.end - block.start)
            here = {index for index in named if block.first_index <= index <= block.last_index}
            if here or _holds(data, patterns):
                for index, payload in self._records(data, block, part.seed, patterns, here):
                    if index >= first and (last is None or index <= last):
                        yield index, payload
            yield None

    def _records(
        self, data: bytes, block: PartBlock, seed: int, patterns: tuple[bytes, ...], named: set[int]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the records of a block that are wanted, with right checksums; the lengths lead from one to the next."""
        view, position, expected = memoryview(data), 0, block.first_index
        while position + RECORD_BYTES <= len(data):
            length, checksum, index, _term, _place = RECORD.unpack_from(data, position)
            start, stop = position + RECORD_BYTES, position + RECORD_BYTES + length
            if index != expected or stop > len(data):
                # A node that follows may have removed entries meanwhile.
                self._has_gap = True
                return
            if index in named or any(data.find(pattern, start, stop) >= 0 for pattern in patterns):
                if crc32(view[position + 8 : stop], seed) != checksum:
                    self._has_gap = True
                    return
                if length >= HEAD.size:
                    yield index, data[start:stop]
            position, expected = stop, expected + 1

    def _named_by_notes(self) -> set[int]:
        """Return the entries that concern the message and do not hold its number: stashes, and foreign uids."""
        found = set()
        for record in self._outcomes:
            for index, place, code in notes_in(record.body):
                if code > 0 and index > self._published_in:
                    size = place if place >= 0 else WHOLE - place
                    if code == self._number or code <= self._number < code + size:
                        found.add(index)
        return found


def _holds(data: bytes, patterns: tuple[bytes, ...]) -> bool:
    """Whether one of the patterns is in the data; other threads get their turn between two windows."""
    starts = range(0, len(data), WINDOW_BYTES)
    return any(
        data.find(pattern, start, start + WINDOW_BYTES + PATTERN_BYTES_MAX) >= 0
        for start in starts
        for pattern in patterns
    )
