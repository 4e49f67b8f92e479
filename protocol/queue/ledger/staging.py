"""Staging: claims of epochs and stashed publishes of one queue (docs/internals/staging.md).

    Claim, Stash, Unstash, moment --> the ledger's own deliveries, acknowledgements, publishes --> results

Pure, and a part of the ledger: changed only by committed entries, alike on every node, and forgetful by the moments of
entries alone.  It keeps names and numbers; what a message is, the ledger knows.  A message of a claim is out without
an end of its own, and one of a stash has a due moment below zero.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, TypeAlias

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
READERS_MAX = 8  # of one source
RUNS_MAX = 8  # of the reader of one batch, of which it is known that they have read
SETTLED_RANGES_MAX = 100  # of one source: so often may its epochs lapse before it is forgotten that one was settled


class Epoch(msgspec.Struct):
    """The claim of one epoch: its messages in the order in which they stood in line, and their tokens."""

    epoch: int
    numbers: list[int]
    slices: int
    term: int
    first_sequence: int  # of the first number; they run on
    until_ms: int
    published: bool = False  # what its reader made of it is published: at its end it is acknowledged

    def tokens(self) -> list[Token]:
        """Return the token of each message."""
        term, first = self.term, self.first_sequence
        return [(term, sequence) for sequence in range(first, first + len(self.numbers))]

    def rows(self, start: int = 0, end: int | None = None) -> list[tuple[int, Token]]:
        """Return messages, each with its token."""
        part, first = self.numbers[start:end], self.first_sequence + start
        return [(number, (self.term, sequence)) for sequence, number in enumerate(part, first)]

    def holds(self, token: Token) -> bool:
        """Whether a token is that of one of the messages."""
        return token[0] == self.term and 0 <= token[1] - self.first_sequence < len(self.numbers)

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


class Reading(msgspec.Struct):
    """What a reader of a source reads."""

    batch: int
    epoch: int
    runs: list[str] = []  # the last ones that may have messages of this epoch
    published: bool = False  # what the reader made of this epoch is published, even if it was made without messages


class Source(msgspec.Struct):
    """Who claims.  An epoch up to the highest that is neither open nor settled has lapsed, or was released."""

    highest: int  # that it ever staged
    used_ms: int
    epochs: list[Epoch]  # that are open
    settled: list[tuple[int, int]] = []  # first and last of each range; those too that its reader went on without
    readers: dict[str, Reading] = {}  # by name; whoever read last is at the end

    def settle(self, first: int, last: int) -> None:
        """Note that epochs are settled; they are higher than those of the last range, or lie between two."""
        if first > last:
            return
        ranges: list[tuple[int, int]] = []
        for one in sorted([*self.settled, (first, last)]):
            if ranges and one[0] <= ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], max(ranges[-1][1], one[1])
            else:
                ranges.append(one)
        self.settled = ranges[-SETTLED_RANGES_MAX:]

    def has_settled(self, epoch: int) -> bool:
        return any(first <= epoch <= last for first, last in self.settled)


class Put(msgspec.Struct):
    """One stash: its parts as (first number, how many), by their number; and for which epoch it was made, if any."""

    parts: dict[int, tuple[int, int]]
    until_ms: int
    writer: str = ""
    epoch: int = 0  # 0: of a job

    @property
    def size(self) -> int:
        return sum(count for _, count in self.parts.values())


class Writer(msgspec.Struct):
    """Who publishes stashes: the last epoch that it published; 0 for a job, which publishes once."""

    highest: int
    used_ms: int
    run: str = ""  # the last request that published this epoch, or repeated it
    id: str = ""
    reader: str = ""
    dropped: bool = False  # a job that ended without publishing


class Unstashed(NamedTuple):
    """What an entry did to stashes: [how many messages were published, the writer's last epoch], or [a refusal]."""

    results: Results
    published: list[range]
    dropped: list[range]
    names: list[str]  # of the stashes that may be gone


Name: TypeAlias = tuple[str, str]  # the kind of what is kept (its letter in the state store), and its name
SOURCE, STASH, WRITER, JOB = "c", "t", "w", "j"
TYPES = {SOURCE: Source, STASH: Put, WRITER: Writer, JOB: Writer}


def _under(source: Source, tokens: Sequence[Token]) -> list[Epoch]:
    """Return the open epochs of which an entry names the first message."""
    return [one for one in source.epochs if (one.term, one.first_sequence) in tokens]


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
        self.has_new_readers = False  # since somebody last asked who reads

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
        """Whether an epoch ended without being settled: its messages went back."""
        found = self.sources.get(source)
        if found is None or epoch > found.highest or self.epoch(source, epoch) is not None:
            return False
        return not found.has_settled(epoch)

    def refusal(self, source: str, epoch: int, at_ms: int) -> int:
        """Return 0 if an epoch may be staged anew, else why not."""
        found = self.sources.get(source)
        if found is None:
            return Result.DONE if self._has_room(SOURCE, at_ms) else Result.BUSY
        if epoch <= found.highest:
            return self.end_of(source, epoch)
        return Result.BUSY if len(found.epochs) >= OPEN_EPOCHS_MAX else Result.DONE

    def end_of(self, source: str, epoch: int) -> int:
        """Return how an epoch that is not open has ended; one that is not known has expired."""
        found = self.sources.get(source)
        is_settled = found is not None and found.has_settled(epoch)
        return Result.EPOCH_SETTLED if is_settled else Result.EPOCH_EXPIRED

    def holder_of(self, token: Token) -> tuple[str, Epoch] | None:
        """Return the source and the epoch that a token belongs to."""
        for name, source in self.sources.items():
            for one in source.epochs:
                if one.holds(token):
                    return name, one
        return None

    def is_published(self, token: Token) -> bool:
        """Whether what came of a message is published, so that its claim can end in one way only."""
        return any([one.holds(token) for one in self.published_epochs()])

    def published_epochs(self) -> list[Epoch]:
        """Return the open epochs that are published: a few, or none."""
        return [one for source in self.sources.values() for one in source.epochs if one.published]

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

    def claims(self) -> list[dict[str, Any]]:
        """Return what is claimed: the open epochs of all sources, with who has read from the source."""
        return [
            {
                "source": name,
                "epoch": one.epoch,
                "messages": len(one.numbers),
                "until_ms": one.until_ms,
                "is_published": one.published,
                "readers": list(source.readers),
            }
            for name, source in self.sources.items()
            for one in source.epochs
        ]

    # --- claims ----------------------------------------------------------------------------------------------------

    def claim(self, entry: Claim, term: int, at_ms: int) -> Steps[Results]:
        """Return the sizes of the slices (staged), how many epochs (renewed), codes (settled, lapsed, released)."""
        if entry.queue_id != self._queue.id and entry.action is not ClaimAction.PUBLISHED:
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
            case ClaimAction.RELEASED:
                return (yield from self._release(entry, at_ms))
            case ClaimAction.READ:
                return self._read(entry, at_ms)
            case ClaimAction.PUBLISHED:
                return self._note_published(entry)
            case ClaimAction.FINISHED:
                return (yield from self._finish(entry, at_ms))

    def _stage(self, entry: Claim, term: int, at_ms: int) -> Steps[Results]:
        found = self.epoch(entry.source, entry.epoch)
        if found is not None:
            return [Result.EPOCH_SETTLED] if found.published else found.sizes
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
        source.settle(source.highest + 1, entry.epoch - 1)  # without messages, so none of them comes back
        source.highest = entry.epoch
        source.epochs.append(made)
        self._used(entry.source, source, at_ms)
        return made.sizes

    def _renew(self, entry: Claim, at_ms: int) -> Results:
        source = self.sources.get(entry.source)
        # An epoch whose time is over stays over, though its end is not in the log yet: readers were told so.
        lasting = [] if source is None else [one for one in source.epochs if one.until_ms > at_ms]
        if source is None or not lasting:
            return [Result.EPOCH_EXPIRED]
        for one in lasting:
            one.until_ms = entry.until_ms
        self._used(entry.source, source, at_ms)
        return [len(lasting)]

    def _settle(self, entry: Claim, at_ms: int) -> Steps[Results]:
        if self.has_lapsed(entry.source, entry.epoch):  # while this was on its way
            return [Result.EPOCH_EXPIRED] * len(entry.numbers)
        source = self.sources.get(entry.source)
        if source is not None:
            for one in _under(source, entry.tokens):
                source.epochs.remove(one)
                source.settle(one.epoch, one.epoch)
            self._used(entry.source, source, at_ms)
        return (yield from self._acknowledge(entry))

    def _finish(self, entry: Claim, at_ms: int) -> Steps[Results]:
        source, over = self.sources.get(entry.source), self.epoch(entry.source, entry.epoch)
        if source is None or over is None or not over.published or over.until_ms > at_ms:
            return [Result.UNKNOWN] * len(entry.numbers)  # renewed or settled meanwhile
        source.epochs.remove(over)
        source.settle(over.epoch, over.epoch)
        self._dirty.add((SOURCE, entry.source))
        return (yield from self._acknowledge(entry))

    def _acknowledge(self, entry: Claim) -> Steps[Results]:
        """Remove the messages of a claim, but for those that are not under it any more."""
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
        if source is None or over is None or over.until_ms > at_ms or over.published:
            return [Result.UNKNOWN] * len(entry.numbers)  # renewed, settled or published meanwhile
        source.epochs.remove(over)
        self._dirty.add((SOURCE, entry.source))
        return (yield from self._give_back(entry, Reason.TIMEOUT))

    def _release(self, entry: Claim, at_ms: int) -> Steps[Results]:
        source = self.sources.get(entry.source)
        ended = [] if source is None else _under(source, entry.tokens)
        if source is None or not ended:
            return [Result.UNKNOWN] * len(entry.numbers)  # settled or lapsed meanwhile
        if any(one.published for one in ended):  # meanwhile: its messages must not come back
            return [Result.REJECTED] * len(entry.numbers)
        for one in ended:
            source.epochs.remove(one)
        self._used(entry.source, source, at_ms)
        return (yield from self._give_back(entry, Reason.RETURNED))

    def _give_back(self, entry: Claim, reason: Reason) -> Steps[Results]:
        """Make the messages of a claim ready again, but for those that are not under it any more."""
        queue = self._queue
        codes: list[int] = []
        for among in slices(len(entry.numbers)):
            if among.start:
                yield
            numbers, tokens = entry.numbers[among], entry.tokens[among]
            codes += queue.release(Released(queue.name, queue.id, numbers, [0] * len(numbers), tokens, reason))
        return codes

    def _read(self, entry: Claim, at_ms: int) -> Results:
        """Note who reads an epoch; of one that is over nobody gets messages any more."""
        source = self.sources.get(entry.source)
        if source is None or entry.epoch > source.highest:
            return [Result.UNKNOWN]
        mine = source.readers.get(entry.reader)
        if mine is not None and entry.batch < mine.batch:  # a task of a batch that is done
            return [Result.UNKNOWN]
        if mine is None or (mine.batch, mine.epoch) != (entry.batch, entry.epoch):
            mine = Reading(entry.batch, entry.epoch)
        if entry.run not in mine.runs and self._is_shown(entry.source, mine):
            mine.runs = [*mine.runs, entry.run][-RUNS_MAX:]
        source.readers.pop(entry.reader, None)  # to the end of the line of those that will be forgotten
        source.readers[entry.reader] = mine
        while len(source.readers) > READERS_MAX:
            del source.readers[next(iter(source.readers))]
        self.has_new_readers = True
        self._used(entry.source, source, at_ms)
        return [Result.DONE]

    def _is_shown(self, source: str, reading: Reading) -> bool:
        """Whether a reader is shown the messages of its epoch: it is open, and no other reader has published it."""
        found = self.epoch(source, reading.epoch)
        return found is not None and (reading.published or not found.published)

    def is_read(self, source: str, epoch: int, reader: str, batch: int, run: str) -> bool:
        """Whether it is noted already that a run of a reader reads an epoch in a batch."""
        found = self.sources.get(source)
        mine = None if found is None else found.readers.get(reader)
        if found is None or epoch > found.highest or (mine is not None and mine.batch > batch):
            return True  # it cannot be
        if mine is None or (mine.batch, mine.epoch) != (batch, epoch):
            return False
        return run in mine.runs or not self._is_shown(source, mine)

    def reading_of(self, source: str, epoch: int, reader: str, batch: int) -> Reading | None:
        """Return what is known of a reader that reads an epoch in a batch."""
        found = self.sources.get(source)
        mine = None if found is None else found.readers.get(reader)
        return mine if mine is not None and (mine.batch, mine.epoch) == (batch, epoch) else None

    def readings(self) -> dict[str, int]:
        """Return the readers of all sources, and the last batch of each."""
        self.has_new_readers = False
        batches: dict[str, int] = {}
        for source in self.sources.values():
            for reader, reading in source.readers.items():
                batches[reader] = max(batches.get(reader, 0), reading.batch)
        return batches

    def judge_published(self, reader: str, batch: int, run: str) -> int:
        """Return 0 if what a run of a reader made of a batch may be published, else how an epoch in it has ended."""
        mine = self._read_in(reader, batch)
        if not mine:  # the queue was purged since
            return Result.EPOCH_EXPIRED
        for name, source, reading in mine:
            if run not in reading.runs:  # it was shown nothing
                continue
            if reading.published:  # by another writer, or to another queue: else it would be a repetition
                return Result.EPOCH_SETTLED
            if not self._is_shown(name, reading):
                is_open = self.epoch(name, reading.epoch) is not None
                is_settled = is_open or source.has_settled(reading.epoch)
                return Result.EPOCH_SETTLED if is_settled else Result.EPOCH_EXPIRED
        return Result.DONE

    def _note_published(self, entry: Claim) -> Results:
        for name, source, reading in self._read_in(entry.reader, entry.batch):
            reading.published = True
            found = self.epoch(name, reading.epoch)
            if found is not None:
                found.published = True
            elif not source.has_settled(reading.epoch):  # the reader has gone on without it
                source.settle(reading.epoch, reading.epoch)
            self._dirty.add((SOURCE, name))
        return [Result.DONE]

    def _read_in(self, reader: str, batch: int) -> list[tuple[str, Source, Reading]]:
        """Return the sources that a reader has read in a batch."""
        rows = [(name, source, source.readers.get(reader)) for name, source in self.sources.items()]
        return [(name, source, mine) for name, source, mine in rows if mine is not None and mine.batch == batch]

    def _used(self, name: str, source: Source, at_ms: int) -> None:
        source.used_ms = at_ms
        self.sources.pop(name, None)  # to the end of the line of those that will be forgotten
        self.sources[name] = source
        self._dirty.add((SOURCE, name))

    # --- stashes ---------------------------------------------------------------------------------------------------

    def stash(self, entry: Stash, at_ms: int) -> Steps[Results]:
        """Return the numbers of hidden messages, REPEATED for each of a part that is known, or a refusal for each."""
        self._forget(at_ms)
        if self._is_over(entry.writer, entry.epoch):
            return [Result.EPOCH_OLD] * len(entry.drafts)
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
        put = self.stashes[entry.stash] = put or Put({}, 0, entry.writer, entry.epoch)
        put.parts[entry.part] = numbers.start, len(numbers)
        self._keep(entry.stash, put, at_ms + entry.keep_ms)
        return numbers

    def _keep(self, name: str, put: Put, until_ms: int) -> None:
        put.until_ms = until_ms
        self._dirty.add((STASH, name))

    def _is_over(self, writer: str, epoch: int) -> bool:
        """Whether a writer has published this epoch or a later one, or a job has ended."""
        if not epoch:
            return writer in self.jobs
        return writer in self.writers and epoch <= self.writers[writer].highest

    def unstash(self, entry: Unstash, at_ms: int) -> Steps[Unstashed]:
        """Publish or drop stashes, all in one step or none."""
        self._forget(at_ms)
        if entry.action is UnstashAction.PUBLISHED:
            return (yield from self._publish(entry, at_ms))
        names = [name for name, _ in entry.stashes]
        if entry.action is UnstashAction.LAPSED:
            names = [name for name in names if name in self.stashes and self.stashes[name].until_ms <= at_ms]
        elif entry.writer:
            names += self._stashes_of(entry.writer, entry.epoch)
            is_known = entry.epoch or entry.writer in self.jobs
            if not is_known and self._has_room(JOB, at_ms):
                self._make_room(JOB, at_ms)
                self._wrote(JOB, entry, Writer(0, at_ms, dropped=True))
        return Unstashed([Result.DONE, 0], [], (yield from self._drop(names)), names)

    def judge_publish(self, entry: Unstash, at_ms: int) -> int:
        """Return 0 if an entry would publish, REPEATED if its epoch was published before, else why it is refused."""
        kind = WRITER if entry.epoch else JOB
        writer = self._kept[kind].get(entry.writer)
        if writer is not None and kind == WRITER and writer.used_ms <= at_ms - KEPT_MS:
            writer = None  # it is forgotten when this is applied
        if writer is not None and not writer.dropped:
            if entry.epoch < writer.highest:  # a repetition is one of the last epoch: this is another writer
                return Result.EPOCH_OLD
            if entry.epoch == writer.highest:
                is_another = entry.run and entry.run == writer.run and entry.id != writer.id
                is_another = is_another or entry.reader != writer.reader  # who would lose what it has read
                return Result.EPOCH_OLD if is_another else Result.REPEATED
        if not all(self._has(name, size) for name, size in entry.stashes):
            return Result.STASH_EXPIRED
        return Result.DONE if writer is not None or self._has_room(kind, at_ms) else Result.BUSY

    def _publish(self, entry: Unstash, at_ms: int) -> Steps[Unstashed]:
        if not (entry.epoch or entry.stashes):  # who has nothing to publish asks
            known = self.writers.get(entry.writer)
            return Unstashed([Result.DONE, 0 if known is None else known.highest], [], [], [])
        code = self.judge_publish(entry, at_ms)
        if code and code != Result.REPEATED:
            return Unstashed([code], [], [], [])
        kind = WRITER if entry.epoch else JOB
        published: list[range] = []
        if not code:
            if entry.writer not in self._kept[kind]:
                self._make_room(kind, at_ms)
            published = [numbers for name, _ in entry.stashes for numbers in self._take(name)]
            for numbers in published:
                self._queue.columns.reveal(numbers)
        if not code or entry.run:
            self._wrote(kind, entry, Writer(entry.epoch, at_ms, entry.run, entry.id, entry.reader))
        names = [name for name, _ in entry.stashes] + self._stashes_of(entry.writer, entry.epoch)
        dropped = yield from self._drop(names)
        return Unstashed([sum(map(len, published)), entry.epoch], published, dropped, names)

    def _wrote(self, kind: str, entry: Unstash, writer: Writer) -> None:
        writers = self._kept[kind]
        writers.pop(entry.writer, None)  # to the end of the line of those that will be forgotten
        writers[entry.writer] = writer
        self._dirty.add((kind, entry.writer))

    def _stashes_of(self, writer: str, epoch: int) -> list[str]:
        """Return the stashes that a writer has made for an epoch or an earlier one, or (0) as a job."""
        if not writer:
            return []
        mine = ((name, put.epoch) for name, put in self.stashes.items() if put.writer == writer)
        return [name for name, made_for in mine if (0 < made_for <= epoch if epoch else not made_for)]

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
                self._forget_one(kind, name)

    def _forget_one(self, kind: str, name: str) -> None:
        gone = self._kept[kind].pop(name)
        self._dirty.add((kind, name))
        self.has_new_readers |= kind == SOURCE and bool(gone.readers)

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
            self._forget_one(kind, name)

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
