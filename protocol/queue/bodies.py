"""Bodies: the messages of one queue that are in memory: not yet in the state store, or soon to be delivered.

    publish --> fresh --collect--> flushing --flushed--> cached if among the next to go, else dropped, and read later

Pure.  What is fresh or flushing lies in Runs, of which another thread gets Stretches.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, repeat
from typing import NamedTuple, cast

from wakeq.protocol.errors import REBUILD, DamagedFile
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import decode_drafts
from wakeq.protocol.queue.empty import EMPTY_LIST
from wakeq.protocol.queue.ledger.columns import Columns
from wakeq.protocol.queue.ledger.uniform import UniformBatch
from wakeq.protocol.queue.order.fifo import is_run
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


_STAYS = b"\1"
GONE_MIN = 1_024  # at the head of a growing list, before it is shortened


class Stretch(NamedTuple):
    """Messages from a number on, as nobody will change them any more."""

    first: int
    drafts: Sequence[Draft]
    stays: bytes | None  # 1 for each that is still there, 0 for each that has gone; None: all are there

    def numbers(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers of what is there from one place on, before another."""
        numbers = range(self.first + start, self.first + stop)
        return numbers if self.stays is None else list(compress(numbers, self.stays[start:stop]))

    def rows(self) -> Iterator[tuple[int, Draft]]:
        """Yield what is there, with its number."""
        rows = enumerate(self.drafts, self.first)
        return rows if self.stays is None else compress(rows, self.stays)


class _Run:
    """Messages from a number on, as a Stretch, while some may still go."""

    __slots__ = ("drafts", "first", "living", "stays")

    def __init__(self, first: int, drafts: Sequence[Draft]) -> None:
        self.first = first
        self.drafts = drafts
        self.living = len(drafts)
        self.stays: bytearray | None = None

    def shorten(self) -> None:
        """Forget what has gone at the head, if that is most of it: a queue that keeps up is to hold what waits only."""
        own, stays = self.drafts, self.stays
        if stays is not None and type(own) is list and len(own) - self.living > max(GONE_MIN, self.living):
            gone = stays.find(1)
            if gone > len(own) // 2:
                del own[:gone], stays[:gone]
                self.first += gone

    def stretch(self) -> Stretch:
        """Return what is there as it is now, without what has gone at the ends."""
        drafts, stays = self.drafts, self.stays
        if stays is None:
            return Stretch(self.first, drafts, None)
        if type(drafts) is UniformBatch:
            return Stretch(self.first, drafts, bytes(stays))
        start, stop = stays.find(1), stays.rfind(1) + 1
        left = None if stop - start == self.living else bytes(stays[start:stop])
        return Stretch(self.first + start, drafts[start:stop], left)

    def cross_out(self, start: int, stop: int) -> int:
        """Let messages go; return how many of them were still there."""
        if start >= stop:
            return 0
        if self.stays is None:
            self.stays = bytearray(_STAYS) * len(self.drafts)
        gone = self.stays.count(1, start, stop)
        self.stays[start:stop] = bytes(stop - start)
        self.living -= gone
        if not self.living:
            self.drafts, self.stays = (), None
        return gone


class Runs:
    """New messages by their numbers, which only grow; those that were published together stay together.

    Nothing is made for each message here but one byte, once something of its run has gone.  A buffer stays whole until
    its last message goes; a list, which grows with what comes one by one, is shortened as its oldest go.
    """

    __slots__ = ("_firsts", "_runs", "living")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._firsts: list[int] = EMPTY_LIST
        self._runs: list[_Run] = EMPTY_LIST
        self.living = 0

    def append(self, first: int, drafts: Sequence[Draft]) -> None:
        """Take new messages; those that came one by one lie together."""
        count = len(drafts)
        self.living += count
        last = self._runs[-1] if self._runs else None
        if last is not None and last.living and type(drafts) is not UniformBatch:
            own = last.drafts
            if type(own) is list and last.first + len(own) == first:
                own += drafts
                last.living += count
                if last.stays is not None:
                    last.stays += _STAYS * count
                    last.shorten()
                    self._firsts[-1] = last.first
                return
        if type(drafts) is not UniformBatch:
            drafts = list(drafts)  # not the very list that is in the entry: this one grows
        if last is not None and not last.living:  # used again: a queue that keeps up would gather one for each message
            last.first, last.drafts, last.living, last.stays = first, drafts, count, None
            self._firsts[-1] = first
            return
        if self._runs is EMPTY_LIST:  # an idle queue is to be small
            self._firsts, self._runs = [], []
        self._firsts.append(first)
        self._runs.append(_Run(first, drafts))

    @property
    def first(self) -> int:
        """No message with a lower number is here; all that live from here on are, in this one or a newer one."""
        return self._firsts[0] if self._firsts else NUMBER_MAX

    def get(self, number: int) -> Draft | None:
        """Return one message, if it is here."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        run = self._runs[at]
        place = number - run.first
        if place >= len(run.drafts) or (run.stays is not None and not run.stays[place]):
            return None
        return run.drafts[place]

    def between(self, start: int, stop: int) -> list[Draft] | None:
        """Return the messages from one number on, before another; None if not all of them are here."""
        drafts: list[Draft] = []
        at = bisect_right(self._firsts, start) - 1
        while start < stop:
            if not 0 <= at < len(self._runs):
                return None
            run = self._runs[at]
            if start < run.first:  # what stood between has gone
                return None
            place, end = start - run.first, stop - run.first
            found = cast("list[Draft]", run.drafts[place:end])
            if not found or (run.stays is not None and run.stays.find(0, place, end) >= 0):
                return None
            drafts = drafts + found if drafts else found
            start += len(found)
            at += 1
        return drafts

    def remove(self, number: int) -> bool:
        """Let a message go; return whether it was here."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return False
        run = self._runs[at]
        place = number - run.first
        if place >= len(run.drafts):
            return False
        if run.stays is None:
            run.stays = bytearray(_STAYS) * len(run.drafts)
        elif not run.stays[place]:
            return False
        run.stays[place] = 0
        self.living -= 1
        run.living -= 1
        if not run.living:
            run.drafts, run.stays = (), None
        return True

    def remove_between(self, start: int, stop: int) -> int:
        """Let messages from one number on, before another, go; return how many of them were here."""
        removed = 0
        for at in range(max(0, bisect_right(self._firsts, start) - 1), len(self._runs)):
            run = self._runs[at]
            if run.first >= stop:
                break
            if run.living:
                removed += run.cross_out(max(0, start - run.first), min(len(run.drafts), stop - run.first))
        self.living -= removed
        return removed

    def stretches(self) -> list[Stretch]:
        """Return all that is here as it is now, for another thread."""
        return [run.stretch() for run in self._runs if run.living]

    def take_from(self, other: "Runs") -> None:
        """Take what another one has, which is newer; that one is empty then."""
        if not other._runs:
            return
        self._firsts, self._runs = [*self._firsts, *other._firsts], [*self._runs, *other._runs]
        self.living += other.living
        other.clear()


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

    def kept_among(self, numbers: Sequence[int]) -> Found:
        """Return those of these living messages that are in memory."""
        since, cached = self._since, self._cached
        if numbers and numbers[0] >= since and is_run(numbers):
            for runs, moments in ((self._fresh, self._moments), (self._flushing, self._flushing_moments)):
                if (drafts := runs.between(numbers[0], numbers[-1] + 1)) is not None:
                    return dict(zip(numbers, zip(drafts, _moments_of(numbers, moments), strict=False), strict=True))
        kept = ((number, cached.get(number) if number < since else self.kept(number)) for number in numbers)
        return {number: one for number, one in kept if one is not None}

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

    def moments_of(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Return when these messages, which are all at hand, were published: a moment for so many in a row."""
        fresh, flushing, cached = self._moments, self._flushing_moments, self._cached
        found: list[tuple[int, int]] = []
        place, count = 0, len(numbers)
        while place < count:
            number = numbers[place]
            if fresh and number >= fresh[0][0]:
                moments, end = fresh, NUMBER_MAX
            elif flushing and number >= flushing[0][0]:
                moments, end = flushing, fresh[0][0] if fresh else NUMBER_MAX
            else:
                found.append((cached[number][1], 1))
                place += 1
                continue
            at = bisect_right(moments, (number + 1,))
            first, at_ms = moments[at - 1]
            if at < len(moments):
                end = moments[at][0]
            # Mostly all of them were published together.
            if not place and (count == 1 or (min(numbers) >= first and max(numbers) < end)):
                return [(at_ms, count)]
            stop = place + 1
            while stop < count and first <= numbers[stop] < end:
                stop += 1
            found.append((at_ms, stop - place))
            place = stop
        return found

    def find(self, numbers: Sequence[int]) -> list[Draft] | None:
        """Return the bodies of living messages; None if one of them has to be read first."""
        if len(numbers) > 1:
            return None if self.missing(numbers) else self.get_many(numbers)
        number = numbers[0]
        kept = self._cached.get(number)
        if kept is not None:
            return [kept[0]]
        draft = self._fresh.get(number) or self._flushing.get(number)
        return None if draft is None else [draft]

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
        stored = []
        for number in numbers:
            if not fresh.remove(number):
                stored.append(number)
        for number in stored:
            flushing.remove(number)
            if cached.pop(number, None) is not None:
                self._filled_bytes = 0
        return stored

    def collect(self) -> tuple[list[Stretch], Moments]:
        """Hand over what the store does not have yet; it stays in memory until `flushed`."""
        handed_over, moments = self._fresh.stretches(), self._moments  # another thread reads these from now on
        self._flushing.take_from(self._fresh)
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


def _moments_of(numbers: Sequence[int], moments: Moments) -> Iterable[int]:
    """Return the time of publication of each of consecutive messages; most share one."""
    first = bisect_right(moments, (numbers[0] + 1,)) - 1
    if first + 1 == len(moments) or moments[first + 1][0] > numbers[-1]:
        return repeat(moments[first][1])
    return [_moment_of(number, moments) for number in numbers]


def _moment_of(number: int, moments: Moments) -> int:
    return moments[bisect_right(moments, (number + 1,)) - 1][1]
