"""StagedEnds: when claims and stashes of one queue end, if nobody renews them.

    set(name, moments of its epochs) --> first_ms          over(now) --> what has ended, and lapses from then on

A queue may have thousands, and is asked for the next moment after every batch: so that costs a look at one number.
Pure; what is kept here is the leader's, and made of the ledger.
"""

from collections.abc import Iterable, Mapping

from wakeq.actors.audience import NEVER
from wakeq.protocol.staging import Name

End = tuple[str, str, int]  # kind of what is staged, its name, its epoch


class StagedEnds:
    """See the head of this file."""

    __slots__ = ("_moments", "first_ms", "lapsing")

    def __init__(self) -> None:
        self.first_ms = NEVER  # never later than the earliest moment; earlier if that was put off
        self.lapsing: set[End] = set()  # whose end is on its way through the log
        self._moments: dict[Name, dict[int, int]] = {}  # by epoch; none is empty

    def set(self, name: Name, moments: Mapping[int, int]) -> None:
        """This is what is open under the name now; what lapses ends no second time."""
        waiting = {epoch: moments[epoch] for epoch in moments if (*name, epoch) not in self.lapsing}
        if waiting:
            self._moments[name] = waiting
            self.first_ms = min(self.first_ms, *waiting.values())
        else:
            self._moments.pop(name, None)

    def renew(self, name: Name, until_ms: int) -> bool:
        """Put off what is open under the name; False if nothing is."""
        moments = self._moments.get(name, {})
        self.set(name, dict.fromkeys(moments, until_ms))
        return bool(moments)

    def over(self, now_ms: int) -> list[End]:
        """Return what has ended: from now on it lapses."""
        if now_ms < self.first_ms:
            return []
        ended = [
            (*name, epoch) for name, own in self._moments.items() for epoch, at_ms in own.items() if at_ms <= now_ms
        ]
        for kind, name, epoch in ended:
            own = self._moments[kind, name]
            del own[epoch]
            if not own:
                del self._moments[kind, name]
        self.lapsing.update(ended)
        self.first_ms = min(self._all(), default=NEVER)
        return ended

    def _all(self) -> Iterable[int]:
        return (at_ms for own in self._moments.values() for at_ms in own.values())
