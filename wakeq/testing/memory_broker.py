"""Broker: the real broker inside a test, in memory, with a clock that the test drives.

    b.publish(...), b.fetch(...)  -->  Client  -->  MemoryConnection  -->  Machine: the processes of a node

It is a `wakeq.Client` that contains its broker, so every call has the client's own name and meaning. Methods for the
clock and for faults are added. It must never answer in place of the broker; the machine does that.
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
    """A client of a broker in memory. It does not wait for a broker that is down."""

    def __init__(self, machine: MemoryMachine) -> None:
        self._machine = machine
        super().__init__(ADDRESS, reconnect_for_s=RECONNECT_FOR_S)

    def _dial(self, address: str) -> MemoryConnection:
        return MemoryConnection(self._machine)


class Broker(MemoryClient):
    """A broker in memory, and a client of it. Made by `broker()`; it ends with its `with` block."""

    # Calls take no time, so a coroutine may make them.
    _waits = False

    def __init__(self, machine: MemoryMachine) -> None:
        super().__init__(machine)
        self._adopted = ExitStack()
        self._workers: list[Worker] = []

    def close(self) -> None:
        """End the broker and drop all of its data."""
        self._adopted.close()
        super().close()
        self._machine.close()

    def client(self) -> Client:
        """Return another client of this broker, for code under test that takes one.

        As with a real client, its calls are refused in a thread that runs an event loop.
        """
        return outside_of_loop(lambda: MemoryClient(self._machine))

    def async_client(self) -> "AsyncClient":
        """Return an AsyncClient of this broker, for code under test that awaits."""
        # A test that never awaits does not need this import.
        from wakeq.testing.async_client import MemoryAsyncClient

        return MemoryAsyncClient(self._machine)

    # Workers ----------------------------------------------------------------------------------------------------

    def adopt(self, worker: "Worker") -> None:
        """Make the tasks of a worker publish to this broker, and `work` run their handlers."""
        self._adopted.enter_context(worker.publishing_to(self))
        self._workers.append(worker)

    def work(self) -> int:
        """Run the handlers of the adopted workers for all messages that are due now, and those that they publish.

        They run one after the other in this thread. Messages end as in a worker: acknowledged, retried, snoozed or
        dead. Return the number of deliveries; messages that are due later wait for `advance`.
        """
        # A test without workers does not need this import.
        from wakeq.testing.work import work

        return work(self, [task for worker in self._workers for task in worker.tasks.values()])

    # Time -------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass: delays end, leases time out, messages expire, each at its moment."""
        self._machine.advance(seconds)

    def now(self) -> datetime:
        """Return the time of the broker's clock."""
        return datetime.fromtimestamp(self._machine.now_ms() / 1000, UTC)

    # Faults -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Crash the broker: every connection breaks, and data that was not synced is lost. Time goes on."""
        self._machine.crash()

    def restart(self) -> None:
        """Start the broker again from its synced data, after a crash; if it is up, crash it first."""
        self._machine.crash()
        self._machine.start()

    def disk_full(self, full: bool = True) -> None:
        """Refuse publishes, as a broker with a full disk does; acknowledgements are still accepted."""
        self._machine.disk_full(full)


def broker(*workers: "Worker", tick: Callable[[float], object] = lambda seconds: None) -> Broker:
    """Start a broker in memory that adopts these workers. Its clock starts at the present and is driven by the test.

    `tick` is called with each span of time, in seconds, by which the clock moves. With freezegun's `tick`, or
    time-machine's `shift`, the code under test sees the same time.
    """
    machine = MemoryMachine(ManualTime(start_ms=round(time.time() * 1000), tick=tick))
    machine.start()
    made = Broker(machine)
    for worker in workers:
        made.adopt(worker)
    return made
