"""Line: the messages of a queue that can be handed out, in their order; some of them may be gone by now.

    numbers in, numbers out             as with any PriorityLine
    so many went while they stood here  --> once they are many, a bounded piece of the line is swept for each that goes

Pure.  Whoever takes numbers looks whether they live.
"""

from wakeq.protocol.fifo import SWEEP_NUMBERS, Lives
from wakeq.protocol.key_order import KeyOrder
from wakeq.protocol.priority import PriorityLine

DEAD_MAX = 4_096  # numbers in line that may be gone before the line is swept
LINE_PER_DEAD = 8  # and one more for so many in line
SWEPT_FOR_EACH = 4  # numbers looked at for each one that goes, so that a round ends before a quarter of the line goes


class Line(PriorityLine):
    """See the head of this file.  `dead`: at most so many numbers in line live no more."""

    __slots__ = ("_dead_in_round", "_sweep_due", "dead")

    def __init__(self, order: KeyOrder) -> None:
        super().__init__(order)
        self.dead = 0
        self._dead_in_round = 0  # of these, how many came since the round of sweeps under way began
        self._sweep_due = 0  # numbers to look at in the next sweep

    def died(self, count: int) -> None:
        """So many more may stand here that are gone."""
        self.dead += count
        self._dead_in_round += count

    def clear_away(self, removed: int, lives: Lives) -> None:
        """So many messages went, from here or elsewhere: sweep a piece, if it is time to."""
        if not self.is_being_swept and self.dead <= DEAD_MAX + len(self) // LINE_PER_DEAD:
            return
        self._sweep_due += SWEPT_FOR_EACH * removed
        if self._sweep_due < SWEEP_NUMBERS:
            return
        if not self.is_being_swept:
            self._dead_in_round = 0
        self.dead -= self.sweep(lives, self._sweep_due)
        self._sweep_due = 0
        if not self.is_being_swept:
            self.dead = min(self.dead, self._dead_in_round)  # the others were not in line, but delayed
