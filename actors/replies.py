"""Replies: what the queues of one batch have to say to the connections that asked, gathered into one mail for each.

    (who asked, answer) of each queue --> the last queue is done --> one Answered for each process

A batch that names a thousand queues would else be a thousand mails to the same few connections.  Whoever is told of
such a batch must say `done`, also if it fails: the others' answers wait for it.
"""

from collections.abc import Iterable
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

    def add(self, process: Process, answer: Answer) -> None:
        """Take one answer; it leaves when everybody is done."""
        mine = self._answers.get(process)
        if mine is None:
            self._answers[process] = [answer]
        else:
            mine.append(answer)

    def done(self, queue: str) -> None:
        """Hear that a queue has said all it has to say; once more does nothing."""
        if queue in self._owing:
            self._owing.remove(queue)
            if not self._owing:
                told, self._answers = self._answers, {}  # who was told of the batch may still know of this
                for process, answers in told.items():
                    process.tell(Answered(answers))
