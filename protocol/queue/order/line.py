"""Line: the messages of a queue that can be handed out, in order; some of them may be gone by now.

    numbers in, numbers out    as with any PriorityLine
    died, clear_away           count those that went while in line; when they are many, sweep a piece of it each time

Pure.  Whoever takes numbers must check that the messages still exist.
"""

from wakeq.protocol.queue.order.fifo import SWEEP_NUMBERS, Lives
from wakeq.protocol.queue.order.key_order import KeyOrder
from wakeq.protocol.queue.order.priority import PriorityLine

DEAD_MAX = 4_096  # how many numbers in line may be gone before it is swept ...
LINE_PER_DEAD = 8  # ... and one more for every 8 numbers in line
SWEPT_FOR_EACH = 4  # numbers looked at for each one that goes, so that a round ends before a quarter of the line goes


class Line(PriorityLine):
    """See the head of this file.  `dead`: how many numbers in line are gone, at most."""

    __slots__ = ("_dead_in_round", "_sweep_due", "dead")

    def __init__(self, order: KeyOrder) -> None:
        super().__init__(order)
        self.dead = 0
        self._dead_in_round = 0  # how many of them went since the current round of sweeps began
        self._sweep_due = 0  # numbers to look at in the next sweep

    def died(self, count: int) -> None:
        """Count messages that went; at most this many more numbers in line are gone."""
        self.dead += count
        self._dead_in_round += count

    def clear_away(self, removed: int, lives: Lives) -> None:
        """Sweep a piece of the line if it is time to; `removed` messages went, from the line or elsewhere."""
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
            self.dead = min(self.dead, self._dead_in_round)  # any others were delayed when they went, not in line
