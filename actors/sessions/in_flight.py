"""In flight: how much of one connection may be under way before no more is read from it.

commands and bytes that are not answered yet --> pause, resume --> door
"""

from collections import deque
from typing import Protocol

IN_FLIGHT_MAX = 16_384  # commands without an answer; then reading pauses ...
IN_FLIGHT_LOW = 4_096  # ... until no more than this many are left
IN_FLIGHT_BYTES_MAX = 16 << 20  # read since the connection last owed no answer; then reading pauses until that is so
KEPT_BYTES_MIN = 64 * 1024  # of one connection; less is nothing to count among all


class Batches:
    """The bytes of commands that have no answer yet, by the reads that brought them; only while they are many."""

    __slots__ = ("_batches", "_commands", "size_bytes")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._commands = 0
        self.size_bytes = 0

    def add(self, commands: int, size_bytes: int) -> None:
        """Note what one read brought."""
        self._batches.append((commands, size_bytes))
        self._commands += commands
        self.size_bytes += size_bytes

    def leave(self, commands: int) -> int:
        """Forget the batches before the last so many commands; return how many bytes the others have."""
        while self._batches and self._commands - self._batches[0][0] >= commands:
            done, size_bytes = self._batches.popleft()
            self._commands -= done
            self.size_bytes -= size_bytes
        return self.size_bytes


class Pausable(Protocol):
    """The part of a door that matters here."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def bound_reading(door: Pausable, *, is_paused: bool, in_flight: int, in_flight_bytes: int) -> bool:
    """Pause reading while too much is under way, and resume it when that is done; return whether it is paused."""
    if is_paused and in_flight <= IN_FLIGHT_LOW and in_flight_bytes <= IN_FLIGHT_BYTES_MAX:
        door.resume()
        return False
    if not is_paused and (in_flight > IN_FLIGHT_MAX or in_flight_bytes > IN_FLIGHT_BYTES_MAX):
        door.pause()
        return True
    return is_paused
