"""What the timers promise: one Alarm for each deadline, never early, in order, at a bounded cost."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.actors.runtime import Alarm, Process, Runtime, Timers
from wakeq.actors.runtime.timers import ALARMS_PER_TURN_MAX
from wakeq.testing.manual_time import ManualHandle, ManualTime


class Owner(Process):
    """Writes down at which moments its alarms came, and what they said."""

    def __init__(self, house: "House") -> None:
        super().__init__()
        self.house = house
        self.got: list[tuple[int, int]] = []

    def on_receive(self, message: Alarm) -> None:
        self.got.append((self.house.time.now_ms(), message.now_ms))
        self.house.order.append(self)


class House:
    """A runtime with timers on manual time."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.time = ManualTime(settle=self.runtime.run_until_idle)
        self.timers = self.runtime.spawn(Timers, self.time.now_ms, self.time.call_later)
        self.start_ms = self.time.now_ms()
        self.order: list[Owner] = []

    def owner(self) -> Owner:
        return self.runtime.spawn(Owner, self)

    def set(self, owner: Process, after_ms: int) -> None:
        self.timers.set(owner, self.start_ms + after_ms)


@pytest.fixture
def house() -> House:
    return House()


def test_alarm_comes_once_and_at_its_moment(house: House) -> None:
    owner = house.owner()

    house.set(owner, 1500)
    house.time.advance(1.499)
    early = list(owner.got)
    house.time.advance(0.001)
    house.time.advance(100)

    assert early == []
    assert owner.got == [(house.start_ms + 1500, house.start_ms + 1500)]


def test_later_set_replaces_the_deadline(house: House) -> None:
    owner = house.owner()

    house.set(owner, 1000)
    house.set(owner, 3000)
    house.time.advance(2.999)
    early = list(owner.got)
    house.set(owner, 3500)
    house.time.advance(10)

    assert early == []
    assert [at_ms - house.start_ms for at_ms, _ in owner.got] == [3500]


def test_earlier_set_replaces_the_deadline(house: House) -> None:
    owner = house.owner()

    house.set(owner, 60_000)
    house.time.advance(1)
    house.set(owner, 2000)
    house.time.advance(0)
    waiting = house.time.waiting
    house.time.advance(120)

    assert waiting == 1
    assert [at_ms - house.start_ms for at_ms, _ in owner.got] == [2000]


def test_cleared_deadline_does_not_fire(house: House) -> None:
    owner = house.owner()

    house.set(owner, 1000)
    house.timers.clear(owner)
    house.timers.clear(owner)
    house.time.advance(10)

    assert owner.got == []


def test_deadline_in_the_past_fires_at_once(house: House) -> None:
    owner = house.owner()

    house.set(owner, -5000)
    house.time.advance(0)

    assert owner.got == [(house.start_ms, house.start_ms)]


def test_owner_may_set_its_next_deadline_when_it_is_woken(house: House) -> None:
    class Beat(Owner):
        def on_receive(self, message: Alarm) -> None:
            super().on_receive(message)
            self.house.timers.set(self, message.now_ms + 1000)

    owner = house.runtime.spawn(Beat, house)

    house.set(owner, 1000)
    house.time.advance(5)

    assert [at_ms - house.start_ms for at_ms, _ in owner.got] == [1000, 2000, 3000, 4000, 5000]


def test_alarms_come_in_the_order_of_their_moments(house: House) -> None:
    owners = [house.owner() for _ in range(5)]

    for owner, after_ms in zip(owners, [50, 10, 30, 10, 40], strict=True):
        house.set(owner, after_ms)
    house.time.advance(1)

    assert [owners.index(owner) for owner in house.order] == [1, 3, 2, 4, 0]


@pytest.mark.parametrize("rate", [0.99, 1.0, 1.01], ids=["slow", "true", "fast"])
def test_clock_that_is_slewed_makes_no_alarm_early_and_a_long_one_hardly_late(rate: float) -> None:
    house = House()

    def cluster_ms() -> int:
        return int(house.start_ms + (house.time.now_ms() - house.start_ms) * rate)

    timers = house.runtime.spawn(Timers, cluster_ms, house.time.call_later)
    owner = house.owner()

    timers.set(owner, house.start_ms + 3_600_000)
    house.time.advance(2 * 3600)

    ((_, fired_ms),) = owner.got
    assert 0 <= fired_ms - house.start_ms - 3_600_000 <= 5


def test_timers_wake_for_the_earliest_deadline_only(house: House) -> None:
    for i in range(1000):
        house.set(house.owner(), 50 + i // 100)

    house.runtime.run_until_idle()
    waiting = house.time.waiting
    house.time.advance(1)

    assert waiting == 1
    assert len(house.order) == 1000
    assert house.time.calls <= 12  # ten moments


def test_timers_without_deadlines_do_not_wake(house: House) -> None:
    house.set(house.owner(), 50)

    house.time.advance(1)

    assert house.time.waiting == 0


@pytest.mark.parametrize(
    "after_ms",
    [lambda i: 1000 + i, lambda i: 1_000_000 - i, lambda i: 1000 + i % 2, lambda i: 1000 + i * 7919 % 10_007],
    ids=["later", "earlier", "to and fro", "anyhow"],
)
def test_deadline_set_a_hundred_thousand_times_stays_one(house: House, after_ms: Callable[[int], int]) -> None:
    owner = house.owner()
    largest = 0

    for i in range(100_000):
        house.set(owner, after_ms(i))
        if i % 1000 == 0:
            house.runtime.run_until_idle()
            largest = max(largest, len(house.timers._heap))
    house.runtime.run_until_idle()
    house.time.advance(2000)

    assert largest <= 100
    assert [at_ms - house.start_ms for at_ms, _ in owner.got] == [after_ms(99_999)]


def test_later_deadlines_cost_no_new_sleep(house: House) -> None:
    sleeps: list[float] = []

    def call_later(delay_s: float, callback: Callable[[], None]) -> ManualHandle:
        sleeps.append(delay_s)
        return house.time.call_later(delay_s, callback)

    timers = house.runtime.spawn(Timers, house.time.now_ms, call_later)
    owner = house.owner()

    for i in range(100):
        timers.set(owner, house.start_ms + 1000 + i)
        timers.set(house.owner(), house.start_ms + 1000 + i)
    house.runtime.run_until_idle()

    assert len(sleeps) == 1


def test_replaced_deadline_causes_no_wakeup(house: House) -> None:
    first, second = house.owner(), house.owner()
    house.set(first, 10)
    house.set(second, 20)
    house.set(second, 90)

    house.time.advance(0.085)

    assert house.time.calls == 1


def test_deadline_set_again_unchanged_costs_nothing(house: House) -> None:
    owner = house.owner()

    for _ in range(10):
        house.set(owner, 1000)
    house.runtime.run_until_idle()

    assert len(house.timers._heap) == 1


def test_crowd_of_the_past_does_not_loosen_the_bound(house: House) -> None:
    for _ in range(3000):
        house.set(house.owner(), 10)
    house.time.advance(0.1)
    owner = house.owner()

    for i in range(1000):
        house.set(owner, 1000 + i)
    house.runtime.run_until_idle()

    assert len(house.timers._heap) <= 100


def test_owner_that_has_ended_gets_no_deadline(house: House) -> None:
    owner = house.owner()
    owner.stop()
    house.runtime.run_until_idle()

    house.set(owner, 1000)
    house.runtime.run_until_idle()

    assert len(house.timers._deadlines) == 0
    assert house.time.waiting == 0


def test_owners_that_have_ended_are_not_kept_for_ever(house: House) -> None:
    for _ in range(1000):
        owner = house.owner()
        house.set(owner, 1_000_000)
        house.runtime.run_until_idle()
        owner.stop()
        house.runtime.run_until_idle()

    assert len(house.timers._heap) <= 100
    assert len(house.timers._deadlines) <= 100


def test_alarms_due_together_beyond_the_bound_go_out_in_shares(house: House) -> None:
    count = ALARMS_PER_TURN_MAX * 2 + 10
    for _ in range(count):
        house.set(house.owner(), 100)

    house.time.advance(0.1)

    assert len(house.order) == count
    assert house.time.calls >= 3


@pytest.mark.parametrize("end", ["stop", "failure"])
def test_ended_timers_leave_no_sleep_behind(house: House, end: str) -> None:
    house.set(house.owner(), 1000)
    house.runtime.run_until_idle()

    house.timers.stop() if end == "stop" else house.timers.tell(("not", "a", "message"))
    house.runtime.run_until_idle()

    assert not house.timers.alive
    assert house.time.waiting == 0


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 3), st.integers(-20, 300)),
            st.tuples(st.just("clear"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("advance"), st.just(0), st.integers(0, 150)),
        ),
        max_size=40,
    )
)
def test_deadlines_set_and_cleared_in_any_order_fire_as_in_a_plain_list(steps: list[tuple[str, int, int]]) -> None:
    house = House()
    owners = [house.owner() for _ in range(4)]
    model: dict[int, int] = {}
    due: dict[int, list[int]] = {i: [] for i in range(4)}

    for step, i, amount_ms in steps:
        now_ms = house.time.now_ms()
        if step == "set":
            house.timers.set(owners[i], now_ms + amount_ms)
            model[i] = now_ms + amount_ms
        elif step == "clear":
            house.timers.clear(owners[i])
            model.pop(i, None)
        else:
            house.time.advance(amount_ms / 1000)
            for j, at_ms in list(model.items()):
                if at_ms <= now_ms + amount_ms:
                    due[j].append(max(at_ms, now_ms))
                    del model[j]

    for i, owner in enumerate(owners):
        assert [at_ms for at_ms, _ in owner.got] == due[i]


def test_manual_time_runs_callbacks_in_order_and_at_their_moment() -> None:
    seen: list[Any] = []
    time = ManualTime(start_ms=0, start_monotonic_s=5.0, settle=lambda: seen.append("settle"))
    time.call_later(0.2, lambda: seen.append(("b", time.now_ms())))
    time.call_later(0.1, lambda: seen.append(("a", time.now_ms())))
    cancelled = time.call_later(0.15, lambda: seen.append("never"))
    cancelled.cancel()

    time.advance(1)

    assert seen == ["settle", ("a", 100), "settle", ("b", 200), "settle", "settle"]
    assert time.now_ms() == 1000
    assert time.monotonic_s() == 6.0
