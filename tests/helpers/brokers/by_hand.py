"""The surroundings of a broker, by hand: time, a disk, a connection.

    advance, stall, step_ms --> HandTime      step_ms, reboot --> HandClock
    submit, complete --> HandDisk             replies --> HandDoor

None of them waits, starts a thread or reads a clock.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wakeq.actors.sessions.door import DOOR_WORKER_TCP
from wakeq.protocol.wire.worker import codec as wire
from wakeq.testing.manual_time import ManualTime

Json = dict[str, Any]


class HandTime(ManualTime):
    """ManualTime whose wall clock can be stepped, and in which a process can stand still."""

    def __init__(self) -> None:
        super().__init__()
        self.step_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms() + self.step_ms

    def monotonic_ms(self) -> int:
        return self.now_ms()  # any count that only grows; in whole numbers, so that both clocks tick together

    def stall(self, seconds: float) -> None:
        """Let time pass for everybody but this process: nothing is called meanwhile."""
        self._passed_us += round(seconds * 1_000_000)
        self.advance(0)


class HandClock:
    """The clocks of one machine: on the time of all, with a wall clock and with boots of its own."""

    rounding_ms = 0

    def __init__(self, time: HandTime) -> None:
        self.step_ms = 0  # of its wall clock, beside that of all
        self._time = time
        self._boots = 0
        self.reboot()

    def reboot(self) -> None:
        """The machine was switched off and on again."""
        self._boots += 1
        self.boot_id = self._boots.to_bytes(16, "big")
        self._booted_ms = self._time.monotonic_ms()

    def wall_ms(self) -> int:
        return self._time.wall_ms() + self.step_ms

    def monotonic_ms(self) -> int:
        return self._time.monotonic_ms()

    def boot_ms(self) -> int:
        return self._time.monotonic_ms() - self._booted_ms


class HandDisk:
    """A Disk that does its work at once, or, while `held`, when `complete` says so."""

    def __init__(self) -> None:
        self.held = False
        self.kept_waiting: Callable[[], object] = lambda: None  # called for each job that comes while it is held
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))
        if self.held:
            self.kept_waiting()
        else:
            self.complete()

    @property
    def busy(self) -> bool:
        return self.held or bool(self.jobs)

    @property
    def waiting(self) -> int:
        return len(self.jobs)

    def complete(self, count: int = 1_000_000) -> None:
        """Do what was handed in, the oldest first."""
        while self.jobs and count:
            work, done = self.jobs.popleft()
            count -= 1
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

    def close(self, wait: bool = True) -> None:
        """Nothing to end."""


class HandDoor:
    """A connection that keeps what it was told to send."""

    kind = DOOR_WORKER_TCP
    peer = "test"
    access = None
    is_welcome = False

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.closed = ""
        self.paused = False
        self.kept_bytes = 0
        self.has_room = True
        self.told: Callable[[Json], None] = self.sent.append

    def welcome(self) -> None:
        self.is_welcome = True

    def send(self, replies: Sequence[wire.Reply], /) -> None:
        as_json = [reply.reply if isinstance(reply, wire.Framed) else reply for reply in replies]
        for line in wire.encode(as_json).splitlines():
            self.told(json.loads(line))

    def close(self, reason: str, /) -> None:
        self.closed = reason

    def keep(self, size_bytes: int, /) -> bool:
        self.kept_bytes = size_bytes
        return self.has_room

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
