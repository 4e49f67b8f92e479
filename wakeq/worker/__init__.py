"""The worker: fetches messages, runs handlers with them, and reports the outcome of each to the broker.

Begin with worker.py: Worker, and through it task.py (a handler and its queue), parameters.py (its arguments as JSON),
context.py and tracing.py (what a handler sees), publishing.py (how tasks are published) and schedule.py.
engine_thread.py runs the engine on a thread; `engine/` is the loop between the broker and the handlers; `pools/` runs
the handlers and makes outcomes (outcome.py) of what they do; signals.py ends a worker. It sees the client and the
protocol only. docs/internals/worker.md explains the whole.
"""

from wakeq.worker.context import Current, LogContext, current
from wakeq.worker.outcome import Reject, Retry, Snooze
from wakeq.worker.parameters import BadHandler
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
