"""The worker: takes messages, runs handlers with them, and tells the broker what came of each.

worker.py is the face, `engine/` the loop between broker and handlers; docs/internals/worker.md tells how they work.
"""

from wakeq.worker.context import Current, LogContext, current
from wakeq.worker.parameters import BadHandler
from wakeq.worker.retry import Reject, Retry, Snooze
from wakeq.worker.task import Publisher, Task
from wakeq.worker.worker import Worker

__all__ = [
    "BadHandler",
    "Current",
    "LogContext",
    "Publisher",
    "Reject",
    "Retry",
    "Snooze",
    "Task",
    "Worker",
    "current",
]
