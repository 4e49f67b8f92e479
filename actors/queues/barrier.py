"""Barrier: an entry that names several queues.  What each of them is asked, and the one answer of all of them.  Pure.

All queues are judged, then all apply their parts, or none does; that is one step of the Applier.  Only if a queue
crashes over its part does the answer come later: when its successor has applied the part.
"""

from collections.abc import Callable, Sequence

import msgspec

from wakeq.protocol.log.entries import Ack, Claim, ClaimAction, Publish, Result, Unstash
from wakeq.protocol.queue.outcomes import Outcome

Part = Ack | Publish | Unstash | Claim


class PartTicket(msgspec.Struct, eq=False):
    """What the outcome of one part is told to."""

    # What became of the part; None until its queue has applied it.
    outcome: Outcome | None = None
    # Hears when the outcome comes, if it was missing when all other queues had done their parts.
    late: Callable[[], None] | None = None

    def tell(self, outcome: Outcome) -> None:
        """Take the outcome of this part; one that comes again, from a queue that was rebuilt meanwhile, is dropped."""
        if self.outcome is None:
            self.outcome = outcome
            if self.late is not None:
                self.late()


# The ticket of a part about which nobody waits to hear any more.
ANSWERED_PART = PartTicket(Outcome("", 0, []))


def whole_outcome(tickets: Sequence[PartTicket]) -> Outcome | None:
    """Return the outcome of the first part with those of all others; None while one is missing."""
    first, *others = [ticket.outcome for ticket in tickets]
    follows = [outcome for outcome in others if outcome is not None]
    if first is None or len(follows) < len(others):
        return None
    return Outcome(first.queue, first.queue_id, first.results, follows)


def parts_of(entry: Ack | Unstash) -> list[Part]:
    """Return what each queue has to apply; the first is the entry itself, of which its queue applies only its own."""
    if isinstance(entry, Ack):
        return [entry, *entry.publishes]
    published = Claim(
        "", 0, ClaimAction.PUBLISHED, "", entry.epoch, reader=entry.reader, batch=entry.epoch, run=entry.run
    )
    return [entry, *(msgspec.structs.replace(published, queue=name) for name in entry.sources)]


def judged_parts(entry: Ack | Unstash) -> list[Part]:
    """Return what the queues have to judge, in this order."""
    if isinstance(entry, Ack):
        return [entry, *judged_together(entry.publishes)]
    return parts_of(entry)


def verdict(entry: Ack | Unstash, codes: Sequence[int]) -> int:
    """Return 0 if all parts are to be applied, else why none is, from what their queues say in the order of the parts.

    A stash that is gone is the last thing to be told: a reader that has lost its messages stashes them again.
    """
    refusals = [code for code in codes if code]
    if isinstance(entry, Unstash):
        own = codes[0]
        if own == Result.REPEATED:  # it publishes nothing, so nothing speaks against it
            return Result.DONE
        if own != Result.EPOCH_OLD:
            refusals.sort(key=lambda code: code == own)
    return refusals[0] if refusals else Result.DONE


def judged_together(publishes: list[Publish]) -> list[Publish]:
    """Return what each queue has to judge: all follow-ups to it in one, or two could both take the last free place."""
    if len(publishes) == 1:
        return publishes
    together: dict[str, Publish] = {}
    for publish in publishes:
        before = together.get(publish.queue)
        drafts = publish.drafts if before is None else [*before.drafts, *publish.drafts]
        together[publish.queue] = msgspec.structs.replace(publish, drafts=drafts)
    return list(together.values())
