"""Rounds: how much all doors together may bring in one pass of the loop, and whose turn is next.

    a door that was sent more than its share --> wait --> take_turn, in the order of waiting, a share each time

The bytes stay in the doors, which read no more meanwhile: so whoever sends much waits for itself, and what others send
goes between its shares.  It knows no protocol, and must never look at a byte.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

ROUND_COMMANDS_MAX = 4_096  # of all doors, in one round
ROUND_COMMANDS_MIN = 2_048  # the same while mail of earlier rounds is not handled yet
ROUND_S_MAX = 0.005  # for the turns of those that wait
SHARE_COMMANDS_MIN, SHARE_COMMANDS_MAX = 16, 1_024  # of one door, in one turn
SHARE_BYTES_MAX = 64 * 1024  # of the same; one command is always taken, however long it is
COMMAND_BYTES = 1_024  # so many bytes of what is taken count as one command more
FREE_BYTES = 1_024  # a read that is no longer than that is within any share but the least


class Waiting(Protocol):
    """A door that has bytes for another turn."""

    def take_turn(self) -> None:
        """Take a share of them; `wait` again if some are left."""


class Rounds:
    """See the head of this file.

    `left` is how many commands may come in this round without waiting; doors count it down, whoever ends the round
    sets it again.  Whoever takes many bytes at once counts them too, as commands of COMMAND_BYTES each.
    """

    __slots__ = ("_clock", "_is_called", "_wake", "left", "waiting")

    def __init__(
        self, wake: Callable[[], object] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`wake` is asked for a turn of the loop, in which `serve` is called; without it the loop itself is asked."""
        self._wake = wake or self._call_loop
        self._clock = clock
        self._is_called = False
        self.left = ROUND_COMMANDS_MAX
        self.waiting: deque[Waiting] = deque()

    @property
    def share(self) -> int:
        """How many commands a door may bring in one turn: the fewer, the more of them wait."""
        return max(SHARE_COMMANDS_MIN, min(SHARE_COMMANDS_MAX, ROUND_COMMANDS_MAX // (len(self.waiting) + 1)))

    def wait(self, door: Waiting) -> None:
        """Give this door a turn, behind all that wait already."""
        self.waiting.append(door)
        self._wake()

    def serve(self) -> None:
        """Let each that waits take one turn, until the commands or the time of this round are used up."""
        until_s = self._clock() + ROUND_S_MAX
        for _ in range(len(self.waiting)):
            self.waiting.popleft().take_turn()
            if self.left <= 0 or self._clock() >= until_s:
                break
        self.left = max(self.left, ROUND_COMMANDS_MIN)  # for those who come now, with a command or two

    def _call_loop(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._serve_alone)

    def _serve_alone(self) -> None:
        self.left = ROUND_COMMANDS_MAX
        self.serve()
        self._is_called = False
        if self.waiting:
            self._call_loop()
