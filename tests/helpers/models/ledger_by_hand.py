"""A ledger for the tests, and its entries in as few words as they need.

    make --> Ledger;   put, put_once, put_numbered, deliver, release, ack --> one entry each, applied at once

Everything happens at NOW_MS unless a test says otherwise.
"""

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Delivered, Draft, Publish, Reason, Released
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits

QUEUE_ID = 7
OTHER_ID = 5
TERM = 2
NOW_MS = 1_000_000
WINDOW_MS = Limits().dedup_window_ms


def make(limits: Limits | None = None, **policies: int) -> Ledger:
    return Ledger("q", QUEUE_ID, Policies(**policies), limits or Limits())  # type: ignore[arg-type]


def drafts(count: int) -> list[Draft]:
    return [Draft(b"body") for _ in range(count)]


def put(ledger: Ledger, *new: Draft, at_ms: int = NOW_MS) -> list[int]:
    return list(ledger.publish(Publish("q", list(new) or drafts(1)), at_ms))


def put_once(ledger: Ledger, name: str, at_ms: int = NOW_MS, count: int = 1) -> list[int]:
    return list(ledger.publish(Publish("q", drafts(count), atomic=True, id=name), at_ms))


def put_numbered(ledger: Ledger, *ordinals: int, at_ms: int = NOW_MS, session: str = "s") -> list[int]:
    entry = Publish("q", drafts(len(ordinals)), session=session, ordinals=list(ordinals))
    return list(ledger.publish(entry, at_ms))


def deliver(ledger: Ledger, number: int, sequence: int, until_ms: int = NOW_MS + 60_000) -> None:
    ledger.deliver(Delivered("q", QUEUE_ID, [number], [until_ms], sequence), TERM)


def release(
    ledger: Ledger, number: int, *, token: tuple[int, int] = ANY_TOKEN, due_ms: int = NOW_MS, error: str = ""
) -> int:
    return ledger.release(Released("q", QUEUE_ID, [number], [due_ms], [token], Reason.NACK, error))[0]


def ack(ledger: Ledger, number: int, token: tuple[int, int] = ANY_TOKEN, queue_id: int = QUEUE_ID) -> int:
    return ledger.acknowledge(Ack("q", queue_id, [number], [token]))[0]


def ack_foreign(ledger: Ledger, uid: str, queue_id: int = 0) -> int:
    return ledger.acknowledge(Ack("q", queue_id, [-1], [ANY_TOKEN], foreign={0: uid}))[0]
