"""Staging: claims and stashes of one queue, and looks that change nothing (docs/internals/staging.md).

    Stage, Renew, Settle, Alarm --> entries for the log          Claim, Stash, Unstash (committed) --> ledger, leases
    ReadSlice, PeekBlock --> Seen: messages, and nothing changes

The leader takes messages out of its line and proposes; whether a claim is made, renewed or lapses is decided in the
ledger, in the order of the log.  Functions over the state of a queue process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wakeq.actors.queue import ending, fetching, outgoing, reading, waiting
from wakeq.protocol.log.entries import (
    Claim,
    ClaimAction,
    Extended,
    Reason,
    Result,
    Results,
    Stash,
    Token,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.outcomes import WHOLE
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.lanes import FileOnCommit
from wakeq.protocol.queue.leases.staged_ends import End
from wakeq.protocol.queue.ledger.staging import SOURCE, STASH, Epoch, Name
from wakeq.protocol.queue.orders import PeekBlock, PublishRead, ReadSlice, Release, Renew, ReplyTo, Settle, Stage
from wakeq.protocol.queue.outcomes import Outcome, Refusal, Seen
from wakeq.protocol.queue.steps import STEP_MESSAGES, Steps, slices
from wakeq.protocol.queue.view import state_of

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

BEHIND_S = 0.005  # until a look whether all queues have applied what the log has


def _say_code(queue: QueueProcess, asker: ReplyTo, code: int) -> None:
    asker.tell(Outcome(queue.name, queue.ledger.id, [code]))


def _is_refused(queue: QueueProcess, asker: ReplyTo) -> bool:
    """Return whether this node cannot or may not answer; then the asker is told why."""
    refusal = queue.refusal()
    if refusal is None and not queue.exists:
        refusal = Refusal("Q_NOT_FOUND", f"queue {queue.name} does not exist; publish to it first")
    if refusal is not None:
        asker.tell(refusal)
    return refusal is not None


# --- claims ----------------------------------------------------------------------------------------------------


def on_stage(queue: QueueProcess, message: Stage) -> None:
    """Take messages out of the line for an epoch that is not there yet."""
    asker = message.asker
    if _is_refused(queue, asker):
        return
    found = _open_epoch(queue, message.source, message.epoch)
    if found is not None:
        sizes = [Result.EPOCH_SETTLED] if found.published else found.sizes
        asker.tell(Outcome(queue.name, queue.ledger.id, sizes))
        return
    staging = queue.ledger.staging
    code = 0 if staging is None else staging.refusal(message.source, message.epoch, queue.now_ms())
    if code:
        _say_code(queue, asker, code)
        return
    leases, now_ms = queue.leases, queue.now_ms()
    assert leases is not None, "else it was refused"
    numbers = leases.take(message.count, now_ms)
    if not numbers:
        asker.tell(None)
        return
    leases.mark_ending(numbers)
    first, leases.sequence = leases.sequence + 1, leases.sequence + len(numbers)
    outgoing.propose(queue, _staged(queue, message, numbers, first, now_ms + message.keep_ms), asker)
    waiting.serve_and_wake(queue, now_ms)


def _staged(queue: QueueProcess, message: Stage, numbers: list[int], first_sequence: int, until_ms: int) -> Claim:
    return Claim(
        queue.name,
        queue.ledger.id,
        ClaimAction.STAGED,
        message.source,
        message.epoch,
        numbers,
        first_sequence=first_sequence,
        slices=message.slices,
        until_ms=until_ms,
        worker=message.worker,
        door=message.door,
    )


def on_renew(queue: QueueProcess, message: Renew) -> None:
    """Put off the end of a source's open epochs."""
    if _is_refused(queue, message.asker):
        return
    until_ms, leases = queue.now_ms() + message.keep_ms, queue.leases
    assert leases is not None, "else it was refused"
    if leases.staged_ends is None or not leases.staged_ends.renew((SOURCE, message.source), until_ms, queue.now_ms()):
        _say_code(queue, message.asker, Result.EPOCH_EXPIRED)
        return
    renewed = Claim(queue.name, queue.ledger.id, ClaimAction.RENEWED, message.source, until_ms=until_ms)
    outgoing.propose(queue, renewed, message.asker)


def on_settle(queue: QueueProcess, message: Settle) -> None:
    """Acknowledge all open epochs up to this one; if none is open, say at once that none was, or that it lapsed."""
    if _is_refused(queue, message.asker):
        return
    if not message.epoch:
        _say_code(queue, message.asker, _next_epoch(queue, message.source))
        return
    staging = queue.ledger.staging
    epochs = [] if staging is None else staging.open_epochs(message.source, message.epoch)
    if staging is not None and staging.has_lapsed(message.source, message.epoch):
        _say_code(queue, message.asker, Result.EPOCH_EXPIRED)
        return
    if not epochs:
        message.asker.tell(Outcome(queue.name, queue.ledger.id, []))
        return
    outgoing.propose(queue, _ending(queue, ClaimAction.SETTLED, message.source, message.epoch, epochs), message.asker)


def on_release(queue: QueueProcess, message: Release) -> None:
    """End all open epochs of a source; messages are ready again, but for those whose outcome is published."""
    if _is_refused(queue, message.asker):
        return
    staging = queue.ledger.staging
    source = None if staging is None else staging.sources.get(message.source)
    epochs = [] if source is None else source.epochs
    if not epochs:
        message.asker.tell(Outcome(queue.name, queue.ledger.id, []))
        return
    assert queue.leases is not None, "else it was refused"
    done = [one for one in epochs if one.published]
    if done:
        outgoing.propose(queue, _ending(queue, ClaimAction.SETTLED, message.source, done[-1].epoch, done))
    released = _ending(queue, ClaimAction.RELEASED, message.source, 0, [one for one in epochs if not one.published])
    queue.leases.mark_ending(released.numbers)
    outgoing.propose(queue, released, message.asker)


def _ending(queue: QueueProcess, action: ClaimAction, source: str, epoch: int, epochs: Sequence[Epoch]) -> Claim:
    """Return an entry that ends these epochs."""
    numbers = [number for one in epochs for number in one.numbers]
    tokens = [token for one in epochs for token in one.tokens()]
    return Claim(queue.name, queue.ledger.id, action, source, epoch, numbers, tokens)


def _open_epoch(queue: QueueProcess, source: str, epoch: int) -> Epoch | None:
    """Return an epoch that is open and stays so for now."""
    ends = None if queue.leases is None else queue.leases.staged_ends
    if queue.ledger.staging is None or (ends is not None and (SOURCE, source, epoch) in ends.lapsing):
        return None
    return queue.ledger.staging.epoch(source, epoch)


def _next_epoch(queue: QueueProcess, name: str) -> int:
    """Return the first epoch that is open and not published, or else the number of the next one."""
    source = None if queue.ledger.staging is None else queue.ledger.staging.sources.get(name)
    if source is None:
        return 1
    stays = (
        one.epoch for one in source.epochs if not one.published and _open_epoch(queue, name, one.epoch) is not None
    )
    return min(stays, default=source.highest + 1)


def apply_claim(queue: QueueProcess, entry: Claim, index: int, term: int, at_ms: int) -> Steps[Results]:
    results = yield from queue.ledger.claim(entry, term, at_ms)
    leases = queue.leases
    if entry.action is ClaimAction.STAGED:
        _note_passed_over(queue, entry, index, results)
    note_readers(queue)
    if entry.action in (ClaimAction.READ, ClaimAction.PUBLISHED):
        return results
    if entry.action in (ClaimAction.SETTLED, ClaimAction.FINISHED):
        gone = [number for number, code in zip(entry.numbers, results, strict=True) if not code]
        for among in slices(len(gone)):
            if among.start:
                yield
            queue.remove(gone[among])
        if leases is not None and leases.staged_ends is not None:
            leases.staged_ends.lapsing.discard((SOURCE, entry.source, entry.epoch))
    elif leases is not None and entry.queue_id == queue.ledger.id:
        if entry.action is ClaimAction.STAGED:
            # The last ones first: each slice puts what it did not get back to the head of the line.
            for among in reversed(list(slices(len(entry.numbers)))):
                leases.lease_claimed(entry.numbers[among], queue.now_ms())
                if among.start:
                    yield
        elif entry.action in (ClaimAction.LAPSED, ClaimAction.RELEASED):
            yield from _take_back(queue, entry, results)
    _watch(queue, (SOURCE, entry.source))
    return results


def note_readers(queue: QueueProcess) -> None:
    """Say who reads this queue, if that has changed."""
    staging = queue.ledger.staging
    if staging is not None and staging.has_new_readers:
        queue.services.readings.note(queue.name, staging.readings())


def _note_passed_over(queue: QueueProcess, entry: Claim, index: int, results: Results) -> None:
    """Remember for the readers of the log which messages of an entry its claim does not have."""
    made = None if queue.ledger.staging is None else queue.ledger.staging.epoch(entry.source, entry.epoch)
    mine = made.numbers if made is not None and made.first_sequence == entry.first_sequence else []
    if len(mine) < len(entry.numbers):
        taken = set(mine)
        code = min(results[0], Result.UNKNOWN)  # that of the refusal, if it was refused as a whole
        passed_over = (place for place, number in enumerate(entry.numbers) if number not in taken)
        queue.note([(index, place, int(code)) for place in passed_over])


def without_published(queue: QueueProcess, numbers: list[int]) -> list[int]:
    """Return messages that have timed out, without those whose claim ends well: they wait for its end."""
    leases, staging = queue.leases, queue.ledger.staging
    assert leases is not None, "only a leader looks at the time"
    assert staging is not None, "else nothing is published"
    epochs, held = staging.published_epochs(), leases.held
    kept = {number for number in numbers if any([one.holds(held[number].token) for one in epochs])}
    leases.lease_claimed(sorted(kept), queue.now_ms())
    return [number for number in numbers if number not in kept]


def _take_back(queue: QueueProcess, entry: Claim, results: Results) -> Steps[None]:
    """The outcome of a lapse or a release: messages come back, or stay out if they are under a claim all the same."""
    leases, now_ms = queue.leases, queue.now_ms()
    assert leases is not None, "only a leader delivers"
    if leases.staged_ends is not None:
        leases.staged_ends.lapsing.discard((SOURCE, entry.source, entry.epoch))
    for among in slices(len(entry.numbers)):
        if among.start:
            yield
        for number, code in zip(entry.numbers[among], results[among], strict=True):
            if code == Result.DONE:
                leases.return_to_line(number, now_ms)
            else:
                leases.keep_leased([number], now_ms)


# --- stashes ---------------------------------------------------------------------------------------------------


def on_publish_read(queue: QueueProcess, message: PublishRead) -> None:
    """Have published what a reader made of its messages, together with the queues that it has read."""
    entry, services = message.entry, queue.services
    if services.readings.is_behind():  # somebody may have read of which this node does not know yet
        services.later(BEHIND_S, lambda: services.lobby.filed(queue.name).orders.append(message))
        return
    sources = queue.services.readings.queues_of(entry.reader, entry.epoch)
    for name in sources:
        denied = message.denial(name)
        if denied is not None:
            message.asker.tell(Refusal(denied.code, str(denied)))
            return
    outgoing.propose(queue, replace(entry, sources=sources), message.asker)


def apply_stash(queue: QueueProcess, entry: Stash, index: int, term: int, at_ms: int) -> Steps[Results]:
    results = yield from queue.ledger.stash(entry, at_ms)
    if results and results[0] > 0:
        queue.bodies.publish(results, entry.drafts, at_ms)
    note_readers(queue)
    _watch(queue, (STASH, entry.stash))
    return results


def apply_unstash(queue: QueueProcess, entry: Unstash, index: int, term: int, at_ms: int) -> Steps[Results]:
    results, published, dropped, names = yield from queue.ledger.unstash(entry, at_ms)
    # The log has at most the names of the stashes, so readers of the log need the numbers.
    queue.note([(index, len(numbers), numbers.start) for numbers in published])
    queue.note([(index, WHOLE - len(numbers), numbers.start) for numbers in dropped])
    ranges = [*published, *dropped]
    done = 0
    for part in chain.from_iterable([numbers[among] for among in slices(len(numbers))] for numbers in ranges):
        done += len(part)
        if done > STEP_MESSAGES:  # a stash may have very many parts, and each of them a few messages
            yield
            done = len(part)
        living = queue.ledger.columns.living_among(part)
        if len(living) < len(part):
            queue.remove(sorted(set(part).difference(living)))
        if living and results[0] > 0 and queue.leases is not None:
            queue.leases.note_unstashed(part, at_ms)
            queue.leases.add_published(living, at_ms, queue.now_ms)
    if entry.action is UnstashAction.LAPSED and queue.leases is not None and queue.leases.staged_ends is not None:
        queue.leases.staged_ends.lapsing.difference_update([(STASH, name, 0) for name, _ in entry.stashes])
    note_readers(queue)
    for name in names:
        _watch(queue, (STASH, name))
    return results


# --- time ------------------------------------------------------------------------------------------------------


def watch_all(queue: QueueProcess) -> None:
    """This node leads: note when everything that is staged ends."""
    stages = queue.ledger.staging
    for name in () if stages is None else stages.names():
        _watch(queue, name)


def _watch(queue: QueueProcess, name: Name) -> None:
    """Note when what is staged under a name ends, so that the leader ends it in time."""
    leases, staging = queue.leases, queue.ledger.staging
    if leases is not None and staging is not None:
        leases.watch_staged(name, staging.ends_of(name))


def lapse(queue: QueueProcess, key: End) -> None:
    """Propose that something staged is over; messages that failed for the last time become dead letters."""
    kind, name, number = key
    if kind == STASH:
        outgoing.propose(queue, Unstash(queue.name, UnstashAction.LAPSED, [(name, 0)]), None)
        return
    leases, staging, now_ms = queue.leases, queue.ledger.staging, queue.now_ms()
    assert leases is not None, "only a leader looks at the time"
    assert staging is not None, "something ends"
    epoch = staging.epoch(name, number)
    assert epoch is not None, "what ends is open"
    if epoch.published:
        outgoing.propose(queue, _ending(queue, ClaimAction.FINISHED, name, number, [epoch]))
        return
    last = {
        one
        for one, token in epoch.rows()
        if _is_under(queue, one, token) and ending.is_last(queue, one, Reason.TIMEOUT)
    }
    if last:  # as ordinary leases that end now: on_alarm makes dead letters of them
        for one in last:
            leases.extend(one, now_ms)
        outgoing.propose(queue, Extended(queue.name, queue.ledger.id, list(last), [now_ms] * len(last)), None)
    rest = [(one, token) for one, token in epoch.rows() if one not in last]
    leases.mark_ending([one for one, _ in rest])
    numbers, tokens = [one for one, _ in rest], [token for _, token in rest]
    lapsed = Claim(queue.name, queue.ledger.id, ClaimAction.LAPSED, name, number, numbers, tokens)
    outgoing.propose(queue, lapsed)


# --- looking ---------------------------------------------------------------------------------------------------


def on_read_slice(queue: QueueProcess, message: ReadSlice) -> None:
    """Answer with the messages of a slice that are still out under its claim."""
    asker = message.asker
    if _is_refused(queue, asker):
        return
    if message.reader and not message.is_noted and not _is_read(queue, message):
        outgoing.propose(queue, _read(queue, message), _behind(queue, message))
        return
    staging = queue.ledger.staging
    epoch = _open_epoch(queue, message.source, message.epoch)
    if staging is None or epoch is None or epoch.until_ms <= queue.now_ms():
        _say_over(queue, message)
        return
    mine = staging.reading_of(message.source, message.epoch, message.reader, message.batch)
    if message.reader and epoch.published and not (mine is not None and mine.published):
        _say_code(queue, asker, Result.EPOCH_SETTLED)
        return
    if message.slice >= epoch.slices:
        asker.tell(Refusal("BAD_FIELD", f"slice is {message.slice}; this epoch has {epoch.slices}, from 0"))
        return
    start, end = epoch.span_of(message.slice)
    at = start + message.offset
    numbers = _still_under(queue, epoch, at, min(end, at + message.count))
    kept = numbers[: max(1, queue.ledger.columns.count_within(numbers, fetching.ANSWER_BYTES_MAX))]
    went_to = at + message.count if len(kept) == len(numbers) else epoch.numbers.index(numbers[len(kept)], at)
    _look(queue, asker, kept, 1, went_to - start if went_to < end else 0)


def _still_under(queue: QueueProcess, epoch: Epoch, start: int, end: int) -> list[int]:
    """Return which messages of a part of an epoch are still under its claim."""
    record_of, term = queue.ledger.deliveries.records.get, epoch.term
    return [
        number
        for sequence, number in enumerate(epoch.numbers[start:end], epoch.first_sequence + start)
        if (record := record_of(number)) is not None
        and record.until_ms > 0
        and record.sequence == sequence
        and record.term == term
    ]


def _is_read(queue: QueueProcess, message: ReadSlice) -> bool:
    about = message.source, message.epoch, message.reader, message.batch, message.run
    return queue.ledger.staging is None or queue.ledger.staging.is_read(*about)


def _read(queue: QueueProcess, message: ReadSlice) -> Claim:
    about = queue.name, queue.ledger.id, ClaimAction.READ, message.source, message.epoch
    return Claim(*about, reader=message.reader, batch=message.batch, run=message.run)


def _behind(queue: QueueProcess, message: ReadSlice) -> FileOnCommit:
    """Return the ticket that has a look done once it is noted who looks: whoever may publish must be known."""
    lobby = queue.services.lobby
    again = replace(message, is_noted=True)
    return FileOnCommit(message.asker, again, lambda order: lobby.filed(order.queue).orders.append(order))


def _say_over(queue: QueueProcess, message: ReadSlice) -> None:
    """Answer a look at an epoch that is not open; a reader that has published what it made of it sees no messages."""
    staging = queue.ledger.staging
    source = None if staging is None else staging.sources.get(message.source)
    if staging is None or source is None:
        _say_code(queue, message.asker, Result.EPOCH_EXPIRED)
        return
    found = staging.epoch(message.source, message.epoch)  # its end may be on its way
    is_settled = source.has_settled(message.epoch) or (found is not None and found.published)
    mine = staging.reading_of(message.source, message.epoch, message.reader, message.batch)
    if is_settled and mine is not None and mine.published:
        _look(queue, message.asker, [], 1, 0)
    else:
        _say_code(queue, message.asker, Result.EPOCH_SETTLED if is_settled else Result.EPOCH_EXPIRED)


def _is_under(queue: QueueProcess, number: int, token: Token) -> bool:
    record = queue.ledger.deliveries.records.get(number)
    return record is not None and record.until_ms > 0 and (record.term, record.sequence) == token


def on_peek_block(queue: QueueProcess, message: PeekBlock) -> None:
    """Answer with messages in the order of publication, whatever their state, but without what is stashed."""
    if _is_refused(queue, message.asker):
        return
    last = min(message.last or queue.ledger.columns.next_number, queue.ledger.columns.next_number - 1)
    numbers = queue.ledger.columns.living_between(message.after, last, message.count)
    kept = numbers[: max(1, queue.ledger.columns.count_within(numbers, fetching.ANSWER_BYTES_MAX))]
    is_end = len(kept) == len(numbers) < message.count or not numbers
    _look(queue, message.asker, kept, 0, 0 if is_end else kept[-1], queue.ledger.columns.next_number - 1)


def _look(
    queue: QueueProcess, asker: ReplyTo, numbers: Sequence[int], under_way: int, goes_on: int, last: int = 0
) -> None:
    """Answer with these messages; `under_way`: how many of their deliveries are still under way, 0 or 1."""

    def show(found: Found) -> None:
        asker.tell(_seen(queue, numbers, found, under_way, goes_on, last))

    reading.with_found(queue, numbers, asker, show)


def _seen(queue: QueueProcess, numbers: Sequence[int], found: Found, under_way: int, goes_on: int, last: int) -> Seen:
    ledger, now_ms = queue.ledger, queue.now_ms()
    living = ledger.columns.living_among(numbers)
    records = map(ledger.deliveries.records.get, living)
    earlier = [0 if record is None else record.deliveries - under_way for record in records]
    states = [] if under_way else [state_of(ledger, queue.leases, number, now_ms) for number in living]
    kept = [found[number] for number in living]
    drafts, published = [draft for draft, _ in kept], [at_ms for _, at_ms in kept]
    return Seen(queue.uids_of(living), drafts, earlier, published, states, goes_on, last, queue.term)
