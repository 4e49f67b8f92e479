"""TermRuns: the term of each entry of the log, kept as runs of entries of one term.

    appended, truncated, removed --> the term of an entry, the runs between two entries

A log of millions of entries costs a few words.
"""

from bisect import bisect_left, bisect_right


class TermRuns:
    """The entry before the first one of the log has a term too, so there is always a run."""

    def __init__(self, previous_index: int, previous_term: int) -> None:
        self._starts = [previous_index]  # first index of each run
        self._terms = [previous_term]  # its term; no two neighbours are equal

    def append(self, index: int, term: int) -> None:
        """Begin a run at `index` unless the last run has the same term."""
        if self._terms[-1] != term:
            self._starts.append(index)
            self._terms.append(term)

    def at(self, index: int) -> int:
        return self._terms[self._run_with(index)]

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return (first index, term) of each run, clipped so that the first one begins at `first`."""
        if first > last:
            return []
        begin, end = self._run_with(first), bisect_right(self._starts, last)
        runs = zip(self._starts[begin:end], self._terms[begin:end], strict=True)
        return [(max(first, start), term) for start, term in runs]

    def truncate_from(self, index: int) -> None:
        keep = bisect_left(self._starts, index)
        del self._starts[keep:], self._terms[keep:]

    def remove_below(self, index: int) -> None:
        keep = self._run_with(index)
        del self._starts[:keep], self._terms[:keep]

    def _run_with(self, index: int) -> int:
        """Return the number of the run that holds an entry; the caller knows that the entry is there."""
        return bisect_right(self._starts, index) - 1
