"""Recovery: a state that was flushed now and then, and the log from there on, give the ledgers that never crashed.

Random histories go to two sets of queue processes.  One lives on; the other writes flushes at random places into
a store, late ones too, and now and then it crashes: everything after the last flush that was written is dropped, queues
are read from the store, and the log is applied again from there.  Both must always be equal.
"""

import contextlib
from itertools import product
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from wakeq.actors.mail import CollectChanges, Collected, Flushed, LogItem
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.queues.readings import Readings
from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.groups import Groups
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Stash,
    Unstash,
    UnstashAction,
    UpdateQueue,
)
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.log.records import encode_entry
from wakeq.protocol.log.rows import DeliveryRecord, decode_row
from wakeq.protocol.queue.bodies import CACHED_BYTES_MAX
from wakeq.protocol.queue.ledger.ledger import Totals
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.uid import UidMaker
from wakeq.storage.state.checkpoint import Grave, QueueDelta, key_of, load_queues, make_checkpoint
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.memory import MemoryStore
from wakeq.storage.state.store import DEDUP, GRAVES, INDEX, MESSAGES, Store

NAMES = ("a", "a-b")
LIMITS = Limits(dedup_ids_max=4, dedup_window_ms=1_000)
Item = tuple[int, int, int, bytes]

names = st.sampled_from(NAMES)
drafts = st.builds(
    Draft,
    body=st.binary(max_size=5),
    priority=st.sampled_from([0, 0, 3]),
    delay_ms=st.sampled_from([0, 0, 50]),
    expires_ms=st.sampled_from([0, 0, 20]),
    timeout_ms=st.sampled_from([0, 0, 7]),
    headers=st.sampled_from([b"", b"", b"\x80"]),
)
batches = st.one_of(st.lists(drafts, min_size=1, max_size=4), st.integers(1, 600).map(lambda n: [Draft(b"x")] * n))
picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=8, unique=True)


class Mailbox:
    """Takes what a queue process tells, in place of the supervisor."""

    def __init__(self) -> None:
        self.last: Any = None

    def tell(self, message: Any) -> None:
        self.last = message


class Node:
    """The queue processes of one node, as their supervisor deals with them; its log index is `applied`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.mailbox = Mailbox()
        self.queues: dict[str, QueueProcess] = {}
        self.applied: tuple[int, int, int] = (0, 0, 0)
        self.graves: list[Grave] = []
        self.told: set[str] = set()
        self.groups = Groups()
        self.services = NoServices()

    def queue(self, name: str) -> QueueProcess:
        if name not in self.queues:
            process = QueueProcess.__new__(QueueProcess)
            process.runtime = self  # type: ignore[assignment]  # it is never told anything
            services: Any = self.services
            mailbox: Any = self.mailbox
            process.__init__(name, services, LIMITS, mailbox)  # type: ignore[misc]
            self.queues[name] = process
        return self.queues[name]

    def apply(self, item: Item) -> None:
        index, term, at_ms, payload = item
        entry, _ = decode_entry(payload)
        process = self.queue(entry.queue)
        self.applied = (index, term, at_ms)
        items = [LogItem(index, term, at_ms, entry)]
        if isinstance(entry, DeleteQueue | PurgeQueue):
            self.graves.append(Grave(entry.queue, process.ledger.id))
        elif isinstance(entry, Publish | Stash) and not process.exists:
            items.insert(0, LogItem(index, term, at_ms, CreateQueue(entry.queue, Policies())))
        self.told.add(entry.queue)
        process.apply(items)

    def collect(self) -> tuple[Any, list[QueueDelta], list[Grave]]:
        parts = []
        reply_to: Any = self.mailbox
        for name in sorted(self.told):
            self.queues[name].on_receive(CollectChanges(1, reply_to))
            answer = self.mailbox.last
            assert isinstance(answer, Collected)
            parts.append(answer.delta)
        graves, self.graves, self.told = self.graves, [], set()
        return self.applied, parts, graves

    def restore(self) -> int:
        """Begin again with what the store has; return its index."""
        self.queues, self.graves, self.told, self.services = {}, [], set(), NoServices()
        with self.store.read() as view:
            for stored in load_queues(view):
                self.queue(msgspec.msgpack.decode(stored.meta)["name"]).restore(stored)
            self.applied = view.applied()
        return self.applied[0]


class NoServices:
    """Nothing is read, timed or proposed: these queues follow the log and lead nothing."""

    raft_log = None
    lobby = Lobby(Runtime())

    def __init__(self) -> None:
        self.readings = Readings()
        self.sums = Totals()

    def now_ms(self) -> int:
        raise AssertionError("a follower has no clock of its own")


def content(process: QueueProcess) -> dict[str, Any]:
    """Return everything that a ledger means, whatever its columns look like."""
    ledger = process.ledger
    publishers = ledger.publishers
    return {
        "id": ledger.id,
        "policies": ledger.policies,
        "next": ledger.columns.next_number,
        "figures": (
            ledger.columns.living,
            ledger.deliveries.leased,
            ledger.columns.bytes,
            process.exists and process.created_ms,
        ),
        "totals": ledger.totals,
        "living": list(ledger.columns.living_numbers()),
        "columns": [
            (
                ledger.columns.priority_of(n),
                ledger.columns.published_due_of(n),
                ledger.columns.expires_of(n),
                ledger.columns.own_timeout_of(n),
            )
            for n in ledger.columns.living_numbers()
        ],
        "sides": ledger.deliveries.records,
        "aliases": {alias: n for alias, n in ledger.columns.aliases.items() if ledger.columns.lives(n)},
        "ids": dict(publishers.ids) if publishers else {},
        "sessions": dict(publishers.sessions) if publishers else {},
        "staged": staged_in(process),
        "hidden": [n for n in ledger.columns.living_numbers() if ledger.columns.is_hidden(n)],
    }


def staged_in(process: QueueProcess) -> list[dict[str, Any]]:
    """Return claims, stashes and writers."""
    staging = process.ledger.staging
    return [{}, {}, {}, {}] if staging is None else [staging.sources, staging.stashes, staging.writers, staging.jobs]


class Recovery(RuleBasedStateMachine):
    """`self.log` is the log; `whole` never crashes, `broken` does."""

    def make_store(self) -> Store:
        return MemoryStore()

    @initialize(new=st.lists(drafts, min_size=3, max_size=6))
    def start(self, new: list[Draft]) -> None:
        self.log: list[Item] = []
        self.now_ms, self.sequence = 10_000, 0
        self.whole, self.broken = Node(MemoryStore()), Node(self.make_store())
        self.unwritten: tuple[Any, list[QueueDelta], list[Grave]] | None = None
        for name in NAMES:
            self.publish(name, new, atomic=True, alias=True)

    def commit(self, entry: Entry) -> None:
        item = (len(self.log) + 1, 1 + len(self.log) // 10, self.now_ms, encode_entry(entry, self.now_ms))
        self.log.append(item)
        self.whole.apply(item)
        self.broken.apply(item)

    def any_lives(self) -> bool:
        return any(self.whole.queue(name).ledger.columns.living for name in NAMES)

    def pick(self, name: str, places: list[int]) -> tuple[int, list[int]]:
        ledger = self.whole.queue(name).ledger
        shown = [
            number for number in ledger.columns.living_numbers() if not ledger.columns.is_hidden(number)
        ]  # no leader hands out others
        some = [*shown[-40:], 10_000]
        return ledger.id, list(dict.fromkeys(some[place % len(some)] for place in places))

    # Entries

    @rule(name=names, new=batches, atomic=st.booleans(), alias=st.booleans())
    def publish(self, name: str, new: list[Draft], atomic: bool, alias: bool) -> None:
        if alias:
            new = [msgspec.structs.replace(new[0], alias=f"old{len(self.log)}"), *new[1:]]
        self.commit(Publish(name, new, atomic=atomic))

    @rule(name=names, new=st.lists(drafts, min_size=1, max_size=2), once=st.sampled_from("abcdef"))
    def publish_once(self, name: str, new: list[Draft], once: str) -> None:
        self.commit(Publish(name, new, atomic=True, id=once))

    @rule(
        name=names,
        new=st.lists(st.tuples(drafts, st.integers(1, 2_500)), min_size=1, max_size=3, unique_by=lambda row: row[1]),
        session=st.sampled_from("st"),
    )
    def publish_numbered(self, name: str, new: list[tuple[Draft, int]], session: str) -> None:
        self.commit(Publish(name, [draft for draft, _ in new], session=session, ordinals=[n for _, n in new]))

    @precondition(any_lives)
    @rule(name=names, places=picks)
    def deliver(self, name: str, places: list[int]) -> None:
        queue_id, numbers = self.pick(name, places)
        untils = [self.now_ms + 30] * len(numbers)
        self.commit(Delivered(name, queue_id, numbers, untils, self.sequence + 1))
        self.sequence += len(numbers)

    @precondition(any_lives)
    @rule(name=names, places=picks)
    def extend(self, name: str, places: list[int]) -> None:
        queue_id, numbers = self.pick(name, places)
        self.commit(Extended(name, queue_id, numbers, [self.now_ms + 90] * len(numbers)))

    @precondition(any_lives)
    @rule(name=names, places=picks, reason=st.sampled_from(Reason), error=st.sampled_from(["", "é"]))
    def release(self, name: str, places: list[int], reason: Reason, error: str) -> None:
        queue_id, numbers = self.pick(name, places)
        dues = [self.now_ms + 5] * len(numbers)
        self.commit(Released(name, queue_id, numbers, dues, [ANY_TOKEN] * len(numbers), reason, error))

    @precondition(any_lives)
    @rule(name=names, places=picks)
    def acknowledge(self, name: str, places: list[int]) -> None:
        queue_id, numbers = self.pick(name, places)
        self.commit(Ack(name, queue_id, numbers, [ANY_TOKEN] * len(numbers)))

    @precondition(any_lives)
    @rule(name=names, place=st.integers(0, 5))
    def acknowledge_by_uid(self, name: str, place: int) -> None:
        aliases = sorted(self.whole.queue(name).ledger.columns.aliases)
        uids = aliases[place : place + 2] or ["nobody"]
        foreign = dict(enumerate(uids))
        self.commit(Ack(name, 0, [-1] * len(uids), [ANY_TOKEN] * len(uids), foreign=foreign))

    @precondition(any_lives)
    @rule(name=names, places=picks)
    def expire(self, name: str, places: list[int]) -> None:
        queue_id, numbers = self.pick(name, places)
        self.commit(Expired(name, queue_id, numbers))

    @precondition(any_lives)
    @rule(name=names, places=picks, source=st.sampled_from("st"), epoch=st.integers(1, 6), slices=st.integers(1, 3))
    def claim(self, name: str, places: list[int], source: str, epoch: int, slices: int) -> None:
        queue_id, numbers = self.pick(name, places)
        about = source, epoch, numbers, [], self.sequence + 1, slices, self.now_ms + 30
        self.commit(Claim(name, queue_id, ClaimAction.STAGED, *about))
        self.sequence += len(numbers)

    @rule(name=names, source=st.sampled_from("st"), epoch=st.integers(1, 6), action=st.sampled_from(ClaimAction))
    def end_claim(self, name: str, source: str, epoch: int, action: ClaimAction) -> None:
        ledger = self.whole.queue(name).ledger
        staging = ledger.staging
        found = None if staging is None else staging.epoch(source, epoch)
        if found is None or action is ClaimAction.STAGED:
            return
        rows = [] if action is ClaimAction.RENEWED else found.rows()
        about = source, epoch, [n for n, _ in rows], [token for _, token in rows], 0, 1, self.now_ms + 60
        self.commit(Claim(name, ledger.id, action, *about, reader="r", batch=1))

    @rule(
        name=names,
        source=st.sampled_from("st"),
        epoch=st.integers(1, 6),
        action=st.sampled_from([ClaimAction.READ, ClaimAction.PUBLISHED]),
        reader=st.sampled_from("qr"),
        batch=st.integers(1, 2),
        run=st.sampled_from("xy"),
    )
    def read(self, name: str, source: str, epoch: int, action: ClaimAction, reader: str, batch: int, run: str) -> None:
        queue_id = self.whole.queue(name).ledger.id
        self.commit(Claim(name, queue_id, action, source, epoch, reader=reader, batch=batch, run=run))

    @rule(
        name=names,
        new=batches,
        stash=st.sampled_from("tu"),
        part=st.integers(0, 2),
        writer=st.sampled_from(["", "w"]),
        epoch=st.integers(0, 3),
    )
    def stash(self, name: str, new: list[Draft], stash: str, part: int, writer: str, epoch: int) -> None:
        self.commit(Stash(name, new, stash, part, 30, writer, epoch if writer else 0))

    @rule(
        name=names,
        action=st.sampled_from(UnstashAction),
        stashes=st.lists(st.sampled_from("tu"), max_size=2, unique=True),
        epoch=st.integers(0, 9),
        run=st.sampled_from(["", "x", "y"]),
    )
    def unstash(self, name: str, action: UnstashAction, stashes: list[str], epoch: int, run: str) -> None:
        _, puts, *_ = staged_in(self.whole.queue(name))
        named = [(stash, puts[stash].size if stash in puts else 1) for stash in stashes]
        if self.whole.queue(name).exists:
            self.commit(Unstash(name, action, named, "w", epoch, run, f"{len(self.log) % 3}"))

    @rule(name=names, changes=st.sampled_from([{"max_size": 3}, {"max_size": None}, {"timeout": 9}]))
    def update(self, name: str, changes: dict[str, object]) -> None:
        if self.whole.queue(name).exists:
            self.commit(UpdateQueue(name, changes))

    @rule(name=names, how=st.sampled_from(["not"] * 5 + ["purge", "delete", "acknowledge"]))
    def empty(self, name: str, how: str) -> None:
        """Not too often: most of the time there should be something to lose."""
        ledger = self.whole.queue(name).ledger
        if how == "acknowledge":
            numbers = list(ledger.columns.living_numbers())
            self.commit(Ack(name, ledger.id, numbers, [ANY_TOKEN] * len(numbers)))
        elif how != "not" and ledger.id:
            self.commit(PurgeQueue(name) if how == "purge" else DeleteQueue(name))

    @rule(span_ms=st.sampled_from([1, 10, 400, 1_000]))
    def time_goes_on(self, span_ms: int) -> None:
        self.now_ms += span_ms

    # Cuts and crashes

    @precondition(lambda self: self.unwritten is None)
    @rule()
    def begin_flush(self) -> None:
        self.unwritten = self.broken.collect()

    @precondition(lambda self: self.unwritten is not None)
    @rule()
    def write_flush(self) -> None:
        """Much may have been applied since it was begun."""
        assert self.unwritten is not None
        applied, parts, graves = self.unwritten
        self.unwritten = None
        store = self.broken.store
        store.commit(make_checkpoint(store, applied, parts, graves, {}))
        for part in parts:
            self.broken.queues[part.name].on_receive(Flushed(CACHED_BYTES_MAX))

    @precondition(lambda self: self.unwritten is None)
    @rule()
    def flush(self) -> None:
        self.begin_flush()
        self.write_flush()

    @rule(limit=st.integers(1, 50))
    def sweep(self, limit: int) -> None:
        self.broken.store.sweep(limit)

    @rule()
    def crash(self) -> None:
        self.unwritten = None
        index = self.broken.restore()
        for item in self.log[index:]:
            self.broken.apply(item)

    # What must hold

    @invariant()
    def both_are_equal(self) -> None:
        if not hasattr(self, "log"):
            return
        for name in NAMES:
            whole, broken = self.whole.queue(name), self.broken.queue(name)
            assert content(broken) == content(whole)
        for reader, batch in product("qr", (1, 2)):
            queues = [node.services.readings.queues_of(reader, batch) for node in (self.whole, self.broken)]
            assert queues[0] == queues[1]

    def teardown(self) -> None:
        """At the end everything is written down: the store holds what lives and nothing else."""
        if not hasattr(self, "log"):
            return
        if self.unwritten is not None:
            self.write_flush()
        self.flush()
        store = self.broken.store
        while store.sweep():
            pass
        with store.read() as view:
            messages = dict(view.scan(MESSAGES))
            assert messages.keys() == self.check_messages(messages)
            assert view.count(GRAVES) == 0
            chunks = sum(
                chunk.living > 0 for p in self.broken.queues.values() for chunk in p.ledger.columns.chunks.values()
            )
            assert view.count(INDEX) == chunks
            ledgers = [process.ledger for process in self.broken.queues.values()]
            assert view.count(DEDUP) == sum(len(x.columns.aliases) for x in ledgers) + sum(
                len(x.ids) + len(x.sessions) for x in [ledger.publishers for ledger in ledgers] if x is not None
            ) + sum(len(kept) for process in self.broken.queues.values() for kept in staged_in(process))

    def check_messages(self, messages: dict[bytes, bytes]) -> set[bytes]:
        """Compare what is stored with the ledgers; return the keys that should be there."""
        keys = set()
        for name, process in self.whole.queues.items():
            ledger, uids = process.ledger, UidMaker(process.ledger.id)
            for number in ledger.columns.living_numbers():
                key = key_of(name, ledger.columns.aliased.get(number) or uids.uid(number))
                row = decode_row(messages[key])
                draft = process.bodies.get(number)
                assert draft is not None, "this node never wrote anything down, so it has them all"
                keys.add(key)
                assert (row.body, row.headers, row.priority) == (draft.body, draft.headers, draft.priority)
                assert (row.side or DeliveryRecord()) == ledger.deliveries.records.get(number, DeliveryRecord())
                assert row.expires_ms == ledger.columns.expires_of(number)
                due_of = ledger.columns.published_due_of if ledger.columns.is_hidden(number) else ledger.due_of
                assert row.due_ms == due_of(number)
        return keys


class RecoveryOnDisk(Recovery):
    """The same with LMDB beneath."""

    def make_store(self) -> Store:
        self.exits = contextlib.ExitStack()
        folder = self.exits.enter_context(memory_folder()) / "state"
        store = StateStore.open(folder, cluster_id=b"c", node_id=1, map_bytes=1 << 22)
        self.exits.callback(store.close)
        return store

    def teardown(self) -> None:
        with getattr(self, "exits", contextlib.ExitStack()):
            super().teardown()


Recovery.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
RecoveryOnDisk.TestCase.settings = settings(
    max_examples=examples(10), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRecovery = Recovery.TestCase
TestRecoveryOnDisk = RecoveryOnDisk.TestCase
