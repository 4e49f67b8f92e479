"""Why: the causes for which a message is not being worked on, the first one first.  Pure; reads what it is given.

    ledger, leases, number --> causes: a stable code, a sentence, and the figures in it

For every living message that no worker has there is at least one; taken away one after the other, they let it run.
"""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

from wakeq.protocol.log.entries import PAUSE_MS_MAX
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.staging import Epoch
from wakeq.protocol.uid import parse, uid_of

POSITION_MAX = 10_000  # places in line that are counted

Cause = dict[str, Any]


def absence_of(ledger: Ledger, uid: str, number: int) -> Cause | None:
    """Return why a message is not here, by the number that its uid has in this queue; None if it is."""
    if number > 0 and ledger.columns.lives(number):
        return None
    parsed = parse(uid)
    if parsed is None:
        text = f"{uid!r} is not a uid of this broker; those look like {uid_of(ledger.id, 1)}, as publishing prints them"
        return {"code": "no_uid", "text": text}
    if parsed[0] != ledger.id:
        text = "its uid is of another queue, or from before this queue was purged, or deleted and created again"
        return {"code": "other_queue", "text": text}
    if not 0 < parsed[1] < ledger.columns.next_number:
        return {
            "code": "never",
            "text": f"it was never here: this queue has had {ledger.columns.next_number - 1} messages",
        }
    return {"code": "gone", "text": "it is finished: acknowledged, expired, moved, or a dead letter"}


def causes_of(ledger: Ledger, leases: Leases, number: int, now_ms: int, subscribers: int) -> list[Cause]:
    """Return why a message is not being worked on, or where it is."""
    assert ledger.columns.lives(number), "else `absence_of` says why it is not here"
    if ledger.columns.is_hidden(number):
        return [{"code": "stashed", "text": "a pipeline has stashed it, and publishes it when it commits"}]
    held = leases.held.get(number)
    claim = None if held is None or ledger.staging is None else ledger.staging.holder_of(held.token)
    if claim is not None:
        return [_claimed(ledger, *claim)]
    if held is not None:
        holder = f"worker {held.worker}" if held.worker else "a worker from before the last start"
        text = f"{holder} has it until {moment(held.until_ms)}; then it is redelivered unless acknowledged"
        return [
            {"code": "leased", "text": text, "worker": held.worker, "until_ms": held.until_ms},
            *_history(ledger, number),
        ]
    if number in leases.ending:
        return [{"code": "leaving", "text": "it is being acknowledged, released or moved now"}]
    expires_ms = ledger.columns.expires_of(number)
    if 0 < expires_ms <= now_ms:
        return [{"code": "expired", "text": f"it expired at {moment(expires_ms)} and is about to be removed"}]
    causes = _waits(ledger, number, now_ms)
    if not causes:
        causes = _in_line(leases, number)
    return causes + _nobody(leases, subscribers) + _history(ledger, number)


def _claimed(ledger: Ledger, source: str, claim: Epoch) -> Cause:
    then = (
        "acknowledged: what a query made of it is published"
        if claim.published
        else ("redelivered unless its query settles or renews the claim")
    )
    text = (
        f"source {source} has claimed it in epoch {claim.epoch} until {moment(claim.until_ms)}; then it is {then} "
        f"(`wakeq pipeline release --queue {ledger.name} --source {source}` ends the claim now)"
    )
    return {"code": "staged", "text": text, "source": source, "epoch": claim.epoch, "until_ms": claim.until_ms}


def _waits(ledger: Ledger, number: int, now_ms: int) -> list[Cause]:
    """A pause of the queue, and a moment of its own."""
    causes: list[Cause] = []
    until_ms, due_ms = ledger.paused_until_ms, ledger.due_of(number)
    if until_ms > now_ms:
        when = "until it is resumed" if until_ms >= PAUSE_MS_MAX else f"until {moment(until_ms)}"
        causes.append({"code": "paused", "text": f"the queue is paused {when}", "until_ms": until_ms})
    if due_ms > now_ms:
        record = ledger.deliveries.records.get(number)
        why = "it was published with a delay"
        if record is not None:
            why = f"it was released after {record.deliveries} deliveries"
        causes.append({"code": "delayed", "text": f"{why}, and is due at {moment(due_ms)}", "due_ms": due_ms})
    return causes


def _in_line(leases: Leases, number: int) -> list[Cause]:
    before = next((i for i, n in enumerate(leases.next_numbers(POSITION_MAX)) if n == number), None)
    if before is None:
        text = f"it is ready, behind more than {POSITION_MAX:,} others"
    else:
        others = "one other" if before == 1 else f"{before:,} others"
        text = f"it is ready, behind {others}" if before else "it is ready, and next"
    return [{"code": "in_line", "text": text, "behind": before}]


def _nobody(leases: Leases, subscribers: int) -> list[Cause]:
    """Whether somebody is there to take it."""
    if leases.audience.waiters and next(islice(leases.audience.all_waits(), 1), None) is not None:
        return []
    if not subscribers:
        return [{"code": "no_subscriber", "text": "no worker is subscribed to the queue or waiting for a message"}]
    if subscribers and len(leases.audience.sleepers) + len(leases.audience.woken) == 0:
        text = f"none of the {subscribers} subscribers is asking for messages: all are busy, or hang"
        return [{"code": "busy", "text": text, "subscribers": subscribers}]
    return []


def _history(ledger: Ledger, number: int) -> list[Cause]:
    record = ledger.deliveries.records.get(number)
    if record is None or not record.failures:
        return []
    counts = {"nacked": record.nacks, "timed out": record.timeouts, "lost by disconnects": record.disconnects}
    text = ", ".join(f"{what} {'once' if n == 1 else f'{n} times'}" for what, n in counts.items() if n)
    last = f"; the last error: {record.error}" if record.error else ""
    return [{"code": "failed_before", "text": f"it failed before: {text}{last}", "failures": record.failures}]


def moment(ms: int) -> str:
    """Return a moment as people read it, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
