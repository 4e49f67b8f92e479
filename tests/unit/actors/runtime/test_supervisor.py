"""What a supervisor promises: the failed child comes back alone, and not for ever."""

from collections.abc import Callable
from typing import Any

import pytest

from wakeq.actors.runtime import (
    Child,
    Down,
    EssentialEnded,
    Process,
    Runtime,
    Supervisor,
    TooManyRestarts,
)


class Worker(Process):
    def on_receive(self, message: Any) -> None:
        if isinstance(message, BaseException):
            raise message


class Watcher(Process):
    def __init__(self) -> None:
        super().__init__()
        self.got: list[Down] = []

    def on_receive(self, message: Down) -> None:
        self.got.append(message)


class House:
    """A supervisor over named workers, watched, with a clock by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.runtime = Runtime()
        self.made: dict[str, list[Worker]] = {}

    def start(self, name: str, *, trouble: Callable[[], None] = lambda: None) -> Callable[[], Process]:
        def start() -> Process:
            trouble()
            worker = self.runtime.spawn(Worker)
            self.made.setdefault(name, []).append(worker)
            return worker

        return start

    def supervise(self, *children: Child, restarts_max: int = 2) -> Supervisor:
        self.supervisor = self.runtime.spawn(
            Supervisor, children, restarts_max=restarts_max, within_s=10.0, clock=lambda: self.now_s
        )
        self.watcher = self.runtime.spawn(Watcher)
        self.runtime.monitor(self.watcher, self.supervisor)
        return self.supervisor

    def crash(self, name: str) -> None:
        self.made[name][-1].tell(ValueError(f"{name} is broken"))
        self.runtime.run_until_idle()


@pytest.fixture
def house() -> House:
    return House()


def test_failed_child_is_started_again_and_the_others_are_left_alone(house: House) -> None:
    house.supervise(Child("a", house.start("a")), Child("b", house.start("b")))

    house.crash("a")

    assert len(house.made["a"]) == 2
    assert house.made["a"][-1].alive
    assert len(house.made["b"]) == 1
    assert house.made["b"][0].alive


def test_child_that_stops_is_not_started_again(house: House) -> None:
    house.supervise(Child("a", house.start("a")))

    house.made["a"][0].stop()
    house.runtime.run_until_idle()

    assert len(house.made["a"]) == 1
    assert house.supervisor.alive


def test_restarts_beyond_the_limit_end_the_supervisor_and_its_children(house: House) -> None:
    house.supervise(Child("a", house.start("a")), Child("b", house.start("b")))

    for _ in range(3):
        house.crash("a")

    (down,) = house.watcher.got
    assert isinstance(down.reason, TooManyRestarts)
    assert isinstance(down.reason.__cause__, ValueError)
    assert len(house.made["a"]) == 3
    assert not house.made["b"][0].alive


def test_failures_that_are_far_apart_are_not_too_many(house: House) -> None:
    house.supervise(Child("a", house.start("a")))

    for _ in range(20):
        house.now_s += 6.0
        house.crash("a")

    assert house.supervisor.alive
    assert len(house.made["a"]) == 21


def test_end_of_an_essential_child_ends_the_supervisor_at_once(house: House) -> None:
    house.supervise(Child("log", house.start("log"), essential=True), Child("b", house.start("b")))

    house.crash("log")

    (down,) = house.watcher.got
    assert isinstance(down.reason, EssentialEnded)
    assert "log is broken" in str(down.reason.__cause__)
    assert len(house.made["log"]) == 1
    assert not house.made["b"][0].alive


def test_start_that_fails_counts_as_a_failure(house: House) -> None:
    broken = [False]

    def trouble() -> None:
        if broken[0]:
            raise OSError("not now")

    house.supervise(Child("a", house.start("a", trouble=trouble)))
    broken[0] = True

    house.crash("a")

    (down,) = house.watcher.got
    assert isinstance(down.reason, TooManyRestarts)
    assert isinstance(down.reason.__cause__, OSError)


def test_child_that_dies_in_on_start_counts_as_a_failure(house: House) -> None:
    class Stillborn(Worker):
        def on_start(self) -> None:
            raise OSError("never")

    starts: list[Process] = []

    def start() -> Process:
        starts.append(house.runtime.spawn(Stillborn))
        return starts[-1]

    house.supervise(Child("a", start))
    house.runtime.run_until_idle()

    assert len(starts) == 3
    assert isinstance(house.watcher.got[0].reason, TooManyRestarts)


def test_child_may_be_added_later(house: House) -> None:
    house.supervise()

    house.supervisor.tell(Child("late", house.start("late")))
    house.runtime.run_until_idle()
    house.crash("late")

    assert len(house.made["late"]) == 2


def test_stopping_the_supervisor_stops_the_children_the_last_one_first(house: House) -> None:
    order: list[str] = []

    class Named(Worker):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def on_stop(self) -> None:
            order.append(self.name)

    house.supervise(*(Child(name, lambda name=name: house.runtime.spawn(Named, name)) for name in "abc"))  # type: ignore[misc]

    house.supervisor.stop()
    house.runtime.run_until_idle()

    assert order == ["c", "b", "a"]
    assert house.watcher.got[0].reason is None
