"""Leading: what begins and ends with the leadership of a node in one queue.

    Lead --> leases are made of the ledger          Follow --> whatever waits is refused, sleepers are woken

Functions over the state of a queue process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wakeq.actors.mail import Follow, Woken
from wakeq.actors.queue import fetching, reading, staging, waiting
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.leases.leases import Leases

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess


class Lead(msgspec.Struct, frozen=True, gc=False):
    """This node leads in `term`: deliver messages."""

    term: int
    first_sequence: int = 0  # a queue that is rebuilt within a term must not give out the same tokens again


def on_lead(queue: QueueProcess, message: Lead) -> None:
    queue.term = message.term
    queue.is_creating = False
    queue.leases = Leases(queue.ledger, message.term, queue.now_ms())
    queue.leases.sequence = message.first_sequence
    queue.counted_from = (queue.wakes, message.first_sequence)
    staging.watch_all(queue)
    waiting.serve_and_wake(queue, queue.now_ms())
    if queue.lanes.filed is not None:
        queue.tell(TAKE_TURN)


def on_follow(queue: QueueProcess, message: Follow) -> None:
    """This node leads no longer: refuse what waits and wake sleepers, so that they go to the new leader."""
    leases, queue.leases = queue.leases, None
    queue.term = 0
    queue.is_creating = False
    queue.refuse_filed(message.refusal)
    if leases is None:
        return
    for session in (*leases.audience.sleepers, *leases.audience.woken):
        session.tell(Woken(queue.name))
    for waiter in leases.audience.all_waits():
        waiter.asker.tell(message.refusal)
    fetching.refuse_delayed(queue, message.refusal)
    queue.promised = EMPTY_DICT
    reading.refuse_lookups(queue, message.refusal)
