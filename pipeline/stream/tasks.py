"""Tasks: what a task of Spark knows about the query and the cluster that it runs in.

    local properties of the task --> Batch (query, number, run), the master

Spark gives these only to tasks, also to those of a batch write inside `foreachBatch`; planner and driver have none.
"""

import gc
import re
import sys
from dataclasses import dataclass

# The number of a micro-batch, and the query that it belongs to.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
# Each start of a query is a run; Spark makes it the group of its jobs.
RUN = "spark.jobGroup.id"
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MASTER = "spark.master"
# A program that imports in each task leaves its garbage to the collector after so many.
SPARES_MAX = 5
# The numbers of modules when their objects were taken out of garbage collection.
_spared: list[int] = []


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a query."""

    query: str
    # Epochs count from 1, Spark's batches from 0.
    epoch: int
    # The start of the query that runs it: a batch comes again in another run only. Empty if it is not known.
    run: str

    @property
    def reader(self) -> str:
        """The name under which the broker knows the query, as a reader and as a writer."""
        return f"query-{self.query}"


def current_batch() -> Batch | None:
    """Return the micro-batch of this task; None if it belongs to none."""
    query, number, run = _property(QUERY), _property(BATCH), _property(RUN)
    # A program may have put the jobs of a batch into a group of its own, whose name says nothing about the run.
    return Batch(query, int(number) + 1, run if UUID.fullmatch(run) else "") if query and number else None


def spare_imports() -> None:
    """Take what imports have made out of garbage collection.

    Spark collects garbage after each task, and pandas and PyArrow alone are 80,000 objects: 40 ms, more than 50,000
    rows cost.  It has just collected when a task begins, so nothing is kept that could go.
    """
    modules = len(sys.modules)
    if modules not in _spared[-1:] and len(_spared) < SPARES_MAX:
        _spared.append(modules)
        gc.freeze()


def master() -> str:
    """Return the address of the cluster's master; empty if this is no task."""
    return _property(MASTER)


def _property(name: str) -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    return (task.getLocalProperty(name) or "") if task is not None else ""
