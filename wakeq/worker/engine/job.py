"""Job: a message that this worker holds, from the fetch until the broker has heard its outcome.

`batch` and `is_lost` belong to the engine's loop alone. `batch` is set as long as the message is held; an outcome that
arrives later is dropped. The other fields belong to the pool that runs the handler.
"""

from typing import TYPE_CHECKING, Any

from wakeq.client.message import Received
from wakeq.worker.task import Task

if TYPE_CHECKING:
    from wakeq.worker.engine.leases import Batch


class Job:
    """One delivery, and the task that handles it."""

    __slots__ = ("batch", "has_ended", "is_abandoned", "is_lost", "message", "started_s", "task")

    def __init__(self, task: Task[..., Any], message: Received) -> None:
        self.task = task
        self.message = message
        self.batch: Batch | None = None
        # The lease has timed out: another worker may have the message, and its outcome is not reported.
        self.is_lost = False
        # By the monotonic clock; None if the handler has not started.
        self.started_s: float | None = None
        # The handler has ended.
        self.has_ended = False
        # The engine does not wait for the handler any more.
        self.is_abandoned = False

    def __str__(self) -> str:
        return f"{self.message.uid} of {self.message.queue}"

    def __repr__(self) -> str:
        return f"<Job {self.message.queue} {self.message.uid}>"
