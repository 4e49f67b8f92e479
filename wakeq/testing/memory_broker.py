"""Broker: the real broker inside a test, in memory, with a clock that the test drives.

    b.publish(...), b.fetch(...)  -->  Client  -->  MemoryConnection  -->  Machine: the processes of a node

It is a `wakeq.Client` whose broker lives in it, so every call has the client's own name and meaning; beside them stand
the clock and the faults.  It must never answer for the broker: what is not the client's is the machine's.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from wakeq.client.blocking import Client
from wakeq.testing.connection import ADDRESS, RECONNECT_FOR_S, MemoryConnection
from wakeq.testing.loops import outside_of_loop
from wakeq.testing.machine import MemoryMachine
from wakeq.testing.manual_time import ManualTime

if TYPE_CHECKING:
    from wakeq.client.aio import AsyncClient
    from wakeq.worker import Worker


class MemoryClient(Client):
    """A client of a broker in memory.  It does not wait for one that is down."""

    def __init__(self, machine: MemoryMachine) -> None:
        self._machine = machine
        super().__init__(ADDRESS, reconnect_for_s=RECONNECT_FOR_S)

    def _dial(self, address: str) -> MemoryConnection:
        return MemoryConnection(self._machine)


class Broker(MemoryClient):
    """A broker in memory, and a client of it.  Made by `broker()`; over at the end of its `with` block."""

    _waits = False  # it is the test's own, which may drive it from a coroutine

    def __init__(self, machine: MemoryMachine) -> None:
        super().__init__(machine)
        self._adopted = ExitStack()
        self._workers: list[Worker] = []

    def close(self) -> None:
        """End the broker; nothing of it is left."""
        self._adopted.close()
        super().close()
        self._machine.close()

    def client(self) -> Client:
        """Return one more client of this broker, for code under test that takes one.

        As with a real one, its calls are refused where an event loop runs.
        """
        return outside_of_loop(lambda: MemoryClient(self._machine))

    def async_client(self) -> "AsyncClient":
        """Return an AsyncClient of this broker, for code under test that awaits."""
        from wakeq.testing.async_client import MemoryAsyncClient  # a test that never awaits does not pay for it

        return MemoryAsyncClient(self._machine)

    # Workers ----------------------------------------------------------------------------------------------------

    def adopt(self, worker: "Worker") -> None:
        """Have the tasks of a worker publish to this broker until its end, and `work` run their handlers."""
        self._adopted.enter_context(worker.publishing_to(self))
        self._workers.append(worker)

    def work(self) -> int:
        """Run the handlers of the adopted workers for everything that is due now, and what that brings along.

        They run one after the other in this thread, and end as in a worker: acknowledged, tried again, snoozed or
        dead.  FinishedJobs how many deliveries there were; what is due later waits for `advance`.
        """
        from wakeq.testing.work import work  # a test without workers does not pay for them

        return work(self, [task for worker in self._workers for task in worker.tasks.values()])

    # Time -------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass: delays end, leases run out, messages expire, each at its moment."""
        self._machine.advance(seconds)

    def now(self) -> datetime:
        """Return the moment by the broker's clock."""
        return datetime.fromtimestamp(self._machine.now_ms() / 1000, UTC)

    # Faults -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose the process: every connection breaks, and what was not synced is gone.  Time goes on."""
        self._machine.crash()

    def restart(self) -> None:
        """Come back from what was synced, after a crash; or crash and come back."""
        self._machine.crash()
        self._machine.start()

    def disk_full(self, full: bool = True) -> None:
        """Refuse publishes as a broker does whose disk is full; acknowledgements still go through."""
        self._machine.disk_full(full)


def broker(*workers: "Worker", tick: Callable[[float], object] = lambda seconds: None) -> Broker:
    """Start a broker in memory, which adopts these workers.  Its clock begins now, and moves only when it is driven.

    `tick` hears each span, in seconds, by which the clock is moved: with freezegun's `tick`, or time-machine's
    `shift`, the code under test sees the same time go by.
    """
    machine = MemoryMachine(ManualTime(start_ms=round(time.time() * 1000), tick=tick))
    machine.start()
    made = Broker(machine)
    for worker in workers:
        made.adopt(worker)
    return made
