"""Bodies: the messages of one queue that are in memory: not yet in the state store, or soon to be handed out.

    publish --> fresh --collect--> flushing --flushed--> cached if among the next to go, else dropped, and read later

Pure.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from wakeq.protocol.errors import REBUILD, DamagedFile
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import decode_drafts
from wakeq.protocol.queue.empty import EMPTY_LIST
from wakeq.protocol.queue.ledger.columns import Columns
from wakeq.protocol.queue.order.fifo import is_run
from wakeq.protocol.queue.runs import Runs, Stretch
from wakeq.protocol.uid import NUMBER_MAX

CACHED_BYTES_MAX = 2 << 20  # of one queue, KEPT_BYTES for each message counted in
CACHED_ALL_BYTES_MAX = 8 << 20  # of all queues together, each getting an equal share
KEPT_BYTES = 400  # what keeping a message costs beside its body: the draft, its place, and what the allocator adds

Kept = tuple[Draft, int]  # the message and the moment of its publication
Found = dict[int, Kept]
Moments = list[tuple[int, int]]  # from which number on, the moment of publication; one for each entry of the log


def share_of(queues: int) -> int:
    """Return how many bytes each of so many queues may keep at hand."""
    return min(CACHED_BYTES_MAX, CACHED_ALL_BYTES_MAX // max(queues, 1))


def read_from(numbers: Sequence[int], values: Sequence[bytes | None], columns: Columns, queue: str) -> Found:
    """Return messages as the state store has them, but for those that are gone by now."""
    if len(columns.living_among(numbers)) < len(numbers):
        stored = {number: value for number, value in zip(numbers, values, strict=True) if columns.lives(number)}
        numbers, values = list(stored), list(stored.values())
    if None in values:  # reading again would not help
        found = f"none: number {numbers[values.index(None)]} of queue {queue!r}"
        raise DamagedFile("state/data.mdb", 0, found=found, expected="a message that is in the index", hint=REBUILD)
    rows = cast("Sequence[bytes]", values)
    try:
        return dict(zip(numbers, decode_drafts(rows), strict=True))
    except BadRecord:
        for number, row in zip(numbers, rows, strict=True):
            _check(row, number, queue)
        raise


def _check(row: bytes, number: int, queue: str) -> None:
    """Say of a message that is damaged which one it is."""
    try:
        decode_drafts((row,))
    except BadRecord as error:
        found = f"{error}: number {number} of queue {queue!r}"
        raise DamagedFile("state/data.mdb", 0, found=found, expected="whole records", hint=REBUILD) from error


class Bodies:
    """Bodies by message number.

    Those that the store does not have yet are kept in runs of consecutive numbers, and their moments of publication
    once for each entry, so that a message costs no more than its body.
    """

    __slots__ = ("_cached", "_filled_bytes", "_flushing", "_flushing_moments", "_fresh", "_moments", "_since")

    def __init__(self) -> None:
        self._fresh = Runs()
        self._flushing = Runs()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._fresh.clear()
        self._moments: Moments = EMPTY_LIST
        self._flushing.clear()
        self._flushing_moments: Moments = EMPTY_LIST
        self._since = NUMBER_MAX  # living messages from this number on are not in the store yet
        self._cached: dict[int, Kept] = {}
        self._filled_bytes = 0  # the bound to which the cache was filled; 0 if it was not full, or has changed since

    def __len__(self) -> int:
        return self._fresh.living + self._flushing.living + len(self._cached)

    def publish(self, numbers: Sequence[int], drafts: Sequence[Draft], at_ms: int) -> None:
        """Take the bodies of new messages, whose numbers follow one another."""
        first = numbers[0]
        if not self._moments:
            self._moments = [(first, at_ms)]
            if first < self._since:
                self._since = first
        elif self._moments[-1][1] != at_ms:
            self._moments.append((first, at_ms))
        self._fresh.append(first, drafts)

    def kept(self, number: int) -> Kept | None:
        for runs, moments in ((self._fresh, self._moments), (self._flushing, self._flushing_moments)):
            draft = runs.get(number)
            if draft is not None:
                return draft, _moment_of(number, moments)
        return self._cached.get(number)

    def get(self, number: int) -> Draft | None:
        draft = self._fresh.get(number) or self._flushing.get(number)
        if draft is None and number in self._cached:
            draft = self._cached[number][0]
        return draft

    def get_many(self, numbers: Sequence[int]) -> list[Draft]:
        """Return bodies that are all at hand."""
        cached = self._cached
        if numbers[0] in cached:  # mostly all of them are in the same place
            with suppress(KeyError):
                return [cached[number][0] for number in numbers]
        elif len(numbers) > 1 and is_run(numbers):
            for runs in (self._fresh, self._flushing):
                if (found := runs.between(numbers[0], numbers[-1] + 1)) is not None:
                    return found
        drafts = [self.get(number) for number in numbers]
        assert None not in drafts, "read before"
        return [draft for draft in drafts if draft is not None]

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Return which of these living messages have to be read."""
        cached, since = self._cached, self._since
        return [number for number in numbers if number < since and number not in cached]

    def load(self, read: Found) -> None:
        """Keep what was read, until the next cut."""
        self._filled_bytes = 0
        self._cached.update(read)

    def remove(self, numbers: Sequence[int]) -> list[int]:
        """Forget messages that were all published here; return those that the store has or is about to have."""
        fresh, flushing, cached = self._fresh, self._flushing, self._cached
        if len(numbers) > 1 and numbers[0] >= fresh.first and is_run(numbers):
            fresh.remove_between(numbers[0], numbers[-1] + 1)
            return []
        stored = [number for number in numbers if not fresh.remove(number)]
        for number in stored:
            flushing.remove(number)
            if cached.pop(number, None) is not None:
                self._filled_bytes = 0
        return stored

    def collect(self) -> tuple[list[Stretch], Moments]:
        """Hand over what the store does not have yet; it stays in memory until `flushed`."""
        handed_over, moments = self._fresh.hand_over(), self._moments  # another thread reads these from now on
        self._flushing.take_over(self._fresh)
        self._flushing_moments = [*self._flushing_moments, *moments] if self._flushing_moments else moments
        self._moments = EMPTY_LIST
        return handed_over, moments

    def flushed(self, line: Callable[[int], Sequence[int]], bytes_max: int) -> None:
        """The store has what was collected: keep only what `line` says is next to go, within the bound.

        A full cache from which nothing was taken is left as it is, unless the bound has become much smaller: messages
        that come before these by now are read when they go.
        """
        is_filled = bytes_max > self._filled_bytes // 2 > 0
        if not is_filled:
            self._fill(line, bytes_max)
        self._flushing.clear()
        self._flushing_moments = EMPTY_LIST
        self._since = self._fresh.first

    def _fill(self, line: Callable[[int], Sequence[int]], bytes_max: int) -> None:
        """Keep those that are next to go, and no others."""
        flushing, moments = self._flushing, self._flushing_moments
        self._filled_bytes, filled_bytes = 0, bytes_max
        cached, self._cached = self._cached, {}
        for number in line(bytes_max // KEPT_BYTES):
            kept = cached.get(number)
            if kept is None and number >= flushing.first and (draft := flushing.get(number)) is not None:
                kept = draft, _moment_of(number, moments)
            if kept is not None:
                bytes_max -= KEPT_BYTES + len(kept[0].body) + len(kept[0].headers)
                if bytes_max < 0:
                    self._filled_bytes = filled_bytes
                    break
                self._cached[number] = kept


def _moment_of(number: int, moments: Moments) -> int:
    return moments[bisect_right(moments, (number + 1,)) - 1][1]
