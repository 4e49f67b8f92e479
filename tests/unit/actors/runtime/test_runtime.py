"""What the turns of the runtime promise: fair shares within a budget, order, arrivals handled at once."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.loops.recorder import Recorder, Steps
from wakeq.actors.runtime import NeverIdle, Process, Runtime
from wakeq.actors.runtime.runtime import GATHER_ROUNDS, MAIL_BUDGET


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 2 * MAIL_BUDGET)), max_size=12))
def test_mail_between_two_processes_keeps_its_order(steps: list[tuple[int, int, int]]) -> None:
    class Node(Process):
        def __init__(self) -> None:
            super().__init__()
            self.sent: dict[int, int] = defaultdict(int)
            self.got: dict[int, list[int]] = defaultdict(list)

        def on_receive(self, message: Any) -> None:
            kind, peer, count = message
            if kind == "got":
                self.got[peer].append(count)
                return
            for _ in range(count):
                nodes[peer].tell(("got", nodes.index(self), self.sent[peer]))
                self.sent[peer] += 1

    runtime = Runtime()
    nodes = [runtime.spawn(Node) for _ in range(4)]

    for source, target, count in steps:
        nodes[source].tell(("send", target, count))
    runtime.run_until_idle()

    for i, node in enumerate(nodes):
        for peer, numbers in node.got.items():
            assert numbers == list(range(nodes[peer].sent[i]))
    total = sum(count for _, _, count in steps)
    assert sum(len(numbers) for node in nodes for numbers in node.got.values()) == total
    assert runtime.messages == total + len(steps)


def test_who_is_told_together_with_others_gets_his_own_mail_behind_what_he_had() -> None:
    orders: list[list[str]] = [[], [], []]
    runtime = Runtime()
    idle, busy, ended = (runtime.spawn(Recorder, order) for order in orders)
    ended.stop()
    runtime.run_until_idle()

    busy.tell("before")
    runtime.tell_each([(idle, "idle"), (busy, "busy"), (ended, "ended")])
    runtime.run_until_idle()

    assert orders == [["idle"], ["before", "busy"], []]
    assert idle.idle


def test_a_busy_process_lets_the_others_have_their_share() -> None:
    order: list[str] = []
    runtime = Runtime()
    busy, calm = runtime.spawn(Recorder, order), runtime.spawn(Recorder, order)

    for _ in range(10 * MAIL_BUDGET):
        busy.tell("busy")
    calm.tell("calm")
    runtime.run_until_idle()

    assert order.index("calm") == MAIL_BUDGET
    assert len(order) == 10 * MAIL_BUDGET + 1


def test_a_turn_ends_when_its_time_is_up_and_another_one_follows() -> None:
    now = [0.0]
    steps = Steps()
    runtime = Runtime(steps, clock=lambda: now[0], turn_s=0.005)

    class Slow(Recorder):
        def on_receive(self, message: Any) -> None:
            now[0] += 0.002
            self.got.append(message)

    slow = [runtime.spawn(Slow) for _ in range(5)]
    for process in slow:
        process.tell("work")
    steps.run_one()
    after_one_turn = sum(len(process.got) for process in slow)
    steps.run_one()

    assert after_one_turn == 3
    assert sum(len(process.got) for process in slow) == 5
    assert steps.waiting == []
    assert runtime.turns == 2
    assert runtime.longest_turn_s == pytest.approx(0.006)


def test_many_tells_ask_the_loop_for_one_turn() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    processes = [runtime.spawn(Recorder) for _ in range(10)]

    for process in processes:
        process.tell(1)
        process.tell(2)

    assert len(steps.waiting) == 1
    steps.run_one()
    processes[0].tell(3)
    assert len(steps.waiting) == 1


def test_what_arrives_alone_is_handled_at_once_with_all_that_comes_of_it() -> None:
    class Relay(Process):
        def on_receive(self, message: Any) -> None:
            last.tell(message)

    steps = Steps()
    runtime = Runtime(steps)
    relay, last = runtime.spawn(Relay), runtime.spawn(Recorder)

    relay.arrive("first")
    got_at_once = list(last.got)
    relay.arrive("second")

    assert got_at_once == ["first"]
    assert last.got == ["first"]  # one in a round of the loop: the rest waits until the sockets were looked at


def test_where_arrivals_meet_they_are_gathered_until_they_come_alone_again() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    process = runtime.spawn(Recorder)

    def arrive_in_a_round(count: int) -> int:
        """Return how many were handled before the round was over."""
        before = len(process.got)
        for _ in range(count):
            process.arrive("mail")
        handled = len(process.got) - before
        while steps.waiting:
            steps.run_one()
        assert len(process.got) == before + count
        return handled

    assert arrive_in_a_round(2) == 1
    assert [arrive_in_a_round(1) for _ in range(GATHER_ROUNDS)] == [0] * GATHER_ROUNDS
    assert arrive_in_a_round(1) == 1


def test_a_process_that_fails_at_an_arrival_fails_alone_and_the_next_round_is_like_any_other() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    fails, other = runtime.spawn(Recorder), runtime.spawn(Recorder)

    fails.arrive(ZeroDivisionError("a bug"))
    fails.arrive("dropped")
    other.arrive("behind it")
    while steps.waiting:
        steps.run_one()
    for _ in range(GATHER_ROUNDS):  # they met in one round
        other.arrive("gathered")
        while steps.waiting:
            steps.run_one()
    other.arrive("alone")

    assert not fails.alive
    assert other.got == ["behind it", *["gathered"] * GATHER_ROUNDS, "alone"]


def test_an_interrupt_at_an_arrival_leaves_nobodys_mail_behind() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    interrupted, other = runtime.spawn(Recorder), runtime.spawn(Recorder)

    class Both(Process):
        def on_receive(self, message: Any) -> None:
            interrupted.tell(KeyboardInterrupt())
            other.tell(message)

    with pytest.raises(KeyboardInterrupt):
        runtime.spawn(Both).arrive("mail")
    while steps.waiting:
        steps.run_one()
    other.arrive("later")

    assert other.got == ["mail", "later"]


@pytest.mark.parametrize("begin", ["tell", "arrive"])
def test_what_arrives_within_a_turn_waits_for_its_place(begin: str) -> None:
    class Reader(Process):
        def on_receive(self, message: Any) -> None:
            other.arrive(message)
            got.append("the rest of the turn")

    steps, got = Steps(), list[Any]()
    runtime = Runtime(steps)
    other = runtime.spawn(Recorder, got)

    getattr(runtime.spawn(Reader), begin)("mail")
    while steps.waiting:
        steps.run_one()

    assert got == ["the rest of the turn", "mail"]


def test_a_process_is_the_last_when_nobody_has_mail_and_it_has_no_more() -> None:
    class Asked(Process):
        def on_receive(self, message: Any) -> None:
            seen.append(self.runtime.is_last(self))

    seen: list[bool] = []
    runtime = Runtime()
    first, second = runtime.spawn(Asked), runtime.spawn(Asked)

    for process in (first, second, second):
        process.tell("look")
    runtime.run_until_idle()

    assert seen == [False, False, True]


def test_an_arrival_that_makes_much_work_lets_the_loop_go_on_when_its_time_is_up() -> None:
    class Endless(Process):
        def on_receive(self, message: Any) -> None:
            self.tell(message)

    steps, now_s = Steps(), iter(range(1_000_000))
    runtime = Runtime(steps, turn_s=10, clock=lambda: next(now_s))

    runtime.spawn(Endless).arrive("go on")

    assert len(steps.waiting) == 1


def test_run_until_idle_says_when_mail_goes_in_circles() -> None:
    class Circle(Process):
        def on_receive(self, message: Any) -> None:
            self.tell(message)

    runtime = Runtime()
    runtime.spawn(Circle).tell("round")

    with pytest.raises(NeverIdle):
        runtime.run_until_idle(messages_max=1000)


def test_a_turn_cannot_begin_within_a_turn() -> None:
    class Nested(Recorder):
        def on_receive(self, message: Any) -> None:
            self.runtime.run_until_idle()

    runtime = Runtime()
    process = runtime.spawn(Nested)

    process.tell("go")
    runtime.run_until_idle()

    assert runtime.failures == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_is_worse_than_an_exception_goes_through_and_ends_nobody(error: type[BaseException]) -> None:
    runtime = Runtime()
    first, other = runtime.spawn(Recorder), runtime.spawn(Recorder)
    first.tell(error())
    first.tell("next")
    other.tell("mine")

    with pytest.raises(error):
        runtime.run_until_idle()
    runtime.run_until_idle()

    assert first.got == ["next"]
    assert other.got == ["mine"]
    assert first.alive


def test_after_an_interrupt_the_loop_is_asked_for_another_turn() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    process = runtime.spawn(Recorder)
    process.tell(KeyboardInterrupt())
    process.tell("next")

    with pytest.raises(KeyboardInterrupt):
        steps.run_one()
    steps.run_one()

    assert process.got == ["next"]
