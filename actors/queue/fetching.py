"""Fetching: how one queue delivers messages, who waits for them, who sleeps and is woken.

    reads and Fetch of a turn --> leases, bodies --> deliveries at once; Delivered goes to the log

The leader answers from memory, ahead of its log by AHEAD_MS at most.  Functions over the state of a queue process; they
never touch a file: bodies that are no longer in memory arrive as mail from the reader thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from wakeq.actors.mail import Deserted, Follow, Staying, Woken
from wakeq.actors.queue import reading, staging
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Ack
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.lanes import AnswerOnCommit, Filed, SharesOnCommit
from wakeq.protocol.queue.leases.audience import NEVER, Waiter
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.outcomes import Delivery, HandedOver, Refusal
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

AHEAD_MS = 100  # a fast queue delivers ahead of its log while nothing has waited longer than this for its commit
TRY_AGAIN_MS = 50  # before waiting fetches are tried again when this node might not lead any more
TOGETHER_MAX = 4_096  # messages that several fetches take together: they become one entry of the log
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it


class Lead(msgspec.Struct, frozen=True, gc=False):
    """This node leads in `term`: deliver messages."""

    term: int
    first_sequence: int = 0  # a queue that is rebuilt within a term must not give out the same tokens again


class Turn(msgspec.Struct, gc=False, eq=False):
    """A fetch whose messages were taken out of the line, but wait for a read, their own or that of an earlier fetch."""

    numbers: list[int]
    waiter: Waiter  # the fetch; one without `wait` has a time that is already over
    is_read_for: bool  # its own bodies are being read


# --- leadership ------------------------------------------------------------------------------------------------------


def on_lead(queue: QueueProcess, message: Lead) -> None:
    queue.term = message.term
    queue.is_creating = False
    queue.leases = Leases(queue.ledger, message.term, queue.now_ms())
    queue.leases.sequence = message.first_sequence
    queue.counted_from = (queue.wakes, message.first_sequence)
    staging.watch_all(queue)
    settle(queue, queue.now_ms())
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
    for session in (*leases.sleepers, *leases.woken):
        session.tell(Woken(queue.name))
    for waiter in leases.all_waits():
        waiter.asker.tell(message.refusal)
    _refuse_turns(queue, message.refusal)
    queue.promised = EMPTY_DICT
    reading.refuse_lookups(queue, message.refusal)


def refusal(queue: QueueProcess) -> Refusal | None:
    """Return why this node may not answer now; to be asked in the same turn as it delivers."""
    found = queue.services.refusal()
    if found is None and queue.leases is None:
        return Refusal("BUSY", f"queue {queue.name} is not ready yet; try again")
    return found


# --- fetching --------------------------------------------------------------------------------------------------------


def serve(queue: QueueProcess, filed: Filed) -> None:
    """Serve the reads of one turn: FETs together as long as nothing tells them apart, ISLP in its place."""
    refused = refusal(queue)
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
            if not _is_plain(slot):
                break
            wanted += slot.command.count or 1
            if wanted > TOGETHER_MAX and count:
                break
            count += 1
        if count and _serve_together(queue, reads[:count], now_ms):
            del reads[:count]
            continue
        for slot in reads[: count or 1]:
            _serve_one(queue, slot, now_ms)
            del reads[0]  # only now: if this crashes the queue, it gets an answer


def _is_plain(slot: Slot) -> bool:
    command = slot.command
    return type(command) is wire.Fet and not command.wait and not command.timeout


def _serve_together(queue: QueueProcess, slots: list[Slot], now_ms: int) -> bool:
    """Serve many fetches by one taking, in their order; False, and nothing is done, if they must be served singly."""
    leases, ledger = queue.leases, queue.ledger
    assert leases is not None, "asked before"
    if queue.turns or not queue.exists or not all([slot.session.alive for slot in slots]):
        return False
    counts = [slot.command.count or 1 for slot in slots]
    if ledger.bytes > ANSWER_BYTES_MAX and max(counts) > 1:
        return False
    door = slots[0].session.door_kind
    if len(slots) > 1 and any([slot.session.door_kind != door for slot in slots]):
        return False
    numbers = leases.take(sum(counts), now_ms) if len(leases.available) else []
    if numbers and queue.bodies.missing(numbers):
        leases.put_back(numbers, now_ms)
        return False
    if leases.woken or leases.sleepers:
        for slot in slots:
            leases.fetched(slot.session)
    if numbers:
        holders = [slot.session for slot, count in zip(slots, counts, strict=True) for _ in range(count)]
        del holders[len(numbers) :]
        workers = [holder.number for holder in holders]
        untils, first = leases.hand_out(numbers, holders, workers, now_ms)
        deliveries = _deliveries(queue, numbers, untils, first)
        if _must_wait(queue, now_ms):
            queue.propose_delivered(numbers, untils, first, workers, door, SharesOnCommit(slots, counts, deliveries))
        else:
            queue.note_delivered(numbers, untils, first, workers, door)
            at = 0
            for slot, count in zip(slots, counts, strict=True):
                slot.tell(deliveries[at : at + count] or None)
                at += count
        reading.count_delivered(queue, len(numbers))
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
            leases.fetched(session)  # it sleeps no longer
            return
        case wire.Islp():
            _sleep(queue, session, slot, only_ready=command.wake == "ready")
            return
    if not session.alive:
        return
    wait_ms, timeout_ms = int(getattr(command, "wait", 0) * 1000), (getattr(command, "timeout", 0) or 0) * 1000
    if not (queue.exists or wait_ms or queue.runtime.groups.count(("subscribers", queue.name))):
        slot.tell(_unknown(queue))
        return
    if slot.is_over:
        wait_ms = 0
    leases.fetched(session)
    waiter = Waiter(
        slot, session, command.count or 1, now_ms + wait_ms, session.number, session.door_kind, timeout_ms=timeout_ms
    )
    fetch_one(queue, waiter, now_ms)


def on_fetch(queue: QueueProcess, order: orders.Fetch) -> None:
    """The same for whoever does not speak the worker protocol."""
    asker = order.asker
    refused = refusal(queue)
    if refused is None and not (queue.exists or order.is_subscribed):
        refused = _unknown(queue)
    if refused is not None:
        asker.tell(refused)
        return
    leases, session, now_ms = queue.leases, asker.session, queue.now_ms()
    assert leases is not None, "else it was refused"
    leases.fetched(session)
    about = order.count, now_ms + order.wait_ms, session.number, session.door_kind, order.removes
    fetch_one(queue, Waiter(asker, session, *about), now_ms)


def _unknown(queue: QueueProcess) -> Refusal:
    return Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist; publish to it or subscribe first")


def fetch_one(queue: QueueProcess, waiter: Waiter, now_ms: int) -> None:
    """Deliver what one fetch asks for, let it wait, or answer that there is nothing."""
    leases = queue.leases
    assert leases is not None, "asked before"
    numbers = _take(queue, waiter.count, now_ms) if len(leases.available) else []
    if numbers:
        _hand_out(queue, numbers, waiter, now_ms)
    elif waiter.until_ms > now_ms and waiter.session.alive:
        leases.wait(waiter)
    else:
        waiter.asker.tell(None)


def _take(queue: QueueProcess, count: int, now_ms: int) -> list[int]:
    """Take up to `count` messages out of the line, but no more than fit into one answer."""
    leases, ledger = queue.leases, queue.ledger
    assert leases is not None, "only a leader delivers"
    numbers = leases.take(count, now_ms)
    if len(numbers) > 1 and ledger.bytes > ANSWER_BYTES_MAX:
        fit = max(1, ledger.count_within(numbers, ANSWER_BYTES_MAX))
        leases.put_back(numbers[fit:], now_ms)
        del numbers[fit:]
    return numbers


def _hand_out(queue: QueueProcess, numbers: list[int], waiter: Waiter, now_ms: int) -> None:
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
    deliveries = _deliveries(queue, numbers, untils, first)
    if _must_wait(queue, now_ms):
        ticket = AnswerOnCommit(waiter.asker, deliveries, None, _promise(queue, waiter, now_ms))
        queue.propose_delivered(numbers, untils, first, [worker] * count, waiter.door, ticket)
    else:
        waiter.asker.tell(deliveries)
        queue.note_delivered(numbers, untils, first, [worker] * count, waiter.door)
    reading.count_delivered(queue, count)


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
    queue.propose(entry, AnswerOnCommit(waiter.asker, answer, None))
    reading.count_delivered(queue, len(numbers))


def _deliveries(queue: QueueProcess, numbers: list[int], untils_ms: list[int], first: int) -> list[Delivery]:
    drafts = queue.bodies.get_many(numbers)
    sides, term, queue_id = queue.ledger.sides, queue.term, queue.ledger.id
    deliveries = []
    rows = zip(numbers, queue.uids_of(numbers), drafts, untils_ms, strict=True)
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
        settle(queue, now_ms)


def _deliver_turns(queue: QueueProcess, now_ms: int) -> None:
    """Deliver what is in memory by now, in order, if this node still may."""
    refused = refusal(queue)
    if refused is not None:
        _refuse_turns(queue, refused)
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
    numbers = [number for number in turn.numbers if queue.ledger.lives(number) and number not in leases.leaving]
    missing = queue.bodies.missing(numbers)
    if missing:  # a cut has dropped them from memory meanwhile
        turn.numbers, turn.is_read_for = numbers, True
        reading.read(queue, missing, turn)
    elif numbers:
        _deliver(queue, numbers, turn.waiter, now_ms)
    else:
        wait_on(queue, turn.waiter, now_ms)


def _take_again(queue: QueueProcess, now_ms: int) -> None:
    """The session of the first turn is gone: take again for the others, as if it had never come."""
    waiters = [turn.waiter for turn in _put_back_turns(queue)]
    queue.turns.extend([Turn([], waiter, False) for waiter in waiters if waiter.session.alive])
    for turn in queue.turns:
        turn.numbers = _take(queue, turn.waiter.count, now_ms)


def _refuse_turns(queue: QueueProcess, refused: Refusal) -> None:
    for turn in _put_back_turns(queue):
        turn.waiter.asker.tell(refused)


def put_off_turns(queue: QueueProcess, now_ms: int) -> None:
    """The queue was paused: that also holds for messages that were taken out of the line and have not left yet."""
    if queue.ledger.paused_until_ms > now_ms:
        for turn in _put_back_turns(queue):
            wait_on(queue, turn.waiter, now_ms)


def _put_back_turns(queue: QueueProcess) -> list[Turn]:
    """Put back what all turns have taken, the last first so that the line is as it was; return the turns."""
    turns = list(queue.turns)
    if queue.leases is not None:
        for turn in reversed(turns):
            queue.leases.put_back(turn.numbers, queue.now_ms())
    if turns:
        queue.turns.clear()
    return turns


def wait_on(queue: QueueProcess, waiter: Waiter, now_ms: int) -> None:
    """The messages taken for a fetch are gone: let it go on waiting, or answer with nothing if its time is over."""
    if queue.leases is not None and waiter.until_ms > now_ms and waiter.session.alive:
        queue.leases.wait(replace(waiter, ended=False))
    else:
        waiter.asker.tell(None)


# --- who waits and who sleeps ----------------------------------------------------------------------------------------


def settle(queue: QueueProcess, now_ms: int) -> None:
    """Serve waiting fetches, wake sleepers and set the next alarm.  Call this after every change to the queue."""
    leases = queue.leases
    assert leases is not None, "only a leader wakes"
    if leases.waiters:
        if leases.sleepers and (sleepers := leases.to_wake_first(now_ms)):
            _wake(queue, sleepers)
        _serve_waiters(queue, leases, now_ms)
    if (leases.sleepers or leases.woken) and (sleepers := leases.to_wake(now_ms)):
        _wake(queue, sleepers)
    moment_ms = leases.next_moment_ms()
    if leases.waiters and len(leases.available) and queue.ledger.paused_until_ms <= now_ms:
        moment_ms = min(moment_ms, now_ms + TRY_AGAIN_MS)  # serving was refused for now: see _serve_waiters
    if moment_ms < queue.alarm_ms or queue.alarm_ms <= now_ms:
        if moment_ms < NEVER:
            queue.alarm_ms = moment_ms
            queue.services.timers.set(queue, moment_ms)
        else:
            queue.alarm_ms = NEVER


def _wake(queue: QueueProcess, sleepers: list[Process]) -> None:
    queue.wakes += len(sleepers)
    woken = Woken(queue.name)
    for session in sleepers:
        session.tell(woken)


def _serve_waiters(queue: QueueProcess, leases: Leases, now_ms: int) -> None:
    if len(leases.available) and queue.services.refusal() is not None:
        return  # no majority answers: soon it will again, or this node leads no longer
    while len(leases.available):
        waiter = leases.next_waiter()
        if waiter is None:
            return
        numbers = _take(queue, waiter.count, now_ms)
        if not numbers:
            return
        _hand_out(queue, numbers, waiter, now_ms)
        leases.end_wait(waiter)  # only now: if delivering crashes this queue, the waiter still gets an answer


def end_wait(queue: QueueProcess, waiter: Waiter, answer: Refusal | None) -> None:
    """Answer a fetch that waits, with nothing or with a refusal."""
    assert queue.leases is not None, "only a leader lets wait"
    queue.leases.end_wait(waiter)
    waiter.asker.tell(answer)


def on_end_wait(queue: QueueProcess, order: orders.EndWait) -> None:
    """The client has gone on: its fetch that waits gets nothing."""
    asker = order.asker
    for waiter in () if queue.leases is None else queue.leases.waits_of(asker.session):
        if waiter.asker is asker:  # as a rule the first: thousands may end at once, in the order in which they came
            end_wait(queue, waiter, None)
            return
    for waiter in (*(turn.waiter for turn in queue.turns), *queue.promised):
        if waiter.asker is asker:
            waiter.until_ms = 0  # it gets what is on its way to it, or nothing


def is_sleep(slot: Slot) -> bool:
    """Whether a client wants to be woken."""
    return type(slot.command) is wire.Islp


def _sleep(queue: QueueProcess, session: Process, asker: orders.ReplyTo, *, only_ready: bool) -> None:
    if not queue.exists and not queue.runtime.groups.count(("subscribers", queue.name)):
        asker.tell(_unknown(queue))
        return
    asker.tell(None)
    if queue.leases is not None and session.alive:
        queue.leases.sleep(session, only_ready=only_ready)


def end_if_deserted(queue: QueueProcess) -> None:
    """Nobody waits for a queue that does not exist: it needs no process."""
    if queue.is_deserted:
        queue.supervisor.tell(Deserted(queue.name, queue))


def on_staying(queue: QueueProcess, message: Staying) -> None:
    if queue.leases is not None and message.queue_id == queue.ledger.id:
        queue.leases.stays(message.numbers, queue.now_ms())
        settle(queue, queue.now_ms())
