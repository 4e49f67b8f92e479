"""What the runtime promises: fair turns within a budget, nothing lost between threads, names, isolation."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from wakeq.actors.runtime import NameTaken, NeverIdle, Process, Runtime
from wakeq.actors.runtime.runtime import GATHER_ROUNDS, MAIL_BUDGET


class Recorder(Process):
    """Keeps what it was told, in its own list or a shared one; raises what is an exception."""

    def __init__(self, got: list[Any] | None = None) -> None:
        super().__init__()
        self.got: list[Any] = [] if got is None else got

    def on_receive(self, message: Any) -> None:
        if isinstance(message, BaseException):
            raise message
        self.got.append(message)


class Steps:
    """A call_soon that runs when told, one callback at a time."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def __call__(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def run_one(self) -> None:
        self.waiting.pop(0)()


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


# Threads ----------------------------------------------------------------------------------------------------


class Tally(Process):
    """Counts what each thread has told, and sees whether it came in order."""

    def __init__(self, expected: int, done: Callable[[], object]) -> None:
        super().__init__()
        self.next = defaultdict[int, int](int)
        self.left = expected
        self.done = done
        self.disorder = 0

    def on_receive(self, message: tuple[int, int]) -> None:
        source, number = message
        self.disorder += number != self.next[source]
        self.next[source] = number + 1
        self.left -= 1
        if self.left == 0:
            self.done()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_tells_of_four_threads_all_arrive_and_in_order(run: Callable[[Any], Any]) -> None:
    threads, each = 4, 50_000

    async def main() -> Tally:
        loop = asyncio.get_running_loop()
        runtime = Runtime()
        runtime.attach(loop)
        done = asyncio.Event()
        tally = runtime.spawn(Tally, threads * each, done.set)

        def tell_all(source: int) -> None:
            for number in range(each):
                tally.tell((source, number))

        started = [threading.Thread(target=tell_all, args=(i,)) for i in range(threads)]
        for thread in started:
            thread.start()
        await asyncio.wait_for(done.wait(), 60)
        for thread in started:
            thread.join()
        assert runtime.messages == threads * each
        return tally

    tally = run(main())

    assert tally.left == 0
    assert tally.disorder == 0


def test_tells_of_a_thread_are_kept_until_the_runtime_is_run_or_attached() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)

    thread = threading.Thread(target=process.tell, args=("early",))
    thread.start()
    thread.join()
    before = list(process.got)

    async def main() -> None:
        runtime.attach(asyncio.get_running_loop())
        await process.ask("late")

    asyncio.run(main())
    runtime.run_until_idle()

    assert before == []
    assert sorted(process.got) == ["early", "late"]


def test_a_closed_runtime_serves_nobody_whoever_tells_whatever() -> None:
    steps = Steps()
    runtime = Runtime(steps, steps)
    recorder = runtime.spawn(Recorder)
    recorder.tell("before")
    runtime.close()
    recorder.tell("after")
    teller = threading.Thread(target=recorder.tell, args=("from a thread",))
    teller.start()
    teller.join()
    while steps.waiting:
        steps.run_one()
    runtime.spawn(Recorder, recorder.got).tell("to another")

    assert (recorder.got, steps.waiting) == ([], [])


def test_mail_that_was_there_before_the_loop_is_served_when_it_is_attached() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)
    process.tell("early")
    steps = Steps()

    class Loop:
        call_soon = call_soon_threadsafe = staticmethod(steps)

    runtime.attach(Loop())
    steps.run_one()

    assert process.got == ["early"]


def test_a_thread_that_tells_into_a_closed_loop_hears_of_it() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)

    async def main() -> None:
        runtime.attach(asyncio.get_running_loop())

    asyncio.run(main())
    heard: list[int] = []

    def tell() -> None:
        for i in range(2):
            try:
                process.tell(i)
            except RuntimeError:
                heard.append(i)

    thread = threading.Thread(target=tell)
    thread.start()
    thread.join()

    assert heard == [0, 1]


def test_mail_from_threads_does_not_multiply_the_turns() -> None:
    steps = Steps()
    runtime = Runtime(steps, steps)
    process = runtime.spawn(Recorder)
    process.tell("own")

    thread = threading.Thread(target=process.tell, args=("foreign",))
    thread.start()
    thread.join()
    turn, hand_over = steps.waiting
    steps.waiting.clear()
    hand_over()
    turns_before = runtime.turns
    turn()

    assert turns_before == 0
    assert process.got == ["own", "foreign"]
    assert runtime.turns == 1
    assert steps.waiting == []


# Names, and two runtimes ------------------------------------------------------------------------------------


def test_a_name_finds_its_process_until_it_ends() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)
    runtime.register("log", process)
    runtime.register(("queue", "mail"), process)
    found = runtime.whereis("log")

    process.stop()
    runtime.run_until_idle()

    assert found is process
    assert runtime.whereis("log") is None
    assert runtime.whereis(("queue", "mail")) is None
    runtime.register("log", runtime.spawn(Recorder))


def test_a_name_belongs_to_one_living_process() -> None:
    runtime = Runtime()
    first, second = runtime.spawn(Recorder), runtime.spawn(Recorder)
    runtime.register("log", first)
    runtime.register("log", first)

    with pytest.raises(NameTaken, match="log"):
        runtime.register("log", second)


def test_a_dead_process_gets_no_name() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)
    process.stop()
    runtime.run_until_idle()

    runtime.register("log", process)

    assert runtime.whereis("log") is None


def test_two_runtimes_do_not_disturb_each_other() -> None:
    one, two = Runtime(), Runtime()
    mine, yours = one.spawn(Recorder), two.spawn(Recorder)
    one.register("log", mine)
    one.groups.join("all", mine)

    mine.tell(1)
    yours.tell(2)
    one.run_until_idle()
    seen = (list(mine.got), list(yours.got))
    two.run_until_idle()

    assert seen == ([1], [])
    assert yours.got == [2]
    assert two.whereis("log") is None
    assert two.groups.count("all") == 0


def test_a_process_made_by_another_belongs_to_the_same_runtime() -> None:
    class Parent(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.child = self.runtime.spawn(Recorder)

    runtime, _other = Runtime(), Runtime()

    parent = runtime.spawn(Parent)

    assert parent.child.runtime is parent.runtime is runtime
