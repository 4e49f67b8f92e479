"""Barrier: an entry that touches several queues: which have to agree, what each has to do, and the answer.  Pure."""

from typing import Any

import msgspec

from wakeq.actors.mail import Asker, Item, Outcome
from wakeq.protocol.log.entries import Ack, Publish


class Barrier:
    """An entry that waits for the verdicts of the queues that it names; `owing` are the parts not judged yet.

    If several queues refuse, the refusal of the first part counts, in whichever order they answer: every node must
    come to the same result.
    """

    __slots__ = ("_refusals", "item", "owing")

    def __init__(self, item: Item, owing: dict[int, Ack | Publish]) -> None:
        self.item = item
        self.owing = owing
        self._refusals: dict[int, int] = {}

    def judged(self, place: int, code: int) -> None:
        """Take the verdict about a part; 0 is yes."""
        if code:
            self._refusals[place] = code

    @property
    def code(self) -> int:
        return self._refusals[min(self._refusals)] if self._refusals else 0


class Gathering:
    """Answers from several queues that make one answer, if anybody asked."""

    __slots__ = ("_answers", "_asker", "_missing")

    def __init__(self, asker: Asker | None, count: int) -> None:
        self._asker = asker
        self._answers: list[Any] = [None] * count
        self._missing = count

    def add(self, place: int, answer: Any) -> bool:
        """Take the answer of a queue that has done its part; return whether it was the last one."""
        if self._answers[place] is not None:
            return False  # a second time: its queue was rebuilt meanwhile
        self._answers[place] = answer
        self._missing -= 1
        if self._missing:
            return False
        asker, answers = self._asker, self._answers
        if asker is not None:
            result = Outcome(answers[0].queue, answers[0].queue_id, answers[0].results, answers[1:])
            asker.tell(result)
        return True


def to_judge(entry: Ack) -> list[Ack | Publish]:
    """Return what each queue has to judge, with all follow-ups of one queue in one part."""
    together: dict[str, Publish] = {}
    for publish in entry.publishes:
        before = together.get(publish.queue)
        drafts = publish.drafts if before is None else [*before.drafts, *publish.drafts]
        together[publish.queue] = msgspec.structs.replace(publish, drafts=drafts)
    return [msgspec.structs.replace(entry, publishes=[]), *together.values()]


def with_follow_ups(item: Item) -> Ack:
    entry = item[3]
    assert isinstance(entry, Ack), "only an acknowledgement has follow-ups"
    return entry


def parts_of(entry: Ack) -> list[Ack | Publish]:
    """Return the parts of an entry that touches several queues, the acknowledgement first."""
    return [msgspec.structs.replace(entry, publishes=[]), *entry.publishes]
