"""work: runs the handlers of tasks for everything that is due now, one after the other.

    client --messages--> call, call_async --> Outcome --> OutcomeReporter --> client

A handler is called and its message settled by the worker's own code; what is missing is only its threads: plain
handlers run in the thread that calls (another one if a loop runs there), coroutines on a loop of this call's own.  It
must never settle anything by rules of its own, and never wait.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any

from wakeq.client.blocking import Client
from wakeq.client.core.requests import Settled
from wakeq.client.message import Message, Then
from wakeq.protocol.errors import QueueNotFound
from wakeq.testing.loops import outside_of_loop
from wakeq.worker.engine.outcome_reporter import OutcomeReporter
from wakeq.worker.outcome import Outcome
from wakeq.worker.pools.call import call, call_async
from wakeq.worker.task import Task

DELIVERIES_MAX = 10_000  # in one call; more is a task that never comes to rest


class AsyncAdapter:
    """A blocking client for OutcomeReporter, which awaits: here every answer is there at once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        return self._client.ack(queue, *uids, lease=lease, then=then)

    async def ack_many(self, messages: list[Message]) -> Settled:
        return self._client.ack_many(messages)

    async def nack_many(
        self,
        messages: list[Message],
        *,
        delay: int | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        return self._client.nack_many(messages, delay=delay, error=error, failed=failed, dead=dead, exhausted=exhausted)


def work(client: Client, tasks: Sequence[Task[..., Any]]) -> int:
    """Handle everything that is due now and what that brings along; return the number of deliveries."""
    for task in tasks:
        task.check()  # as a worker does before it begins
    return outside_of_loop(lambda: _work(client, tasks))


def _work(client: Client, tasks: Sequence[Task[..., Any]]) -> int:
    reporter = OutcomeReporter(AsyncAdapter(client))
    reporter.give_up()  # a broker that is down is not asked again: nobody else could bring it back meanwhile
    deliveries = idle = 0
    turns = cycle(tasks)  # of the queues, as in a worker
    with asyncio.Runner() as runner:
        while idle < len(tasks):
            task = next(turns)
            message = _next(client, task.queue)
            if message is None:
                idle += 1
                continue
            idle, deliveries = 0, deliveries + 1
            assert deliveries <= DELIVERIES_MAX, _restless(message)
            if task.mode == "coroutine":
                outcome = runner.run(call_async(task, message, _drawn))
            else:
                outcome = call(task, message, _drawn)
            runner.run(_settle(reporter, message, outcome))
    return deliveries


def _drawn() -> float:
    """Draw for the jitter of a retry: always the same, so that a test can know when it is due."""
    return 0.0


def _next(client: Client, queue: str) -> Message | None:
    with suppress(QueueNotFound):  # nobody has published to it yet
        return client.fetch(queue)
    return None


async def _settle(reporter: OutcomeReporter, message: Message, outcome: Outcome) -> None:
    reporter.add(message, outcome)
    reporter.flush()
    while not reporter.idle:
        await asyncio.sleep(0)


def _restless(message: Message) -> str:
    return (
        f"{DELIVERIES_MAX} deliveries and there is still something due; the last one was delivery {message.delivery} "
        f"of {message.uid} in {message.queue}: does a handler publish for itself, or fail and is tried again at once? "
        "Retry(delay=...) lets time pass in between"
    )
