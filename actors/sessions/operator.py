"""Question: asks on behalf of those who are no connection: the HTTP API, the metrics, an operator's thread.

    raft_log.tell(Inquire(Stats(question, "jobs"))) --> Queues, a queue --> question.tell(answer) --> get, await

It is the `asker` of one message, and the future of its answer: an Outcome, a Refusal, or what was asked for.
"""

from typing import Any

from wakeq.actors.runtime import Future


class Question(Future[Any]):
    """See the head of this file."""

    session = None  # nothing of it ends with a connection
    place = (0,)  # of the one message that it may be about

    def at(self, places: list[int]) -> "Question":
        """Return itself: an answer about its one message is an answer to it."""
        return self

    def tell(self, answer: Any) -> None:
        """Take the answer; all but the first are dropped, because a queue that was rebuilt answers again."""
        if not self.done():
            self.set(answer)
