"""The worker: fetches messages, runs handlers with them, and reports the outcome of each to the broker.

worker.py is what programs use, `engine/` the loop between broker and handlers; docs/internals/worker.md explains both.
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
