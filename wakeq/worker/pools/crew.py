"""Crew: one way of running handlers, as the engine deals with it.

    Pool, tasks  -->  Crew: which queues are served there, what to ask for (Appetite), how far ahead (Pace)

It holds them together and decides nothing.
"""

from collections.abc import Iterable
from typing import Any

from wakeq.worker.engine.appetite import Appetite
from wakeq.worker.engine.pace import Pace
from wakeq.worker.engine.quota import Quota
from wakeq.worker.pools.pool import Pool
from wakeq.worker.task import Task


class Crew:
    """A pool, the tasks that run in it, and its wish for messages."""

    def __init__(self, pool: Pool, tasks: Iterable[Task[..., Any]], quota: Quota, *, prefetch: int) -> None:
        self.pool = pool
        self.tasks = {task.queue: task for task in tasks}
        self.appetite = Appetite(self.tasks, slots=pool.slots, quota=quota)
        self.pace = Pace(slots=pool.slots, prefetch=prefetch * pool.slots)
