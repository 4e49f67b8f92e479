"""Bodies: the messages of one queue that are in memory: not yet in the state store, or soon to be handed out.

Pure.  A body is `fresh` until it is collected for the store, `flushing` until the store has it, and then `cached`
only if it is among the next to go.  Everything else is read again when its turn comes.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from wakeq.protocol.commands import Draft

CACHED_BYTES_MAX = 2 << 20  # of one queue, KEPT_BYTES for each message counted in
CACHED_ALL_BYTES_MAX = 8 << 20  # of all queues together, each getting an equal share
KEPT_BYTES = 400  # what keeping a message costs beside its body: the draft, its place, and what the allocator adds

Kept = tuple[Draft, int]  # the message and the moment of its publication
Found = dict[int, Kept]


def share_of(queues: int) -> int:
    """Return how many bytes each of so many queues may keep at hand."""
    return min(CACHED_BYTES_MAX, CACHED_ALL_BYTES_MAX // max(queues, 1))


class Bodies:
    """Bodies by message number."""

    __slots__ = ("_cached", "_filled_bytes", "_flushing", "fresh")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.fresh: dict[int, Kept] = {}
        self._flushing: dict[int, Kept] = {}
        self._cached: dict[int, Kept] = {}
        self._filled_bytes = 0  # the bound that what is cached fills, if nothing has come or gone since

    def __len__(self) -> int:
        return len(self.fresh) + len(self._flushing) + len(self._cached)

    def publish(self, numbers: Iterable[int], drafts: Sequence[Draft], at_ms: int) -> None:
        """Take the bodies of new messages."""
        if len(drafts) == 1:
            self.fresh[next(iter(numbers))] = (drafts[0], at_ms)
            return
        self.fresh.update(zip(numbers, zip(drafts, repeat(at_ms)), strict=False))

    def kept(self, number: int) -> Kept | None:
        return self.fresh.get(number) or self._cached.get(number) or self._flushing.get(number)

    def get(self, number: int) -> Draft | None:
        kept = self.kept(number)
        return None if kept is None else kept[0]

    def get_many(self, numbers: Sequence[int]) -> list[Draft]:
        """Return bodies that are all at hand."""
        kept = self.fresh if numbers[0] in self.fresh else self._cached  # mostly they are all in one of them
        try:
            return [kept[number][0] for number in numbers]
        except KeyError:
            drafts = [self.get(number) for number in numbers]
        assert None not in drafts, "read before"
        return [draft for draft in drafts if draft is not None]

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Return those that have to be read."""
        fresh, cached, flushing = self.fresh, self._cached, self._flushing
        return [n for n in numbers if n not in fresh and n not in cached and n not in flushing]

    def load(self, read: Found) -> None:
        """Keep what was read, until the next look at the line."""
        self._filled_bytes = 0
        self._cached.update(read)

    def remove(self, numbers: Iterable[int]) -> list[int]:
        """Forget messages; return those that the store knows or will know of."""
        fresh, flushing, cached = self.fresh, self._flushing, self._cached
        stored = []
        for number in numbers:
            if fresh.pop(number, None) is None:
                flushing.pop(number, None)
                if cached.pop(number, None) is not None:
                    self._filled_bytes = 0
                stored.append(number)
        return stored

    def collect(self) -> dict[int, Kept]:
        """Hand over what the store does not have yet; it stays at hand until `flushed`."""
        handed_over = self.fresh.copy()  # it belongs to another thread from now on
        if self._flushing:
            self._flushing.update(handed_over)
            self.fresh.clear()
        else:
            self.fresh, self._flushing = self._flushing, self.fresh
        return handed_over

    def flushed(self, line: Callable[[int], Sequence[int]], bytes_max: int) -> None:
        """The store has what was collected: keep only what `line` says is next to go, within the bound.

        A queue that nobody fetches from is not looked through again, unless it has to keep much less: what is more
        urgent by now is read when it goes.
        """
        is_filled = bytes_max > self._filled_bytes // 2 > 0
        if not is_filled:
            self._fill(line, bytes_max)
        self._flushing.clear()  # not another dict: what is made while memory is full is in the way of giving it back

    def _fill(self, line: Callable[[int], Sequence[int]], bytes_max: int) -> None:
        """Keep those at hand that are next to go, and none else."""
        flushing = self._flushing
        self._filled_bytes, filled_bytes = 0, bytes_max
        cached, self._cached = self._cached, {}
        for number in line(bytes_max // KEPT_BYTES):
            kept = flushing.get(number) or cached.get(number)
            if kept is not None:
                bytes_max -= KEPT_BYTES + len(kept[0].body) + len(kept[0].headers)
                if bytes_max < 0:
                    self._filled_bytes = filled_bytes
                    break
                self._cached[number] = kept
