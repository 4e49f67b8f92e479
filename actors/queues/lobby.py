"""Lobby: where the lanes of every queue are found, whether the queue has a process or not.

    a session --> filed(name) --> files --> the queue's process, or Queues if it has none, takes a turn

Lanes belong to the name of a queue: they are there while its process is being rebuilt, and before there is one.
"""

from collections.abc import Callable

import msgspec

from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.queue.lanes import Filed, Lanes


class TakeTurn(msgspec.Struct, frozen=True, gc=False):
    """To a queue: something was filed in your lanes."""


TAKE_TURN = TakeTurn()


def _nobody(name: str) -> None:
    raise AssertionError("opened first")


class Lobby:
    """The lanes of all queues by name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # The lanes of each queue for which something is or was filed.
        self._lanes: dict[str, Lanes] = {}
        # The processes of queues; one that has ended serves no more.
        self._serving: dict[str, Process] = {}
        # The supervisor of all queues, and its step for a queue that has no process that serves.
        self._queues: Process | None = None
        self._open_queue: Callable[[str], None] = _nobody

    def open(self, queues: Process, open_queue: Callable[[str], None]) -> None:
        """From now on this supervisor hears of queues without a process."""
        self._queues, self._open_queue = queues, open_queue

    def lanes_of(self, name: str) -> Lanes:
        """Return the lanes of a queue, which need not exist."""
        lanes = self._lanes.get(name)
        if lanes is None:
            lanes = self._lanes[name] = Lanes(name)
        return lanes

    def filed(self, name: str) -> Filed:
        """Return where to file for a queue, which need not exist; the first to file has it woken, in this round."""
        lanes = self._lanes.get(name)
        if lanes is None:
            lanes = self._lanes[name] = Lanes(name)
        filed = lanes.filed
        if filed is None:
            filed = lanes.filed = Filed()
            process = self._serving.get(name)
            if process is not None and process.alive:
                process.tell(TAKE_TURN)
            else:
                assert self._queues is not None, "opened first"
                self._runtime.run_in(self._queues, self._open_queue, name)  # at once: it has a turn in this round
        return filed

    def queue(self, name: str) -> Process:
        """Return the process of a queue, or the supervisor if it has none."""
        found = self.process(name) or self._queues
        assert found is not None, "opened first"
        return found

    def process(self, name: str) -> Process | None:
        """Return the process that serves a queue, if there is one."""
        process = self._serving.get(name)
        return process if process is not None and process.alive else None

    def enter(self, name: str, process: Process) -> None:
        """From now on this process serves the queue."""
        self._serving[name] = process

    def forget(self, name: str) -> None:
        """The queue has no process any more; its lanes are made anew when somebody files."""
        self._serving.pop(name, None)
        lanes = self._lanes.get(name)
        if lanes is not None and lanes.filed is None:
            del self._lanes[name]

    def all_filed(self) -> list[Lanes]:
        """Return the lanes in which something is filed."""
        return [lanes for lanes in self._lanes.values() if lanes.filed is not None]
