"""StateStore and MemoryStore always agree, whatever is cut, buried, swept, viewed and opened again."""

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.memory import MemoryStore
from wakeq.storage.state.store import (
    CHECKPOINT_TABLES,
    DEDUP,
    GRAVES,
    INDEX,
    MESSAGES,
    META,
    QUEUES,
    TABLE_NAMES,
    Checkpoint,
    View,
)

CLUSTER, NODE = b"cluster", 3
VIEWS_MAX = 3

queue_ids = st.integers(1, 3)
values = st.one_of(st.binary(max_size=5), st.integers(900, 5000).map(lambda size: b"x" * size))


def prefix_of(queue_id: int) -> bytes:
    return b"q%d-%07d_" % (
        queue_id % 2,
        queue_id,
    )  # names that neighbour, and that several incarnations share


def number_of(queue_id: int) -> bytes:
    return queue_id.to_bytes(8, "big")


@st.composite
def keys(draw: st.DrawFn) -> tuple[int, bytes]:
    table = draw(st.sampled_from([MESSAGES, MESSAGES, MESSAGES, INDEX, QUEUES, DEDUP]))
    queue_id, number = draw(queue_ids), draw(st.integers(0, 20))
    match table:
        case 1:
            return table, prefix_of(queue_id) + b"%08d" % number
        case 2:
            return table, number_of(queue_id) + number_of(number)
        case 3:
            return table, number_of(queue_id)
        case _:
            return table, number_of(queue_id) + b"\x01" + b"%d" % number


def content(view: View) -> dict[int, list[tuple[bytes, bytes]]]:
    return {table: list(view.scan(table)) for table in TABLE_NAMES}


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.exits = contextlib.ExitStack()
        self.directory = self.exits.enter_context(memory_folder()) / "state"
        self.index = 0
        self.memory = MemoryStore(CLUSTER, NODE)
        # Each view of both stores with what was in it when it was opened, and what closes it.
        self.views: list[tuple[View, View, Any, contextlib.ExitStack]] = []

    @initialize()
    def open(self) -> None:
        self.state = StateStore.open(self.directory, cluster_id=CLUSTER, node_id=NODE, map_bytes=1 << 20)

    @rule(
        puts=st.lists(st.tuples(keys(), values), max_size=30),
        deletes=st.lists(keys(), max_size=15),
        steps=st.integers(0, 3),
    )
    def commit(self, puts: list[Any], deletes: list[Any], steps: int) -> None:
        self.index += steps
        self.commit_both(
            Checkpoint(
                self.index,
                1,
                self.index * 10,
                puts=[(table, [(key, value)]) for (table, key), value in puts],
                deletes=[(table, [key]) for table, key in deletes],
            )
        )

    @rule(queue_id=queue_ids, first=st.integers(0, 5), count=st.integers(1, 60))
    def commit_run(self, queue_id: int, first: int, count: int) -> None:
        """Consecutive numbers, as a queue gives them: the way on which records are appended."""
        run = [(prefix_of(queue_id) + b"%08d" % number, b"r" * 1000) for number in range(first, first + count)]
        self.index += 1
        self.commit_both(Checkpoint(self.index, 1, self.index, puts=[(MESSAGES, run)]))

    @rule(queue_id=queue_ids)
    def bury(self, queue_id: int) -> None:
        self.index += 1
        grave = [(GRAVES, [(number_of(queue_id), prefix_of(queue_id))])]
        self.commit_both(Checkpoint(self.index, 1, self.index, puts=grave, deletes=[(QUEUES, [number_of(queue_id)])]))

    def commit_both(self, checkpoint: Checkpoint) -> None:
        self.memory.commit(checkpoint)
        self.state.commit(checkpoint)

    @rule(limit=st.integers(1, 40))
    def sweep(self, limit: int) -> None:
        assert self.state.sweep(limit) == self.memory.sweep(limit)

    @rule()
    def sweep_all(self) -> None:
        while self.state.sweep(7):
            pass
        while self.memory.sweep(11):
            pass
        with self.memory.read() as view:
            assert view.count(GRAVES) == 0

    @precondition(lambda self: len(self.views) < VIEWS_MAX)
    @rule()
    def take_view(self) -> None:
        exits = contextlib.ExitStack()
        ours, theirs = exits.enter_context(self.state.read()), exits.enter_context(self.memory.read())
        self.views.append((ours, theirs, content(theirs), exits))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def close_view(self, data: st.DataObject) -> None:
        ours, theirs, taken, exits = self.views.pop(data.draw(st.integers(0, len(self.views) - 1)))
        with exits:
            assert content(ours) == content(theirs) == taken
            assert ours.applied() == theirs.applied()

    @rule(wanted=st.lists(keys(), max_size=10))
    def get_many(self, wanted: list[tuple[int, bytes]]) -> None:
        messages = [key for table, key in wanted if table == MESSAGES]
        assert self.state.get_many(messages) == self.memory.get_many(messages)

    @rule(
        table=st.sampled_from(CHECKPOINT_TABLES),
        prefix=st.one_of(queue_ids.map(prefix_of), queue_ids.map(number_of)),
    )
    def scan(self, table: int, prefix: bytes) -> None:
        with self.state.read() as ours, self.memory.read() as theirs:
            assert list(ours.scan(table, prefix)) == list(theirs.scan(table, prefix))

    @rule()
    def open_again(self) -> None:
        for *_, exits in self.views:
            exits.close()
        self.views.clear()
        self.state.close()
        self.state = StateStore.open(self.directory, cluster_id=CLUSTER, node_id=NODE)

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "state"):
            return
        with self.state.read() as ours, self.memory.read() as theirs:
            assert content(ours) == content(theirs)
        assert self.state.applied() == self.memory.applied()
        assert self.state.stats().records == self.memory.stats().records
        assert self.memory.stats().records[META] == 4

    def teardown(self) -> None:
        for *_, exits in self.views:
            exits.close()
        if hasattr(self, "state"):
            self.state.close()
        self.exits.close()


StoresAgree.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestStoresAgree = StoresAgree.TestCase
