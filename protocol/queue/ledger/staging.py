"""Staging: claims of epochs and stashed publishes of one queue (docs/internals/staging.md).

    Claim, Stash, Unstash, moment --> the ledger's own deliveries, acknowledgements, publishes --> results

Pure, and a part of the ledger: changed only by committed entries, alike on every node, and forgetful by the moments of
entries alone.  It keeps names and numbers; what a message is, the ledger knows.  A message of a claim is out without
an end of its own, and one of a stash has a due moment below zero.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, Protocol, TypeAlias

import msgspec

from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    Delivered,
    Publish,
    Reason,
    Released,
    Result,
    Results,
    Stash,
    Token,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.queue.ledger.columns import Columns
from wakeq.protocol.queue.ledger.deliveries import Deliveries
from wakeq.protocol.queue.steps import Steps, slices

UNENDING_MS = 1 << 62  # until when a message of a claim is hidden: its claim ends, not it
GIVEN_BACK = -1  # in the place of a message that is not under its claim any more: it stays
OPEN_EPOCHS_MAX = 2  # of one source
SOURCES_MAX = 1_000  # of one queue
STASHES_MAX = 10_000  # of one queue
WRITERS_MAX = 10_000  # of one queue
KEPT_MS = 30 * 86_400_000  # for so long it is known what a source or a writer did last
KEPT_MS_MIN = 86_400_000  # where there are too many of them
JOBS_MAX = 10_000  # of one queue
JOB_KEPT_MS = 15 * 60_000  # for whoever lost the answer, and asks again


class Epoch(msgspec.Struct):
    """The claim of one epoch: its messages in the order in which they stood in line, and their tokens."""

    epoch: int
    numbers: list[int]
    slices: int
    term: int
    first_sequence: int  # of the first number; they run on
    until_ms: int

    def tokens(self) -> list[Token]:
        """Return the token of each message."""
        term, first = self.term, self.first_sequence
        return [(term, sequence) for sequence in range(first, first + len(self.numbers))]

    def rows(self, start: int = 0, end: int | None = None) -> list[tuple[int, Token]]:
        """Return messages, each with its token."""
        part, first = self.numbers[start:end], self.first_sequence + start
        return [(number, (self.term, sequence)) for sequence, number in enumerate(part, first)]

    @property
    def sizes(self) -> list[int]:
        """How many messages each slice has: the first ones have one more if they cannot all be alike."""
        size, more = divmod(len(self.numbers), self.slices)
        return [size + (place < more) for place in range(self.slices)]

    def span_of(self, place: int) -> tuple[int, int]:
        """Return where a slice begins and ends."""
        size, more = divmod(len(self.numbers), self.slices)
        start = place * size + min(place, more)
        return start, start + size + (place < more)


class Source(msgspec.Struct):
    """Who claims: its open epochs, the highest that it ever staged, and the last ones that lapsed."""

    highest: int
    used_ms: int
    epochs: list[Epoch]
    lapsed: list[int] = []


class Put(msgspec.Struct):
    """One stash: its parts as (first number, how many), by their number."""

    parts: dict[int, tuple[int, int]]
    until_ms: int

    @property
    def size(self) -> int:
        return sum(count for _, count in self.parts.values())


class Writer(msgspec.Struct):
    """Who publishes stashes: the last epoch that it published; 0 for a job, which publishes once."""

    highest: int
    used_ms: int


Name: TypeAlias = tuple[str, str]  # the kind of what is kept (its letter in the state store), and its name
SOURCE, STASH, WRITER, JOB = "c", "t", "w", "j"
TYPES = {SOURCE: Source, STASH: Put, WRITER: Writer, JOB: Writer}


def staged_of(kind: str, name: str, value: bytes) -> Any:
    """Return what was written down of a source, a stash, a writer or a job; raise BadRecord if it is none."""
    try:
        return msgspec.msgpack.decode(value, type=TYPES[kind])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"what is staged as {name!r} cannot be read: {error}") from None


class Queue(Protocol):
    """The ledger, as it is needed here."""

    name: str
    id: int
    columns: Columns
    deliveries: Deliveries

    def deliver(self, entry: Delivered, term: int) -> Results: ...
    def release(self, entry: Released) -> Results: ...
    def acknowledge(self, entry: Ack) -> Results: ...
    def publish_in_steps(self, entry: Publish, at_ms: int) -> Steps[Results]: ...
    def discard(self, numbers: range) -> None: ...


class Staging:
    """What is staged in one queue, in this incarnation of it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.sources: dict[str, Source] = {}
        self.stashes: dict[str, Put] = {}
        self.writers: dict[str, Writer] = {}
        self.jobs: dict[str, Writer] = {}
        self._kept: dict[str, dict[str, Any]] = {
            SOURCE: self.sources,
            STASH: self.stashes,
            WRITER: self.writers,
            JOB: self.jobs,
        }
        self._dirty: set[Name] = set()

    # --- looking ---------------------------------------------------------------------------------------------------

    def epoch(self, source: str, epoch: int) -> Epoch | None:
        """Return an open epoch."""
        found = self.sources.get(source)
        return None if found is None else next((one for one in found.epochs if one.epoch == epoch), None)

    def open_epochs(self, source: str, through: int) -> list[Epoch]:
        """Return the open epochs of a source up to one."""
        found = self.sources.get(source)
        return [] if found is None else [one for one in found.epochs if one.epoch <= through]

    def has_lapsed(self, source: str, epoch: int) -> bool:
        """Whether an epoch ended by itself: nobody settled it, and its messages went back."""
        found = self.sources.get(source)
        return found is not None and epoch in found.lapsed

    def refusal(self, source: str, epoch: int, at_ms: int) -> int:
        """Return 0 if an epoch may be staged anew, else why not."""
        found = self.sources.get(source)
        if found is None:
            return Result.DONE if self._has_room(SOURCE, at_ms) else Result.BUSY
        if epoch <= found.highest:
            return Result.EPOCH_EXPIRED
        return Result.BUSY if len(found.epochs) >= OPEN_EPOCHS_MAX else Result.DONE

    def holder_of(self, token: Token) -> tuple[str, Epoch] | None:
        """Return the source and the epoch that a token belongs to."""
        for name, source in self.sources.items():
            for one in source.epochs:
                if one.term == token[0] and 0 <= token[1] - one.first_sequence < len(one.numbers):
                    return name, one
        return None

    def names(self) -> list[Name]:
        """Return everything that will end by itself."""
        return [(SOURCE, name) for name in self.sources] + [(STASH, name) for name in self.stashes]

    def ends_of(self, name: Name) -> dict[int, int]:
        """Return until when the epochs of a source last, by epoch, or a stash (as epoch 0); empty if it is over."""
        kind, text = name
        if kind == SOURCE:
            source = self.sources.get(text)
            return {} if source is None else {one.epoch: one.until_ms for one in source.epochs}
        put = self.stashes.get(text)
        return {} if put is None else {0: put.until_ms}

    @property
    def claimed(self) -> int:
        """How large the open epochs were when they were made; what somebody settled by its uid meanwhile counts too."""
        return sum(len(one.numbers) for source in self.sources.values() for one in source.epochs)

    @property
    def stashed(self) -> int:
        return sum(put.size for put in self.stashes.values())

    # --- claims ----------------------------------------------------------------------------------------------------

    def claim(self, entry: Claim, term: int, at_ms: int) -> Steps[Results]:
        """Return the sizes of the slices (staged), how many epochs (renewed), codes (settled, lapsed); or a refusal."""
        if entry.queue_id != self._queue.id:
            return [Result.UNKNOWN] * max(1, len(entry.numbers))
        self._forget(at_ms)
        match entry.action:
            case ClaimAction.STAGED:
                return (yield from self._stage(entry, term, at_ms))
            case ClaimAction.RENEWED:
                return self._renew(entry, at_ms)
            case ClaimAction.SETTLED:
                return (yield from self._settle(entry, at_ms))
            case ClaimAction.LAPSED:
                return (yield from self._lapse(entry, at_ms))

    def _stage(self, entry: Claim, term: int, at_ms: int) -> Steps[Results]:
        found = self.epoch(entry.source, entry.epoch)
        if found is not None:
            return found.sizes
        code = self.refusal(entry.source, entry.epoch, at_ms)
        if code:
            return [code]
        queue = self._queue
        lives, is_leased = queue.columns.lives, queue.deliveries.is_leased
        first = entry.first_sequence
        numbers: list[int] = []
        for among in slices(len(entry.numbers)):
            if among.start:
                yield
            mine = [number for number in entry.numbers[among] if lives(number) and not is_leased(number)]
            sequence = first + len(numbers)
            queue.deliver(Delivered(queue.name, queue.id, mine, [UNENDING_MS] * len(mine), sequence), term)
            numbers += mine
        if not numbers:
            return [Result.UNKNOWN]
        made = Epoch(entry.epoch, numbers, entry.slices, term, first, entry.until_ms)
        source = self.sources.get(entry.source)
        if source is None:
            self._make_room(SOURCE, at_ms)
            source = Source(0, 0, [])
        source.highest = entry.epoch
        source.epochs.append(made)
        self._used(entry.source, source, at_ms)
        return made.sizes

    def _renew(self, entry: Claim, at_ms: int) -> Results:
        source = self.sources.get(entry.source)
        if source is None or not source.epochs:
            return [Result.EPOCH_EXPIRED]
        for one in source.epochs:
            one.until_ms = entry.until_ms
        self._used(entry.source, source, at_ms)
        return [len(source.epochs)]

    def _settle(self, entry: Claim, at_ms: int) -> Steps[Results]:
        if self.has_lapsed(entry.source, entry.epoch):  # while this was on its way
            return [Result.EPOCH_EXPIRED] * len(entry.numbers)
        source = self.sources.get(entry.source)
        if source is not None:
            source.epochs = [one for one in source.epochs if (one.term, one.first_sequence) not in entry.tokens]
            self._used(entry.source, source, at_ms)
        queue = self._queue
        is_leased = queue.deliveries.is_leased
        codes: list[int] = []
        for among in slices(len(entry.numbers)):
            if among.start:
                yield
            numbers = [number if is_leased(number) else GIVEN_BACK for number in entry.numbers[among]]
            codes += queue.acknowledge(Ack(queue.name, queue.id, numbers, entry.tokens[among]))
        return codes

    def _lapse(self, entry: Claim, at_ms: int) -> Steps[Results]:
        source, over = self.sources.get(entry.source), self.epoch(entry.source, entry.epoch)
        if source is None or over is None or over.until_ms > at_ms:
            return [Result.UNKNOWN] * len(entry.numbers)  # renewed or settled meanwhile
        source.epochs.remove(over)
        source.lapsed = [*source.lapsed, over.epoch][-OPEN_EPOCHS_MAX:]
        self._dirty.add((SOURCE, entry.source))
        queue = self._queue
        codes: list[int] = []
        for among in slices(len(entry.numbers)):
            if among.start:
                yield
            numbers, tokens = entry.numbers[among], entry.tokens[among]
            codes += queue.release(Released(queue.name, queue.id, numbers, [0] * len(numbers), tokens, Reason.TIMEOUT))
        return codes

    def _used(self, name: str, source: Source, at_ms: int) -> None:
        source.used_ms = at_ms
        self.sources.pop(name, None)  # to the end of the line of those that will be forgotten
        self.sources[name] = source
        self._dirty.add((SOURCE, name))

    # --- stashes ---------------------------------------------------------------------------------------------------

    def stash(self, entry: Stash, at_ms: int) -> Steps[Results]:
        """Return the numbers of hidden messages, REPEATED for each of a part that is known, or a refusal for each."""
        self._forget(at_ms)
        put = self.stashes.get(entry.stash)
        if put is not None and entry.part in put.parts:
            self._keep(entry.stash, put, at_ms + entry.keep_ms)
            return [Result.REPEATED] * len(entry.drafts)
        if put is None and len(self.stashes) >= STASHES_MAX:
            return [Result.BUSY] * len(entry.drafts)
        results = yield from self._queue.publish_in_steps(Publish(entry.queue, entry.drafts, atomic=True), at_ms)
        if results[0] < 0:
            return results
        numbers = range(results[0], results[0] + len(results))
        self._queue.columns.hide(numbers)
        put = self.stashes[entry.stash] = put or Put({}, 0)
        put.parts[entry.part] = numbers.start, len(numbers)
        self._keep(entry.stash, put, at_ms + entry.keep_ms)
        return numbers

    def _keep(self, name: str, put: Put, until_ms: int) -> None:
        put.until_ms = until_ms
        self._dirty.add((STASH, name))

    def unstash(self, entry: Unstash, at_ms: int) -> Steps[tuple[Results, list[range]]]:
        """Return [how many were published, the writer's last epoch] or [a refusal], and what is revealed or gone."""
        self._forget(at_ms)
        if entry.action is UnstashAction.PUBLISHED:
            return (yield from self._publish(entry, at_ms))
        names = [name for name, _ in entry.stashes]
        if entry.action is UnstashAction.LAPSED:
            names = [name for name in names if name in self.stashes and self.stashes[name].until_ms <= at_ms]
        return [Result.DONE, 0], (yield from self._drop(names))

    def _publish(self, entry: Unstash, at_ms: int) -> Steps[tuple[Results, list[range]]]:
        kind, writers = (WRITER, self.writers) if entry.epoch or not entry.stashes else (JOB, self.jobs)
        writer = writers.get(entry.writer)
        highest = 0 if writer is None else writer.highest
        if not (entry.epoch or entry.stashes):  # who has nothing to publish asks
            return [Result.DONE, highest], []
        if entry.epoch < highest:  # a repetition is one of the last epoch: this is another writer of this name
            return [Result.EPOCH_OLD], []
        if writer is not None and entry.epoch == highest:
            return [Result.DONE, highest], (yield from self._drop([name for name, _ in entry.stashes]))
        if not all(self._has(name, size) for name, size in entry.stashes):
            return [Result.STASH_EXPIRED], []
        if writer is None:
            if not self._has_room(kind, at_ms):
                return [Result.BUSY], []
            self._make_room(kind, at_ms)
        ranges = [numbers for name, _ in entry.stashes for numbers in self._take(name)]
        for numbers in ranges:
            self._queue.columns.reveal(numbers)
        writers.pop(entry.writer, None)  # to the end of the line of those that will be forgotten
        writers[entry.writer] = Writer(entry.epoch, at_ms)
        self._dirty.add((kind, entry.writer))
        return [sum(map(len, ranges)), entry.epoch], ranges

    def _has(self, stash: str, size: int) -> bool:
        put = self.stashes.get(stash)
        return put is not None and put.size == size

    def _drop(self, names: Iterable[str]) -> Steps[list[range]]:
        ranges = [numbers for name in names for numbers in self._take(name)]
        for numbers in ranges:
            for among in slices(len(numbers)):
                if among.start:
                    yield
                self._queue.discard(numbers[among])
        return ranges

    def _take(self, name: str) -> list[range]:
        """Forget a stash; return the numbers of its parts, in their order."""
        put = self.stashes.pop(name, None)
        if put is None:
            return []
        self._dirty.add((STASH, name))
        return [range(first, first + count) for _, (first, count) in sorted(put.parts.items())]

    # --- time, writing down, coming back ---------------------------------------------------------------------------

    def _forget(self, at_ms: int) -> None:
        """Drop what was not used for long."""
        for kind, kept_ms in ((SOURCE, KEPT_MS), (WRITER, KEPT_MS), (JOB, JOB_KEPT_MS)):
            for name in self._unused_since(kind, at_ms - kept_ms):
                del self._kept[kind][name]
                self._dirty.add((kind, name))

    def _unused_since(self, kind: str, moment_ms: int) -> list[str]:
        """Return what was not used after a moment, and of which nothing is open; whatever was used is at the end."""
        unused = takewhile(lambda row: row[1].used_ms <= moment_ms, self._kept[kind].items())
        return [name for name, one in unused if kind != SOURCE or not one.epochs]

    def _has_room(self, kind: str, at_ms: int) -> bool:
        """Whether there may be one more, perhaps for one that nobody has used for a while."""
        return not self._is_full(kind) or self._idlest(kind, at_ms) is not None

    def _make_room(self, kind: str, at_ms: int) -> None:
        name = self._idlest(kind, at_ms) if self._is_full(kind) else None
        if name is not None:
            del self._kept[kind][name]
            self._dirty.add((kind, name))

    def _is_full(self, kind: str) -> bool:
        return len(self._kept[kind]) >= {SOURCE: SOURCES_MAX, WRITER: WRITERS_MAX, JOB: JOBS_MAX}[kind]

    def _idlest(self, kind: str, at_ms: int) -> str | None:
        """Return the one unused longest, if that is a day, and nothing of it is open; of several the first by name."""
        longest_ms = next(iter(self._kept[kind].values())).used_ms
        return min(self._unused_since(kind, min(longest_ms, at_ms - KEPT_MS_MIN)), default=None)

    def collect(self) -> list[tuple[Name, bytes | None]]:
        """Return what changed since the last call as it is to be written down; None for what is gone."""
        dirty, self._dirty = self._dirty, set()
        rows = [((kind, name), self._kept[kind].get(name)) for kind, name in sorted(dirty)]
        return [(key, None if value is None else msgspec.msgpack.encode(value)) for key, value in rows]

    def restore(self, rows: Iterable[tuple[Name, bytes]]) -> None:
        """Take back what was written down; whatever was used is at the end again."""
        found = [(kind, name, staged_of(kind, name, value)) for (kind, name), value in rows]
        for kind, name, one in sorted(found, key=lambda row: 0 if row[0] == STASH else row[2].used_ms):
            self._kept[kind][name] = one
