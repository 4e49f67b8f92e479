"""Job: a message that this worker holds, from the fetch until it is settled.

`batch` and `lost` belong to the engine's loop alone; `batch` is set as long as the message is held, and what a handler
says afterwards is dropped.  The other fields belong to the pool that runs the handler.
"""

from typing import TYPE_CHECKING, Any

from wakeq.client.message import Received
from wakeq.worker.task import Task

if TYPE_CHECKING:
    from wakeq.worker.engine.leases import Batch


class Job:
    """One delivery and the task it is for."""

    __slots__ = ("abandoned", "batch", "ended", "lost", "message", "started_s", "task")

    def __init__(self, task: Task[..., Any], message: Received) -> None:
        self.task = task
        self.message = message
        self.batch: Batch | None = None
        self.lost = False  # its lease was over: others have the message, and nothing is said of it any more
        self.started_s: float | None = None  # by the monotonic clock; None: not started
        self.ended = False
        self.abandoned = False  # nobody waits for the handler any more

    def __str__(self) -> str:
        return f"{self.message.uid} of {self.message.queue}"

    def __repr__(self) -> str:
        return f"<Job {self.message.queue} {self.message.uid}>"
