"""Machine: a simulated node: the real core, driven as RaftLog drives it, on a simulated disk.

    messages, ticks, reports of the disk, proposals --> core --> Ready --> disk, network, state

It follows the rules of a driver (docs/internals/raft.md) and contains no rule of Raft.  It never reads another machine.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.disk import Disk, Image
from tests.simulation.entries import NOOP, Entry, Payload, after, link
from tests.simulation.transfer import Receiver, Sender
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import AnyMessage, Append, Fetch, Ready, Restore, Write
from wakeq.protocol.raft.settings import Me

if TYPE_CHECKING:
    from tests.simulation.world import World


class Machine:
    """One node.  `entries` is its log in memory behind `base`; `applied` and `state` are its state machine.

    `boot` sets the state of a life, because a restart loses it.
    """

    core: Core

    def __init__(self, world: "World", node_id: int, disk: Disk) -> None:
        self.world = world
        self.node_id = node_id
        self.disks = [disk]
        self.is_up = False
        self.life = 0
        self.paused_until_us = 0
        self.rate = 1.0
        self.tick_us = world.knobs.settings.heartbeat_ms * 500
        self.terms_led: set[int] = set()

    @property
    def disk(self) -> Disk:
        """The disk in use; earlier ones were emptied."""
        return self.disks[-1]

    # --- a life -----------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        world, disk = self.world, self.disk
        disk.open()
        self.is_up = True
        self.life += 1
        self.born_us = world.now_us
        self.origin_ms = int(world.random() * 1_000_000)  # a monotonic clock may begin anywhere
        self.base, self.base_chain = disk.base, disk.base_chain
        self.entries = list(disk.entries)
        self.submitted = self.base + len(self.entries)  # last entry given to the disk
        self.applied, self.state = disk.store.index, disk.store.state
        self.applied_term = disk.store.term
        self.waiting: dict[int, tuple[int, int]] = {}  # index -> (term, operation) of clients that wait for an outcome
        self.reads: list[tuple[int, int, int]] = []  # (term, barrier, index that the read must see)
        self.is_flushing = False
        self.job_seen, self.ticks_at_job = -1, 0
        self.sender, self.receiver = Sender(self), Receiver(self)
        self.core = world.core_class(
            Me(self.node_id, disk.disk_id, disk.incarnation),
            disk.state,
            self._log_view(),
            self._configs(),
            committed=disk.store.index,
            settings=world.knobs.settings,
            chance=world.random,
            now_ms=self.now_ms(),
            acknowledged=disk.acknowledged,
        )
        self.core.applied(self.applied)
        world.at(int(world.random() * self.tick_us), self.tick, self.life)
        world.at(world.knobs.flush_us, self.flush, self.life)

    def _log_view(self) -> LogView:
        runs: list[tuple[int, int]] = []
        for index, entry in enumerate(self.entries, self.base + 1):
            if not runs or runs[-1][1] != entry[0]:
                runs.append((index, entry[0]))
        last = self.base + len(self.entries)
        return LogView(self.base, self.disk.base_term, runs, last, len(self.entries) * self.world.entry_bytes)

    def _configs(self) -> list[tuple[int, Config]]:
        """Return the configurations in the state, and those in the log behind it."""
        store = self.disk.store
        configs = list(store.configs)
        for index, (_term, payload, _chain) in enumerate(self.entries, self.base + 1):
            if index > store.index and isinstance(payload, Config):
                configs.append((index, payload))
        return configs

    def crash(self) -> None:
        self.is_up = False
        self.life += 1
        # A node saves them from time to time; they stay true.
        if self.world.random() < 0.5:
            self.disk.acknowledged = self.core.acknowledged.told()
        self.disk.crash(self.world.rng)
        self.world.truth.lost(self)

    def now_ms(self) -> int:
        return self.origin_ms + int((self.world.now_us - self.born_us) * self.rate) // 1000

    def set_rate(self, rate: float) -> None:
        """Make the clock run faster or slower from now on, without a step."""
        self.origin_ms, self.born_us, self.rate = self.now_ms(), self.world.now_us, rate

    # --- input ------------------------------------------------------------------------------------------------------

    def tick(self, life: int) -> None:
        if life != self.life:
            return
        if self.is_paused(self.tick, life):
            return
        self.core.tick(self.now_ms())
        self._check_disk()
        self.drive()
        self.world.at(int(self.tick_us / self.rate), self.tick, life)

    def _check_disk(self) -> None:
        """Transfer leadership when this node's disk has been busy with one job for two election timeouts."""
        disk, core = self.disk, self.core
        is_same = disk.open_jobs and disk.jobs_done == self.job_seen
        self.job_seen, self.ticks_at_job = disk.jobs_done, self.ticks_at_job + 1 if is_same else 0
        if core.leads and self.ticks_at_job * self.tick_us > 2000 * core.settings.election_ms:
            heir = core.leader().heir_without_us()
            if heir is not None:
                self.world.tell(f"   {self.node_id}: the disk hangs, transferring leadership to {heir}")
                core.leader().transfer(heir)

    def is_paused(self, then: Callable[[Any], None], what: object) -> bool:
        """Postpone a call while this process does not run; return whether it was postponed."""
        world = self.world
        if self.paused_until_us <= world.now_us:
            return False
        world.at(self.paused_until_us - world.now_us, then, what)
        return True

    def take(self, message: AnyMessage, entries: list[Entry]) -> None:
        """Process a message of a peer with its entries."""
        found = self.core.step(message, self.now_ms())
        is_own = len(self.disks) == 1
        self.world.truth.require(not (self.core.disowned and is_own), "is disowned on the disk that joined", self)
        if isinstance(found, Write):
            assert isinstance(message, Append)
            self._write(found, entries[found.first_index - message.prev_index - 1 :])
        elif isinstance(found, Fetch):
            self.receiver.begin(message.sender, found)
        self.drive()

    def propose(self, operations: list[int]) -> None:
        """Propose operations of clients.  The caller has checked that the core accepts."""
        first = self.core.propose(len(operations), len(operations) * self.world.entry_bytes)
        term = self.core.term
        for index, operation in enumerate(operations, first):
            self._append(index, term, operation)
            if index in self.waiting:
                self.world.truth.unknown.add(self.waiting[index][1])
            self.waiting[index] = (term, operation)
        self.drive()

    def read(self) -> None:
        """Begin a linearizable read of a client."""
        number = self.core.leader().read_barrier()
        if number is not None:
            self.reads.append((self.core.term, number, self.world.truth.acknowledged))
        self.drive()

    # --- the log ----------------------------------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        return self.base + len(self.entries)

    def chain_at(self, index: int) -> int | None:
        if index == self.base:
            return self.base_chain
        place = index - self.base - 1
        return self.entries[place][2] if 0 <= place < len(self.entries) else None

    def _append(self, index: int, term: int, payload: Payload) -> None:
        assert index == self.last_index + 1, f"node {self.node_id}: entry {index} after {self.last_index}"
        chain = self.entries[-1][2] if self.entries else self.base_chain
        entry = link(chain, term, payload)
        self.entries.append(entry)
        self.world.truth.appended(self, index, entry)

    def _write(self, write: Write, entries: list[Entry]) -> None:
        if write.truncate_from:
            self._truncate(write.truncate_from)
        for index, (term, payload, _chain) in enumerate(entries, write.first_index):
            self._append(index, term, payload)
        assert self.last_index == write.last_index, "a message without its entries"

    def _truncate(self, index: int) -> None:
        """Truncate entries.  Their clients still wait: another node may have the entries and commit them."""
        del self.entries[index - self.base - 1 :]
        if self.world.on_truncate is not None and any(asked >= index for asked in self.waiting):
            self.world.on_truncate()
        if self.submitted >= index:
            self.submitted = index - 1
            self.disk.submit(self.disk.truncate, index, _nothing)

    # --- Ready ------------------------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Do the work that the core asks for."""
        core, world = self.core, self.world
        while (ready := core.ready()) is not None:
            self._obey(ready)
        knobs, disk = world.knobs, self.disk
        if self.submitted < self.last_index and disk.open_jobs < knobs.writes_open:
            self._submit_write()
        world.truth.check(self)

    def _obey(self, ready: Ready) -> None:
        save, disk = ready.save, self.disk
        if save is not None:
            disk.submit(disk.save, save, self._when_done(lambda: self.core.saved(save)))
        for own in ready.entries:
            self._append(own.index, own.term, NOOP if own.config is None else own.config)
        for message in ready.messages:
            entries: list[Entry] = []
            if isinstance(message, Append):
                entries = self.entries[message.prev_index - self.base : message.last_index - self.base]
            self.world.truth.leaves(self, message)
            self.world.network.send(message, entries)
        self._apply(ready.commit)
        for peer in ready.images:
            self.sender.offer(peer)
        for number, index in ready.reads:
            self._answer_reads(number, index)

    def _submit_write(self) -> None:
        """Submit all new entries as one write."""
        first, last, era = self.submitted + 1, self.last_index, self.core.era
        self.submitted = last
        what = (first, self.entries[first - self.base - 1 :])
        self.disk.submit(self.disk.put, what, self._when_done(lambda: self.core.stable(last, era)))

    def _when_done(self, report: Callable[[], object]) -> Callable[..., None]:
        """Return a callback for the disk: it reports if this life has not ended, after any pause."""
        life = self.life

        def take(_: object = None) -> None:
            if life == self.life and not self.is_paused(take, None):
                report()
                self.drive()

        return take

    def _apply(self, commit: int) -> None:
        truth, place, term = self.world.truth, self.applied - self.base, 0
        for term, payload, _chain in self.entries[place : commit - self.base]:
            self.applied += 1
            self.state = after(self.state, payload)
            truth.applied(self, self.applied, self.state)
            asked = self.waiting.pop(self.applied, None)
            if asked is not None:
                truth.answered(self, self.applied, asked, term, payload)
        self._give_up_before(term)
        self.core.applied(self.applied)

    def _give_up_before(self, term: int) -> None:
        """Refuse operations of earlier terms: an entry of this term is committed, so theirs never will be."""
        if term > self.applied_term:
            self.applied_term = term
            for index in [index for index, asked in self.waiting.items() if asked[0] < term]:
                self.world.truth.refused.add(self.waiting.pop(index)[1])

    def _answer_reads(self, number: int, index: int) -> None:
        term = self.core.term
        for read in [read for read in self.reads if read[1] == number]:
            if read[0] == term:
                self.world.truth.read(self, index, read[2])
        self.reads = [read for read in self.reads if read[0] == term and read[1] != number]

    # --- the state --------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        """Return an image of the current state."""
        entry = self.entries[self.applied - self.base - 1] if self.applied > self.base else None
        term = entry[0] if entry else self.core.log.previous_term
        chain = entry[2] if entry else self.base_chain
        return Image(self.applied, term, chain, self.state, self.core.members.until(self.applied))

    def flush(self, life: int) -> None:
        """Flush the state, and cut the log behind it."""
        if life != self.life or self.is_paused(self.flush, life):
            return
        image = self.image()
        self.world.at(self.world.flush_span_us(), self._flushed, (life, image))

    def _flushed(self, what: tuple[int, Image]) -> None:
        life, image = what
        if life != self.life or self.is_paused(self._flushed, what):
            return
        self.disk.flush(image)
        self._cut()
        self.world.at(self.world.knobs.flush_us, self.flush, life)
        self.drive()

    def _cut(self) -> None:
        floor = min(self.core.floor(self.disk.store.index), self.disk.last_index)
        if floor - self.base > self.world.knobs.keep_entries:
            self.core.cut(floor)
            self.disk.cut(floor)
            self.base_chain = self.entries[floor - self.base - 1][2]
            del self.entries[: floor - self.base]
            self.base = floor

    def restore(self, restore: Restore, image: Image) -> None:
        """Replace state and log by an image; entries that were not submitted to the disk never will be."""
        self.submitted = self.last_index
        image = msgspec.structs.replace(image, configs=((restore.index, restore.config),))
        self.disk.submit(self.disk.restore, image, self._when_done(lambda: self._restored(image)))

    def _restored(self, image: Image) -> None:
        self.core.restored()
        self.base, self.base_chain, self.entries = image.index, image.chain, []
        self.submitted = image.index
        self.applied, self.applied_term, self.state = image.index, image.term, image.state
        self.world.truth.applied(self, self.applied, self.state)
        for _term, operation in self.waiting.values():
            self.world.truth.unknown.add(operation)
        self.waiting.clear()


def _nothing() -> None:
    """Report nothing after a truncation: the write behind it reports."""
