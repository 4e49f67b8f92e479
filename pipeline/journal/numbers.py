"""The number of each published message, and the incarnation of its queue.

    entries in log order, refusals, the counters of the queues before them --> queue id and first number

A message's number is not in the log: every node numbers the accepted messages in the order of the log, and so does this
code. A queue begins with its first publish or its creation, and again with a purge; its id is the index of that entry.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wakeq.pipeline.journal.columns import OF_STASHES, WITH_DRAFTS, Bools, Entries, Ints
from wakeq.protocol.log.entries import Kind

# By the name of a queue: its id, and its next number.
Counters = dict[str, tuple[int, int]]
# Stands for a queue that may have existed before the known part of the history.
UNKNOWN: tuple[int, int] = (0, 0)
# Entries of stashes add no message, and do not say which incarnation of a queue they mean.
NUMBERED = (*WITH_DRAFTS, *OF_STASHES)
MAKES_OR_ENDS = (Kind.CREATE, Kind.DELETE, Kind.PURGE)


class Numbered(NamedTuple):
    """For each entry that is numbered: the queue's id (0: not known), and the number of its first message."""

    queue_id: Ints
    first_number: Ints


class Numbering:
    """Numbers entries in log order, and keeps the counters of the queues."""

    def __init__(self, counters: Counters, *, complete: bool) -> None:
        self._counters = dict(counters)
        # Every queue is among the counters; any other queue does not exist.
        self._complete = complete

    @property
    def counters(self) -> Counters:
        return self._counters

    @property
    def complete(self) -> bool:
        return self._complete

    def number(self, entries: Entries, accepted: Ints, refused: Bools) -> Numbered:
        """Number the next entries. `accepted` has the number of messages that each publish added; `refused` entries had
        no effect.
        """
        size = len(entries.kind)
        numbered = Numbered(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
        is_publish = np.isin(entries.kind, NUMBERED) & ~refused
        changes = np.isin(entries.kind, MAKES_OR_ENDS) & ~refused
        changing = set(entries.name[changes].tolist())
        publishing = np.unique(entries.name[is_publish])
        plain = [code for code in publishing.tolist() if code not in changing and entries.names[code] in self._counters]
        self._number_plain(entries, accepted, is_publish, plain, numbered)
        rest = changing.union(publishing.tolist()).difference(plain)
        if rest:
            chosen = np.flatnonzero((is_publish | changes) & np.isin(entries.name, list(rest)))
            self._number_one_by_one(entries, accepted, chosen.tolist(), numbered)
        return numbered

    def _number_plain(
        self, entries: Entries, accepted: Ints, is_publish: Bools, codes: list[int], numbered: Numbered
    ) -> None:
        """Number publishes to queues that exist all the time, all at once."""
        if not codes:
            return
        count = len(entries.names)
        queue_id, next_number = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for code in codes:
            queue_id[code], next_number[code] = self._counters[entries.names[code]]
        chosen = np.flatnonzero(is_publish & (queue_id[entries.name] > 0))
        name = entries.name[chosen]
        if len(codes) > 1:
            order = np.argsort(name, kind="stable")
            chosen, name = chosen[order], name[order]
        numbers = accepted[chosen]
        before = np.cumsum(numbers) - numbers
        # Where the rows of each queue begin.
        begins = np.flatnonzero(np.diff(name, prepend=-1))
        lengths = np.diff(np.append(begins, len(name)))
        numbered.queue_id[chosen] = queue_id[name]
        numbered.first_number[chosen] = next_number[name] + before - np.repeat(before[begins], lengths)
        totals: npt.NDArray[np.int64] = np.add.reduceat(numbers, begins) if len(begins) else numbers
        for code, total in zip(name[begins].tolist(), totals.tolist(), strict=True):
            at = entries.names[code]
            known_id, following = self._counters[at]
            self._counters[at] = (known_id, following + total)

    def _number_one_by_one(self, entries: Entries, accepted: Ints, chosen: list[int], numbered: Numbered) -> None:
        """Number publishes to queues that begin or end meanwhile."""
        for place in chosen:
            name, index = entries.names[entries.name[place]], int(entries.index[place])
            match int(entries.kind[place]):
                case Kind.CREATE | Kind.PURGE:
                    self._counters[name] = (index, 1)
                case Kind.DELETE:
                    self._counters.pop(name, None)
                    # If not all queues are known, absence does not mean that a queue does not exist.
                    if not self._complete:
                        self._counters[name] = (-1, 0)
                case _:
                    self._publish(name, index, place, int(accepted[place]), numbered)

    def _publish(self, name: str, index: int, place: int, count: int, numbered: Numbered) -> None:
        queue_id, number = self._counters.get(name, (-1, 0) if self._complete else UNKNOWN)
        if queue_id == 0:
            return
        if queue_id < 0:
            queue_id, number = index, 1
        numbered.queue_id[place], numbered.first_number[place] = queue_id, number
        self._counters[name] = (queue_id, number + count)
