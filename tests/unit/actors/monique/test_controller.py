"""Controller: each task to one component, in turn; what waits for one, and what is dropped."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.monique.by_hand import transfer
from tests.helpers.monique.exchange_place import Place
from wakeq.actors.monique import controller as monique_controller
from wakeq.actors.monique.controller import WAITING_MAX, Controller
from wakeq.actors.monique.mail import Changed, Relayed
from wakeq.actors.runtime import Process
from wakeq.protocol.wire.monique.transfers import Transfer


@pytest.fixture
def place() -> Place:
    return Place()


class Push:
    """A port whose components take as many as there is room for with each."""

    def __init__(self) -> None:
        self.room: dict[int, int] = {}
        self.sent: list[bytes] = []
        self.given: list[int] = []  # to whom

    def can_take(self, component: int, /) -> bool:
        return bool(self.room.get(component))

    def send(self, component: int, frames: Any, /) -> bool:
        if not self.can_take(component):
            return False
        self.room[component] -= 1
        self.sent.append(frames[0])
        self.given.append(component)
        return True


@pytest.fixture
def controlled(place: Place) -> tuple[Push, Process, Callable[..., None]]:
    port = Push()
    controller = place.runtime.spawn(Controller, "a_b", port, place.exchange, place.counters, checks=True)

    def relay(*transfers: Any) -> None:
        place.exchange.tell(Relayed(transfers))
        place.settle()

    place.settle()
    return port, controller, relay


def test_controller_waits_for_components_and_gives_tasks_in_order(controlled: Any, place: Place) -> None:
    port, controller, relay = controlled
    tasks = [transfer("config a_b", id=name) for name in "123"]
    relay(*tasks, transfer("result a_b"), transfer("config c_d"))
    assert port.sent == []

    port.room = {1: 5}
    controller.tell(Changed([1]))
    place.settle()

    assert port.sent == [task.frames[0] for task in tasks]


def test_controller_keeps_a_bounded_number_of_messages_and_logs_the_dropped_ones(
    controlled: Any, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    port, controller, relay = controlled

    relay(*[transfer("config a_b")] * (WAITING_MAX + 5), transfer("config a_b", id=7))
    port.room = {1: WAITING_MAX * 2}
    controller.tell(Changed([1]))
    place.settle()

    assert len(port.sent) == WAITING_MAX
    assert "no component takes them" in caplog.text


def test_controller_drops_a_task_that_would_crash_a_component(controlled: Any, place: Place) -> None:
    port, controller, relay = controlled
    port.room = {1: 5}
    controller.tell(Changed([1]))
    good = transfer("config a_b")

    relay(Transfer(good.tag, b"no MessagePack"), good)

    assert (len(port.sent), place.counters.dropped["to_controller"]) == (1, 1)


def test_controller_keeps_a_bounded_number_of_bytes(
    controlled: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, controller, relay = controlled
    task = transfer("config a_b", data=bytes(1000))
    monkeypatch.setattr(monique_controller, "WAITING_BYTES_MAX", 2 * len(task.message))

    relay(*[task] * 5)
    port.room = {1: 5}
    controller.tell(Changed([1]))
    place.settle()

    assert (len(port.sent), place.counters.dropped["to_controller"]) == (2, 3)
    relay(*[task] * 3)
    assert len(port.sent) == 5, "what is taken at once need not wait"


def test_components_take_turns_and_full_ones_are_passed_over(controlled: Any, place: Place) -> None:
    port, controller, relay = controlled
    port.room = {1: 9, 2: 1, 3: 9}
    controller.tell(Changed([1, 2, 3]))
    relay(*[transfer("config a_b")] * 5)
    assert port.given == [1, 2, 3, 1, 3]

    controller.tell(Changed([1, 4, 3]))  # one has gone, and one has come
    port.room[4] = 9
    relay(*[transfer("config a_b")] * 3)

    assert port.given[5:] == [1, 3, 4]
