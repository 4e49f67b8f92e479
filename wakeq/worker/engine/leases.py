"""Leases: the messages that a worker holds, and when to look after them.

Messages that were fetched together are looked after together, so that a short handler costs next to nothing here.
Pure: moments are passed in.  It says what is due; extending, giving back and giving up are the engine's.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN
from wakeq.worker.engine.job import Job

FIRST_SPAN_S = float(TIMEOUT_S_MIN)  # a publisher may have given so little; what it gave is not told
LEFT_PART = 1 / 3  # of a lease: when so much is left it is extended


class Batch:
    """Messages of one task that were fetched together, and not settled yet; their leases end together."""

    __slots__ = ("extend_at_s", "is_extending", "jobs", "taken_s", "task")

    def __init__(self, jobs: list[Job], now_s: float) -> None:
        self.jobs = set(jobs)
        self.task = jobs[0].task
        self.taken_s = now_s
        self.extend_at_s = now_s + FIRST_SPAN_S * (1 - LEFT_PART)
        self.is_extending = False  # it was asked for, and not answered yet

    def extended(self, now_s: float) -> None:
        """Their leases are being extended by the timeout of the task."""
        self.extend_at_s = now_s + self.task.timeout * (1 - LEFT_PART)

    def overdue(self, now_s: float) -> list[Job]:
        """Those whose handlers run for too long."""
        return [job for job in self.jobs if job.started_s is not None and now_s >= job.started_s + self.task.max_run]

    def look_at_s(self, now_s: float) -> float:
        """The next moment at which a lease is to be extended, or a handler may have run for too long."""
        starts_s = (now_s if job.started_s is None else job.started_s for job in self.jobs)
        return min(self.extend_at_s, min(starts_s) + self.task.max_run)


class Leases:
    """All batches with a message that is still held, by when to look at them."""

    def __init__(self) -> None:
        self._batches: list[tuple[float, int, Batch]] = []
        self._numbers = count()
        self._held = 0

    def __len__(self) -> int:
        """How many messages are held."""
        return self._held

    def __iter__(self) -> Iterator[Job]:
        return iter([job for _, _, batch in self._batches for job in batch.jobs])

    def take(self, jobs: list[Job], now_s: float) -> None:
        """These were fetched now."""
        batch = Batch(jobs, now_s)
        for job in jobs:
            job.batch = batch
        self._held += len(jobs)
        self.watch(batch, now_s)

    def release(self, job: Job) -> bool:
        """It is settled, or lost.  False if it was before: whoever comes second has nothing to say."""
        if job.batch is None:
            return False
        job.batch.jobs.discard(job)
        job.batch = None
        self._held -= 1
        return True

    def watch(self, batch: Batch, now_s: float) -> None:
        """Look at it again when it is time."""
        heapq.heappush(self._batches, (batch.look_at_s(now_s), next(self._numbers), batch))

    def due(self, now_s: float) -> list[Batch]:
        """The batches to look at now; each must be watched again, unless nothing of it is held any more."""
        found = []
        while self._batches and self._batches[0][0] <= now_s:
            batch = heapq.heappop(self._batches)[2]
            if batch.jobs:
                found.append(batch)
        return found

    @property
    def next_s(self) -> float | None:
        """The moment of the next look; None if there is nothing to look after."""
        return self._batches[0][0] if self._batches else None
