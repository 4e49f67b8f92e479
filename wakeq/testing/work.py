"""work: runs the handlers of tasks for all messages that are due now, one after the other.

    client --messages--> call, call_async --> Outcome --> OutcomeReporter --> client

The worker's own code calls the handlers and reports their outcomes; only its threads are missing. Plain handlers run in
the calling thread (in another one if that runs a loop), coroutines on a loop that is made for this call. This file must
have no rules of its own for outcomes, and must never wait.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from itertools import cycle
from typing import Any

from wakeq.client.blocking import Client
from wakeq.client.message import Message, Then
from wakeq.client.requests import Settled
from wakeq.protocol.errors import QueueNotFound
from wakeq.testing.loops import outside_of_loop
from wakeq.worker.engine.outcome_reporter import OutcomeReporter
from wakeq.worker.hooks import Began, Ended
from wakeq.worker.outcome import Outcome
from wakeq.worker.pools.call import call, call_async
from wakeq.worker.resources import open_asynchronous
from wakeq.worker.task import Task

# After so many deliveries in one call, a task is taken to publish messages for ever.
DELIVERIES_MAX = 10_000


class AsyncAdapter:
    """A blocking client for OutcomeReporter, which awaits its calls; here they take no time."""

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
        delay: float | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        return self._client.nack_many(messages, delay=delay, error=error, failed=failed, dead=dead, exhausted=exhausted)


def work(client: Client, tasks: Sequence[Task[..., Any]]) -> int:
    """Handle all messages that are due now, and those that their handlers publish; return the number of deliveries."""
    for task in tasks:
        # A worker checks its tasks before it begins.
        task.check()
    return outside_of_loop(lambda: _work(client, tasks))


def _work(client: Client, tasks: Sequence[Task[..., Any]]) -> int:
    reporter = OutcomeReporter(AsyncAdapter(client))
    # Nothing could restart a broker that is down while this call runs, so no command is repeated.
    reporter.give_up()
    deliveries = idle = 0
    # The queues take turns, as in a worker.
    turns = cycle(tasks)
    with ExitStack() as stack:
        for hooks in dict.fromkeys(task.hooks for task in tasks):
            stack.enter_context(hooks.opening_on_demand())
        runner = stack.enter_context(asyncio.Runner())
        resources = AsyncExitStack()
        stack.callback(lambda: runner.run(resources.aclose()))
        while idle < len(tasks):
            task = next(turns)
            message = _fetch(client, task.queue)
            if message is None:
                idle += 1
                continue
            idle, deliveries = 0, deliveries + 1
            assert deliveries <= DELIVERIES_MAX, _endless(message)
            task.hooks.tell(Began(task, message))
            if task.mode == "coroutine":
                runner.run(open_asynchronous(task.missing_openers(), [task.hooks.values], resources))
                outcome = runner.run(call_async(task, message, _drawn))
            else:
                outcome = call(task, message, _drawn)
            task.hooks.tell(Ended(task, message, outcome, 0.0))
            runner.run(_report(reporter, message, outcome))
    return deliveries


def _drawn() -> float:
    """Return the random number for the jitter of a retry: always 0, so that a test knows when the retry is due."""
    return 0.0


def _fetch(client: Client, queue: str) -> Message | None:
    # The queue does not exist before the first publish.
    with suppress(QueueNotFound):
        return client.fetch(queue)
    return None


async def _report(reporter: OutcomeReporter, message: Message, outcome: Outcome) -> None:
    reporter.add(message, outcome)
    reporter.flush()
    while not reporter.idle:
        await asyncio.sleep(0)


def _endless(message: Message) -> str:
    return (
        f"after {DELIVERIES_MAX} deliveries a message is still due; the last one was delivery {message.delivery} of "
        f"{message.uid} in {message.queue}. Does a handler publish to its own queue, or is a failure retried at once? "
        "Retry(delay=...) lets time pass in between"
    )
