"""TermRuns: which term each entry of the log is of, kept as stretches of entries of one term.

    appended, truncated, cut --> the term of an entry, the stretches between two entries

A log of millions of entries costs a few words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence


class TermRuns:
    """See the head of this file.  Whoever asks for the term of an entry knows that it is there."""

    def __init__(self, runs: Sequence[tuple[int, int]] = ()) -> None:
        self._starts = [index for index, _term in runs]
        self._terms = [term for _index, term in runs]

    def append(self, index: int, term: int) -> None:
        """Entries of this term are put behind the last one, the first of them at index."""
        if not self._terms or self._terms[-1] != term:
            self._starts.append(index)
            self._terms.append(term)

    def at(self, index: int) -> int:
        return self._terms[bisect_right(self._starts, index) - 1]

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return (first index, term) of each stretch, the first of them beginning at `first`."""
        if first > last:
            return []
        begin, end = self._place(first), bisect_right(self._starts, last)
        runs = zip(self._starts[begin:end], self._terms[begin:end], strict=True)
        return [(max(first, start), term) for start, term in runs]

    def forget_from(self, index: int) -> None:
        keep = bisect_left(self._starts, index)
        del self._starts[keep:], self._terms[keep:]

    def forget_below(self, index: int) -> None:
        keep = self._place(index)
        del self._starts[:keep], self._terms[:keep]

    def _place(self, index: int) -> int:
        return max(0, bisect_right(self._starts, index) - 1)
