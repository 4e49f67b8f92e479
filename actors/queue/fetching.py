"""Fetching: how one queue delivers messages, who waits for them, who sleeps and is woken.

    reads and Fetch of a turn --> leases, bodies --> deliveries at once; Delivered goes to the log

The leader answers from memory, ahead of its log by AHEAD_MS at most.  Functions over the state of a queue process; they
never touch a file: bodies that are no longer in memory arrive as mail from the reader thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from wakeq.actors.queue import outgoing, reading, waiting
from wakeq.protocol.log.entries import Ack, Draft
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.lanes import AnswerOnCommit, Filed, SharesOnCommit
from wakeq.protocol.queue.leases.audience import Waiter
from wakeq.protocol.queue.ledger.results import maker_of
from wakeq.protocol.queue.outcomes import Delivery, HandedOver, Refusal
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

AHEAD_MS = 100  # a fast queue delivers ahead of its log while nothing has waited longer than this for its commit
TOGETHER_MAX = 4_096  # messages that several fetches take together: they become one entry of the log
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it


class Turn(msgspec.Struct, gc=False, eq=False):
    """A fetch whose messages were taken out of the line, but wait for a read, their own or that of an earlier fetch."""

    numbers: list[int]
    waiter: Waiter  # the fetch; one without `wait` has a time that is already over
    is_read_for: bool  # its own bodies are being read


# --- fetching --------------------------------------------------------------------------------------------------------


def serve(queue: QueueProcess, filed: Filed) -> None:
    """Serve the reads of one turn: FETs together as long as nothing tells them apart, ISLP in its place."""
    refused = queue.refusal()
    reads = filed.reads
    if refused is not None:
        for slot in reads:
            slot.tell(refused)
        reads.clear()
        return
    now_ms = queue.now_ms()
    while reads:
        count = wanted = 0
        for slot in reads:
            command = slot.command
            if type(command) is not wire.Fet or command.wait or command.timeout:
                break
            wanted += command.count or 1
            if wanted > TOGETHER_MAX and count:
                break
            count += 1
        if count and _serve_together(queue, reads[:count], now_ms):
            del reads[:count]
            continue
        for slot in reads[: count or 1]:
            _serve_one(queue, slot, now_ms)
            del reads[0]  # only now: if this crashes the queue, it gets an answer


def _serve_together(queue: QueueProcess, slots: list[Slot], now_ms: int) -> bool:
    """Serve many fetches by one taking, in their order; False, and nothing is done, if they must be served singly."""
    leases, ledger = queue.leases, queue.ledger
    assert leases is not None, "asked before"
    if queue.turns or not ledger.id or not all([slot.session.alive for slot in slots]):
        return False
    counts = [slot.command.count or 1 for slot in slots]
    if ledger.columns.bytes > ANSWER_BYTES_MAX and max(counts) > 1:
        return False
    door = slots[0].session.door_kind
    if len(slots) > 1 and any([slot.session.door_kind != door for slot in slots]):
        return False
    numbers = leases.take(sum(counts), now_ms) if leases.line.count else []
    drafts = queue.bodies.find(numbers) if numbers else []
    if drafts is None:
        leases.put_back(numbers, now_ms)
        return False
    audience = leases.audience
    if audience.woken or audience.sleepers:
        for slot in slots:
            audience.fetched(slot.session)
    if numbers:
        holders = [slot.session for slot, count in zip(slots, counts, strict=True) for _ in range(count)]
        del holders[len(numbers) :]
        workers = [holder.number for holder in holders]
        untils, first = leases.hand_out(numbers, holders, workers, now_ms)
        deliveries = _deliveries(queue, numbers, drafts, untils, first)
        if ledger.policies.lease == "strict" or now_ms - queue.services.waits_since_ms() > AHEAD_MS:
            ticket = SharesOnCommit(slots, counts, deliveries)
            outgoing.propose_delivered(queue, numbers, untils, first, workers, door, ticket)
        else:
            outgoing.note_delivered(queue, numbers, untils, first, workers, door)
            at = 0
            for slot, count in zip(slots, counts, strict=True):
                slot.tell(deliveries[at : at + count] or None)
                at += count
        queue.since_read += len(numbers)
        if queue.since_read >= queue.ahead // 2:
            reading.read_on(queue)
    else:
        for slot in slots:
            slot.tell(None)
    return True


def _serve_one(queue: QueueProcess, slot: Slot, now_ms: int) -> None:
    """Serve one read by itself."""
    leases, command, session = queue.leases, slot.command, slot.session
    assert leases is not None, "asked before"
    match command:
        case wire.Sub():
            return  # the group knows its members, and this process exists now
        case wire.Uns():
            leases.audience.fetched(session)  # it sleeps no longer
            return
        case wire.Islp():
            waiting.sleep(queue, session, slot, only_ready=command.wake == "ready")
            return
    if not session.alive:
        return
    wait_ms, timeout_ms = int(getattr(command, "wait", 0) * 1000), (getattr(command, "timeout", 0) or 0) * 1000
    if not (queue.exists or wait_ms or queue.runtime.groups.count(("subscribers", queue.name))):
        slot.tell(unknown(queue))
        return
    if slot.is_over:
        wait_ms = 0
    leases.audience.fetched(session)
    waiter = Waiter(
        slot, session, command.count or 1, now_ms + wait_ms, session.number, session.door_kind, timeout_ms=timeout_ms
    )
    fetch_one(queue, waiter, now_ms)


def on_fetch(queue: QueueProcess, order: orders.Fetch) -> None:
    """The same for whoever does not speak the worker protocol."""
    asker = order.asker
    refused = queue.refusal()
    if refused is None and not (queue.exists or order.is_subscribed):
        refused = unknown(queue)
    if refused is not None:
        asker.tell(refused)
        return
    leases, session, now_ms = queue.leases, asker.session, queue.now_ms()
    assert leases is not None, "else it was refused"
    leases.audience.fetched(session)
    about = order.count, now_ms + order.wait_ms, session.number, session.door_kind, order.removes
    fetch_one(queue, Waiter(asker, session, *about), now_ms)


def unknown(queue: QueueProcess) -> Refusal:
    return Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist; publish to it or subscribe first")


def fetch_one(queue: QueueProcess, waiter: Waiter, now_ms: int) -> None:
    """Deliver what one fetch asks for, let it wait, or answer that there is nothing."""
    leases = queue.leases
    assert leases is not None, "asked before"
    numbers = take(queue, waiter.count, now_ms) if leases.line.count else []
    if numbers:
        hand_out(queue, numbers, waiter, now_ms)
    elif waiter.until_ms > now_ms and waiter.session.alive:
        leases.audience.wait(waiter)
    else:
        waiter.asker.tell(None)


def take(queue: QueueProcess, count: int, now_ms: int) -> list[int]:
    """Take up to `count` messages out of the line, but no more than fit into one answer."""
    leases, ledger = queue.leases, queue.ledger
    assert leases is not None, "only a leader delivers"
    numbers = leases.take(count, now_ms)
    if len(numbers) > 1 and ledger.columns.bytes > ANSWER_BYTES_MAX:
        fit = max(1, ledger.columns.count_within(numbers, ANSWER_BYTES_MAX))
        leases.put_back(numbers[fit:], now_ms)
        del numbers[fit:]
    return numbers


def hand_out(queue: QueueProcess, numbers: list[int], waiter: Waiter, now_ms: int) -> None:
    """Deliver messages that were taken out of the line; first read what is not in memory.

    While one fetch waits for a read, later ones wait behind it: otherwise newer messages would leave before older ones.
    """
    missing = queue.bodies.missing(numbers)
    if not (missing or queue.turns):
        _deliver(queue, numbers, waiter, now_ms)
        return
    turn = Turn(numbers, waiter, bool(missing))
    if queue.turns is EMPTY_DICT:
        queue.turns = deque()
    queue.turns.append(turn)
    if missing:
        reading.read(queue, missing, turn)


def _deliver(queue: QueueProcess, numbers: list[int], waiter: Waiter, now_ms: int) -> None:
    leases = queue.leases
    assert leases is not None, "only a leader delivers"
    if not waiter.session.alive:
        leases.put_back(numbers, now_ms)
        return
    if waiter.removes:
        _hand_over(queue, numbers, waiter)
        return
    count, worker = len(numbers), waiter.worker
    untils, first = leases.hand_out(numbers, [waiter.session] * count, [worker] * count, now_ms, waiter.timeout_ms)
    deliveries = _deliveries(queue, numbers, queue.bodies.get_many(numbers), untils, first)
    if _must_wait(queue, now_ms):
        ticket = AnswerOnCommit(waiter.asker, deliveries, None, _promise(queue, waiter, now_ms))
        outgoing.propose_delivered(queue, numbers, untils, first, [worker] * count, waiter.door, ticket)
    else:
        waiter.asker.tell(deliveries)
        outgoing.note_delivered(queue, numbers, untils, first, [worker] * count, waiter.door)
    queue.since_read += count
    if queue.since_read >= queue.ahead // 2:
        reading.read_on(queue)


def _must_wait(queue: QueueProcess, now_ms: int) -> bool:
    """Whether a delivery may leave only once it is committed."""
    if queue.ledger.policies.lease == "strict":
        return True
    return now_ms - queue.services.waits_since_ms() > AHEAD_MS  # the disk or the majority does not answer


def _promise(queue: QueueProcess, waiter: Waiter, now_ms: int) -> Waiter | None:
    """Remember a fetch that is to go on waiting if its delivery comes to nothing; None if it does not wait."""
    if waiter.until_ms <= now_ms:
        return None
    if queue.promised is EMPTY_DICT:
        queue.promised = {}
    queue.promised[waiter] = None
    return waiter


def _hand_over(queue: QueueProcess, numbers: list[int], waiter: Waiter) -> None:
    """Deliver and remove in one entry; the answer leaves once that is committed."""
    leases = queue.leases
    assert leases is not None, "only a leader delivers"
    leases.withhold(numbers)
    first, leases.sequence = leases.sequence + 1, leases.sequence + len(numbers)
    tokens = [(queue.term, sequence) for sequence in range(first, first + len(numbers))]
    entry = Ack(queue.name, queue.ledger.id, numbers, tokens, worker=waiter.worker, door=waiter.door, delivered=True)
    answer = HandedOver(numbers, queue.bodies.get_many(numbers))
    outgoing.propose(queue, entry, AnswerOnCommit(waiter.asker, answer, None))
    queue.since_read += len(numbers)
    if queue.since_read >= queue.ahead // 2:
        reading.read_on(queue)


def _deliveries(
    queue: QueueProcess, numbers: list[int], drafts: list[Draft], untils_ms: list[int], first: int
) -> list[Delivery]:
    ledger, term, queue_id = queue.ledger, queue.term, queue.ledger.id
    sides = ledger.deliveries.records
    uids = queue.uids_of(numbers) if ledger.columns.aliased else maker_of(queue_id).uids(numbers)
    deliveries = []
    rows = zip(numbers, uids, drafts, untils_ms, strict=True)
    for sequence, (number, uid, draft, until_ms) in enumerate(rows, first):
        side = sides.get(number) if sides else None
        earlier, failures = (0, 0) if side is None else (side.deliveries, side.failures)
        token, body = (term, sequence), draft.body
        deliveries.append(
            Delivery(uid, earlier, failures, body, token, draft.priority, draft.headers, queue_id, number, until_ms)
        )
    return deliveries


# --- fetches that wait for bodies ------------------------------------------------------------------------------------


def on_bodies_read(queue: QueueProcess, turn: Turn) -> None:
    """Go on with a fetch: what was read for it is in memory."""
    turn.is_read_for = False
    if queue.leases is not None:
        now_ms = queue.now_ms()
        _deliver_turns(queue, now_ms)
        waiting.settle(queue, now_ms)


def _deliver_turns(queue: QueueProcess, now_ms: int) -> None:
    """Deliver what is in memory by now, in order, if this node still may."""
    refused = queue.refusal()
    if refused is not None:
        refuse_turns(queue, refused)
    turns = queue.turns
    while turns and not turns[0].is_read_for:
        turn = turns[0]
        if not turn.waiter.session.alive:
            _take_again(queue, now_ms)
            continue
        _deliver_turn(queue, turn, now_ms)
        if not turn.is_read_for:
            turns.popleft()  # only now: if delivering crashes this queue, those still in here get an answer
    reading.read_ahead(queue)


def _deliver_turn(queue: QueueProcess, turn: Turn, now_ms: int) -> None:
    leases = queue.leases
    assert leases is not None, "who waits is refused when leadership ends"
    leases.put_back([number for number in turn.numbers if number in leases.leaving], now_ms)  # acked meanwhile
    numbers = [number for number in turn.numbers if queue.ledger.columns.lives(number) and number not in leases.leaving]
    missing = queue.bodies.missing(numbers)
    if missing:  # a cut has dropped them from memory meanwhile
        turn.numbers, turn.is_read_for = numbers, True
        reading.read(queue, missing, turn)
    elif numbers:
        _deliver(queue, numbers, turn.waiter, now_ms)
    else:
        waiting.wait_on(queue, turn.waiter, now_ms)


def _take_again(queue: QueueProcess, now_ms: int) -> None:
    """The session of the first turn is gone: take again for the others, as if it had never come."""
    waiters = [turn.waiter for turn in _put_back_turns(queue)]
    queue.turns.extend([Turn([], waiter, False) for waiter in waiters if waiter.session.alive])
    for turn in queue.turns:
        turn.numbers = take(queue, turn.waiter.count, now_ms)


def refuse_turns(queue: QueueProcess, refused: Refusal) -> None:
    for turn in _put_back_turns(queue):
        turn.waiter.asker.tell(refused)


def put_off_turns(queue: QueueProcess, now_ms: int) -> None:
    """The queue was paused: that also holds for messages that were taken out of the line and have not left yet."""
    if queue.ledger.paused_until_ms > now_ms:
        for turn in _put_back_turns(queue):
            waiting.wait_on(queue, turn.waiter, now_ms)


def _put_back_turns(queue: QueueProcess) -> list[Turn]:
    """Put back what all turns have taken, the last first so that the line is as it was; return the turns."""
    turns = list(queue.turns)
    if queue.leases is not None:
        for turn in reversed(turns):
            queue.leases.put_back(turn.numbers, queue.now_ms())
    if turns:
        queue.turns.clear()
    return turns
