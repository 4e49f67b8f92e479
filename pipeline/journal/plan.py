"""A plan of reading: the history of one cluster, cut into spans that can be read independently of each other.

    data directories of one node or several --> spans: which entries, from which files, and what one must know before

Every entry is in one span, however many nodes have it.  A span begins where it is known how far the queues have
counted, for the uid of a published message is not in the log: it follows from the order of publishes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wakeq.pipeline.journal.files import Segment, Stretch, outcomes_of, segments_of
from wakeq.pipeline.journal.walk import end_of, first_moment_of
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.outcomes import Note, Outcomes

SPAN_BYTES_MIN = 64 * 1024 * 1024
SPANS_A_CORE = 2
Counters = dict[str, tuple[int, int]]  # name -> queue id, next number
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """What is read in one go.  `complete` says that a queue not in `counters` does not exist at its beginning."""

    stretches: tuple[Stretch, ...]
    counters: Counters
    complete: bool
    through: int  # up to where it is known what became of entries; 0 of a hole, of which no file tells
    notes: Numbers  # rows of index, place, code, in order

    @property
    def size_bytes(self) -> int:
        return sum(stretch.segment.size_bytes for stretch in self.stretches)


NOTHING = Span((), {}, False, 0, np.zeros((0, 3), dtype=np.int64))


class _Log:
    """What one node has."""

    def __init__(self, place: Path) -> None:
        self.segments = segments_of(place)
        self.outcomes = outcomes_of(place)

    @property
    def committed(self) -> int:
        """Up to where this node knows its entries to be committed; without outcomes what it has sealed says so."""
        sealed = (segment.last_index or 0 for segment in self.segments)
        return max((outcomes.through for outcomes in self.outcomes), default=max(sealed, default=0))

    @cached_property
    def end(self) -> tuple[int, int]:
        """Index and term of its last entry."""
        return end_of(self.segments[-1])

    def stretches(self) -> Iterator[Stretch]:
        """Yield all that it has, each with its end."""
        for segment in self.segments:
            last_index = self.end[0] if segment.last_index is None else segment.last_index
            yield Stretch(segment, segment.first_index, last_index)


class History:
    """What the directories hold together."""

    def __init__(self, directories: Iterable[Path]) -> None:
        logs = [_Log(Path(directory)) for directory in directories]
        segments = [segment for log in logs for segment in log.segments]
        _check_cluster(segments)
        outcomes = [outcome for log in logs for outcome in log.outcomes]
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.through)  # of several nodes, side by side
        self._ends = [outcomes.through for outcomes in self._outcomes]
        self._holes = list(_holes_between(outcomes))
        self.cluster = segments[0].identity.cluster_id.hex() if segments else ""
        self.through = self._ends[-1] if self._ends else 0
        self.stretches = list(_covering(logs))
        self._borders = self._find_borders()

    @property
    def size_bytes(self) -> int:
        return sum(stretch.segment.size_bytes for stretch in self.stretches)

    @property
    def first_index(self) -> int:
        return self.stretches[0].first_index if self.stretches else 1

    def spans(
        self,
        *,
        cores: int,
        after: int = 0,
        settled_only: bool = False,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[Span]:
        """Cut the entries behind `after` into spans; with `settled_only` none of which the outcome is open.

        Of what was before or after a time as much is left out as is seen without reading it.
        """
        through = self.through if settled_only else self._last_before(until_ms)
        after = max(after, self._last_known_before(since_ms))
        parts = [_clipped(part, after, through) for stretch in self.stretches for part in self._parts_of(stretch)]
        kept = [part for part in parts if part is not None and not (settled_only and self._is_in_hole(part))]
        bytes_min = max(SPAN_BYTES_MIN, self.size_bytes // (SPANS_A_CORE * cores))
        return [self._span(group) for group in self._groups(kept, bytes_min)]

    def _moments(self) -> Iterator[tuple[int, int]]:
        """Yield first entries of segments and their moments in ms, which never go back."""
        for stretch in self.stretches:
            at_ms = first_moment_of(stretch.segment) if stretch.first_index == stretch.segment.first_index else None
            if at_ms is not None:
                yield stretch.first_index, at_ms

    def _last_before(self, until_ms: int | None) -> int | None:
        """Return an entry behind which none is of before a moment."""
        if until_ms is None:
            return None
        return next((index - 1 for index, at_ms in self._moments() if at_ms >= until_ms), None)

    def _last_known_before(self, since_ms: int | None) -> int:
        """Return an entry of before a moment behind which the counters are known, as all before it are."""
        firsts = [] if since_ms is None else [index for index, at_ms in self._moments() if at_ms < since_ms]
        place = bisect_right(self._ends, max(firsts, default=1) - 1) - 1
        return self._ends[place] if place >= 0 else 0

    def _find_borders(self) -> list[int]:
        """Return the entries behind which a span begins: about holes, and where unknown counters become known."""
        lasts = [0, *(stretch.last_index or 0 for stretch in self.stretches)]
        begins = [
            stretch.first_index
            for last, stretch in zip(lasts, self.stretches, strict=False)
            if stretch.first_index > last + 1
        ]  # behind what is gone
        begins += [through + 1 for _, through in self._holes]
        places = [bisect_left(self._ends, first - 1) for first in begins]
        borders = {border for hole in self._holes for border in hole}
        return sorted(borders.union(self._ends[place] for place in places if place < len(self._ends)))

    def _parts_of(self, stretch: Stretch) -> Iterator[Stretch]:
        """Cut a stretch at the borders."""
        rest = stretch
        for border in self._borders:
            before, behind = _clipped(rest, 0, border), _clipped(rest, border, None)
            if before is not None and behind is not None:
                yield before
                rest = behind
        yield rest

    def _is_in_hole(self, stretch: Stretch) -> bool:
        return any(after < stretch.first_index <= through for after, through in self._holes)

    def _groups(self, stretches: Sequence[Stretch], bytes_min: int) -> Iterator[list[Stretch]]:
        """Gather neighbouring stretches up to a size; end each group where the queues' counters are known."""
        group: list[Stretch] = []
        size = 0
        for stretch in stretches:
            before = stretch.first_index - 1
            if group and (before in self._borders or before > (group[-1].last_index or 0)):  # or there is a gap
                yield group
                group, size = [], 0
            size += stretch.segment.size_bytes
            cut = self._last_known_in(stretch) if size >= bytes_min else None
            if cut is None:
                group.append(stretch)
                continue
            yield [*group, replace(stretch, last_index=cut)]
            rest = _clipped(stretch, cut, None)
            group = [rest] if rest is not None else []
            size = 0
        if group:
            yield group

    def _last_known_in(self, stretch: Stretch) -> int | None:
        """Return the last entry of a sealed stretch behind which the counters are known."""
        if stretch.last_index is None or stretch.segment.last_index is None:
            return None
        place = bisect_right(self._ends, stretch.last_index) - 1
        if place >= 0 and self._ends[place] >= stretch.first_index:
            return self._ends[place]
        return None

    def _span(self, stretches: list[Stretch]) -> Span:
        first, last = stretches[0].first_index, stretches[-1].last_index
        counters, complete = self._counters_before(first)
        notes: set[Note] = set()
        for outcomes in self._outcomes:
            if outcomes.through >= first and (last is None or outcomes.after < last):
                notes.update(outcomes.notes)
        rows = np.array(sorted(notes), dtype=np.int64).reshape(-1, 3)
        through = 0 if self._is_in_hole(stretches[0]) else self.through
        return Span(tuple(stretches), counters, complete, through, rows)

    def _counters_before(self, index: int) -> tuple[Counters, bool]:
        """Return how far each queue has counted before an entry, and whether all queues are among them."""
        if index == 1:
            return {}, True
        last = bisect_right(self._ends, index - 1) - 1
        if last < 0 or self._ends[last] != index - 1:
            return {}, False
        first = next((place for place in range(last, -1, -1) if self._outcomes[place].lists_all), None)
        counters: Counters = {}
        for outcomes in self._outcomes[last if first is None else first : last + 1]:
            for queue_id, next_number, name in outcomes.queues:
                counters[name] = (queue_id, next_number)
        return {name: counter for name, counter in counters.items() if counter[0]}, first is not None


def _check_cluster(segments: Sequence[Segment]) -> None:
    clusters = {segment.identity.cluster_id: segment.directory for segment in segments}
    if len(clusters) > 1:
        places = " and ".join(clusters.values())
        raise StorageError(f"{places} are of different clusters; read them one after the other")


def _holes_between(outcomes: Iterable[Outcomes]) -> Iterator[tuple[int, int]]:
    """Yield what no file tells of before something of which one does, as (after, through)."""
    position = 0
    for one in sorted(outcomes, key=lambda one: one.after):
        if one.after > position:
            yield position, one.after
        position = max(position, one.through)


def _covering(logs: Sequence[_Log]) -> list[Stretch]:
    """Return stretches in log order that hold each entry once, from whichever node has it.

    A node is asked for what it knows to be committed, and never for what lies behind: a leader that was lost may have
    written entries there that no other node has.  What none knows to be committed comes from the log that would win an
    election.
    """
    if len(logs) == 1:  # of which nobody needs to know the end before it is read
        return [Stretch(segment, segment.first_index, segment.last_index) for segment in logs[0].segments]
    kept = [log for log in logs if log.segments]
    stretches = [(log, stretch) for log in kept for stretch in log.stretches()]
    known = [_clipped(stretch, 0, log.committed) for log, stretch in stretches]
    covering = _each_once(stretch for stretch in known if stretch is not None)
    committed = max((log.committed for log in kept), default=0)
    newest = max(kept, key=lambda log: log.end[::-1], default=None)  # by term, then by length
    open_ones = [_clipped(stretch, committed, None) for log, stretch in stretches if log is newest]
    return covering + [stretch for stretch in open_ones if stretch is not None]


def _each_once(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Cut off what another stretch before has as well."""
    covering, position = list[Stretch](), 0
    for stretch in sorted(stretches, key=lambda one: (one.first_index, -_last(one), one.segment.identity.node_id)):
        rest = _clipped(stretch, position, None)
        if rest is not None:
            covering.append(rest)
            position = _last(rest)
    return covering


def _last(stretch: Stretch) -> int:
    assert stretch.last_index is not None, "it was read up to there"
    return stretch.last_index


def _clipped(stretch: Stretch, after: int, through: int | None) -> Stretch | None:
    """Return what is left of a stretch between two entries, None if that is nothing."""
    first, last = max(stretch.first_index, after + 1), stretch.last_index
    if through is not None:
        last = through if last is None else min(last, through)
    if last is not None and first > last:
        return None
    return Stretch(stretch.segment, first, last)
