"""Dead letters: a message that failed as often as it may, or was rejected, as its dead-letter queue keeps it.  Pure.

It keeps its body, priority and headers, and says in headers of its own where it came from and why it is here.
"""

import msgspec

from wakeq.protocol.log.entries import Draft, Reason
from wakeq.protocol.log.rows import DeliveryRecord
from wakeq.protocol.redrive import ORIGIN, redriven_headers

ORIGIN_UID = "wakeq-origin-uid"
DELIVERIES = "wakeq-deliveries"
REASON = "wakeq-reason"  # nack, timeout, disconnect, rejected or exhausted
ERROR = "wakeq-error"  # the last error that a worker gave


def dead_letter(
    draft: Draft,
    record: DeliveryRecord | None,
    *,
    origin: str,
    origin_uid: str,
    deliveries: int,
    reason: Reason,
    error: str,
) -> Draft:
    """Return the letter; its delay, timeout and expiry were the message's own affair and end with it."""
    headers = msgspec.msgpack.decode(draft.headers, type=dict[str, str]) if draft.headers else {}
    headers |= {ORIGIN: origin, ORIGIN_UID: origin_uid, DELIVERIES: str(deliveries), REASON: reason.name.lower()}
    last_error = error or (record.error if record is not None else "")
    if last_error:
        headers[ERROR] = last_error
    return Draft(draft.body, draft.priority, headers=msgspec.msgpack.encode(headers))


def reason_of(letter: Draft) -> Reason:
    """Return why a message became this letter."""
    return Reason[msgspec.msgpack.decode(letter.headers, type=dict[str, str])[REASON].upper()]


def redriven(draft: Draft) -> Draft:
    """Return the message of a dead letter, as it goes back to its queue."""
    headers = msgspec.msgpack.decode(draft.headers, type=dict[str, str]) if draft.headers else {}
    return Draft(draft.body, draft.priority, headers=msgspec.msgpack.encode(redriven_headers(headers)))
