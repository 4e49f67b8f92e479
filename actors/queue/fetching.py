"""Fetching: how one queue delivers messages, who waits for them, who sleeps and is woken.

    reads and Fetch of a turn --> leases, bodies --> deliveries at once; Delivered goes to the log

The leader answers from memory, ahead of its log by AHEAD_MS at most.  Functions over the state of a queue process; they
never touch a file: bodies that are no longer in memory arrive as mail from the reader thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from wakeq.actors.queue import outgoing, reading, waiting
from wakeq.protocol.log.entries import Ack, Draft
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.lanes import AnswerOnCommit, Filed, SharesOnCommit
from wakeq.protocol.queue.leases.audience import WaitingFetch
from wakeq.protocol.queue.outcomes import Delivery, Refusal, RemovedOnDelivery
from wakeq.protocol.queue.timings import BOUNDS_MS, BUCKETS, SHORT_MS, Timings
from wakeq.protocol.seconds import ms_of
from wakeq.protocol.uid import maker_of
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

AHEAD_MS = 100  # a fast queue delivers ahead of its log while nothing has waited longer than this for its commit
TOGETHER_MAX = 4_096  # messages that several fetches take together: they become one entry of the log
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it


class DelayedFetch(msgspec.Struct, gc=False, eq=False):
    """A fetch whose messages were taken out of the line, but wait for a read, their own or that of an earlier fetch."""

    numbers: list[int]
    waiter: WaitingFetch  # the fetch; one without `wait` has a time that is already over
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
    if queue.delayed_fetches or not ledger.id:
        return False
    door, counts = slots[0].session.door_kind, []
    for slot in slots:
        session = slot.session
        if not session.alive or session.door_kind != door:
            return False
        counts.append(slot.command.count or 1)
    if ledger.columns.bytes > ANSWER_BYTES_MAX and max(counts) > 1:
        return False
    numbers = leases.take(sum(counts), now_ms) if leases.line.count else []
    drafts = queue.bodies.find(numbers) if numbers else []
    if drafts is None:
        leases.return_undelivered(numbers, now_ms)
        return False
    audience = leases.audience
    if audience.woken or audience.sleepers:
        for slot in slots:
            audience.note_fetch(slot.session)
    if numbers:
        holders, workers = [], []
        for slot, count in zip(slots, counts, strict=True):
            holders += [slot.session] * count
            workers += [slot.session.number] * count
        del holders[len(numbers) :], workers[len(numbers) :]
        untils, first = leases.lease(numbers, holders, workers, now_ms)
        count_waits(queue, numbers, now_ms)
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
            leases.audience.note_fetch(session)  # it sleeps no longer
            return
        case wire.Islp():
            waiting.sleep(queue, session, slot, only_ready=command.wake == "ready")
            return
    if not session.alive:
        return
    wait_ms, timeout_ms = int(getattr(command, "wait", 0) * 1000), ms_of(getattr(command, "timeout", 0) or 0)
    if not (queue.exists or wait_ms or queue.runtime.groups.count(("subscribers", queue.name))):
        slot.tell(unknown(queue))
        return
    if slot.is_over:
        wait_ms = 0
    leases.audience.note_fetch(session)
    waiter = WaitingFetch(
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
    leases.audience.note_fetch(session)
    about = order.count, now_ms + order.wait_ms, session.number, session.door_kind, order.removes
    fetch_one(queue, WaitingFetch(asker, session, *about), now_ms)


def unknown(queue: QueueProcess) -> Refusal:
    return Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist; publish to it or subscribe first")


def fetch_one(queue: QueueProcess, waiter: WaitingFetch, now_ms: int) -> None:
    """Deliver what one fetch asks for, let it wait, or answer that there is nothing."""
    leases = queue.leases
    assert leases is not None, "asked before"
    numbers = take(queue, waiter.count, now_ms) if leases.line.count else []
    if numbers:
        deliver_or_read(queue, numbers, waiter, now_ms)
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
        leases.return_undelivered(numbers[fit:], now_ms)
        del numbers[fit:]
    return numbers


def deliver_or_read(queue: QueueProcess, numbers: list[int], waiter: WaitingFetch, now_ms: int) -> None:
    """Deliver messages that were taken out of the line; first read what is not in memory.

    While one fetch waits for a read, later ones wait behind it: otherwise newer messages would leave before older ones.
    """
    missing = queue.bodies.missing(numbers)
    if not (missing or queue.delayed_fetches):
        _deliver(queue, numbers, waiter, now_ms)
        return
    fetch = DelayedFetch(numbers, waiter, bool(missing))
    if queue.delayed_fetches is EMPTY_DICT:
        queue.delayed_fetches = deque()
    queue.delayed_fetches.append(fetch)
    if missing:
        reading.read(queue, missing, fetch)


def _deliver(queue: QueueProcess, numbers: list[int], waiter: WaitingFetch, now_ms: int) -> None:
    leases = queue.leases
    assert leases is not None, "only a leader delivers"
    if not waiter.session.alive:
        leases.return_undelivered(numbers, now_ms)
        return
    if waiter.removes:
        _remove_and_deliver(queue, numbers, waiter, now_ms)
        return
    count, worker = len(numbers), waiter.worker
    untils, first = leases.lease(numbers, [waiter.session] * count, [worker] * count, now_ms, waiter.timeout_ms)
    count_waits(queue, numbers, now_ms)
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


def _promise(queue: QueueProcess, waiter: WaitingFetch, now_ms: int) -> WaitingFetch | None:
    """Remember a fetch that is to go on waiting if its delivery comes to nothing; None if it does not wait."""
    if waiter.until_ms <= now_ms:
        return None
    if queue.promised is EMPTY_DICT:
        queue.promised = {}
    queue.promised[waiter] = None
    return waiter


def _remove_and_deliver(queue: QueueProcess, numbers: list[int], waiter: WaitingFetch, now_ms: int) -> None:
    """Deliver and remove in one entry; the answer leaves once that is committed."""
    leases = queue.leases
    assert leases is not None, "only a leader delivers"
    count_waits(queue, numbers, now_ms)
    leases.withhold(numbers)
    first, leases.sequence = leases.sequence + 1, leases.sequence + len(numbers)
    tokens = [(queue.term, sequence) for sequence in range(first, first + len(numbers))]
    entry = Ack(queue.name, queue.ledger.id, numbers, tokens, worker=waiter.worker, door=waiter.door, delivered=True)
    answer = RemovedOnDelivery(numbers, queue.bodies.get_many(numbers))
    outgoing.propose(queue, entry, AnswerOnCommit(waiter.asker, answer, None))
    queue.since_read += len(numbers)
    if queue.since_read >= queue.ahead // 2:
        reading.read_on(queue)


def count_waits(queue: QueueProcess, numbers: list[int], now_ms: int) -> None:
    """Count for how long each of these messages was ready; they are about to be delivered."""
    leases, ledger, total = queue.leases, queue.ledger, queue.services.timings
    assert leases is not None, "only a leader delivers"
    mine = queue.timings
    if mine is None:
        mine = queue.timings = Timings()
    records, ready_since, moments = ledger.deliveries.records, leases.ready_since, queue.bodies.moments_of(numbers)
    unstashed = leases.unstashed
    is_plain = ledger.columns.only_sizes and not ready_since and (not unstashed or min(numbers) >= unstashed[-1][1])
    if not is_plain or (records and not records.keys().isdisjoint(numbers)):
        moments = _ready_moments(queue, numbers, moments)
    waits, total_waits, waited_ms = mine.waits, total.waits, 0
    for since_ms, count in moments:
        span_ms = now_ms - since_ms
        if span_ms < 0:  # the moment of a publication is rounded up
            span_ms = 0
        # As in bucket_of().
        bucket = BUCKETS[span_ms] if span_ms <= SHORT_MS else bisect_left(BOUNDS_MS, span_ms)
        waits[bucket] += count
        total_waits[bucket] += count
        waited_ms += count * span_ms
    mine.waited_ms += waited_ms
    total.waited_ms += waited_ms


def _ready_moments(queue: QueueProcess, numbers: list[int], published: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return since when messages are ready that may have been delayed or delivered; each moment stands for one."""
    leases, ledger = queue.leases, queue.ledger
    assert leases is not None, "only a leader delivers"
    records, ready_since, moments = ledger.deliveries.records, leases.ready_since, []
    each = [at_ms for at_ms, count in published for _ in range(count)]
    for number, at_ms in zip(numbers, each, strict=True):
        if number in ready_since:
            moments.append((ready_since.pop(number), 1))
        elif (record := records.get(number)) is None:
            moments.append((max(at_ms, ledger.due_of(number), leases.unstashed_ms(number)), 1))
        elif record.due_ms:  # else an earlier leader knew when it returned
            moments.append((record.due_ms, 1))
    return moments


def _deliveries(
    queue: QueueProcess, numbers: list[int], drafts: list[Draft], untils_ms: list[int], first: int
) -> list[Delivery]:
    ledger, term, queue_id = queue.ledger, queue.term, queue.ledger.id
    records = ledger.deliveries.records
    uids = queue.uids_of(numbers) if ledger.columns.aliased else maker_of(queue_id).uids(numbers)
    deliveries = []
    rows = zip(numbers, uids, drafts, untils_ms, strict=True)
    for sequence, (number, uid, draft, until_ms) in enumerate(rows, first):
        record = records.get(number) if records else None
        earlier, failures = (0, 0) if record is None else (record.deliveries, record.failures)
        token, body = (term, sequence), draft.body
        deliveries.append(
            Delivery(uid, earlier, failures, body, token, draft.priority, draft.headers, queue_id, number, until_ms)
        )
    return deliveries


# --- fetches that wait for bodies ------------------------------------------------------------------------------------


def on_bodies_read(queue: QueueProcess, fetch: DelayedFetch) -> None:
    """Go on with a fetch: what was read for it is in memory."""
    fetch.is_read_for = False
    if queue.leases is not None:
        now_ms = queue.now_ms()
        _deliver_delayed(queue, now_ms)
        waiting.serve_and_wake(queue, now_ms)


def _deliver_delayed(queue: QueueProcess, now_ms: int) -> None:
    """Deliver what is in memory by now, in order, if this node still may."""
    refused = queue.refusal()
    if refused is not None:
        refuse_delayed(queue, refused)
    delayed = queue.delayed_fetches
    while delayed and not delayed[0].is_read_for:
        fetch = delayed[0]
        if not fetch.waiter.session.alive:
            _take_again(queue, now_ms)
            continue
        _deliver_after_read(queue, fetch, now_ms)
        if not fetch.is_read_for:
            delayed.popleft()  # only now: if delivering crashes this queue, those still in here get an answer
    reading.read_ahead(queue)


def _deliver_after_read(queue: QueueProcess, fetch: DelayedFetch, now_ms: int) -> None:
    leases = queue.leases
    assert leases is not None, "who waits is refused when leadership ends"
    acknowledged = [number for number in fetch.numbers if number in leases.ending]  # meanwhile
    leases.return_undelivered(acknowledged, now_ms)
    numbers = [number for number in fetch.numbers if queue.ledger.columns.lives(number) and number not in leases.ending]
    missing = queue.bodies.missing(numbers)
    if missing:  # a cut has dropped them from memory meanwhile
        fetch.numbers, fetch.is_read_for = numbers, True
        reading.read(queue, missing, fetch)
    elif numbers:
        _deliver(queue, numbers, fetch.waiter, now_ms)
    else:
        waiting.keep_waiting(queue, fetch.waiter, now_ms)


def _take_again(queue: QueueProcess, now_ms: int) -> None:
    """The session of the first delayed fetch is gone: take again for the others, as if it had never come."""
    waiters = [fetch.waiter for fetch in _put_back_delayed(queue)]
    queue.delayed_fetches.extend([DelayedFetch([], waiter, False) for waiter in waiters if waiter.session.alive])
    for fetch in queue.delayed_fetches:
        fetch.numbers = take(queue, fetch.waiter.count, now_ms)


def refuse_delayed(queue: QueueProcess, refused: Refusal) -> None:
    for fetch in _put_back_delayed(queue):
        fetch.waiter.asker.tell(refused)


def put_off_delayed(queue: QueueProcess, now_ms: int) -> None:
    """The queue was paused: that also holds for messages that were taken out of the line and have not left yet."""
    if queue.ledger.paused_until_ms > now_ms:
        for fetch in _put_back_delayed(queue):
            waiting.keep_waiting(queue, fetch.waiter, now_ms)


def _put_back_delayed(queue: QueueProcess) -> list[DelayedFetch]:
    """Put back what all of these have taken, the last first so that the line is as it was; return them."""
    delayed = list(queue.delayed_fetches)
    if queue.leases is not None:
        for fetch in reversed(delayed):
            queue.leases.return_undelivered(fetch.numbers, queue.now_ms())
    if delayed:
        queue.delayed_fetches.clear()
    return delayed
