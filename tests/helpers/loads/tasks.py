"""What the load publishes and holds: its queues, its tasks and their bodies.

a task's name --> its body, from which the name and a digest can be told again
"""

import zlib
from dataclasses import dataclass

from tests.helpers.clients.lines import Message


@dataclass(frozen=True, slots=True)
class LoadQueue:
    """A queue of the load and what the checker must know of it."""

    name: str
    strict: bool = False
    max_deliveries: int = 0
    dead_letter: str = ""

    @property
    def create(self) -> Message:
        policies: Message = {"lease": "strict"} if self.strict else {}
        if self.max_deliveries:
            policies |= {"max_deliveries": self.max_deliveries, "dead_letter": self.dead_letter}
        return {"cmd": "CREATE", "qname": self.name, **policies}


QUEUES = (
    LoadQueue("load"),
    LoadQueue("load-strict", strict=True),
    LoadQueue("load-limited", max_deliveries=3, dead_letter="load-limited.dead"),
)


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery that a worker has in its hands."""

    task: str
    queue: str
    uid: str
    lease: str


def body_of(task: str) -> str:
    """Return the body of a task: its name and a filling that follows from it."""
    number = zlib.crc32(task.encode())
    return f"{task}:" + "x" * (20 + number % 200) + str(number)


def task_of(body: str) -> str:
    return body.partition(":")[0]


def digest_of(body: str) -> int:
    return zlib.crc32(body.encode())
