"""Outgoing: what one queue wants of the next write of the log, and how it becomes entries when the log collects.

    take_publishes, propose, note_delivered --> queue.outgoing, queue.delivering --> put_entries --> Proposals

What comes before the log is free to write joins what waits: one entry, not one for each round.  Functions over the
state of a queue process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wakeq.actors.queue import crashing, waiting
from wakeq.protocol.log.entries import (
    Ack,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Entry,
    PauseQueue,
    Publish,
    PurgeQueue,
    Stash,
    Unstash,
    UpdateQueue,
)
from wakeq.protocol.queue.lanes import Acking, AckTickets, Delivering, Filed, Outgoing, Proposal, Rank, Run, Tickets
from wakeq.protocol.queue.orders import Ticket
from wakeq.protocol.queue.outcomes import Refusal

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

ENTRY_MESSAGES_MAX = 4_096  # in one entry that is made of many commands ...
ENTRY_BYTES_MAX = 1 << 20  # ... and of their bodies
DESERTED_AFTER_S = 1.0  # after a write to a queue that does not exist, its process ends unless there is a queue by then


class Creating(msgspec.Struct, frozen=True, gc=False):
    """The ticket of a queue with this node's defaults, for which nobody has asked."""

    refused: Callable[[], None]

    def tell(self, answer: Any) -> None:
        """Take the outcome."""
        if isinstance(answer, Refusal):
            self.refused()


def take_publishes(queue: QueueProcess, filed: Filed) -> None:
    """Make entries of publishes: one of each run, one of each that is a whole."""
    defaults = queue.services.defaults
    creates = not queue.ledger.id and any([isinstance(one, Run) or not one.entry.must_exist for one in filed.publishes])
    if creates and not queue.is_creating and defaults is not None:
        queue.is_creating = True
        put(queue, Rank.PUBLISH, CreateQueue(queue.name, defaults), Creating(partial(_create_again, queue)))
    if queue.outgoing is None:
        queue.outgoing = []
    before = len(queue.outgoing)
    for one in filed.publishes:
        if not isinstance(one, Run):
            queue.outgoing.append(Outgoing(Rank.PUBLISH, one.entry, one.slot))
            continue
        last = last_of(queue, Rank.PUBLISH) if queue.outgoing else None
        if isinstance(last, Run) and (last.door, last.session_id) == (one.door, one.session_id):
            last.join(one)
        else:
            queue.outgoing.append(Outgoing(Rank.PUBLISH, one, None))
    filed.publishes = []
    if len(queue.outgoing) > before:  # else all of them joined what waits already
        queue.services.raft_log.enlist(queue)


def _create_again(queue: QueueProcess) -> None:
    """The log has refused the queue: whoever publishes next has it created."""
    queue.is_creating = False


def last_of(queue: QueueProcess, rank: Rank) -> Any:
    """Return the last of this rank that waits for the log, None if there is none."""
    for wanted in reversed(queue.outgoing or ()):
        if wanted.rank is rank:
            return wanted.entry
    return None


def put(queue: QueueProcess, rank: Rank, entry: Entry | Run | Acking, ticket: Ticket | None = None) -> None:
    if queue.outgoing is None:
        queue.outgoing = []
    queue.outgoing.append(Outgoing(rank, entry, ticket))
    queue.services.raft_log.enlist(queue)


def propose(queue: QueueProcess, entry: Entry, ticket: Ticket | None = None, *, behind_acks: bool = False) -> None:
    """Have an entry in the next write of the log, before the acknowledgements of this queue or behind them."""
    changes_all = isinstance(entry, CreateQueue | UpdateQueue | DeleteQueue | PurgeQueue | PauseQueue)
    if changes_all or isinstance(entry, Stash | Unstash) or (type(entry) is Ack and entry.publishes):
        put(queue, Rank.BEHIND, entry, ticket)
    else:
        put(queue, Rank.ACK if behind_acks else Rank.BEFORE, entry, ticket)


def note_delivered(
    queue: QueueProcess, numbers: list[int], untils_ms: list[int], first: int, workers: Sequence[int], door: int
) -> None:
    """Have deliveries in the log that nobody waits for: they ride with what is written next."""
    queue_id = queue.ledger.id
    if queue.delivering is None:
        queue.delivering = []
    last = queue.delivering[-1] if queue.delivering else None
    if (
        last is not None
        and last.queue_id == queue_id
        and last.door == door
        and last.first_sequence + len(last.numbers) == first
        and len(last.numbers) + len(numbers) <= ENTRY_MESSAGES_MAX
    ):
        last.numbers += numbers
        last.untils_ms += untils_ms
        last.workers += workers
    else:
        # A list of its own: it grows, and the leases have kept the other one.
        queue.delivering.append(Delivering(queue_id, door, first, [*numbers], untils_ms, list(workers)))
    queue.services.raft_log.enlist(queue, lazy=True)


def propose_delivered(
    queue: QueueProcess,
    numbers: list[int],
    untils_ms: list[int],
    first: int,
    workers: list[int],
    door: int,
    ticket: Ticket | None,
) -> None:
    """Have deliveries in the log that leave only when that is committed."""
    worker, each = _one_or_each(workers)
    entry = Delivered(queue.name, queue.ledger.id, numbers, untils_ms, first, worker, door, each)
    put(queue, Rank.BEFORE, entry, ticket)


def put_entries(queue: QueueProcess, items: list[Proposal], behind: list[Proposal]) -> None:
    """Add what this queue wants of this write of the log, and what must stand behind all queues' entries.

    If this fails, what was added does not count, and everything is still here.
    """
    for sent in queue.delivering or ():
        worker, workers = (sent.workers[0], ()) if len(sent.workers) == 1 else _one_or_each(sent.workers)
        entry = Delivered(
            queue.name, sent.queue_id, sent.numbers, sent.untils_ms, sent.first_sequence, worker, sent.door, workers
        )
        items.append(Proposal(entry))
    outgoing = queue.outgoing
    if outgoing is None:
        queue.delivering = None
        return
    if not queue.ledger.id:  # the log may refuse all of it, or it may be about a queue that is unknown
        queue.services.later(DESERTED_AFTER_S, lambda: waiting.end_if_deserted(queue))
    if len(outgoing) > 1:
        outgoing.sort(key=_rank_of)
    for wanted in outgoing:
        one = wanted.entry
        if type(one) is Run and len(one.drafts) == 1:
            items.append(Proposal(_entry_of(queue, one), Tickets(one.slots)))
        elif type(one) is Acking and len(one.numbers) == 1:
            items.append(_ack_of(queue, one, 0, 1))
        else:
            (behind if wanted.rank is Rank.BEHIND else items).extend(_entries_of(queue, wanted))
    queue.delivering = queue.outgoing = None


def take_entries(queue: QueueProcess, refusal: Refusal) -> list[Proposal]:
    """Return what this queue wants of the log; refuse what no entry can be made of, which was never in it."""
    delivering, outgoing = queue.delivering or [], queue.outgoing or []
    with suppress(Exception):
        return _made(queue)
    # One by one, for they fail together; whoever has this queue end has logged why.
    entries: list[Proposal] = []
    for sent in delivering:
        queue.delivering, queue.outgoing = [sent], None
        with suppress(Exception):
            entries += _made(queue)
    for wanted in sorted(outgoing, key=_rank_of):
        queue.delivering, queue.outgoing = None, [wanted]
        try:
            entries += _made(queue)
        except Exception:
            made_of = wanted.entry
            for slot in made_of.slots if isinstance(made_of, Run | Acking) else crashing.answered_by(wanted.ticket):
                slot.tell(refusal)
    queue.delivering = queue.outgoing = None
    return entries


def _made(queue: QueueProcess) -> list[Proposal]:
    items: list[Proposal] = []
    behind: list[Proposal] = []
    queue.put_entries(items, behind)
    return items + behind


def _entries_of(queue: QueueProcess, wanted: Outgoing) -> Iterator[Proposal]:
    """Yield what waits for the log as entries, none of them larger than its bounds."""
    entry = wanted.entry
    if isinstance(entry, Run):
        is_small = (
            len(entry.drafts) <= ENTRY_MESSAGES_MAX and sum([len(d.body) for d in entry.drafts]) <= ENTRY_BYTES_MAX
        )
        for run in (entry,) if is_small else _parts_of(entry):
            yield Proposal(_entry_of(queue, run), Tickets(run.slots))
    elif isinstance(entry, Acking):
        for start in range(0, len(entry.numbers), ENTRY_MESSAGES_MAX):
            yield _ack_of(queue, entry, start, start + ENTRY_MESSAGES_MAX)
    else:
        yield Proposal(entry, wanted.ticket)


def _ack_of(queue: QueueProcess, acking: Acking, start: int, end: int) -> Proposal:
    slots = acking.slots[start:end]
    worker, workers = (slots[0].session.number, ()) if len(slots) == 1 else _workers_of(slots)
    entry = Ack(
        queue.name,
        acking.queue_id,
        acking.numbers[start:end],
        acking.tokens[start:end],
        [],
        {at - start: uid for at, uid in acking.foreign.items() if start <= at < end} if acking.foreign else {},
        worker=worker,
        door=acking.door,
        workers=workers,
    )
    return Proposal(entry, AckTickets(slots, acking.keep_leased))


def _entry_of(queue: QueueProcess, run: Run) -> Publish:
    assert len(run.drafts) == len(run.slots), "each publish has one slot"
    slots = run.slots
    if run.session_id or len(slots) == 1:  # a client that has connected again within a round is one client
        worker = slots[-1].session.number
        workers: Sequence[int] = ()
    else:
        worker, workers = _workers_of(slots)
    return Publish(
        queue.name,
        run.drafts,
        session=run.session_id,
        ordinals=run.ordinals,
        door=run.door,
        worker=worker,
        workers=workers,
        alike=run.is_alike,
    )


def _rank_of(wanted: Outgoing) -> Rank:
    return wanted.rank


def _workers_of(slots: Sequence[Any]) -> tuple[int, Sequence[int]]:
    """Return the connection of all slots, or 0 and that of each."""
    return _one_or_each([slot.session.number for slot in slots])


def _one_or_each(workers: list[int]) -> tuple[int, Sequence[int]]:
    first = workers[0]
    return (first, ()) if workers.count(first) == len(workers) else (0, workers)


def _parts_of(run: Run) -> list[Run]:
    """Cut a run that is too large for one entry."""
    parts: list[Run] = []
    start = size = 0
    for place, draft in enumerate(run.drafts):
        if place > start and (place - start >= ENTRY_MESSAGES_MAX or size + len(draft.body) > ENTRY_BYTES_MAX):
            parts.append(_part_of(run, start, place))
            start, size = place, 0
        size += len(draft.body)
    return [*parts, _part_of(run, start, len(run.drafts))]


def _part_of(run: Run, start: int, end: int) -> Run:
    ordinals = run.ordinals[start:end]
    about = run.position, run.door, run.session_id, run.is_alike
    return Run(*about, run.drafts[start:end], ordinals, run.slots[start:end])
