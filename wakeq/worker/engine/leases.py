"""Leases: the messages that a worker holds, and when their leases must be extended.

    fetched messages --> Job, Batch --> Leases --> batches that are due --> extend_leases --touch_many--> broker

Messages that were fetched together are checked together, so that a short handler costs next to nothing here. All but
`extend_leases` is pure: the time is passed in. No handler is ended here, and no outcome is reported.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Protocol

from wakeq.client.message import Received
from wakeq.protocol.errors import NOT_NOW, WakeqError
from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN
from wakeq.worker.task import Task

# A worker does not learn the timeout that the publisher gave; it may be the shortest one that there is.
FIRST_LEASE_S = float(TIMEOUT_S_MIN)
# A lease is extended when this part of it is left.
LEFT_PART = 1 / 3

log = logging.getLogger("wakeq.worker")

REPEAT_AFTER_S = 1.0


class Job:
    """A message that this worker holds, from the fetch until the broker has heard its outcome, and its task.

    `batch` and `is_lost` belong to the engine's loop alone, the other fields to the pool that runs the handler.
    """

    __slots__ = ("batch", "has_ended", "is_abandoned", "is_lost", "message", "started_s", "task")

    def __init__(self, task: Task[..., Any], message: Received) -> None:
        self.task = task
        self.message = message
        # Set as long as the message is held. An outcome that arrives later is dropped.
        self.batch: Batch | None = None
        # The lease has timed out: another worker may have the message, and its outcome is not reported.
        self.is_lost = False
        # By the monotonic clock; None if the handler has not started.
        self.started_s: float | None = None
        # The handler has ended.
        self.has_ended = False
        # The engine does not wait for the handler any more.
        self.is_abandoned = False

    def __str__(self) -> str:
        return f"{self.message.uid} of {self.message.queue}"

    def __repr__(self) -> str:
        return f"<Job {self.message.queue} {self.message.uid}>"


class Batch:
    """Messages of one task that were fetched together and are still held. Their leases end together."""

    __slots__ = ("extend_at_s", "fetched_s", "is_extending", "jobs", "task")

    def __init__(self, jobs: list[Job], now_s: float) -> None:
        self.jobs = set(jobs)
        self.task = jobs[0].task
        self.fetched_s = now_s
        self.extend_at_s = now_s + FIRST_LEASE_S * (1 - LEFT_PART)
        # An extension was sent and is not answered yet.
        self.is_extending = False

    def extended(self, now_s: float) -> None:
        """Note that the leases are being extended by the timeout of the task."""
        self.extend_at_s = now_s + self.task.timeout * (1 - LEFT_PART)

    def overdue(self, now_s: float) -> list[Job]:
        """Return the jobs whose handlers have run for longer than `max_run`."""
        return [job for job in self.jobs if job.started_s is not None and now_s >= job.started_s + self.task.max_run]

    def next_check_s(self, now_s: float) -> float:
        """Return the next moment at which leases must be extended, or a handler may have run for too long."""
        starts_s = (now_s if job.started_s is None else job.started_s for job in self.jobs)
        return min(self.extend_at_s, min(starts_s) + self.task.max_run)


class Leases:
    """All batches with a message that is still held, ordered by their next check."""

    def __init__(self) -> None:
        # A heap of the moment of the next check, a number that breaks ties, and the batch.
        self._batches: list[tuple[float, int, Batch]] = []
        self._numbers = count()
        self._held = 0

    def __len__(self) -> int:
        """The number of messages that are held."""
        return self._held

    def __iter__(self) -> Iterator[Job]:
        return iter([job for _, _, batch in self._batches for job in batch.jobs])

    def add(self, jobs: list[Job], now_s: float) -> None:
        """Hold messages that were fetched together."""
        batch = Batch(jobs, now_s)
        for job in jobs:
            job.batch = batch
        self._held += len(jobs)
        self.schedule(batch, now_s)

    def release(self, job: Job) -> bool:
        """Hold a message no more. Return False if it was not held: its outcome is known already."""
        if job.batch is None:
            return False
        job.batch.jobs.discard(job)
        job.batch = None
        self._held -= 1
        return True

    def schedule(self, batch: Batch, now_s: float) -> None:
        """Schedule the next check of a batch."""
        heapq.heappush(self._batches, (batch.next_check_s(now_s), next(self._numbers), batch))

    def due(self, now_s: float) -> list[Batch]:
        """Return the batches to check now. A batch of which messages are still held must be scheduled again."""
        found = []
        while self._batches and self._batches[0][0] <= now_s:
            batch = heapq.heappop(self._batches)[2]
            if batch.jobs:
                found.append(batch)
        return found

    @property
    def next_check_s(self) -> float | None:
        """The moment of the next check; None if no message is held."""
        return self._batches[0][0] if self._batches else None


class TouchClient(Protocol):
    """The method of AsyncClient that extends leases."""

    async def touch_many(self, messages: Sequence[Any], *, timeout: float | None = None) -> Any: ...


async def extend_leases(client: TouchClient, batch: Batch, clock: Callable[[], float]) -> None:
    """Ask the broker to extend the leases of the messages of a batch that are still held.

    If the broker cannot do it now, ask again until the next extension is due. Leases that had timed out already are
    marked as lost.
    """
    batch.is_extending = True
    queue, until_s = batch.task.queue, batch.extend_at_s
    try:
        while jobs := {job.message.uid: job for job in batch.jobs if not job.is_lost}:
            try:
                answer = await client.touch_many([job.message for job in jobs.values()], timeout=batch.task.timeout)
            except WakeqError as error:
                log.warning("%s: could not extend the leases of %d messages: %s", queue, len(jobs), error)
                if not isinstance(error, NOT_NOW) or clock() + REPEAT_AFTER_S >= until_s:
                    return
                await asyncio.sleep(REPEAT_AFTER_S)
            else:
                for uid in {*answer.stale, *answer.unknown}:
                    jobs[uid].is_lost = True
                    log.warning(
                        "%s: the lease of %s timed out while its handler was running; the message may be redelivered, "
                        "and the outcome of this handler will be ignored",
                        queue,
                        uid,
                    )
                return
    finally:
        batch.is_extending = False
