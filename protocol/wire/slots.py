"""Slot: the place of one command's answer in its connection.

    conversation: Slot(session, command) --> lane of a queue, ticket of an entry --> tell(outcome) --> flush: a reply

One slot for each command, also for each of many that one read brought: a lane holds slots, an entry's ticket holds
slots, and outcomes are put into slots.  A slot is filled once: a queue that was rebuilt answers again, and the second
outcome is dropped.
"""

from typing import Any, Final

import msgspec

MISSING: Final = object()  # the outcome of a command that has none yet


class Slot(msgspec.Struct, gc=False, eq=False):
    """What a session owes for one command; `outcome` is what a queue or the log says, or already the reply."""

    session: Any  # notes that it has something to send; knows how to make a reply of the outcome
    command: Any
    outcome: Any = MISSING
    is_over: bool = False  # of a fetch that waits: the client has gone on, so it takes what is there or nothing
    is_held_back: bool = False  # of a write: it is filed only when an earlier one has its outcome
    is_woken: bool = False  # of ISLP: there was something before its okslp could leave, so awk goes right behind

    def tell(self, outcome: Any) -> None:
        """Fill the slot; the session sends it at the end of the round."""
        if self.outcome is MISSING:
            self.outcome = outcome
            if not self.session.is_dirty:
                self.session.note_dirty()


class SeveralResults:
    """The results of one command about several messages, which may arrive in parts; then its slot gets all of them."""

    __slots__ = ("_results", "_slot", "place")

    def __init__(self, slot: Any, count: int) -> None:
        self._slot = slot  # or whoever else gets the answer
        self._results: list[int | None] = [None] * count
        self.place: list[int] = list(range(count))  # the places that the next answer is about

    @property
    def slot(self) -> Any:
        return self._slot

    @property
    def session(self) -> Any:
        return self._slot.session

    def at(self, places: list[int]) -> "SeveralResults":
        """Return the same for an answer about some of the places."""
        part = SeveralResults.__new__(SeveralResults)
        part._slot, part._results, part.place = self._slot, self._results, places
        return part

    def tell(self, answer: Any) -> None:
        """Take the results of these places, or one refusal for the whole command."""
        results = getattr(answer, "results", None)
        if results is None:
            self._slot.tell(answer)
            return
        for place, code in zip(self.place, results, strict=True):
            if self._results[place] is None:  # else its queue was rebuilt meanwhile, and answers again
                self._results[place] = code
        if None not in self._results:
            self._slot.tell(msgspec.structs.replace(answer, results=list(self._results)))
