"""Crew: one way of running handlers, as the engine deals with it.

    Pool, tasks  -->  Crew: which queues are served there, what to ask for (FetchPlanner), how far ahead (PrefetchEstimator)

It holds them together and decides nothing.
"""

from collections.abc import Iterable
from typing import Any

from wakeq.worker.engine.fetch_planner import FetchPlanner
from wakeq.worker.engine.message_limit import MessageLimit
from wakeq.worker.engine.prefetch_estimator import PrefetchEstimator
from wakeq.worker.pools.pool import Pool
from wakeq.worker.task import Task


class Crew:
    """A pool, the tasks that run in it, and its wish for messages."""

    def __init__(self, pool: Pool, tasks: Iterable[Task[..., Any]], limit: MessageLimit, *, prefetch: int) -> None:
        self.pool = pool
        self.tasks = {task.queue: task for task in tasks}
        self.planner = FetchPlanner(self.tasks, slots=pool.slots, limit=limit)
        self.prefetch = PrefetchEstimator(slots=pool.slots, prefetch=prefetch * pool.slots)
