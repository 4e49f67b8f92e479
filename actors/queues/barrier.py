"""Barrier: an entry that names several queues: what each has to do, and the answer of all of them together.  Pure."""

from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.mail import LogItem
from wakeq.protocol.log.entries import Ack, Publish
from wakeq.protocol.queue.outcomes import Outcome


class Gathering:
    """The outcomes of several queues that make one answer; a queue that crashes gives its own when it is rebuilt."""

    __slots__ = ("_done", "_missing", "_outcomes", "_ticket")

    def __init__(self, ticket: Any, count: int, done: Callable[[], None]) -> None:
        self._ticket = ticket  # of whoever asked, None if nobody did
        self._done = done
        self._outcomes: list[Any] = [None] * count
        self._missing = count

    def part(self, place: int) -> "PartTicket":
        """Return the ticket of one part of the entry."""
        return PartTicket(self, place)

    def add(self, place: int, outcome: Any) -> None:
        """Take the outcome of a queue that has done its part; the last one gives the answer."""
        if self._outcomes[place] is not None:
            return  # a second time: its queue was rebuilt meanwhile
        self._outcomes[place] = outcome
        self._missing -= 1
        if self._missing:
            return
        first, *others = self._outcomes
        if self._ticket is not None:
            self._ticket.tell(Outcome(first.queue, first.queue_id, first.results, others))
        self._done()


class PartTicket:
    """The ticket of one part of an entry that names several queues; without a gathering nobody waits any more."""

    __slots__ = ("_gathering", "_place")

    def __init__(self, gathering: Gathering | None = None, place: int = 0) -> None:
        self._gathering = gathering
        self._place = place

    def tell(self, outcome: Any) -> None:
        """Take the outcome of this part."""
        if self._gathering is not None:
            self._gathering.add(self._place, outcome)


ANSWERED_PART = PartTicket()


def to_judge(entry: Ack) -> list[Ack | Publish]:
    """Return what each queue has to judge, with all follow-ups of one queue in one part."""
    together: dict[str, Publish] = {}
    for publish in entry.publishes:
        before = together.get(publish.queue)
        drafts = publish.drafts if before is None else [*before.drafts, *publish.drafts]
        together[publish.queue] = msgspec.structs.replace(publish, drafts=drafts)
    return [msgspec.structs.replace(entry, publishes=[]), *together.values()]


def with_follow_ups(item: LogItem) -> Ack:
    entry = item.entry
    assert isinstance(entry, Ack), "only an acknowledgement has follow-ups"
    return entry


def parts_of(entry: Ack) -> list[Ack | Publish]:
    """Return the parts of an entry that names several queues, the acknowledgement first."""
    return [msgspec.structs.replace(entry, publishes=[]), *entry.publishes]
