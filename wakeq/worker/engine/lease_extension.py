"""extend: has the broker leave messages with us while their handlers run.

    Batch --touch_many--> the leases are extended, or were over already: those jobs are lost

What the broker cannot do now is asked for again, as long as that is in time.  It ends no handler and settles nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from wakeq.protocol.errors import NOT_NOW, WakeqError
from wakeq.worker.engine.job import Job
from wakeq.worker.engine.leases import Batch

log = logging.getLogger("wakeq.worker")

EXTEND_AGAIN_S = 1.0


class Toucher(Protocol):
    """What is needed of the client."""

    async def touch_many(self, messages: Sequence[Any], *, timeout: int | None = None) -> Any: ...


async def extend(client: Toucher, batch: Batch, clock: Callable[[], float]) -> None:
    """Extend the leases of those that are still held, until the batch is due again."""
    batch.is_extending = True
    try:
        await _extend(client, batch, clock)
    finally:
        batch.is_extending = False


async def _extend(client: Toucher, batch: Batch, clock: Callable[[], float]) -> None:
    until_s = batch.extend_at_s
    while jobs := {job.message.uid: job for job in batch.jobs if not job.lost}:
        try:
            outcome = await client.touch_many([job.message for job in jobs.values()], timeout=batch.task.timeout)
        except WakeqError as error:
            log.warning("%s: the leases of %d messages were not extended: %s", batch.task.queue, len(jobs), error)
            if not isinstance(error, NOT_NOW) or clock() + EXTEND_AGAIN_S >= until_s:
                return
            await asyncio.sleep(EXTEND_AGAIN_S)
        else:
            for uid in {*outcome.stale, *outcome.unknown}:
                _lose(jobs[uid])
            return


def _lose(job: Job) -> None:
    job.lost = True
    log.warning(
        "%s: the lease of %s was over while its handler ran, and others may do it again; what it says is dropped",
        job.message.queue,
        job.message.uid,
    )
