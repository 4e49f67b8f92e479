"""Replies: what the queues of one batch have to say to the connections that asked, gathered into one mail for each.

    (who asked, answer) of each queue --> the last queue is done --> one Answered for each process

A batch that names a thousand queues would else be a thousand mails to the same few connections.  Whoever is told of
such a batch must say `done`, also if it fails: the others' answers wait for it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from wakeq.actors.messages import Answered
from wakeq.actors.runtime import Process

Answer = tuple[Any, Any, Any]  # ticket, place, outcome


class Replies:
    """The answers of one batch."""

    __slots__ = ("_answers", "_owing")

    def __init__(self, queues: Iterable[str]) -> None:
        self._owing = set(queues)  # those that are not done
        self._answers: dict[Process, list[Answer]] = {}

    def done(self, queue: str, said: Sequence[tuple[Process, Answer]] = ()) -> None:
        """Take all that a queue has to say, and to whom; once more does nothing."""
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
            self._answers = {}  # who was told of the batch may still know of this
            for process, mine in answers.items():
                process.tell(Answered(mine))
