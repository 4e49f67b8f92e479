"""StagedEnds: when claims and stashes of one queue end, if nobody renews them.

    set(name, moments of its epochs) --> first_ms          over(now) --> what has ended, and lapses from then on

A queue may have thousands, and is asked for the next moment after every batch: so they stand in a heap.  A moment that
was put off leaves its old place there, to be passed over when its turn comes.
Pure; what is kept here is the leader's, and made of the ledger.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.ledger.staging import OPEN_EPOCHS_MAX, Name

STALE_MIN = 64  # places of moments that were put off which are always tolerated

End = tuple[str, str, int]  # kind of what is staged, its name, its epoch


class StagedEnds:
    """See the head of this file."""

    __slots__ = ("_heap", "_moments", "lapsing")

    def __init__(self) -> None:
        self.lapsing: set[End] = set()  # whose end is on its way through the log
        self._moments: dict[Name, dict[int, int]] = {}  # by epoch; none is empty
        self._heap: list[tuple[int, End]] = []  # each of those, and some that are so no longer

    @property
    def first_ms(self) -> int:
        """Never later than the earliest moment; earlier if that was put off."""
        return self._heap[0][0] if self._heap else NEVER

    def set(self, name: Name, moments: Mapping[int, int]) -> None:
        """This is what is open under the name now; what lapses ends no second time."""
        waiting = {epoch: moments[epoch] for epoch in moments if (*name, epoch) not in self.lapsing}
        before = self._moments.pop(name, {})
        if waiting:
            self._moments[name] = waiting
        for epoch, at_ms in waiting.items():
            if before.get(epoch) != at_ms:
                heappush(self._heap, (at_ms, (*name, epoch)))
        if len(self._heap) > 2 * len(self._moments) * OPEN_EPOCHS_MAX + STALE_MIN:
            self._heap = [
                (at_ms, (*name, epoch)) for name, own in self._moments.items() for epoch, at_ms in own.items()
            ]
            heapify(self._heap)

    def renew(self, name: Name, until_ms: int, now_ms: int) -> bool:
        """Put off what is open under the name and not over yet; False if nothing is."""
        moments = self._moments.get(name, {})
        lasting = [epoch for epoch, at_ms in moments.items() if at_ms > now_ms]
        self.set(name, moments | dict.fromkeys(lasting, until_ms))
        return bool(lasting)

    def over(self, now_ms: int) -> list[End]:
        """Return what has ended: from now on it lapses."""
        ended: list[End] = []
        while self.first_ms <= now_ms:
            at_ms, end = heappop(self._heap)
            kind, name, epoch = end
            own = self._moments.get((kind, name), {})
            if own.get(epoch) == at_ms:
                del own[epoch]
                ended.append(end)
                if not own:
                    del self._moments[kind, name]
        self.lapsing.update(ended)
        return ended
