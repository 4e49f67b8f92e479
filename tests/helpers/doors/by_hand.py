"""Doors by hand: connections without a socket, whose rounds begin when a test says so.

hand.connect() --> a door; hand.read(door, bytes), hand.round() --> door.heard: what its subscriber was told
"""

from collections.abc import Callable
from typing import Any

from wakeq.actors.runtime import Rounds
from wakeq.actors.runtime.rounds import ROUND_COMMANDS_MAX
from wakeq.actors.sessions.door import Admission, Received


class HandTransport:
    """A connection that notes what is done with it."""

    def __init__(self) -> None:
        self.reads = True
        self.is_open = True
        self.written = b""

    def pause_reading(self) -> None:
        assert self.reads, "paused once"
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads, "resumed once"
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.is_open = False

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False

    def is_closing(self) -> bool:
        return not self.is_open

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _: str) -> Any:
        return ("127.0.0.1", 1)


class HandGuest:
    """A subscriber that writes down what it is told; `obeys` is called for each read's commands."""

    def __init__(self, door: Any) -> None:
        self.door = door
        self.told: list[Any] = []
        self.obeys: Callable[[Received[Any]], None] = lambda received: None

    def tell(self, message: Any, /) -> None:
        self.told.append(message)
        if isinstance(message, Received):
            self.obeys(message)

    arrive = tell

    @property
    def turns(self) -> list[int]:
        """How many commands each read or turn brought."""
        return [len(told.commands) for told in self.told if isinstance(told, Received)]

    @property
    def commands(self) -> list[Any]:
        return [command for told in self.told if isinstance(told, Received) for command in told.commands]


class HandPort:
    """A listener that accepts what the test connects."""

    def __init__(self, make_listener: Callable[..., Any], **bounds: Any) -> None:
        self.rounds = Rounds(lambda: None, clock=lambda: 0.0)
        self.admission = Admission(rounds=self.rounds, **bounds)
        self.listener = make_listener(HandGuest, admission=self.admission, clock=lambda: 0.0)

    def connect(self, said: bytes = b"") -> HandGuest:
        """Connect, and say something that is told and forgotten."""
        door = self.listener.make_door()
        door.connection_made(HandTransport())
        guest: HandGuest = door.subscriber
        door.welcome()
        if said:
            door.data_received(said)
            guest.told.clear()
        return guest

    def round(self) -> None:
        """One pass of the loop, in which no socket has anything new."""
        self.rounds.left = ROUND_COMMANDS_MAX
        self.rounds.serve()

    def rounds_until_idle(self) -> int:
        count = 0
        while self.rounds.waiting:
            self.round()
            count += 1
            assert count < 10_000, "it does not come to an end"
        return count
