"""Rounds: doors that wait are served in their order, within bounds, and when the mail of earlier rounds is handled."""

from typing import Any

from tests.helpers.loops.recorder import Steps
from wakeq.actors.runtime import Process, Rounds, Runtime
from wakeq.actors.runtime.rounds import (
    ROUND_COMMANDS_MAX,
    ROUND_COMMANDS_MIN,
    ROUND_S_MAX,
    SHARE_COMMANDS_MAX,
    SHARE_COMMANDS_MIN,
)
from wakeq.actors.runtime.runtime import PATIENCE_TURNS

TURN_S = 0.005


class Door:
    """One that waits again after each of its turns."""

    def __init__(self, rounds: Rounds, order: list[Any], turns: int = 3, commands: int = 0) -> None:
        self.rounds, self.order, self.turns, self.commands = rounds, order, turns, commands
        rounds.wait(self)

    def take_turn(self) -> None:
        self.order.append(self)
        self.rounds.left -= self.commands
        self.turns -= 1
        if self.turns:
            self.rounds.wait(self)


class Busy(Process):
    """One that tells itself again and again, and needs a whole turn for each of its mails."""

    def __init__(self, order: list[Any], now_s: list[float]) -> None:
        super().__init__()
        self.order, self.now_s = order, now_s

    def on_receive(self, message: int) -> None:
        self.order.append(message)
        self.now_s[0] += TURN_S
        if message:
            self.tell(message - 1)


def runtime_with_busy(order: list[Any]) -> tuple[Steps, Runtime, Busy]:
    steps, now_s = Steps(), [0.0]
    runtime = Runtime(steps, turn_s=TURN_S, clock=lambda: now_s[0])
    return steps, runtime, runtime.spawn(Busy, order, now_s)


def test_waiting_doors_have_one_turn_each_in_a_round() -> None:
    order: list[Any] = []
    rounds = Rounds(lambda: None, clock=lambda: 0.0)
    doors = [Door(rounds, order) for _ in range(5)]

    rounds.serve()

    assert order == doors
    assert list(rounds.waiting) == doors


def test_round_ends_at_its_number_of_commands_and_leaves_some_for_arrivals() -> None:
    order: list[Any] = []
    rounds = Rounds(lambda: None, clock=lambda: 0.0)
    doors = [Door(rounds, order, commands=ROUND_COMMANDS_MAX // 2) for _ in range(5)]

    rounds.serve()

    assert order == doors[:2]
    assert list(rounds.waiting) == [*doors[2:], *doors[:2]]
    assert rounds.left == ROUND_COMMANDS_MIN


def test_round_ends_with_its_time() -> None:
    order: list[Any] = []
    now_s = iter([0.0, ROUND_S_MAX / 2, ROUND_S_MAX, 1.0])
    rounds = Rounds(lambda: None, clock=lambda: next(now_s))
    doors = [Door(rounds, order) for _ in range(5)]

    rounds.serve()

    assert order == doors[:2]


def test_share_is_the_smaller_the_more_wait() -> None:
    rounds = Rounds(lambda: None)
    shares = []
    for _ in range(1_000):
        shares.append(rounds.share)
        Door(rounds, [])

    assert shares[0] == SHARE_COMMANDS_MAX
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == SHARE_COMMANDS_MIN


def test_doors_wait_until_all_mail_is_handled() -> None:
    order: list[Any] = []
    steps, runtime, busy = runtime_with_busy(order)
    busy.tell(3)
    steps.run_one()

    door = Door(runtime.rounds, order, turns=2)
    while steps.waiting:
        steps.run_one()

    assert order == [3, 2, 1, 0, door, door]


def test_busy_process_holds_up_doors_for_a_few_turns_only() -> None:
    order: list[Any] = []
    steps, runtime, busy = runtime_with_busy(order)
    busy.tell(10_000)
    door = Door(runtime.rounds, order, turns=3)

    for _ in range(3 * PATIENCE_TURNS):
        steps.run_one()

    assert order.count(door) == 3


def test_round_in_which_mail_is_left_has_room_for_few_commands() -> None:
    steps, runtime, busy = runtime_with_busy([])
    busy.tell(1)

    steps.run_one()
    steps.run_one()
    few = runtime.rounds.left
    busy.tell(0)
    runtime.rounds.left = 0
    runtime._end_round()
    steps.run_one()
    runtime._end_round()

    assert few == ROUND_COMMANDS_MIN
    assert runtime.rounds.left == ROUND_COMMANDS_MAX
