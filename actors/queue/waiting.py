"""Waiting: who waits for messages of one queue with a fetch, who sleeps, and when the queue looks again.

    serve_and_wake: after every change --> fetches served, sleepers woken, the alarm set         EndWait --> no message

Functions over the state of a queue process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from wakeq.actors.mail import Deserted, KeepLeased, Woken
from wakeq.actors.queue import fetching
from wakeq.actors.runtime import Process
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.leases.audience import WaitingFetch
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

TRY_AGAIN_MS = 50  # before waiting fetches are tried again when this node might not lead any more


def serve_and_wake(queue: QueueProcess, now_ms: int) -> None:
    """Serve waiting fetches, wake sleepers and set the next alarm.  Call this after every change to the queue."""
    leases = queue.leases
    assert leases is not None, "only a leader wakes"
    audience = leases.audience
    if audience.waiters:
        if audience.sleepers and (sleepers := leases.to_wake_first(now_ms)):
            _wake(queue, sleepers)
        _serve_waiters(queue, leases, now_ms)
    if (audience.sleepers or audience.woken) and (sleepers := leases.to_wake(now_ms)):
        _wake(queue, sleepers)
    if not leases.next_ms:
        leases.next_ms = leases.next_moment_ms()
    moment_ms = min(leases.next_ms, audience.next_moment_ms())
    if audience.waiters and leases.line.count and queue.ledger.paused_until_ms <= now_ms:
        moment_ms = min(moment_ms, now_ms + TRY_AGAIN_MS)  # serving was refused for now: see _serve_waiters
    if moment_ms < queue.alarm_ms:
        queue.alarm_ms = moment_ms
        queue.services.timers.set(queue, moment_ms)


def _wake(queue: QueueProcess, sleepers: list[Process]) -> None:
    queue.wakes += len(sleepers)
    woken = Woken(queue.name)
    for session in sleepers:
        session.tell(woken)


def _serve_waiters(queue: QueueProcess, leases: Leases, now_ms: int) -> None:
    if leases.line.count and queue.services.refusal() is not None:
        return  # no majority answers: soon it will again, or this node leads no longer
    while leases.line.count:
        waiter = leases.audience.next_waiter()
        if waiter is None:
            return
        numbers = fetching.take(queue, waiter.count, now_ms)
        if not numbers:
            return
        fetching.deliver_or_read(queue, numbers, waiter, now_ms)
        leases.audience.end_wait(waiter)  # only now: if delivering crashes this queue, the waiter still gets an answer


def keep_waiting(queue: QueueProcess, waiter: WaitingFetch, now_ms: int) -> None:
    """The messages taken for a fetch are gone: let it go on waiting, or answer with nothing if its time is over."""
    if queue.leases is not None and waiter.until_ms > now_ms and waiter.session.alive:
        queue.leases.audience.wait(replace(waiter, ended=False))
    else:
        waiter.asker.tell(None)


def end_wait(queue: QueueProcess, waiter: WaitingFetch, answer: Refusal | None) -> None:
    """Answer a fetch that waits, with nothing or with a refusal."""
    assert queue.leases is not None, "only a leader lets wait"
    queue.leases.audience.end_wait(waiter)
    waiter.asker.tell(answer)


def on_end_wait(queue: QueueProcess, order: orders.EndWait) -> None:
    """The client has gone on: its fetch that waits gets nothing."""
    asker = order.asker
    for waiter in () if queue.leases is None else queue.leases.audience.waits_of(asker.session):
        if waiter.asker is asker:  # as a rule the first: thousands may end at once, in the order in which they came
            end_wait(queue, waiter, None)
            return
    for waiter in (*(fetch.waiter for fetch in queue.delayed_fetches), *queue.promised):
        if waiter.asker is asker:
            waiter.until_ms = 0  # it gets what is on its way to it, or nothing


def is_sleep(slot: Slot) -> bool:
    """Whether a client wants to be woken."""
    return type(slot.command) is wire.Islp


def sleep(queue: QueueProcess, session: Process, asker: orders.ReplyTo, *, only_ready: bool) -> None:
    if not queue.exists and not queue.runtime.groups.count(("subscribers", queue.name)):
        asker.tell(fetching.unknown(queue))
        return
    asker.tell(None)
    if queue.leases is not None and session.alive:
        queue.leases.audience.sleep(session, only_ready=only_ready)


def end_if_deserted(queue: QueueProcess) -> None:
    """Nobody waits for a queue that does not exist: it needs no process."""
    if queue.is_deserted:
        queue.supervisor.tell(Deserted(queue.name, queue))


def on_keep_leased(queue: QueueProcess, message: KeepLeased) -> None:
    if queue.leases is not None and message.queue_id == queue.ledger.id:
        queue.leases.keep_leased(message.numbers, queue.now_ms())
        serve_and_wake(queue, queue.now_ms())
