"""Operator: asks on behalf of whoever is not a connection: the HTTP API, the dashboard, the metrics.

    a question made with `asker(...)` --> a queue, Queues, RaftLog, a subscriber --> Answered --> the callback given

One process for all of them.  It knows no question and no answer, and never waits: a callback is called on the loop, in
the turn in which the answer comes.
"""

from collections.abc import Callable
from typing import Any

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.runtime import Process

Take = Callable[[Any], None]  # an Outcome, a Refusal, or whatever was asked for


class Operator(Process):
    """See the head of this file."""

    def asker(self, take: Take) -> ReplyByMail[Any]:
        """Return what a question carries, so that `take` is called with its answer."""
        return ReplyByMail(self, take)

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Answered):
            message.deliver()

    def queue(self, name: str) -> Process | None:
        """Return the process of a queue, if it has one."""
        return self.runtime.whereis(("queue", name))
