"""Pending: the entries of the log that are not committed yet, who asked for each, and what becomes of it.

    enter, follow --> take: committed, in the order of the log, each with whoever asked
    drop_from --> never will be: NOT_LEADER        give_up --> cannot be known in time: UNKNOWN

A part of RaftLog.  Whoever asked is kept beside the entry, never in its bytes, and is answered once.  When a new leader
makes this node drop an entry, another node may still have it and bring it back: the entry is gone for good only once an
entry of a later term is committed.
"""

from collections import deque
from collections.abc import Sequence

from wakeq.actors.mail import LogItem, NoopTicket
from wakeq.protocol.errors import NotLeader, OutcomeUnknown
from wakeq.protocol.log.entries import Entry
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Ticket
from wakeq.protocol.queue.outcomes import Refusal

UNKNOWN = Refusal(
    OutcomeUnknown.code, "the leader changed meanwhile: this may or may not have been done; check, or repeat it"
)
TAKEN_BACK = Refusal(NotLeader.code, "the leader changed meanwhile, and this was not done; repeat it there")


class Pending:
    """Invariant: the items have ascending indexes without a gap, and end where the log ends in memory."""

    def __init__(self) -> None:
        self.items: deque[LogItem] = deque()  # in the log, and not known to be committed
        self._orphans: dict[tuple[int, int], Ticket] = {}  # by index and term: who asked for entries that were dropped

    def enter(self, first_index: int, term: int, at_ms: int, proposals: Sequence[Proposal]) -> None:
        """Add entries of this node's own."""
        items = self.items
        for index, proposal in enumerate(proposals, first_index):
            items.append(LogItem(index, term, at_ms, proposal.entry, proposal.reply_to))

    def follow(self, index: int, term: int, at_ms: int, entry: Entry) -> None:
        """Add an entry of another leader; if it is one that was dropped here, whoever asked for it is found again."""
        reply_to = self._orphans.pop((index, term), None) if self._orphans else None
        self.items.append(LogItem(index, term, at_ms, entry, reply_to))

    def take(self, commit: int) -> list[LogItem]:
        """Return everything up to the commit index, which is pending no longer."""
        pending = self.items
        if pending and pending[-1].index <= commit:
            items = list(pending)
            pending.clear()
        else:
            items = []
            while pending and pending[0].index <= commit:
                items.append(pending.popleft())
        if items and self._orphans:
            self._refuse_orphans_before(items[-1].term)
        return items

    def _refuse_orphans_before(self, term: int) -> None:
        """An entry of this term is committed: what was dropped of earlier terms cannot come back."""
        for key in [key for key in self._orphans if key[1] < term]:
            refuse(self._orphans.pop(key), TAKEN_BACK)

    def drop_from(self, index: int) -> None:
        """Entries from here on are dropped from this log; whether they are lost is not known yet."""
        while self.items and self.items[-1].index >= index:
            item = self.items.pop()
            if item.reply_to is not None:
                self._orphans[item.index, item.term] = item.reply_to

    def forget_no_ops(self) -> None:
        """Let no no-op of this node have it lead, even if it is committed later."""
        self.items = deque(_unasked(item) if type(item.reply_to) is NoopTicket else item for item in self.items)

    def give_up(self, term: int) -> None:
        """Answer UNKNOWN to who asked in a term that is over: they have waited long enough for an outcome."""
        for place, item in enumerate(self.items):
            if item.reply_to is not None and item.term <= term:
                refuse(item.reply_to, UNKNOWN)
                self.items[place] = _unasked(item)
        for key in [key for key in self._orphans if key[1] <= term]:
            refuse(self._orphans.pop(key), UNKNOWN)

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for the outcome of an entry."""
        return any(item.reply_to is not None for item in self.items)


def _unasked(item: LogItem) -> LogItem:
    return LogItem(item.index, item.term, item.at_ms, item.entry)


def refuse(reply_to: Ticket | None, refusal: Refusal) -> None:
    """Refuse an entry to whoever asked for it, if anybody did."""
    if reply_to is not None:
        reply_to.tell(refusal)
