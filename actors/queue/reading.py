"""Reading: bodies of a queue that are not in memory.

    numbers, what to do with their bodies --> the reader thread --Loaded--> that is done, unless nobody waits any more

Functions over the state of a queue process.  They never touch a file, and leave nobody waiting for a read that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wakeq.actors.mail import Loaded
from wakeq.actors.queue import fetching, waiting
from wakeq.actors.runtime import Process, Timers
from wakeq.protocol.catalog import Policies
from wakeq.protocol.queue.bodies import Found, read_from
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.ledger.ledger import Totals
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.timings import Timings
from wakeq.storage.state.checkpoint import key_of, keys_of

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess
    from wakeq.actors.queues.lobby import Lobby
    from wakeq.actors.queues.readings import Readings

BODIES_AHEAD = 256  # bodies to read ahead at first ...
BODIES_AHEAD_MAX = 1_024  # ... and at most, on a queue that is emptied fast: each read is a hand-over to a thread
READ_AHEAD_BYTES_MAX = 1 << 20


class QueueProcessServices(NamedTuple):
    """What a queue process is given to work with."""

    raft_log: Any  # RaftLog: takes entries, and says whether this node serves
    timers: Timers
    now_ms: Callable[[], int]
    due_ms: Callable[[int], int]  # the moment from which on a delay of so many milliseconds is surely over
    load: Callable[[Process, list[int], list[bytes], Any], None]  # read bodies; the answer is a Loaded
    later: Callable[[float, Callable[[], None]], Any]
    chance: Callable[[], float]
    refusal: Callable[[], Refusal | None]  # why nothing may be delivered at this moment
    waits_since_ms: Callable[[], int]  # since when the log has waited for the oldest of what is not committed
    free_bytes: Callable[[], int]  # of the disk
    lobby: Lobby  # where the lanes of every queue are
    readings: Readings  # who reads which queue
    timings: Timings  # of all queues together
    sums: Totals  # what ever happened in all queues, since this node began to read its log
    is_catching_up: Callable[[], bool] = lambda: False  # whether this node still copies what it has missed
    exists: Callable[[str], bool] = lambda name: True  # whether a queue is in the catalog
    is_dead_letter: Callable[[str], bool] = lambda name: False  # whether dead letters of other queues go there
    defaults: Policies | None = None  # of a queue that a publish creates; None: the built-in ones


class BodyLookup(msgspec.Struct, gc=False, eq=False):
    """Something to do with messages once they are read, and whom to refuse if that does not happen."""

    step: Callable[[Found], None]
    asker: ReplyTo | None


def _keys_of(queue: QueueProcess, numbers: Sequence[int]) -> list[bytes]:
    """Return the keys of these messages in the state store."""
    if queue.ledger.columns.aliased:
        return [key_of(queue.name, uid) for uid in queue.uids_of(numbers)]
    return keys_of(queue.name, queue.uids_of(numbers))


def read(queue: QueueProcess, numbers: list[int], ticket: fetching.DelayedFetch | BodyLookup | None) -> None:
    """Have bodies read for a fetch or a lookup, or (None) ahead."""
    queue.services.load(queue, numbers, _keys_of(queue, numbers), (queue.ledger.id, ticket))


def read_on(queue: QueueProcess) -> None:
    """Half of what was read ahead has left: read on before all of it has."""
    if len(queue.bodies) < queue.ledger.columns.living:
        queue.ahead = min(2 * queue.ahead, BODIES_AHEAD_MAX)
        read_ahead(queue)
    else:
        queue.since_read = 0  # all are in memory: look again when as many more have left


def read_ahead(queue: QueueProcess) -> None:
    """Have the bodies of the next in line read before somebody asks for them."""
    queue.since_read = 0
    if queue.is_reading_ahead or queue.leases is None:
        return
    living = queue.ledger.columns.living_among(queue.leases.next_numbers(queue.ahead))
    ahead = queue.bodies.missing(living[: queue.ledger.columns.count_within(living, READ_AHEAD_BYTES_MAX)])
    if ahead:
        queue.is_reading_ahead = True
        read(queue, ahead, None)


def on_loaded(queue: QueueProcess, message: Loaded) -> None:
    queue_id, ticket = message.ticket
    if ticket is None:
        queue.is_reading_ahead = False
    if queue_id != queue.ledger.id:  # of an earlier incarnation; whoever waited for it has an answer
        return
    found = read_from(message.numbers, message.values, queue.ledger.columns, queue.name)
    if type(ticket) is BodyLookup:
        if queue.lookups and queue.lookups.pop(id(ticket), None) is not None:  # else it was refused meanwhile
            ticket.step(found)
        return
    queue.bodies.load(found)
    if ticket is not None:
        fetching.on_bodies_read(queue, ticket)


def with_found(
    queue: QueueProcess, numbers: Sequence[int], asker: ReplyTo | None, step: Callable[[Found], None]
) -> None:
    """Do a step with these messages, at once or when they are read; what is read for it is not kept in memory."""
    # Kept here, because they may be dropped while the rest is read.
    found = queue.bodies.kept_among(numbers)
    missing = [number for number in numbers if number not in found] if found else list(numbers)
    if missing:
        lookup = BodyLookup(lambda more: step(found | more if found else more), asker)
        if queue.lookups is EMPTY_DICT:
            queue.lookups = {}
        queue.lookups[id(lookup)] = lookup
        read(queue, missing, lookup)
    else:
        step(found)


def give_up_reads(queue: QueueProcess, why: str) -> None:
    """Wait for no body any more: fetches with wait go on waiting, all others are answered."""
    delayed = list(queue.delayed_fetches)
    if delayed:
        queue.delayed_fetches.clear()
    for fetch in delayed:
        waiting.keep_waiting(queue, fetch.waiter, queue.now_ms())
    refuse_lookups(queue, Refusal("BUSY", f"{why}; try again"))


def refuse_lookups(queue: QueueProcess, refusal: Refusal) -> None:
    """Refuse everything that waits for bodies: its answer might no longer be true when they arrive."""
    looks, queue.lookups = queue.lookups, EMPTY_DICT
    for lookup in looks.values():
        if lookup.asker is not None:
            lookup.asker.tell(refusal)
