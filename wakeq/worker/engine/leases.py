"""Leases: the messages that a worker holds, and when their leases must be extended.

Messages that were fetched together are checked together, so that a short handler costs next to nothing here. Pure:
the time is passed in. This file says which batches are due; the engine extends leases and gives up handlers.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN
from wakeq.worker.engine.job import Job

# A worker does not learn the timeout that the publisher gave; it may be the shortest one that there is.
FIRST_LEASE_S = float(TIMEOUT_S_MIN)
# A lease is extended when this part of it is left.
LEFT_PART = 1 / 3


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
