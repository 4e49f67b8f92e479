"""The calendar against a plain dictionary of moments, while numbers come, move, leave and time passes."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.examples import examples
from wakeq.protocol.queue.order import calendar
from wakeq.protocol.queue.order.calendar import Calendar

SPANS_MS = st.one_of(st.integers(0, 3_000), st.integers(0, 5_000_000), st.integers(-2_000, 20))


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> object:
    """So little work in one call that every bucket is split and compacted in several pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calendar, "WORK_NUMBERS_MAX", 3)
        patch.setattr(calendar, "DEAD_NUMBERS_MIN", 2)
        patch.setattr(calendar, "STALE_BUCKETS_MIN", 1)
        yield


class Model(RuleBasedStateMachine):
    @initialize(now_ms=st.integers(1, 10**9))
    def start(self, now_ms: int) -> None:
        self.calendar = Calendar()
        self.now_ms = now_ms
        self.due: dict[int, int] = {}
        self.next_number = 1

    def due_of(self, number: int) -> int:
        return self.due.get(number, 0)

    @rule(after_ms=SPANS_MS)
    def add(self, after_ms: int) -> None:
        self.due[self.next_number] = max(1, self.now_ms + after_ms)
        self.calendar.add(self.due[self.next_number], self.next_number)
        self.next_number += 1

    @rule(after_ms=SPANS_MS, count=st.integers(0, 8))
    def add_many_of_one_moment(self, after_ms: int, count: int) -> None:
        numbers = range(self.next_number, self.next_number + count)
        due_ms = max(1, self.now_ms + after_ms)
        self.due.update(dict.fromkeys(numbers, due_ms))
        self.calendar.add_many(due_ms, numbers)
        self.next_number += count

    @precondition(lambda self: self.due)
    @rule(choice=st.integers(0, 500), after_ms=SPANS_MS, tell=st.booleans())
    def move(self, choice: int, after_ms: int, tell: bool) -> None:
        number = list(self.due)[choice % len(self.due)]
        due_ms = max(1, self.now_ms + after_ms)
        if tell or due_ms < self.due[number]:
            self.calendar.add(due_ms, number)
            self.calendar.forget()
        self.due[number] = due_ms

    @precondition(lambda self: self.due)
    @rule(choices=st.lists(st.integers(0, 500), max_size=6))
    def remove(self, choices: list[int]) -> None:
        for choice in choices:
            if self.due:
                del self.due[list(self.due)[choice % len(self.due)]]
                self.calendar.forget()

    @rule()
    def compact_if_needed(self) -> None:
        if self.calendar.needs_compaction:
            self.calendar.compact(self.due.__contains__)

    @rule(after_ms=st.integers(0, 4_000_000), limit=st.integers(1, 5))
    def let_time_pass(self, after_ms: int, limit: int) -> None:
        self.now_ms += after_ms
        expected = sorted(due_ms for due_ms in self.due.values() if due_ms <= self.now_ms)
        seen: list[int] = []
        while (next_ms := self.calendar.next_due_ms()) is not None and next_ms <= self.now_ms:
            taken = self.calendar.take_due(self.now_ms, self.due_of, limit)
            assert len(taken) <= limit
            seen += [self.due.pop(number) for number in taken]

        assert seen == expected

    @rule(limit=st.integers(1, 3))
    def take_once(self, limit: int) -> None:
        expected = sorted(due_ms for due_ms in self.due.values() if due_ms <= self.now_ms)

        taken = [self.due.pop(number) for number in self.calendar.take_due(self.now_ms, self.due_of, limit)]

        assert taken == expected[: len(taken)]

    @invariant()
    def wakes_no_later_than_the_earliest(self) -> None:
        if self.due:
            next_ms = self.calendar.next_due_ms()
            assert next_ms is not None
            assert next_ms <= min(self.due.values())

    @invariant()
    def holds_an_entry_for_each_number(self) -> None:
        assert len(self.calendar) >= len(self.due)


TestCalendar = Model.TestCase
TestCalendar.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
