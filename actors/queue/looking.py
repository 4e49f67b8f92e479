"""Looking: what can be seen of one queue without changing it.

    Peek, Stats, Scan, Show, Why, Held, ListClaims --> ledger, leases, bodies --> rows, figures, a page, causes, work,
    claims

Bodies that are not in memory are read for it.  Functions over the state of a queue process; they never deliver, and
never let a look cost more than its bound.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wakeq.actors.queue import fetching, reading
from wakeq.actors.sessions.operator_mail import Held, ListClaims, Page, Scan, Show, Why, Work
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.orders import Peek, ReplyTo, Stats
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.view import (
    Gauges,
    figures_of,
    gauges_of,
    look_by_number,
    look_in_line,
    numbers_in,
    oldest_ready,
    row_of,
)
from wakeq.protocol.queue.why import absence_of, causes_of

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

SCAN_COUNT_MAX = 1_000
TOO_FAR = "too many priorities are before that place in line; look in the order of publication, with state=all"
LEASES_SEEN_MAX = 20_000  # looked at for who has which message
WORK_SHOWN_MAX = 20  # messages shown of one connection


def _may_be_seen(queue: QueueProcess, asker: ReplyTo) -> bool:
    """Answer, and return False, if there is nothing to see here now."""
    refusal = queue.refusal()
    if refusal is None and not queue.exists:
        refusal = Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist")
    if refusal is not None:
        asker.tell(refusal)
    return refusal is None


# --- messages --------------------------------------------------------------------------------------------------


def on_peek(queue: QueueProcess, message: Peek) -> None:
    if not _may_be_seen(queue, message.asker):
        return
    numbers = _within_bound(queue, numbers_in(queue.ledger, queue.leases, message.state, message.count, queue.now_ms()))
    reading.with_found(queue, numbers, message.asker, partial(_show_peek, queue, message.asker, numbers))


def _show_peek(queue: QueueProcess, asker: ReplyTo, numbers: list[int], found: Found) -> None:
    asker.tell([row for _, row in _rows_of(queue, numbers, found)])


def _rows_of(queue: QueueProcess, numbers: list[int], found: Found) -> list[tuple[int, dict[str, Any]]]:
    now_ms = queue.now_ms()
    rows = []
    for number, uid in zip(numbers, queue.uids_of(numbers), strict=True):
        if queue.ledger.columns.lives(number):
            row = row_of(queue.ledger, queue.leases, found[number], number, now_ms)
            rows.append((number, {"uid": uid} | row))
    return rows


def on_scan(queue: QueueProcess, message: Scan) -> None:
    if not _may_be_seen(queue, message.asker):
        return
    assert queue.leases is not None, "asked before"
    ledger, leases, count = queue.ledger, queue.leases, min(message.count, SCAN_COUNT_MAX)
    if message.in_line:
        looked = look_in_line(ledger, leases, message.after, count)
    else:
        looked = look_by_number(ledger, leases, message.state, message.after, count, queue.now_ms())
    if looked is None:
        message.asker.tell(Refusal("BAD_FIELD", TOO_FAR))
        return
    numbers = _within_bound(queue, [number for _, number in looked.found])
    after = looked.after if len(numbers) == len(looked.found) else looked.found[len(numbers) - 1][0]
    page = Page([], after, ledger.columns.next_number - 1, looked.looked_at, ledger.columns.living)
    reading.with_found(queue, numbers, message.asker, partial(_show_page, queue, message.asker, numbers, page))


def _within_bound(queue: QueueProcess, numbers: list[int]) -> list[int]:
    """Return as many of the first ones as one answer may hold; one message is always in it."""
    return numbers[: max(1, queue.ledger.columns.count_within(numbers, fetching.ANSWER_BYTES_MAX))]


def _show_page(queue: QueueProcess, asker: ReplyTo, numbers: list[int], page: Page, found: Found) -> None:
    asker.tell(replace(page, rows=[row | {"number": number} for number, row in _rows_of(queue, numbers, found)]))


def on_show(queue: QueueProcess, message: Show) -> None:
    if not _may_be_seen(queue, message.asker):
        return
    number = queue.number_of(message.uid)
    if not queue.ledger.columns.lives(number):
        message.asker.tell(None)
        return
    reading.with_found(queue, [number], message.asker, partial(_show_one, queue, message.asker, number))


def _show_one(queue: QueueProcess, asker: ReplyTo, number: int, found: Found) -> None:
    about = {"number": number, "queue_id": queue.ledger.id}
    asker.tell(next((row | about for _, row in _rows_of(queue, [number], found)), None))


def on_why(queue: QueueProcess, message: Why) -> None:
    if not _may_be_seen(queue, message.asker):
        return
    assert queue.leases is not None, "asked before"
    number = queue.number_of(message.uid)
    subscribers = queue.runtime.groups.count(("subscribers", queue.name))
    absence = absence_of(queue.ledger, message.uid, number)
    if absence is None:
        causes = causes_of(queue.ledger, queue.leases, number, queue.now_ms(), subscribers)
    else:
        causes = [absence]
    message.asker.tell({"queue": queue.name, "uid": message.uid, "causes": causes})


def on_held(queue: QueueProcess, message: Held) -> None:
    """Say what connections have: those that were delivered longest ago first, and how many that are; of a queue with
    very many leases, only of those that were delivered longest ago.
    """
    if not _may_be_seen(queue, message.asker):
        return
    assert queue.leases is not None, "asked before"
    numbers: dict[int, list[int]] = {}
    held = queue.leases.held
    for number, lease in islice(held.items(), LEASES_SEEN_MAX):
        if lease.worker in message.workers:
            numbers.setdefault(lease.worker, []).append(number)
    work = {}
    for worker, mine in numbers.items():
        shown = mine[:WORK_SHOWN_MAX]
        uids = zip(shown, queue.uids_of(shown), strict=True)
        rows = [Work(queue.name, uid, held[number].since_ms, held[number].until_ms) for number, uid in uids]
        work[worker] = len(mine), rows
    message.asker.tell((work, len(held) <= LEASES_SEEN_MAX))


def on_list_claims(queue: QueueProcess, message: ListClaims) -> None:
    if _may_be_seen(queue, message.asker):
        staging = queue.ledger.staging
        message.asker.tell([] if staging is None else staging.claims())


# --- figures ---------------------------------------------------------------------------------------------------


def on_stats(queue: QueueProcess, message: Stats) -> None:
    asker = message.asker
    refusal = None if asker.session is queue.supervisor else queue.services.refusal()  # a listing was asked before
    if refusal is None and not queue.exists:
        refusal = Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist")
    if refusal is not None:
        asker.tell(refusal)
    else:
        asker.tell(_gauges(queue, queue.now_ms()) if message.brief else _figures(queue))


def _figures(queue: QueueProcess) -> dict[str, Any]:
    now_ms = queue.now_ms()
    figures = figures_of(queue.ledger, queue.leases, now_ms)
    more = {"wakes_per_delivery": _wakes_per_delivery(queue), "created_ms": queue.created_ms}
    return figures | _about(queue, now_ms) | more


def _wakes_per_delivery(queue: QueueProcess) -> float:
    """Compare like with like: both are counted since this node leads, where `delivered` outlives a restart."""
    wakes, sequence = queue.counted_from
    handed_out = 0 if queue.leases is None else queue.leases.sequence - sequence
    return round((queue.wakes - wakes) / handed_out, 3) if handed_out else 0.0


def read_gauges(queue: QueueProcess, found: list[Gauges], now_ms: int) -> None:
    """Add the gauges of a queue that exists; called by the supervisor in the name of the queue."""
    if queue.ledger.id:
        found.append(_gauges(queue, now_ms))


def _gauges(queue: QueueProcess, now_ms: int) -> Gauges:
    services, ledger = queue.services, queue.ledger
    return gauges_of(
        ledger,
        queue.leases,
        now_ms,
        wakes=queue.wakes,
        subscribers=queue.runtime.groups.count(("subscribers", queue.name)),
        paused_until_ms=ledger.paused_until_ms if ledger.paused_until_ms > now_ms else 0,
        oldest_ready_ms=_oldest_ready_ms(queue, now_ms),
        timings=queue.timings,
        is_dead_letter=services.is_dead_letter(queue.name),
    )


def _about(queue: QueueProcess, now_ms: int) -> dict[str, int]:
    """Return the figures that only the process knows."""
    return {
        "subscribers": queue.runtime.groups.count(("subscribers", queue.name)),
        "wakes": queue.wakes,
        "paused_until_ms": _paused_until_ms(queue, now_ms),
        "oldest_ready_ms": _oldest_ready_ms(queue, now_ms),
    }


def _paused_until_ms(queue: QueueProcess, now_ms: int) -> int:
    """Return until when nothing is delivered, 0 if that is over."""
    until_ms = queue.ledger.paused_until_ms
    return until_ms if until_ms > now_ms else 0


def _oldest_ready_ms(queue: QueueProcess, now_ms: int) -> int:
    """Return since when the oldest ready message has been ready; 0 if there is none, or it is being read.

    Its moment of publication stands beside its body; what was read once is remembered.
    """
    leases = queue.leases
    number = 0 if leases is None or not leases.line.count else oldest_ready(queue.ledger, leases, now_ms)
    if not number:
        return 0
    if queue.oldest[:2] == (queue.ledger.id, number):
        return queue.oldest[2]
    reading.with_found(queue, [number], None, partial(_note_oldest, queue, number))
    return queue.oldest[2] if queue.oldest[:2] == (queue.ledger.id, number) else 0


def _note_oldest(queue: QueueProcess, number: int, found: Found) -> None:
    if queue.ledger.columns.lives(number):
        _, published_ms = found[number]
        queue.oldest = queue.ledger.id, number, max(published_ms, queue.ledger.due_of(number))
