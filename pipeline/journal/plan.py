"""The plan of a read: the history of one cluster, divided into spans that can be read independently of each other.

    places of one node or several --> spans: which entries, from which files, and what to know before them

Every entry is in one span, however many nodes have it. A span begins where the counters of the queues are known,
because the uid of a published message is not in the log: it follows from the order of publishes.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wakeq.pipeline.journal.directory import Directory
from wakeq.pipeline.journal.files import NodeFiles, Segment, Stretch
from wakeq.pipeline.journal.walk import end_of, first_moment_of
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.outcomes import Note, Outcomes

SPAN_BYTES_MIN = 64 * 1024 * 1024
SPANS_A_CORE = 2
SCHEMES = ("http://", "https://")
# A data directory, or the URL of a broker's HTTP port.
Place = str | os.PathLike[str]
# By the name of a queue: its id, and its next number.
Counters = dict[str, tuple[int, int]]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the history that is read by one task. With `complete`, a queue not in `counters` does not exist at its
    beginning.
    """

    stretches: tuple[Stretch, ...]
    counters: Counters
    complete: bool
    # The last entry with a known outcome; 0 in a hole, about which no file says anything.
    through: int
    # Rows of index, place and code, in order.
    notes: Numbers

    @property
    def size_bytes(self) -> int:
        return sum(stretch.segment.size_bytes for stretch in self.stretches)


NOTHING = Span((), {}, False, 0, np.zeros((0, 3), dtype=np.int64))


class _Log:
    """The segments and outcomes of one node."""

    def __init__(self, files: NodeFiles) -> None:
        self.segments, self.outcomes = files.contents()

    @property
    def committed(self) -> int:
        """The last entry that this node knows to be committed; without outcomes, the last one that it has sealed."""
        sealed = (segment.last_index or 0 for segment in self.segments)
        return max((outcomes.through for outcomes in self.outcomes), default=max(sealed, default=0))

    @cached_property
    def end(self) -> tuple[int, int]:
        """Index and term of its last entry."""
        return end_of(self.segments[-1])

    def stretches(self) -> Iterator[Stretch]:
        """Yield all segments, each with its last index."""
        for segment in self.segments:
            last_index = self.end[0] if segment.last_index is None else segment.last_index
            yield Stretch(segment, segment.first_index, last_index)


def is_url(place: Place) -> bool:
    """Whether a place is the HTTP port of a broker, not a directory."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def files_at(place: Place | NodeFiles) -> NodeFiles:
    """Return the files of the node at a place."""
    if not isinstance(place, str | os.PathLike):
        return place
    if not is_url(place):
        return Directory.at(place)
    # The import is slow, and most histories are read from a directory.
    from wakeq.pipeline.journal.broker import BrokerFiles

    return BrokerFiles.at(str(place))


class History:
    """The history of one cluster, in the places of one node or several."""

    def __init__(self, places: Iterable[Place | NodeFiles]) -> None:
        logs = [_Log(files_at(place)) for place in places]
        segments = [segment for log in logs for segment in log.segments]
        _check_cluster(segments)
        outcomes = [outcome for log in logs for outcome in log.outcomes]
        # The outcomes of several nodes, in one order.
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.through)
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
        cores: int | None,
        after: int = 0,
        settled_only: bool = False,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[Span]:
        """Divide the entries after `after` into spans; with `settled_only`, without entries whose outcome is open.

        A few for each core; if it is not known how many there will be, as many as are worth a task each.
        Entries before `since_ms` and from `until_ms` on are left out as far as that is possible without reading them.
        """
        through = self.through if settled_only else self._last_before(until_ms)
        after = max(after, self._last_known_before(since_ms))
        parts = [_clipped(part, after, through) for stretch in self.stretches for part in self._parts_of(stretch)]
        kept = [part for part in parts if part is not None and not (settled_only and self._is_in_hole(part))]
        bytes_min = SPAN_BYTES_MIN if cores is None else max(SPAN_BYTES_MIN, self.size_bytes // (SPANS_A_CORE * cores))
        return [self._span(group) for group in self._groups(kept, bytes_min)]

    @cached_property
    def _moments(self) -> list[tuple[int, int]]:
        """First entries of segments and their moments in ms, which never go back."""
        whole = [stretch for stretch in self.stretches if stretch.first_index == stretch.segment.first_index]
        moments = [(stretch.first_index, first_moment_of(stretch.segment)) for stretch in whole]
        return [(index, at_ms) for index, at_ms in moments if at_ms is not None]

    def _last_before(self, until_ms: int | None) -> int | None:
        """Return an entry after which all entries are at this moment or later."""
        if until_ms is None:
            return None
        return next((index - 1 for index, at_ms in self._moments if at_ms >= until_ms), None)

    def _last_known_before(self, since_ms: int | None) -> int:
        """Return an entry before a moment, after which the counters are known."""
        firsts = [] if since_ms is None else [index for index, at_ms in self._moments if at_ms < since_ms]
        place = bisect_right(self._ends, max(firsts, default=1) - 1) - 1
        return self._ends[place] if place >= 0 else 0

    def _find_borders(self) -> list[int]:
        """Return the entries after which a span begins: around holes, and where unknown counters become known."""
        lasts = [0, *(stretch.last_index or 0 for stretch in self.stretches)]
        # Stretches that follow a gap.
        begins = [
            stretch.first_index
            for last, stretch in zip(lasts, self.stretches, strict=False)
            if stretch.first_index > last + 1
        ]
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
        """Gather neighbouring stretches up to a size; end each group where the counters of the queues are known."""
        group: list[Stretch] = []
        size = 0
        for stretch in stretches:
            before = stretch.first_index - 1
            # A group ends at a border, and where a gap follows.
            if group and (before in self._borders or before > (group[-1].last_index or 0)):
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
        """Return the last entry of a sealed stretch after which the counters are known."""
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
        """Return the counters of the queues before an entry, and whether all queues are among them."""
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
    clusters = {segment.identity.cluster_id: segment.files.name for segment in segments}
    if len(clusters) > 1:
        places = " and ".join(clusters.values())
        raise StorageError(f"{places} are of different clusters; read them one after the other")


def _holes_between(outcomes: Iterable[Outcomes]) -> Iterator[tuple[int, int]]:
    """Yield the gaps between known outcomes, as (after, through)."""
    position = 0
    for one in sorted(outcomes, key=lambda one: one.after):
        if one.after > position:
            yield position, one.after
        position = max(position, one.through)


def _covering(logs: Sequence[_Log]) -> list[Stretch]:
    """Return stretches in log order that contain each entry once, from whichever node has it.

    A node is asked only for entries that it knows to be committed: a lost leader may have written later entries that no
    other node has. Entries that no node knows to be committed come from the log that would win an election.
    """
    # Nobody needs to know where a single log ends before it is read.
    if len(logs) == 1:
        return [Stretch(segment, segment.first_index, segment.last_index) for segment in logs[0].segments]
    kept = [log for log in logs if log.segments]
    stretches = [(log, stretch) for log in kept for stretch in log.stretches()]
    known = [_clipped(stretch, 0, log.committed) for log, stretch in stretches]
    covering = _each_once(stretch for stretch in known if stretch is not None)
    committed = max((log.committed for log in kept), default=0)
    # By term, then by length, as in an election.
    newest = max(kept, key=lambda log: log.end[::-1], default=None)
    open_ones = [_clipped(stretch, committed, None) for log, stretch in stretches if log is newest]
    return covering + [stretch for stretch in open_ones if stretch is not None]


def _each_once(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Leave out entries that an earlier stretch contains."""
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
    """Return the part of a stretch between two entries, or None if there is none."""
    first, last = max(stretch.first_index, after + 1), stretch.last_index
    if through is not None:
        last = through if last is None else min(last, through)
    if last is not None and first > last:
        return None
    return Stretch(stretch.segment, first, last)
