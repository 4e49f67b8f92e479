"""LogView: the outline of a log for the core: its begin, its end, and the term of each entry.  Pure.

    appended, truncated, cut, reset --> terms by index, the first difference of two logs, the entries for one message

Terms are kept as runs, sizes as marks, so that a log of millions of entries costs a few words.  The view contains
entries as soon as they are in memory; the core knows which ones are on disk.  It never sees a payload.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from wakeq.protocol.raft.messages import Runs

MARK_BYTES = 16 << 10  # the distance between two marks, approximately


class LogView:
    """Invariant: the entries previous_index+1 .. last_index are kept; for previous_index only the term is known."""

    def __init__(
        self,
        previous_index: int = 0,
        previous_term: int = 0,
        runs: Sequence[tuple[int, int]] = (),
        last_index: int | None = None,
        size_bytes: int = 0,
    ) -> None:
        self.previous_index = previous_index  # the last entry before the kept ones
        self.previous_term = previous_term
        self.last_index = previous_index if last_index is None else last_index
        self._starts = [start for start, _term in runs]  # first index of each run of entries of one term
        self._terms = [term for _start, term in runs]  # its term
        self.last_term = self._terms[-1] if runs else previous_term
        self._ends = [previous_index, self.last_index]  # indexes at which the size is known
        self._sizes = [0, size_bytes]  # bytes of all entries up to each of them

    @property
    def first_index(self) -> int:
        return self.previous_index + 1

    # --- terms ------------------------------------------------------------------------------------------------------

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None if it is beyond the end or was removed."""
        if index > self.last_index or index < self.previous_index:
            return None
        if index == self.previous_index:
            return self.previous_term
        # This is nearly always so.
        if index >= self._starts[-1]:
            return self.last_term
        return self._terms[bisect_right(self._starts, index) - 1]

    def runs_between(self, first: int, last: int) -> Runs:
        """Return the terms of the entries from first to last, which are all kept."""
        if first > last:
            return ()
        place = bisect_right(self._starts, first) - 1
        runs = [(first, self._terms[place])]
        for start, term in zip(self._starts[place + 1 :], self._terms[place + 1 :], strict=True):
            if start > last:
                break
            runs.append((start, term))
        return tuple(runs)

    def first_conflict(self, first: int, last: int, runs: Runs) -> int | None:
        """Return the first entry from first to last whose term here differs from that in `runs`."""
        last = min(last, self.last_index)
        for place, (start, term) in enumerate(runs):
            end = runs[place + 1][0] - 1 if place + 1 < len(runs) else last
            for own_start, own_term in self.runs_between(max(start, first), min(end, last)):
                if own_term != term:
                    return own_start
        return None

    def first_of_term_at(self, index: int) -> int:
        """Return the first kept entry that has the term of the entry at index."""
        place = bisect_right(self._starts, index) - 1
        return self._starts[place] if place >= 0 else self.first_index

    def last_of_term(self, term: int) -> int | None:
        """Return the last entry of a term; None if there is none."""
        place = bisect_left(self._terms, term)
        if place == len(self._terms) or self._terms[place] != term:
            return None
        return self._starts[place + 1] - 1 if place + 1 < len(self._starts) else self.last_index

    def is_covered_by(self, last_index: int, last_term: int) -> bool:
        """Whether a log with this end is at least as up-to-date as this one (section 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    # --- changing ---------------------------------------------------------------------------------------------------

    def append(self, count: int, term: int, size_bytes: int = 0) -> int:
        """Put entries of one term behind the last one; return the index of the first."""
        first = self.last_index + 1
        if term != self.last_term or not self._starts:
            assert term >= self.last_term, f"term {term} after {self.last_term}"
            self._starts.append(first)
            self._terms.append(term)
            self.last_term = term
        self.last_index = last = first + count - 1
        # Move the last mark on, or begin a new one.
        ends, sizes = self._ends, self._sizes
        size_bytes += sizes[-1]
        if len(ends) > 1 and size_bytes - sizes[-2] < MARK_BYTES:
            ends[-1], sizes[-1] = last, size_bytes
        else:
            ends.append(last)
            sizes.append(size_bytes)
        return first

    def extend(self, first: int, last: int, runs: Runs, size_bytes: int) -> None:
        """Put the entries first .. last of a message behind the last one."""
        assert first == self.last_index + 1, f"entry {first} after {self.last_index}"
        share = size_bytes // max(1, last - first + 1)
        for place, (start, term) in enumerate(runs):
            end = runs[place + 1][0] - 1 if place + 1 < len(runs) else last
            if end >= first:
                count = end - max(start, first) + 1
                self.append(count, term, share * count)

    def truncate_from(self, index: int) -> None:
        """Remove the entries from index on."""
        size_bytes = self._size_at(index - 1)
        self.last_index = index - 1
        keep = bisect_left(self._starts, index)
        del self._starts[keep:], self._terms[keep:]
        self.last_term = self._terms[-1] if self._terms else self.previous_term
        keep = bisect_left(self._ends, index)
        del self._ends[keep:], self._sizes[keep:]
        self._ends.append(self.last_index)
        self._sizes.append(size_bytes)

    def cut(self, index: int) -> None:
        """Remove the entries up to index: they are in the state, of which peers can get an image."""
        if index <= self.previous_index:
            return
        term = self.term_at(index)
        assert term is not None, f"entry {index} is not there to be cut"
        size_bytes = self._size_at(index)
        keep = bisect_right(self._starts, index + 1) - 1
        del self._starts[:keep], self._terms[:keep]
        if index == self.last_index:
            self._starts, self._terms = [], []
        else:
            self._starts[0] = index + 1
        keep = bisect_right(self._ends, index)
        self._ends[:keep], self._sizes[:keep] = [index], [size_bytes]
        self.previous_index, self.previous_term = index, term

    def reset(self, index: int, term: int) -> None:
        """Begin again behind an image of the state."""
        self.previous_index = self.last_index = index
        self.previous_term = self.last_term = term
        self._starts, self._terms = [], []
        self._ends, self._sizes = [index], [0]

    # --- sizes ------------------------------------------------------------------------------------------------------

    def size_between(self, after: int, last: int) -> int:
        """Return the approximate size of the entries behind `after`, up to last."""
        return self._size_at(last) - self._size_at(after)

    def last_within(self, first: int, bytes_max: int) -> int:
        """Return the last entry such that the entries from first on have about `bytes_max`; at least first itself."""
        limit = self._size_at(first - 1) + bytes_max
        if self._sizes[-1] <= limit:
            return self.last_index
        place = bisect_right(self._sizes, limit)
        start, end = self._ends[place - 1], self._ends[place]
        start_size, end_size = self._sizes[place - 1], self._sizes[place]
        within = start + (end - start) * (limit - start_size) // (end_size - start_size)
        return max(first, within)

    def _size_at(self, index: int) -> int:
        """Return the size of the entries up to index; between two marks it is interpolated."""
        if index >= self.last_index:
            return self._sizes[-1]
        place = bisect_right(self._ends, index)
        if place == 0:
            return self._sizes[0]
        start, end = self._ends[place - 1], self._ends[place]
        start_size, end_size = self._sizes[place - 1], self._sizes[place]
        return start_size + (end_size - start_size) * (index - start) // (end - start)
