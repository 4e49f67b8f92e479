"""Sampler: looks at the queues every ten seconds, for the charts of the dashboard.

    Tick --> counters and states of queues, a slice at a time --> Series of the node, and of the busiest queues
         --> once a minute the file of the series, written in a thread of its own

The leader knows everything.  A follower knows what was published, delivered and acknowledged on the whole node; all
else is unknown there, and queues have no new values.  A node that catches up knows nothing: what it applies happened
earlier.  A queue that is deleted loses its series.

The cost is bounded, however many queues there are: while there are more than LOOKS_MAX, each look reaches those that
have a series, those that had entries, and some more; the states of the node are those of the last complete walk.
Nothing is done here for a single message.  While the file is being written no series changes: a look that is due then
comes once it is written, the last one if there are several.  A look that takes longer than a step leaves the next out.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wakeq.actors.mail import Tick
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.listing import SLICE_QUEUES
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.timings import Timings
from wakeq.protocol.queue.view import counts_of, published_of
from wakeq.protocol.series import DAY_S, STEP_S, Look, Series
from wakeq.storage.series_file import SeriesFile
from wakeq.storage.thread import Disk

if TYPE_CHECKING:
    from wakeq.actors.queues.supervisor import Queues

TICK = "series"
# Queues that are looked at in ten seconds: some tens of milliseconds of work.
LOOKS_MAX = 10_000
WRITE_EVERY_S = 60
EARLY_MS = 1_000
# How much the last look counts for how busy a queue was lately; it is half of it after four minutes.
WEIGHT = 0.03
# A queue without a series must be this many times as busy as the idlest one with a series to take its place.
BUSIER = 2
# Queues without a series whose activity is remembered.
CANDIDATES_MAX = 10_000


logger = logging.getLogger("wakeq.series")


NO_COUNTERS = (None, None, None, None)
NO_STATES = (None, None, None)
# Seen of a queue before it is created.
NOTHING_YET = Look((0, 0, 0, 0), (0, 0, 0))


class ReadSeries(msgspec.Struct, gc=False):
    """A request for the series of a queue, or (None) of the node."""

    asker: ReplyTo
    # This name is not `queue`: mail with that is for a queue.
    name: str | None
    step_s: int
    # How far back.
    last_s: int


class SeriesWritten(msgspec.Struct, frozen=True, gc=False):
    """The file of the series is written, or could not be: then its own object has logged why."""


class LookOn(msgspec.Struct, frozen=True, gc=False):
    """To the supervisor itself: look at the next slice of queues."""


class Candidate(NamedTuple):
    """A queue without a series that had entries since the last look."""

    # How much it did since the last look; 0 if that is not known.
    grown: int
    # How much it ever did.
    done: int
    look: Look
    # Whether it was created since the last look.
    is_new: bool


class Sampler:
    """The series of a node.  A part of Queues, which hears its mail."""

    def __init__(self, supervisor: "Queues", *, queues_max: int) -> None:
        # The series of the node, and of the busiest queues.
        self.node = Series(DAY_S)
        self.queues: dict[str, Series] = {}
        # The most queues that have a series; 0 for none.
        self.queues_max = queues_max
        self._queues = supervisor
        # The file, and the thread that writes it; None until the node has started.
        self._file: SeriesFile | None = None
        self._disk: Disk | None = None
        self._is_writing = False
        # Called when the last write is done, at a clean stop.
        self._written: Callable[[], None] | None = None
        # The look that is under way, and the moment of one that is due but has to wait for the file; 0 for none.
        self._look: Iterator[None] | None = None
        self._due_s = 0
        # How much each queue with a series did lately from look to look, as far as that is known.
        self._activity: dict[str, float] = {}
        # How much each of them, and others that might get a series, had ever done at the last look: publishes,
        # deliveries and acknowledgements.
        self._done: dict[str, int] = {}
        # The names that a walk over all queues still has to visit, and the sums of the states of those that it has.
        self._to_walk: list[str] = []
        self._walked = [0, 0, 0]
        # The states of all queues, as of the last complete walk; None before there was one.
        self._states: list[int] | None = None
        # The moment of the last look.
        self._looked_s = 0
        # Whether the node still caught up at that moment.
        self._was_behind = False

    def begin(self, file: SeriesFile, disk: Disk) -> None:
        """Take what the file has, and look every ten seconds from now on."""
        self._file, self._disk = file, disk
        found = file.read()
        if found is not None and found[0].rings[0].last * STEP_S <= self._now_s() + STEP_S:  # a look may come early
            self.node, queues = found
            self.queues = dict(islice(queues.items(), self.queues_max))
        self._queues.applier.touched = set()
        self._looked_s = self._now_s()
        self.node.start_from(self._looked_s, Look(NO_COUNTERS if self._is_behind() else self._counters(), NO_STATES))
        for name, series in self.queues.items():
            look = self._seen(name, self._looked_s * 1000)
            if look is not None:
                series.start_from(self._looked_s, look)
                self._done[name] = _done_of(look)
        self._look_later()

    def _now_s(self) -> int:
        return self._queues.services.now_ms() // 1000

    def _look_later(self) -> None:
        """Set the timer for the next moment that is a multiple of the step."""
        now_ms = self._queues.services.now_ms()
        after_ms = STEP_S * 1000 - now_ms % (STEP_S * 1000)
        if after_ms < EARLY_MS:  # this timer came a little early
            after_ms += STEP_S * 1000
        self._queues.services.later(after_ms / 1000, lambda: self._queues.tell(Tick(TICK)))

    # --- looking -----------------------------------------------------------------------------------------------------

    def on_tick(self) -> None:
        """Begin a look at the end of a step; the timer may come late, and a little early."""
        at_s = (self._queues.services.now_ms() + EARLY_MS) // (STEP_S * 1000) * STEP_S
        self._look_later()
        if self._is_writing:
            self._due_s = at_s
        elif self._look is None:
            self._look = self._look_around(at_s)
            self.look_on()

    def look_on(self) -> None:
        """Look at the next slice of queues, unless the look was given up."""
        for _ in self._look or ():
            self._queues.tell(LookOn())
            return
        self._look = None

    def _look_around(self, at_s: int) -> Iterator[None]:
        """Look at queues, then take what was seen; write the file once a minute."""
        queues = self._queues
        applier = queues.applier
        assert applier.touched is not None, "since `begin`"
        touched, applier.touched = applier.touched.union(applier.told), set()
        term = queues.processes.term if queues.services.refusal() is None else 0
        if term:
            yield from self._look_at_queues(at_s, touched)
        is_behind = self._is_behind()
        if is_behind:
            look = Look(NO_COUNTERS, NO_STATES, None, None)
        elif term and queues.processes.term == term:
            timings = queues.services.timings
            look = Look(self._counters(), self._states or NO_STATES, timings.waits, timings.works)
        else:
            look = Look((*self._counters()[:-1], None), NO_STATES, None, None)
        self.node.take(at_s, look)
        if is_behind:
            self.node.start_from(at_s, look)
        self._looked_s = at_s
        if at_s % WRITE_EVERY_S == 0:
            self.write()

    def _is_behind(self) -> bool:
        """Whether the node catches up: copies what it has missed, or has not applied all of that yet."""
        services = self._queues.services
        refusal = services.refusal()
        is_settled = refusal is None or (bool(refusal.leader) and not self._queues.applier.waiting)
        self._was_behind = services.is_catching_up() or (self._was_behind and not is_settled)
        return self._was_behind

    def _counters(self) -> tuple[int, int, int, int]:
        """Return what is counted of all queues together; only the leader counts failures, the last of these."""
        sums = self._queues.services.sums
        return sums.published, sums.delivered, sums.acked, _failed(self._queues.services.timings)

    def _look_at_queues(self, at_s: int, touched: set[str]) -> Iterator[None]:
        existing = self._queues.catalog.queues
        for name in [name for name in self.queues if name not in existing]:
            self._forget(name)
        if not self._to_walk:
            self._to_walk, self._walked = list(existing), [0, 0, 0]
        walk = self._to_walk[-LOOKS_MAX:]
        del self._to_walk[-LOOKS_MAX:]
        candidates: dict[str, Candidate] = {}
        for place, name in enumerate(walk, 1):
            look = self._seen(name, at_s * 1000)
            if look is not None:
                self._walked = [total + count for total, count in zip(self._walked, look.states, strict=True)]  # type: ignore[operator]
                self._note(name, at_s, look, touched, candidates)
            if place % SLICE_QUEUES == 0:
                yield
        if not self._to_walk:
            self._states = self._walked
        seen = set(walk)
        for place, name in enumerate([name for name in touched.union(self.queues) if name not in seen], 1):
            look = self._seen(name, at_s * 1000)
            if look is not None:
                self._note(name, at_s, look, touched, candidates)
            if place % SLICE_QUEUES == 0:
                yield
        yield from self._choose(at_s, candidates)

    def _seen(self, name: str, now_ms: int) -> Look | None:
        """Look at a queue; None if it is gone, applies an entry in steps, or has crashed."""
        queues = self._queues
        process = queues.processes.living(name)
        if process is None or not process.exists or process.steps is not None or name in queues.processes.away:
            return None
        found: list[Look] = []
        queues.runtime.run_in(process, _look_into, process, found, now_ms)
        return found[0] if found else None

    def _note(self, name: str, at_s: int, look: Look, touched: set[str], candidates: dict[str, Candidate]) -> None:
        """Take what was seen of a queue that has a series, or note that one that had entries might get one."""
        series, done = self.queues.get(name), _done_of(look)
        before = self._done.get(name)
        if series is not None:
            if before is not None:
                grown = max(0, done - before)
                lately = self._activity.get(name, grown)
                self._activity[name] = lately + WEIGHT * (grown - lately)
            self._done[name] = done
            series.take(at_s, look)
        elif name in touched and (record := self._queues.catalog.find(name)) is not None:
            is_new = record.created_ms >= self._looked_s * 1000
            grown = done if is_new else 0 if before is None else max(0, done - before)
            candidates[name] = Candidate(grown, done, look, is_new)

    def _choose(self, at_s: int, candidates: dict[str, Candidate]) -> Iterator[None]:
        """Give series to the busiest of the queues that have none, in place of much idler ones if there is no room."""
        busiest = sorted(candidates, key=lambda name: candidates[name].grown, reverse=True)
        idlest = iter(sorted(self.queues, key=lambda name: self._activity.get(name, 0)))
        for place, name in enumerate(busiest, 1):
            one = candidates[name]
            if len(self.queues) >= self.queues_max:
                idler = next(idlest, None)
                if idler is None or one.grown <= BUSIER * self._activity.get(idler, 0):
                    break
                self._forget(idler)
            series = self.queues[name] = Series()
            if one.is_new:
                series.start_from(self._looked_s, NOTHING_YET._replace(incarnation=one.look.incarnation))
            series.take(at_s, one.look)
            self._activity[name], self._done[name] = one.grown, one.done
            if place % SLICE_QUEUES == 0:
                yield
        rest = {name: candidates[name].done for name in busiest if name not in self.queues}
        kept = {name: self._done[name] for name in self.queues if name in self._done}
        self._done = kept | dict(islice(rest.items(), CANDIDATES_MAX))

    def _forget(self, name: str) -> None:
        del self.queues[name]
        self._activity.pop(name, None)
        self._done.pop(name, None)

    # --- the file ----------------------------------------------------------------------------------------------------

    def write(self, written: Callable[[], None] | None = None) -> None:
        """Write the file, then call `written`; nothing is written before the node has started."""
        self._written = written or self._written
        if self._is_writing:
            return
        if self._file is None or self._disk is None:
            self.on_written()
            return
        file, node, queues = self._file, self.node, dict(self.queues)
        self._is_writing = True
        self._look = None  # at a stop: one that is under way may not go on

        def done(result: object) -> None:
            if isinstance(result, BaseException):
                logger.error("the series of the charts are not written", exc_info=result)
            self._queues.tell(SeriesWritten())

        self._disk.submit(lambda: file.write(node, queues), done)

    def on_written(self) -> None:
        """The file is written: looks may change the series again, first the one that was due meanwhile."""
        self._is_writing = False
        written, self._written = self._written, None
        due_s, self._due_s = self._due_s, 0
        if written is not None:
            written()
        elif due_s:
            self._look = self._look_around(due_s)
            self.look_on()

    # --- answers -----------------------------------------------------------------------------------------------------

    def on_read(self, message: ReadSeries) -> None:
        """Answer with the series of the node, or of a queue that exists; one that was never busy has no values."""
        if message.name is None:
            series: Series | None = self.node
        else:
            refusal = self._queues.services.refusal()
            if refusal is None and message.name not in self._queues.catalog.queues:
                refusal = Refusal("Q_NOT_FOUND", f"queue {message.name} does not exist")
            if refusal is not None:
                message.asker.tell(refusal)
                return
            series = self.queues.get(message.name)
        answer: dict[str, Any] = (series or Series()).answer(message.step_s, message.last_s)
        message.asker.tell(answer)


def _look_into(process: QueueProcess, found: list[Look], now_ms: int) -> None:
    ledger, timings = process.ledger, process.timings
    totals = ledger.totals
    counters = published_of(ledger), totals.delivered, totals.acked, 0 if timings is None else _failed(timings)
    states = counts_of(ledger, process.leases, now_ms)
    waits, works = ((), ()) if timings is None else (timings.waits, timings.works)
    found.append(Look(counters, states, waits, works, ledger.id))


def _done_of(look: Look) -> int:
    return sum(count for count in look.counters[:3] if count is not None)


def _failed(timings: Timings) -> int:
    """Return how many deliveries have failed; one that its worker returned has not."""
    return sum(timings.ended) - timings.ended[Reason.RETURNED]
