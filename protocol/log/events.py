"""Events: what an entry of the log did to one message.

    entry, moment, number of the message, the outcome of its item --> MessageEvent, one or two, or none

It tells people of a message's life.  An event that ends the life says so.  This file is pure.
"""

from typing import NamedTuple

import msgspec

from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Requeued,
    Result,
)
from wakeq.protocol.queue.dead_letters import ERROR, REASON

EXTENDED = "extended"
RELEASES = {
    Reason.NACK: "failed",
    Reason.TIMEOUT: "timed out",
    Reason.DISCONNECT: "disconnected",
    Reason.RETURNED: "released",
}
CLAIMS = {
    ClaimAction.STAGED: "claimed",
    ClaimAction.RELEASED: "released",
    ClaimAction.LAPSED: "timed out",
    ClaimAction.SETTLED: "acknowledged",
    ClaimAction.FINISHED: "acknowledged",
}


class MessageEvent(NamedTuple):
    """One event of a message's life; what is not known or does not apply is 0, empty or None."""

    at_ms: int
    event: str
    # The connection of the worker, or of the publisher.
    worker: int = 0
    reason: str = ""
    error: str = ""
    # The other queue: where it went, or where it came from.
    queue: str | None = None
    # A lease ends at this moment, or a message is ready from this moment on.
    due_ms: int = 0
    is_end: bool = False
    # Equal events that follow each other are told once, with the moment of the last one.
    times: int = 1


def events_in(entry: Entry, at_ms: int, number: int, code: int = 0) -> list[MessageEvent]:
    """Return the events of the message with this number of the entry's queue; `code` is the outcome of its item."""
    numbers = getattr(entry, "numbers", ())
    if number not in numbers or (code < 0 and code != Result.CANCELLED):
        return []
    return _events_at(entry, at_ms, numbers.index(number), is_cancelled=code == Result.CANCELLED)


def events_at(entry: Ack, at_ms: int, place: int) -> list[MessageEvent]:
    """Return the events of the message at a place of an acknowledgement that names it by a foreign uid."""
    return _events_at(entry, at_ms, place, is_cancelled=False)


def _events_at(entry: Entry, at_ms: int, place: int, *, is_cancelled: bool) -> list[MessageEvent]:
    match entry:
        case Delivered():
            return [MessageEvent(at_ms, "delivered", _worker(entry, place), due_ms=entry.untils_ms[place])]
        case Extended():
            return [MessageEvent(at_ms, EXTENDED, due_ms=entry.untils_ms[place])]
        case Released():
            word, reason = RELEASES.get(entry.reason, "released"), entry.reason.name.lower()
            return [MessageEvent(at_ms, word, reason=reason, error=entry.error, due_ms=entry.dues_ms[place])]
        case Expired():
            return [MessageEvent(at_ms, "expired", is_end=True)]
        case Requeued():
            return [MessageEvent(at_ms, "made due", due_ms=at_ms)]
        case Claim() if entry.action in CLAIMS:
            word = CLAIMS[entry.action]
            due_ms = entry.until_ms if entry.action is ClaimAction.STAGED else 0
            return [MessageEvent(at_ms, word, entry.worker, due_ms=due_ms, is_end=word == "acknowledged")]
        case Ack(moved=True):
            to = entry.publishes[0].queue if entry.publishes else None
            return [MessageEvent(at_ms, "deleted" if to is None else "moved", queue=to, is_end=True)]
        case Ack(dead=True):
            return [_dead(entry, at_ms, place)]
        case Ack():
            worker = _worker(entry, place)
            reason = "cancelled" if is_cancelled else ""
            ended = MessageEvent(at_ms, "acknowledged", worker, reason, is_end=True)
            return [MessageEvent(at_ms, "delivered", worker), ended] if entry.delivered else [ended]
        case _:
            return []


def _worker(entry: Delivered | Ack, place: int) -> int:
    return (entry.workers[place] if entry.workers else 0) or entry.worker


def _dead(entry: Ack, at_ms: int, place: int) -> MessageEvent:
    letters = [draft for publish in entry.publishes for draft in publish.drafts]
    if not letters:
        return MessageEvent(at_ms, "dropped", reason="no dead-letter queue", is_end=True)
    headers = headers_of(letters[place] if len(letters) == len(entry.numbers) else letters[0])
    to = entry.publishes[0].queue
    return MessageEvent(
        at_ms, "dead lettered", 0, headers.get(REASON, ""), headers.get(ERROR, ""), queue=to, is_end=True
    )


def headers_of(draft: Draft) -> dict[str, str]:
    """Return the headers of a message as a map."""
    return msgspec.msgpack.decode(draft.headers, type=dict[str, str]) if draft.headers else {}


def published(entry: Publish, at_ms: int, place: int, *, source: Ack | None) -> MessageEvent:
    """Return the first event of the draft at a place; `source` is the entry of which its publish is a follow-up."""
    draft = entry.drafts[place]
    worker = (entry.workers[place] if entry.workers else 0) or entry.worker
    due_ms = at_ms + draft.delay_ms if draft.delay_ms else 0
    reason = ""
    if source is not None:
        reason = "dead letter" if source.dead else "moved" if source.moved else "follow-up"
        worker = worker or source.worker
    origin = None if source is None else source.queue
    return MessageEvent(at_ms, "published", worker, reason, queue=origin, due_ms=due_ms)
