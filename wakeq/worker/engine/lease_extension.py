"""extend_leases: asks the broker to extend the leases of a batch while its handlers run.

    Batch --touch_many--> the leases are extended, or had timed out already: those jobs are lost

If the broker cannot do it now, the request is repeated as long as it is in time. No handler is ended here, and no
outcome is reported.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from wakeq.protocol.errors import NOT_NOW, WakeqError
from wakeq.worker.engine.leases import Batch

log = logging.getLogger("wakeq.worker")

REPEAT_AFTER_S = 1.0


class TouchClient(Protocol):
    """The method of AsyncClient that extends leases."""

    async def touch_many(self, messages: Sequence[Any], *, timeout: int | None = None) -> Any: ...


async def extend_leases(client: TouchClient, batch: Batch, clock: Callable[[], float]) -> None:
    """Extend the leases of the messages that are still held. Stop trying when the next extension is due."""
    batch.is_extending = True
    try:
        await _extend(client, batch, clock)
    finally:
        batch.is_extending = False


async def _extend(client: TouchClient, batch: Batch, clock: Callable[[], float]) -> None:
    queue, until_s = batch.task.queue, batch.extend_at_s
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
                    "%s: the lease of %s timed out while its handler was running; the message may be redelivered, and "
                    "the outcome of this handler will be ignored",
                    queue,
                    uid,
                )
            return
