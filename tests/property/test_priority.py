"""Both priority structures against a plain sorted list, under every mix of what can be asked of them."""

from bisect import insort
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.examples import examples
from wakeq.protocol.queue.order import fifo, key_order
from wakeq.protocol.queue.order.key_order import KeyHeap, KeyOrder, qa_order
from wakeq.protocol.queue.order.ready_line import ReadyLine

KEYS = (-(2**63), -3, 0, 1, 2, 1_023, 1_024, 2**40, 2**63 - 1)
NEAR_KEYS = KEYS[1:7]


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> object:
    """Bounds so small that a few dozen numbers fill blocks, make runs and call for sweeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fifo, "BLOCK_NUMBERS", 4)
        patch.setattr(fifo, "RUN_NUMBERS_MIN", 3)
        patch.setattr(fifo, "SWEEP_NUMBERS", 3)
        patch.setattr(fifo, "SPENT_SEGMENTS_MAX", 1)
        patch.setattr(key_order, "STALE_KEYS_MIN", 1)
        yield


class Model(RuleBasedStateMachine):
    """`rows` is what should be inside: (key, place, number), sorted; a negative place is one in front."""

    keys: tuple[int, ...] = KEYS

    def order(self) -> KeyOrder:
        return KeyHeap()

    @initialize()
    def start(self) -> None:
        self.structure = ReadyLine(self.order)
        self.rows: list[tuple[int, int, int]] = []
        self.gone: list[int] = []  # numbers that have left and may come again
        self.next_number = 1
        self.back = 0
        self.front = 0

    def key_at(self, choice: int) -> int:
        return self.keys[choice % len(self.keys)]

    def fresh(self, count: int, gap: int) -> list[int]:
        start = self.next_number + gap
        self.next_number = start + count
        return list(range(start, self.next_number))

    def put_back(self, key: int, numbers: list[int]) -> None:
        for number in numbers:
            self.back += 1
            insort(self.rows, (key, self.back, number))

    def put_front(self, key: int, numbers: list[int]) -> None:
        for number in reversed(numbers):
            self.front -= 1
            insort(self.rows, (key, self.front, number))

    @rule(choice=st.integers(0, 8), gap=st.integers(0, 1))
    def push(self, choice: int, gap: int) -> None:
        key, (number,) = self.key_at(choice), self.fresh(1, gap)
        self.structure.push(key, number)
        self.put_back(key, [number])

    @rule(choice=st.integers(0, 8), count=st.integers(0, 12), gap=st.integers(0, 1))
    def extend_with_a_range(self, choice: int, count: int, gap: int) -> None:
        key, numbers = self.key_at(choice), self.fresh(count, gap)
        self.structure.extend(key, range(self.next_number - count, self.next_number))
        self.put_back(key, numbers)

    @rule(
        choice=st.integers(0, 8),
        order=st.permutations(range(7)),
        count=st.integers(1, 7),
        front=st.booleans(),
    )
    def put_a_mixed_list(self, choice: int, order: list[int], count: int, front: bool) -> None:
        base = self.fresh(7, 0)
        key, numbers = self.key_at(choice), [base[place] for place in order[:count]]
        if front:
            self.structure.push_front(key, numbers)
            self.put_front(key, numbers)
        else:
            self.structure.extend(key, numbers)
            self.put_back(key, numbers)

    @rule(choice=st.integers(0, 8), count=st.integers(1, 9))
    def put_a_run_in_front(self, choice: int, count: int) -> None:
        key, numbers = self.key_at(choice), self.fresh(count, 0)
        self.structure.push_front(key, numbers)
        self.put_front(key, numbers)

    @precondition(lambda self: self.gone)
    @rule(choice=st.integers(0, 8), how=st.integers(0, 2), newest=st.booleans())
    def put_in_again_what_left(self, choice: int, how: int, newest: bool) -> None:
        key, number = self.key_at(choice), self.gone.pop(-1 if newest else 0)
        if how == 0:
            self.structure.push(key, number)
            self.put_back(key, [number])
            return
        numbers = [number, *self.fresh(1, 1)]
        if how == 1:
            self.structure.extend(key, numbers)
            self.put_back(key, numbers)
        else:
            self.structure.push_front(key, numbers)
            self.put_front(key, numbers)

    @rule(count=st.integers(0, 15))
    def take(self, count: int) -> None:
        expected = [number for _, _, number in self.rows[:count]]
        del self.rows[:count]
        self.gone += expected

        assert self.structure.take(count) == expected

    def sweep(self, dead: set[int], work: int) -> int:
        return self.structure.sweep(lambda number: number not in dead, work)

    @precondition(lambda self: self.rows)
    @rule(places=st.lists(st.integers(0, 200), min_size=1, max_size=5), work=st.integers(1, 9))
    def die_and_be_swept(self, places: list[int], work: int) -> None:
        dead = {self.rows[place % len(self.rows)][2] for place in places}
        size, swept = len(self.rows), 0
        self.rows = [row for row in self.rows if row[2] not in dead]

        while self.structure.is_being_swept:  # a round that began before may have passed some of them
            swept += self.sweep(dead, work)
        for _ in range(size + 1):  # each call looks at something, or ends the round
            swept += self.sweep(dead, work)
            if not self.structure.is_being_swept:
                break

        assert not self.structure.is_being_swept
        assert swept == len(dead)
        self.gone += dead

    @rule(structure=st.sampled_from([KeyHeap, lambda: qa_order(-3, 1_500), lambda: qa_order(0, 0)]))
    def order_in_another_way(self, structure: Callable[[], KeyOrder]) -> None:
        self.structure.order_by(structure)

    @rule(count=st.integers(0, 9))
    def peek(self, count: int) -> None:
        assert self.structure.peek(count) == [number for _, _, number in self.rows[:count]]

    @invariant()
    def counts_what_can_be_taken(self) -> None:
        assert len(self.structure) == len(self.rows)

    def teardown(self) -> None:
        assert self.structure.take(10**6) == [number for _, _, number in self.rows]
        assert len(self.structure) == 0


class NearKeys(Model):
    """Keys of a narrow range, which lie in a bitmap of two words or more."""

    keys = NEAR_KEYS

    def order(self) -> KeyOrder:
        return qa_order(-3, 1_500)


class FarKeys(Model):
    """The widest range that there is."""

    def order(self) -> KeyOrder:
        return qa_order(-(2**63), 2**63 - 1)


TestHeap4 = Model.TestCase
TestKeyArrayOfANarrowRange = NearKeys.TestCase
TestKeyArrayOfTheWidestRange = FarKeys.TestCase
LONG = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestHeap4.settings = TestKeyArrayOfANarrowRange.settings = TestKeyArrayOfTheWidestRange.settings = LONG
