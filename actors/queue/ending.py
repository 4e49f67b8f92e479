"""Ending: how the deliveries of one queue end without an acknowledgement, or are given more time.

    Nack, Touch, Gone, Alarm --> leases --> Released, Extended, Expired, dead letters: entries for the log

The leader computes when a message may be tried again (backoff, jitter) and proposes it; the ledger decides when the
entry is committed.  Functions over the state of a queue process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wakeq.actors.mail import Gone, Unsent
from wakeq.actors.queue import outgoing, reading, staging, waiting
from wakeq.actors.runtime import Alarm
from wakeq.protocol.catalog import dead_letter_of
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Result,
    Results,
    Token,
)
from wakeq.protocol.names import DEAD_SUFFIX, NAME_BYTES_MAX
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.dead_letters import dead_letter, reason_of
from wakeq.protocol.queue.lanes import AnswerOnCommit
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.orders import Nack, ReplyAt, ReplyTo, Touch
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.queue.steps import STEP_ENDINGS, Steps, slices
from wakeq.protocol.queue.timings import Timings

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess


def on_touch(queue: QueueProcess, message: Touch) -> None:
    leases, refusal = queue.leases, queue.refusal()
    if leases is None or refusal is not None:
        message.asker.tell(refusal)
        return
    now_ms = queue.now_ms()
    numbers = list(map(queue.number_of, message.uids))
    tokens = message.tokens
    results = [_may_touch(queue, leases, number, token) for number, token in zip(numbers, tokens, strict=True)]
    mine = [number for number, result in zip(numbers, results, strict=True) if result is Result.DONE]
    untils_ms = [now_ms + (message.timeout_ms or queue.ledger.timeout_of(number)) for number in mine]
    for number, until_ms in zip(mine, untils_ms, strict=True):
        leases.extend(number, until_ms)
    _answer_touch(queue, message.asker, results, Extended(queue.name, queue.ledger.id, mine, untils_ms))


def _may_touch(queue: QueueProcess, leases: Leases, number: int, token: Token) -> Result:
    """Return DONE if whoever shows this token holds the message."""
    held = leases.held.get(number)
    if not queue.ledger.columns.lives(number) or (number in leases.ending and number not in queue.marked_ahead):
        return Result.UNKNOWN
    if held is None or held.until_ms == NEVER:  # under a claim: only renewing that keeps it
        return Result.UNKNOWN if token == ANY_TOKEN else Result.STALE
    return Result.DONE if token in (ANY_TOKEN, held.token) else Result.STALE


def _answer_touch(queue: QueueProcess, asker: ReplyTo, results: list[Result], entry: Extended) -> None:
    """Answer when the log has it: a leader that was cut off must not promise more time."""
    outcome = Outcome(queue.name, queue.ledger.id, [int(result) for result in results])
    if not entry.numbers:
        asker.tell(outcome)
        return
    gone = Outcome(queue.name, queue.ledger.id, [int(Result.UNKNOWN)] * len(results))
    outgoing.propose(queue, entry, AnswerOnCommit(asker, outcome, gone))


def on_nack(queue: QueueProcess, message: Nack) -> None:
    refusal = queue.refusal()
    if refusal is not None:
        message.asker.tell(refusal)
        return
    numbers, tokens, places, unknown = [], [], [], []
    asker = message.asker
    for uid, token, place in zip(message.uids, message.tokens, asker.place, strict=True):
        number = queue.number_of(uid)
        if queue.leases is not None and number in queue.leases.held:
            numbers.append(number)
            tokens.append(token)
            places.append(place)
        else:
            unknown.append(place)
    if unknown:
        outcome = Outcome(queue.name, queue.ledger.id, [Result.UNKNOWN] * len(unknown))
        asker.at(unknown).tell(outcome)
    _end_deliveries(
        queue,
        numbers,
        tokens,
        message.reason,
        delay_ms=message.delay_ms,
        error=message.error,
        asker=asker.at(places),
    )


def on_unsent(queue: QueueProcess, message: Unsent) -> None:
    """Nobody has seen these deliveries.  Whether they end is decided by the log, as nobody else can know."""
    leases = queue.leases
    if leases is None:
        return  # who leads now lets them time out
    numbers, tokens = [], []
    for lease in message.leases:
        number, held = lease.number, leases.held.get(lease.number)
        is_ours = lease.queue_id == queue.ledger.id and number not in leases.ending
        if is_ours and held is not None and held.token == lease.token:
            numbers.append(number)
            tokens.append(lease.token)
    _end_deliveries(queue, numbers, tokens, Reason.RETURNED)


def _end_deliveries(
    queue: QueueProcess,
    numbers: list[int],
    tokens: list[Token],
    reason: Reason,
    *,
    delay_ms: int | None = None,
    error: str = "",
    asker: ReplyAt | None = None,
) -> None:
    """Propose that deliveries end: back into the line, or to the dead letters.

    `asker.place`, if there is one, is a list with a place for each number.
    """
    if not numbers:
        return
    assert queue.leases is not None, "only a leader ends deliveries"
    places = asker.place if asker is not None else [None] * len(numbers)
    back: list[tuple[int, Token, Any]] = []
    dead: list[tuple[int, Token, Any]] = []
    for row in zip(numbers, tokens, places, strict=True):
        (dead if is_last(queue, row[0], reason) else back).append(row)
    # A NACK behind an acknowledgement of the same message must find it done, or refused.
    behind_acks = any([n in queue.leases.ending and n not in queue.marked_ahead for n in numbers])
    queue.leases.mark_ending(numbers)
    if back:
        _propose_released(queue, back, reason, delay_ms, error, asker, behind_acks=behind_acks)
    for number, token, place in dead:
        mine = None if asker is None else asker.at([place])
        _propose_dead(queue, number, token, reason, error, mine)


def is_last(queue: QueueProcess, number: int, reason: Reason) -> bool:
    """Return whether the message goes to the dead letters when its delivery ends for this reason."""
    if reason is Reason.RETURNED:
        return False
    allowed = queue.ledger.policies.max_deliveries
    return reason >= Reason.REJECTED or 0 < allowed <= _failures_of(queue, number)


def _failures_of(queue: QueueProcess, number: int) -> int:
    """Return how often a message has failed, counting the delivery that ends now."""
    record = queue.ledger.deliveries.records.get(number)
    return 1 if record is None else record.failures + 1


def _deliveries_of(queue: QueueProcess, number: int) -> int:
    """Return how often a message was delivered, counting a delivery that is not in the ledger yet."""
    record = queue.ledger.deliveries.records.get(number)
    held = queue.leases.held.get(number) if queue.leases is not None else None
    if record is None:
        return 1
    return record.deliveries + (held is not None and held.token > (record.term, record.sequence))


def _propose_released(
    queue: QueueProcess,
    rows: list[tuple[int, Token, Any]],
    reason: Reason,
    delay_ms: int | None,
    error: str,
    asker: ReplyAt | None,
    *,
    behind_acks: bool,
) -> None:
    due_ms = queue.services.due_ms
    retry = queue.ledger.policies.retry
    if delay_ms is None and reason is Reason.RETURNED:
        delay_ms = 0  # nothing failed, so there is nothing to wait for
    dues = []
    for number, _, _ in rows:
        failures = _failures_of(queue, number)
        wait_ms = retry.after_ms(failures, queue.services.chance()) if delay_ms is None else delay_ms
        dues.append(due_ms(wait_ms) if wait_ms else 0)
    numbers, tokens, places = (list(column) for column in zip(*rows, strict=True))
    entry = Released(queue.name, queue.ledger.id, numbers, dues, tokens, reason, error)
    mine = None if asker is None else asker.at(places)
    outgoing.propose(queue, entry, mine, behind_acks=behind_acks)


def _propose_dead(
    queue: QueueProcess, number: int, token: Token, reason: Reason, error: str, asker: ReplyTo | None
) -> None:
    """Move a message to its dead-letter queue, in one entry: never both, never neither."""
    reading.with_found(queue, [number], asker, partial(_propose_letter, queue, number, token, reason, error, asker))


def _propose_letter(
    queue: QueueProcess, number: int, token: Token, reason: Reason, error: str, asker: ReplyTo | None, found: Found
) -> None:
    if not queue.ledger.columns.lives(number):
        if asker is not None:
            outcome = Outcome(queue.name, queue.ledger.id, [Result.UNKNOWN])
            asker.tell(outcome)
        return
    dead_letters = dead_letter_of(queue.name, queue.ledger.policies)
    if len(dead_letters) > NAME_BYTES_MAX:  # the policies forbid it only to queues with max_deliveries
        _refuse_dead(queue, number, asker)
        return
    letter = dead_letter(
        found[number][0],
        queue.ledger.deliveries.records.get(number),
        origin=queue.name,
        origin_uid=queue.uids_of([number])[0],
        deliveries=_deliveries_of(queue, number),
        reason=reason,
        error=error,
    )
    publish = Publish(dead_letters, [letter], forced=True)
    entry = Ack(queue.name, queue.ledger.id, [number], [token], [publish], dead=True)
    outgoing.propose(queue, entry, asker)


def _refuse_dead(queue: QueueProcess, number: int, asker: ReplyTo | None) -> None:
    """There can be no dead-letter queue: the message stays where it is."""
    if queue.leases is not None:
        queue.leases.keep_leased([number], queue.now_ms())
    if asker is not None:
        detail = f"the queue's name with {DEAD_SUFFIX} is longer than {NAME_BYTES_MAX}; update its dead_letter"
        asker.tell(Refusal("BAD_NAME", detail))


# --- time ------------------------------------------------------------------------------------------------------


def on_alarm(queue: QueueProcess, message: Alarm) -> None:
    queue.alarm_ms = NEVER  # it has rung: the next one is found anew
    leases = queue.leases
    if leases is None:
        return
    leases.next_ms = 0
    now_ms = queue.now_ms()
    if leases.staged_ends is not None:
        for key in leases.staged_ends.over(now_ms):
            staging.lapse(queue, key)
    leases.release_due(now_ms)
    over = leases.take_timed_out(now_ms)
    if over and queue.ledger.staging is not None:
        over = staging.without_published(queue, over)
    _end_deliveries(queue, over, [leases.held[number].token for number in over], Reason.TIMEOUT)
    expired = [number for number in leases.take_expired(now_ms) if number not in leases.ending]
    if expired:
        leases.mark_ending(expired)
        outgoing.propose(queue, Expired(queue.name, queue.ledger.id, expired), None)
    for waiter in leases.audience.waits_over(now_ms):
        waiting.end_wait(queue, waiter, None)
    waiting.serve_and_wake(queue, now_ms)


def on_gone(queue: QueueProcess, message: Gone) -> None:
    leases = queue.leases
    if leases is None:
        return
    if message.asleep_only:
        leases.audience.note_fetch(message.subscriber)
    else:
        leases.audience.forget(message.subscriber)
    if queue.ledger.policies.on_disconnect == "release" and not message.asleep_only:
        numbers = [n for n in leases.holders.take_from(message.subscriber) if n not in leases.ending]
        _end_deliveries(queue, numbers, [leases.held[n].token for n in numbers], Reason.DISCONNECT)
    waiting.serve_and_wake(queue, queue.now_ms())
    waiting.end_if_deserted(queue)


# --- what is committed -----------------------------------------------------------------------------------------


def apply_released(queue: QueueProcess, entry: Released, index: int, term: int, at_ms: int) -> Results | Steps[Results]:
    if len(entry.numbers) > STEP_ENDINGS:
        return _released_in_steps(queue, entry)
    return _release(queue, entry)


def _released_in_steps(queue: QueueProcess, entry: Released) -> Steps[Results]:
    results: list[int] = []
    for among in slices(len(entry.numbers), STEP_ENDINGS):
        if among.start:
            yield
        numbers, dues_ms, tokens = entry.numbers[among], entry.dues_ms[among], entry.tokens[among]
        results += _release(queue, replace(entry, numbers=numbers, dues_ms=dues_ms, tokens=tokens))
    return results


def _release(queue: QueueProcess, entry: Released) -> Results:
    results = queue.ledger.release(entry)
    if queue.leases is not None:
        now_ms = queue.now_ms()
        _count_ended(queue, entry.reason, results.count(Result.DONE))
        for number, code in zip(entry.numbers, results, strict=True):
            if code == Result.DONE:
                queue.leases.return_to_line(number, now_ms)
            else:
                queue.leases.keep_leased([number], now_ms)
    return results


def count_dead(queue: QueueProcess, entry: Ack, count: int) -> None:
    """Count deliveries that ended with dead letters, each of which says why."""
    for publish in entry.publishes:
        for letter in publish.drafts[:count]:
            _count_ended(queue, reason_of(letter), 1)


def _count_ended(queue: QueueProcess, reason: Reason, count: int) -> None:
    """Count deliveries that ended without an acknowledgement."""
    if queue.timings is None:
        queue.timings = Timings()
    queue.timings.ended[reason] += count
    queue.services.timings.ended[reason] += count


def apply_extended(queue: QueueProcess, entry: Extended, index: int, term: int, at_ms: int) -> Results:
    return queue.ledger.extend(entry)


def apply_expired(queue: QueueProcess, entry: Expired, index: int, term: int, at_ms: int) -> Results | Steps[Results]:
    if len(entry.numbers) > STEP_ENDINGS:
        return _expired_in_steps(queue, entry, at_ms)
    return _expire(queue, entry, at_ms)


def _expired_in_steps(queue: QueueProcess, entry: Expired, at_ms: int) -> Steps[Results]:
    results: list[int] = []
    for among in slices(len(entry.numbers), STEP_ENDINGS):
        if among.start:
            yield
        results += _expire(queue, replace(entry, numbers=entry.numbers[among]), at_ms)
    return results


def _expire(queue: QueueProcess, entry: Expired, at_ms: int) -> Results:
    results = queue.ledger.expire(entry, at_ms)
    queue.remove([n for n, code in zip(entry.numbers, results, strict=True) if not code])
    if queue.leases is not None and any(results):
        queue.leases.keep_leased([n for n, code in zip(entry.numbers, results, strict=True) if code], queue.now_ms())
    return results
