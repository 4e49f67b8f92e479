"""Applier: has queues apply committed entries in the order of the log, and knows what each of them was told.

    committed items --> catalog --> each queue applies its own, in one call --> outcomes into slots
                    --> an entry that names several queues: all of them apply it, or none (barrier.py)

Queues apply by direct call, in the name of their own process: what one raises ends that process only.  What the queue
was told is kept until a flush holds it, so that the queue can be rebuilt.

An entry about very many messages is applied in steps, between which others have their turns.  Until its last step the
queue is held: it handles no mail, and entries that come later wait here, as do a barrier that names it and a flush.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from wakeq.actors.mail import LogItem, Propose
from wakeq.actors.queue.acknowledging import REFUSED_ID
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.barrier import (
    ANSWERED_PART,
    Part,
    PartTicket,
    judged_parts,
    parts_of,
    verdict,
    whole_outcome,
)
from wakeq.actors.queues.catalog import QueueCatalog
from wakeq.actors.queues.processes import QueueProcesses
from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Imported,
    Members,
    Noop,
    PauseQueue,
    Publish,
    PurgeQueue,
    Released,
    Result,
    SetAside,
    Stash,
    Unstash,
    UpdateQueue,
    makes_queue,
)
from wakeq.protocol.log.outcomes import WHOLE, Note
from wakeq.protocol.queue.lanes import AckTickets, AnswerOnCommit, SharesOnCommit, Tickets, apart
from wakeq.protocol.queue.orders import Ticket
from wakeq.protocol.queue.outcomes import Outcome

DEFAULTS = Policies()  # of a queue that a publish makes; shared by all of them
READ_AGAIN = frozenset({Publish, Delivered, Released, Ack})  # entries that a rebuild can read from the log as they are
CATALOG_ENTRIES = frozenset({CreateQueue, UpdateQueue, DeleteQueue, PurgeQueue, PauseQueue, Members})

logger = logging.getLogger("wakeq.queues")

# What a queue was told: an entry with its ticket, or the bare index of one that can be read from the log as it is.
Told = LogItem | int


class Stepping(msgspec.Struct, eq=False):
    """A queue that applies an entry in steps."""

    process: QueueProcess
    # What it was given in one call, and still has to do the end of.
    items: list[LogItem]
    # How much it was told before that.
    told_before: int
    # Entries that came meanwhile.
    behind: list[LogItem]


class Hold(Enum):
    """Why nothing is applied for a while."""

    FLUSH = "the queues are being asked for what a flush writes"
    BARRIER = "a queue has crashed over its part of an entry that names several, or applies it in steps"
    REBUILD = "a queue that has crashed is being read again"


class Applier:
    """Applies what is committed, unless something holds it up."""

    def __init__(
        self,
        runtime: Runtime,
        raft_log: Process,
        catalog: QueueCatalog,
        processes: QueueProcesses,
        skipped: SkippedEntries,
        applied: tuple[int, int, int],
        on_set_aside: Callable[[SetAside, LogItem], None],
    ) -> None:
        # Index, term and moment of the last entry that was given to its queues.
        self.applied = applied
        # What is committed and was not given to its queues yet, a list for each write of the log.
        self.waiting: deque[list[LogItem]] = deque()
        # Why nothing is applied at this moment.
        self.held_by: set[Hold] = set()
        # Queues that apply an entry in steps, those whose turn comes next first.
        self.stepping: dict[str, Stepping] = {}
        # What each queue was told since the last flush began, to rebuild it.
        self.told: dict[str, list[Told]] = {}
        # Queues that flushes have written since the last look at them (sampler.py); None if nobody looks.
        self.touched: set[str] | None = None
        # Entries since the last flush that did not do what they ask for.
        self.notes: list[Note] = []
        # Entries with which this node begins to lead, once the queues know what stands before them.
        self.noops: list[LogItem] = []
        self._runtime = runtime
        self._raft_log = raft_log
        self._catalog = catalog
        self._processes = processes
        self._skipped = skipped
        # Hears of each SetAside, at its place in the log.
        self._on_set_aside = on_set_aside

    # --- in the order of the log -------------------------------------------------------------------------------------

    def apply(self, items: list[LogItem]) -> int:
        """Have the queues apply entries, up to one that cannot be applied yet; return how many are done."""
        batches: dict[str, list[LogItem]] = {}
        exists, skipped = self._catalog.catalog.queues, self._skipped.indexes
        for place, item in enumerate(items):
            entry = item.entry
            if item.index in skipped:
                self._pass_over(item, batches)
            elif (type(entry) is Ack and entry.publishes) or (type(entry) is Unstash and entry.sources):
                if batches:
                    self._apply_batches(batches)
                    batches = {}
                if not self._apply_barrier(item, entry):
                    if place:
                        self._note_applied(items[place - 1])
                    return place
                if self.held_by:
                    self._note_applied(item)
                    return place + 1
            elif type(entry) is SetAside and batches:  # first have the queues apply what stands before it
                self._apply_batches(batches)
                self._note_applied(items[place - 1])
                return place
            elif (type(entry) in READ_AGAIN and entry.queue in exists) or self._route(item, batches):
                mine = batches.get(entry.queue)
                if mine is None:
                    batches[entry.queue] = [item]
                else:
                    mine.append(item)
        for name, mine in batches.items():
            self.apply_in(name, mine)
        last = items[-1]
        self.applied = last.index, last.term, last.at_ms
        return len(items)

    def _note_applied(self, item: LogItem) -> None:
        self.applied = item.index, item.term, item.at_ms

    def _apply_batches(self, batches: dict[str, list[LogItem]]) -> None:
        for name, items in batches.items():
            self.apply_in(name, items)

    def apply_in(self, name: str, items: list[LogItem], *, is_done: bool = False) -> bool:
        """Have a queue apply entries now; return False if it cannot: it gets them when it is rebuilt.

        With `is_done` the queue has just applied them in steps, and they are only kept.
        """
        if self.stepping and name in self.stepping:
            self.stepping[name].behind += items
            return True
        told = self.told.get(name)
        if told is None:
            told = self.told[name] = []
        process = self._processes.by_name.get(name)
        is_away = process is None or name in self._processes.away
        if is_away or process is None or not (is_done or self._runtime.run_in(process, process.apply, items)):
            told += items  # whole, with their tickets: the rebuilt queue answers
            return False
        if process.steps is not None:
            self.stepping[name] = Stepping(process, items, len(told), [])
            told += items  # whole until the last step: the queue may crash over each of them
            return True
        # Most entries can be read from the log again, so only their index is kept; and no ticket that was answered.
        for item in items:
            if type(item.entry) in READ_AGAIN and type(item.reply_to) is not PartTicket:
                told.append(item.index)
            else:
                answered = ANSWERED_PART if type(item.reply_to) is PartTicket else None
                told.append(LogItem(item.index, item.term, item.at_ms, item.entry, answered))
        return True

    # --- in steps ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Have the queue whose turn it is take one step; behind its last one it applies what came meanwhile."""
        name = next(iter(self.stepping))
        one = self.stepping.pop(name)
        if not self._runtime.run_in(one.process, one.process.step):
            self.told[name] += one.behind  # whole: its successor applies them
        elif one.process.steps is not None:
            self.stepping[name] = one
        else:
            del self.told[name][one.told_before :]
            self.apply_in(name, one.items, is_done=True)
            self.apply_left(name, one.behind)

    def forget_steps(self, name: str) -> None:
        """A queue has crashed: its successor applies all of it."""
        one = self.stepping.pop(name, None)
        if one is not None:
            self.told[name] += one.behind

    def apply_left(self, name: str, items: list[LogItem]) -> bool:
        """Have a queue apply entries that have waited, but for those that are skipped meanwhile."""
        for item in items:
            if not self._is_left(item):
                self._answer_skipped(item)
        left = [item for item in items if self._is_left(item)]
        return not left or self.apply_in(name, left)

    def _route(self, item: LogItem, batches: dict[str, list[LogItem]]) -> bool:
        """Update the catalog; return whether there is a queue that has to apply the entry."""
        entry = item.entry
        kind = type(entry)
        if isinstance(entry, Publish | Stash) or makes_queue(entry):
            if entry.queue not in self._catalog.catalog.queues:
                if isinstance(entry, Publish) and entry.must_exist:
                    self._refuse(item, Result.NO_QUEUE, len(entry.drafts))
                    return False
                batches.setdefault(entry.queue, []).append(self._create(entry.queue, item))
            return True
        if kind in CATALOG_ENTRIES:
            declined = self._catalog.change(item)
            if declined is not None:
                answer(item.reply_to, declined.answer)
                if declined.code:
                    self.notes.append((item.index, WHOLE, declined.code))
            return declined is None
        if isinstance(entry, SetAside):
            self._on_set_aside(entry, item)
            return False
        if isinstance(entry, Noop):
            # The first entry of a term, or of a rebuilt queue: the node that proposed it, and so has an asker, leads.
            if item.reply_to is not None:
                self.noops.append(item)
            return False
        if isinstance(entry, Imported):
            return False
        if entry.queue in self._catalog.catalog.queues:
            return True
        self._refuse(item, Result.UNKNOWN, len(getattr(entry, "numbers", ())) or 1)
        return False

    def _create(self, name: str, item: LogItem) -> LogItem:
        """Create a queue that an entry needs; return what the queue has to apply first."""
        self._catalog.create(name, DEFAULTS, item)
        return LogItem(item.index, item.term, item.at_ms, CreateQueue(name, DEFAULTS))

    def _refuse(self, item: LogItem, result: Result, count: int) -> None:
        """No queue applies an entry: answer whoever asked, and note it for the readers of the log."""
        answer(item.reply_to, Outcome(item.entry.queue, 0, [int(result)] * count))
        self.notes.append((item.index, WHOLE, int(result)))

    # --- entries that are skipped ------------------------------------------------------------------------------------

    def skip(self, entry: SetAside) -> None:
        """Skip an entry from now on."""
        logger.error(
            "skipping entry %d of queue %r, which crashed the queue: %s", entry.index, entry.queue, entry.reason
        )
        self._skipped.skip(entry)
        self.notes.append((entry.index, WHOLE, int(Result.SET_ASIDE)))

    def _pass_over(self, item: LogItem, batches: dict[str, list[LogItem]]) -> None:
        """Do nothing of an entry that is skipped, except create its queues: other entries may rely on them.

        A queue that has not crashed over it must hear that the messages, which it has marked, stay leased.
        """
        exists = self._catalog.catalog.queues
        for name in _made_by(item.entry):
            if name not in exists:
                batches.setdefault(name, []).append(self._create(name, item))
        entry = item.entry
        if type(entry) is Ack and entry.publishes and entry.queue in exists:
            batches.setdefault(entry.queue, []).append(_refused(item, entry))
        foreseen = self._skipped.take_foreseen(item.index)
        if foreseen is not None:
            self.skip(foreseen)
        self._answer_skipped(item)

    def _answer_skipped(self, item: LogItem) -> None:
        """Tell whoever asked for this entry that it is skipped, for each item in it.

        What many connections share is proposed again first, one entry for each: only one of them has said what crashes.
        """
        entry, asker = item.entry, item.reply_to
        parts = apart(entry, asker)
        if parts and self._processes.term:
            self._raft_log.tell(Propose(parts))
            return
        count = len(getattr(entry, "drafts", ()) or getattr(entry, "numbers", ())) or 1
        answer(asker, Outcome(entry.queue, 0, [Result.SET_ASIDE] * count))

    def _is_left(self, item: LogItem) -> bool:
        """Whether an item is to be applied; creating a queue is, even if the entry it came with is skipped."""
        return item.index not in self._skipped.indexes or type(item.entry) is CreateQueue

    def told_since_flush(self, index: int) -> dict[str, list[Told]]:
        """Return the queues that were told an entry which no flush has, not even one that is being collected."""
        owed = {name: [one for one in told if _index_of(one) == index] for name, told in self.told.items()}
        return {name: told for name, told in owed.items() if told}

    # --- entries that name several queues ----------------------------------------------------------------------------

    def _apply_barrier(self, item: LogItem, entry: Ack | Unstash) -> bool:
        """All queues that an entry names apply it, or none does; False if one of them cannot be asked now."""
        index, exists, processes = item.index, self._catalog.catalog.queues, self._processes
        to_judge = judged_parts(entry)
        missing = 0
        for part in to_judge:
            if part.queue not in exists:
                missing += 1
                continue
            process = processes.by_name.get(part.queue)
            if process is None or part.queue in processes.away or part.queue in self.stepping or not process.alive:
                return False
        codes: list[int] = []
        for part in to_judge:
            if part.queue in exists:
                asked = processes.by_name[part.queue]
                try:
                    asked.applying = index  # a queue that always crashes over this must not end every node
                    codes.append(asked.judge(part, item.at_ms))
                    asked.applying = 0
                except Exception as error:
                    self._runtime.end(asked, error)
                    return False
            else:
                codes.append(_without_queue(part, entry))
        # One index is an id for one new queue only; whoever asks creates the rest.
        if isinstance(entry, Ack) and missing > 1 and not codes[0]:
            codes.insert(0, Result.REJECTED)
        code = verdict(entry, codes)
        if code:
            answer(item.reply_to, Outcome(entry.queue, 0, [int(code)]))
            self.notes.append((index, WHOLE, int(code)))
            if isinstance(entry, Ack) and entry.queue in exists:
                self.apply_in(entry.queue, [_refused(item, entry)])
            return True
        tickets: list[PartTicket] = []
        for part in parts_of(entry):
            if isinstance(part, Claim) and part.queue not in exists:
                continue  # the entry is a repetition, and there is nothing to note any more
            ticket = PartTicket()
            tickets.append(ticket)
            mine = [LogItem(index, item.term, item.at_ms, part, ticket)]
            if part.queue not in exists:
                mine.insert(0, self._create(part.queue, item))
            self.apply_in(part.queue, mine)
        outcome = whole_outcome(tickets)
        if outcome is None:  # a queue has crashed over its part, or has steps to take: nothing may depend on the entry
            self.held_by.add(Hold.BARRIER)
            for ticket in tickets:
                ticket.late = partial(self._end_barrier, item, tickets)
        elif item.reply_to is not None:
            item.reply_to.tell(outcome)
        return True

    def _end_barrier(self, item: LogItem, tickets: list[PartTicket]) -> None:
        """A queue has applied its part later than others: answer, unless the part of another one is missing."""
        outcome = whole_outcome(tickets)
        if outcome is not None:
            if item.reply_to is not None:
                item.reply_to.tell(outcome)
            self.held_by.discard(Hold.BARRIER)


def answer(reply_to: Ticket | None, outcome: Any) -> None:
    """Answer for a queue that does not exist, or that an entry was not given to."""
    if reply_to is None:
        return
    if isinstance(reply_to, Tickets | AckTickets) and type(outcome) is Outcome:
        for slot, code in zip(reply_to.slots, outcome.results, strict=True):
            slot.tell(int(code))
        return
    if type(reply_to) is AnswerOnCommit:
        reply_to.tell(reply_to.if_void)
    else:
        reply_to.tell(None if type(reply_to) is SharesOnCommit else outcome)


def _without_queue(part: Part, entry: Ack | Unstash) -> int:
    """Return what a queue that does not exist says to its part of an entry."""
    if isinstance(part, Claim):  # its messages may be anywhere
        return Result.EPOCH_EXPIRED
    if part is not entry or makes_queue(entry):
        return Result.DONE
    return Result.UNKNOWN  # the queue of the acknowledged message is gone, and the message with it; or the stashes


def _index_of(told: Told) -> int:
    return told if isinstance(told, int) else told.index


def is_part(told: Told) -> bool:
    """Whether it is one part of an entry that names several queues."""
    return not isinstance(told, int) and type(told.reply_to) is PartTicket


def _refused(item: LogItem, entry: Ack) -> LogItem:
    """Return what tells the queue of an acknowledgement that it was refused, with what it publishes."""
    refused = msgspec.structs.replace(entry, publishes=[], queue_id=REFUSED_ID, foreign={})
    return LogItem(item.index, item.term, item.at_ms, refused, ANSWERED_PART)


def _made_by(entry: Any) -> list[str]:
    """Return the queues that an entry creates if they are missing."""
    match entry:
        case Stash() | Publish(must_exist=False):
            return [entry.queue]
        case Unstash() if makes_queue(entry):
            return [entry.queue]
        case Ack():
            return [publish.queue for publish in entry.publishes]
    return []
