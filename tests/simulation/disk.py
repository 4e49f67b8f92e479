"""Disk: the writes of a simulated node, and the part of them that a power cut leaves.

    write, truncate, save, restore, flush --> durable some time later, in order; then a report, perhaps late

Writes in flight at a crash are kept completely, in part or not at all, but never out of order: the log is one file.
The state store is another file, which returns to its last flush.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.entries import Entry
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import HardState, Told

if TYPE_CHECKING:
    from tests.simulation.world import World


class Image(msgspec.Struct, frozen=True):
    """The state behind an entry, in a state store or a snapshot."""

    index: int
    term: int
    chain: int
    state: int
    configs: tuple[tuple[int, Config], ...]  # those that a log up to this entry may still contain


class Job(msgspec.Struct):
    """A write in flight."""

    do: Callable[[Any], None]
    what: Any
    done: Callable[[], None]


class Disk:
    """The disk of one node.  The public attributes hold durable data."""

    def __init__(self, world: "World", disk_id: int, image: Image) -> None:
        self.world = world
        self.disk_id = disk_id
        self.incarnation = 0
        self.state = HardState(0, None)
        self.acknowledged: Told = ()
        self.store = image
        self.base, self.base_term, self.base_chain = image.index, image.term, image.chain
        self.entries: list[Entry] = []
        self.is_slow = False
        self.is_broken = False
        self.hangs = False  # the disk answers nothing, and no more writes become durable
        self.jobs_done = 0
        self._is_stuck = False  # a job is finished except that the disk hangs
        self._jobs: deque[Job] = deque()
        self._life = 0  # grows with each crash; reports of earlier lives are dropped
        self._held: list[tuple[int, Callable[[], None]]] | None = None  # reports, while they are held back

    @property
    def last_index(self) -> int:
        return self.base + len(self.entries)

    @property
    def open_jobs(self) -> int:
        return len(self._jobs)

    def chain_at(self, index: int) -> int | None:
        """Return the hash of the durable log up to an entry, None if it is not durable."""
        if index == self.base:
            return self.base_chain
        place = index - self.base - 1
        return self.entries[place][2] if 0 <= place < len(self.entries) else None

    # --- writing ----------------------------------------------------------------------------------------------------

    def submit(self, do: Callable[[Any], None], what: Any, done: Callable[[], None]) -> None:
        """Queue a write behind those in flight."""
        self._jobs.append(Job(do, what, done))
        if len(self._jobs) == 1:
            self._begin()

    def _begin(self) -> None:
        world = self.world
        span_us = int(world.random() * world.knobs.sync_us) + 1
        if self.is_slow:
            span_us *= 20
        if self._jobs[0].do == self.restore:
            span_us *= 10
        world.at(span_us, self._finish, self._life)

    def _finish(self, life: int) -> None:
        if life != self._life:
            return
        if self.hangs:
            self._is_stuck = True
            return
        if self.is_broken:
            self.world.disk_failed(self)
            return
        job = self._jobs.popleft()
        self.jobs_done += 1
        job.do(job.what)
        late_us = int(self.world.random() * self.world.knobs.report_us)
        self.world.at(late_us, self._report, (life, job.done))
        if self._jobs:
            self._begin()

    def _report(self, what: tuple[int, Callable[[], None]]) -> None:
        life, done = what
        if self._held is not None:
            self._held.append(what)
        elif life == self._life:
            done()

    def answer(self) -> None:
        """Stop hanging."""
        self.hangs = False
        if self._is_stuck:
            self._is_stuck = False
            self._finish(self._life)

    def hold_reports(self) -> None:
        """Go on writing, but report nothing until `release_reports`."""
        if self._held is None:
            self._held = []

    def release_reports(self) -> None:
        held, self._held = self._held or [], None
        for what in held:
            self._report(what)

    def put(self, what: tuple[int, list[Entry]]) -> None:
        first, entries = what
        assert first == self.last_index + 1, f"entry {first} is written after {self.last_index}"
        self.entries += entries

    def truncate(self, index: int) -> None:
        del self.entries[max(0, index - self.base - 1) :]

    def save(self, state: HardState) -> None:
        assert (state.term, state.vote is not None) >= (self.state.term, self.state.vote is not None), (
            "term or vote fell"
        )
        self.state = state

    def restore(self, image: Image) -> None:
        """Install first the state, then the log: a crash in between leaves a log that begins too early at worst."""
        self.store = image
        self.reset(image)

    def reset(self, image: Image) -> None:
        self.base, self.base_term, self.base_chain = image.index, image.term, image.chain
        self.entries = []

    def flush(self, image: Image) -> None:
        if image.index > self.store.index:
            self.store = image

    def cut(self, index: int) -> None:
        """Remove the entries up to index."""
        count = index - self.base
        if count > 0:
            self.base_term, _payload, self.base_chain = self.entries[count - 1]
            del self.entries[:count]
            self.base = index

    # --- crashing ---------------------------------------------------------------------------------------------------

    def crash(self, random: Random) -> None:
        """Lose the writes in flight, or a part of them."""
        self._life += 1
        self._held = None
        self._is_stuck = False
        keep = random.choice((0, 0, 1, len(self._jobs)))
        for job in list(self._jobs)[:keep]:
            job.do(job.what)
        if keep < len(self._jobs):
            self._tear(self._jobs[keep], random)
        self._jobs.clear()
        self.is_broken = False

    def _tear(self, job: Job, random: Random) -> None:
        """Do a part of a job: the beginning of a write, the first half of an installation."""
        if job.do == self.put:
            first, entries = job.what
            self.put((first, entries[: random.randrange(len(entries) + 1)]))
        elif job.do == self.restore and random.random() < 0.5:
            self.store = job.what

    def open(self) -> None:
        """Start a life; reset a log that does not contain the entry of the state store."""
        self.incarnation += 1
        if self.chain_at(self.store.index) != self.store.chain:
            self.reset(self.store)
