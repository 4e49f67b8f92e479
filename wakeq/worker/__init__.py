"""The worker: fetches messages, runs handlers with them, and reports the outcome of each to the broker.

Begin with worker.py: Worker, and through it task.py (a handler and its queue), parameters.py (its arguments as JSON),
context.py and tracing.py (what a handler sees), publishing.py (how tasks are published) and schedule.py; hooks.py,
resources.py, listeners.py and metrics.py are what a program adds around its handlers.
engine_thread.py runs the engine on a thread; `engine/` is the loop between the broker and the handlers; `pools/` runs
the handlers and makes outcomes (outcome.py) of what they do; signals.py ends a worker. It sees the client and the
protocol only. docs/internals/worker.md explains the whole.
"""

from wakeq.worker.context import Current, LogContext, current
from wakeq.worker.hooks import Began, Ended
from wakeq.worker.outcome import Dead, Done, Failed, Reject, Released, Retry, Snooze
from wakeq.worker.parameters import BadHandler
from wakeq.worker.resources import resource
from wakeq.worker.task import Publisher, Task
from wakeq.worker.worker import Worker

__all__ = [
    "BadHandler",
    "Began",
    "Current",
    "Dead",
    "Done",
    "Ended",
    "Failed",
    "LogContext",
    "Publisher",
    "Reject",
    "Released",
    "Retry",
    "Snooze",
    "Task",
    "Worker",
    "current",
    "resource",
]
