"""Replies: the answers of all queues in one batch, gathered into one message for each connection that asked.

    (who asked, answer) of each queue --> the last queue is done --> one Answered for each process

Otherwise a batch for a thousand queues would be a thousand messages to the same few connections.  Each queue that is
told of such a batch must call `done`, even if it crashes: the other queues' answers wait for it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from wakeq.actors.mail import Answered
from wakeq.actors.runtime import Process

Answer = tuple[Any, Any, Any]  # ticket, place, outcome


class Replies:
    """The answers of one batch."""

    __slots__ = ("_answers", "_owing")

    def __init__(self, queues: Iterable[str]) -> None:
        self._owing = set(queues)  # those that are not done
        self._answers: dict[Process, list[Answer]] = {}

    def done(self, queue: str, said: Sequence[tuple[Process, Answer]] = ()) -> None:
        """Take all answers of a queue, with whom they are for; a second call for the same queue does nothing."""
        owing, answers = self._owing, self._answers
        if queue not in owing:
            return
        owing.remove(queue)
        for process, answer in said:
            if process in answers:
                answers[process].append(answer)
            else:
                answers[process] = [answer]
        if not owing:
            self._answers = {}  # free them now: messages still in memory may refer to this object
            for process, mine in answers.items():
                process.tell(Answered(mine))
