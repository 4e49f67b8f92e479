"""Looking at a queue without changing it: its figures, and messages by state.  Pure; reads what it is given."""

from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from wakeq.protocol.catalog import as_dict
from wakeq.protocol.queue.bodies import Kept
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.leases import Lease, Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.timings import Timings

PEEK_SCAN_MAX = 5_000  # messages looked at for a peek by state, or for a page of one
OLDEST_SCAN_MAX = 64  # messages looked at for the oldest one that is ready, before the head of the line is taken


class Gauges(NamedTuple):
    """The numbers of a queue, for those who ask for many queues often.  Counters begin again with an incarnation."""

    name: str
    queue_id: int
    ready: int
    delayed: int
    leased: int
    bytes: int
    sleepers: int
    waiting: int
    subscribers: int
    paused_until_ms: int
    oldest_ready_ms: int
    # What this node has counted; None before its first delivery.
    timings: Timings | None
    # Whether it gets dead letters of other queues.
    is_dead_letter: bool
    published: int
    delivered: int
    acked: int
    released: int
    expired: int
    dead: int
    moved: int
    wakes: int


def counts_of(ledger: Ledger, leases: Leases | None, now_ms: int) -> tuple[int, int, int]:
    """Return how many messages are ready, delayed, and with workers; a delivery is seen before it is in the ledger."""
    leased = ledger.deliveries.leased if leases is None else len(leases.held)
    size = max(0, ledger.columns.living - leased)
    ready = 0 if leases is None or not size else min(leases.ready_count(now_ms), size)
    return ready, max(0, size - ready - _stashed(ledger)), leased


def _stashed(ledger: Ledger) -> int:
    return 0 if ledger.staging is None else ledger.staging.stashed


def published_of(ledger: Ledger) -> int:
    """Return how many were ever published: what is only stashed is not yet, and what is dropped never was."""
    return ledger.totals.published - _stashed(ledger)


def gauges_of(
    ledger: Ledger,
    leases: Leases | None,
    now_ms: int,
    *,
    wakes: int,
    subscribers: int,
    paused_until_ms: int,
    oldest_ready_ms: int,
    timings: Timings | None,
    is_dead_letter: bool,
) -> Gauges:
    """Return the numbers of a queue."""
    totals = ledger.totals
    return Gauges(
        ledger.name,
        ledger.id,
        *counts_of(ledger, leases, now_ms),
        ledger.columns.bytes,
        0 if leases is None else len(leases.audience.sleepers),
        0 if leases is None or not leases.audience.waiters else len(leases.audience.all_waits()),
        subscribers,
        paused_until_ms,
        oldest_ready_ms,
        timings,
        is_dead_letter,
        published_of(ledger),
        totals.delivered,
        totals.acked,
        totals.released,
        totals.expired,
        totals.dead,
        totals.moved,
        wakes,
    )


def _is_due(ledger: Ledger, number: int, now_ms: int) -> bool:
    return not ledger.columns.is_hidden(number) and ledger.due_of(number) <= now_ms


def oldest_ready(ledger: Ledger, leases: Leases, now_ms: int) -> int:
    """Return the message that has been ready for longest, 0 if there is none.

    It is the first published that is ready; if many published before it are with workers or delayed, the next in line.
    """
    if not len(leases.line) or not leases.ready_count(now_ms):
        return 0
    for number in islice(ledger.columns.living_numbers(), OLDEST_SCAN_MAX):
        if number not in leases.held and number not in leases.ending and _is_due(ledger, number, now_ms):
            return number
    return next((number for number in leases.next_numbers(OLDEST_SCAN_MAX) if ledger.columns.lives(number)), 0)


def figures_of(ledger: Ledger, leases: Leases | None, now_ms: int) -> dict[str, Any]:
    """Return what STATS and LIST say of a queue, but for what only its process knows."""
    ready, delayed, leased = counts_of(ledger, leases, now_ms)
    staging = ledger.staging
    return {
        "qname": ledger.name,
        "ready": ready,
        "delayed": delayed,
        "leased": leased,
        "staged": 0 if staging is None else staging.claimed,
        "stashed": _stashed(ledger),
        "size": max(0, ledger.columns.living - leased),
        "bytes": ledger.columns.bytes,
        "sleepers": 0 if leases is None else len(leases.audience.sleepers),
        "waiting": 0 if leases is None else len(leases.audience.all_waits()),
        **msgspec.to_builtins(ledger.totals),
        "published": published_of(ledger),
        "policies": as_dict(ledger.policies),
    }


def numbers_in(ledger: Ledger, leases: Leases | None, state: str, count: int, now_ms: int) -> list[int]:
    """Return the first messages in a state: ready, delayed, leased or any."""
    if leases is None:
        return []
    if state == "ready":
        return [number for number in leases.next_numbers(count) if ledger.columns.lives(number)]
    if state == "leased":
        return list(islice(leases.held, count))
    living = islice(ledger.columns.living_numbers(), PEEK_SCAN_MAX)
    if state == "delayed":
        delayed = (n for n in living if n not in leases.held and ledger.due_of(n) > now_ms)
        return list(islice(delayed, count))
    return list(islice(living, count))


class Looked(NamedTuple):
    """Messages that were found, each with the place behind it, where a next look may begin."""

    found: list[tuple[int, int]]
    # Where the next look begins; 0 at the end.
    after: int
    looked_at: int


def look_by_number(ledger: Ledger, leases: Leases, state: str, after: int, count: int, now_ms: int) -> Looked:
    """Return the first messages in a state that were published behind number `after`; a place is a number."""
    if state == "leased":
        held = nsmallest(count + 1, (number for number in leases.held if number > after))
        return Looked([(number, number) for number in held[:count]], held[count - 1] if held[count:] else 0, len(held))
    found: list[tuple[int, int]] = []
    looked_at = 0
    for number in ledger.columns.living_numbers(after):
        if looked_at == PEEK_SCAN_MAX or len(found) == count:
            return Looked(found, after, looked_at)
        looked_at, after = looked_at + 1, number
        if state == "all" or state_of(ledger, leases, number, now_ms) == state:
            found.append((number, number))
    return Looked(found, 0, looked_at)


def look_in_line(ledger: Ledger, leases: Leases, after: int, count: int) -> Looked | None:
    """Return the next messages in line behind the first `after`; a place is that in the line.  None: it is too far."""
    numbers = leases.window(after, count + 1)
    if numbers is not None and len(numbers) > count and sum(map(ledger.columns.lives, numbers)) <= count:
        # Some that are in line are gone: look further, once.
        numbers = leases.window(after, PEEK_SCAN_MAX + 1)
    if numbers is None:
        return None
    found: list[tuple[int, int]] = []
    for place, number in enumerate(numbers[:PEEK_SCAN_MAX], 1):
        if len(found) == count:
            return Looked(found, after + place - 1, place - 1)
        if ledger.columns.lives(number):
            found.append((after + place, number))
    looked_at = min(len(numbers), PEEK_SCAN_MAX)
    return Looked(found, after + looked_at if len(numbers) > looked_at else 0, looked_at)


def row_of(ledger: Ledger, leases: Leases | None, kept: Kept, number: int, now_ms: int) -> dict[str, Any]:
    """Return what PEEK says of a living message, but for its uid."""
    draft, published_ms = kept
    held = leases.held.get(number) if leases is not None else None
    record = ledger.deliveries.records.get(number)
    until_ms, source = (0, "") if held is None else _end_of(ledger, held)
    return {
        "state": state_of(ledger, leases, number, now_ms),
        "body": draft.body,
        "headers": draft.headers,
        "priority": ledger.columns.priority_of(number),
        "error_count": 0 if record is None else record.deliveries - (held is not None),
        "failures": 0 if record is None else record.failures,
        "published_ms": published_ms,
        "due_ms": ledger.due_of(number)
        if not ledger.columns.is_hidden(number)
        else ledger.columns.published_due_of(number),
        "expires_ms": ledger.columns.expires_of(number),
        "until_ms": until_ms,
        "worker": 0 if held is None else held.worker,
        "source": source,
        "error": "" if record is None else record.error,
    }


def state_of(ledger: Ledger, leases: Leases | None, number: int, now_ms: int) -> str:
    """Return what a living message is: ready, delayed, leased, staged (out under a claim) or stashed."""
    held = leases.held.get(number) if leases is not None else None
    if held is not None:
        return "leased" if held.until_ms < NEVER else "staged"
    if ledger.columns.is_hidden(number):
        return "stashed"
    return "delayed" if ledger.due_of(number) > now_ms else "ready"


def _end_of(ledger: Ledger, held: Lease) -> tuple[int, str]:
    """Return when a delivery ends, and the source of its claim, if it is under one: then it ends with that."""
    found = ledger.staging.holder_of(held.token) if held.until_ms == NEVER and ledger.staging is not None else None
    return (held.until_ms, "") if found is None else (found[1].until_ms, found[0])
