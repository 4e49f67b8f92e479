"""In flight: how much of one connection may be under way before no more is read from it.

commands and bytes that are not answered yet --> pause, resume --> door
"""

from typing import Protocol

IN_FLIGHT_MAX = 16_384  # commands without an answer; then reading pauses ...
IN_FLIGHT_LOW = 4_096  # ... until no more than this many are left
IN_FLIGHT_BYTES_MAX = 16 << 20  # read since the connection last owed no answer; then reading pauses until that is so


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
