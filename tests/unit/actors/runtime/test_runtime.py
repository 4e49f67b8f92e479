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


def test_mail_told_to_several_goes_to_each_behind_its_earlier_mail() -> None:
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


def test_busy_process_lets_the_others_have_their_share() -> None:
    order: list[str] = []
    runtime = Runtime()
    busy, calm = runtime.spawn(Recorder, order), runtime.spawn(Recorder, order)

    for _ in range(10 * MAIL_BUDGET):
        busy.tell("busy")
    calm.tell("calm")
    runtime.run_until_idle()

    assert order.index("calm") == MAIL_BUDGET
    assert len(order) == 10 * MAIL_BUDGET + 1


def test_turn_ends_when_its_time_is_up_and_another_one_follows() -> None:
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


def test_tells_in_a_row_ask_the_loop_for_one_turn() -> None:
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


def test_arrival_alone_in_a_round_is_handled_at_once_with_its_consequences() -> None:
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


def test_process_that_fails_at_an_arrival_fails_alone_and_the_next_round_is_like_any_other() -> None:
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


def test_interrupt_at_an_arrival_leaves_nobodys_mail_behind() -> None:
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


def test_process_that_is_interrupted_while_it_files_has_told_what_it_told() -> None:
    class Interrupted(Process):
        def on_receive(self, message: Any) -> None:
            other.tell(message)
            raise KeyboardInterrupt

    steps = Steps()
    runtime = Runtime(steps)
    other = runtime.spawn(Recorder)

    with pytest.raises(KeyboardInterrupt):
        runtime.spawn(Interrupted).arrive("mail")
    all_steps(steps)

    assert other.got == ["mail"]


@pytest.mark.parametrize("begin", ["tell", "arrive"])
def test_arrival_within_a_turn_is_filed_and_what_it_wakes_waits(begin: str) -> None:
    class Files(Process):
        def on_receive(self, message: Any) -> None:
            got.append(message)
            woken.tell("its turn")

    class Reader(Process):
        def on_receive(self, message: Any) -> None:
            files.arrive(message)
            got.append("the rest of the turn")

    steps, got = Steps(), list[Any]()
    runtime = Runtime(steps)
    woken, files = runtime.spawn(Recorder, got), runtime.spawn(Files)

    getattr(runtime.spawn(Reader), begin)("mail")
    all_steps(steps)

    assert got == ["mail", "the rest of the turn", "its turn"]


def test_process_is_the_last_when_no_process_has_more_mail() -> None:
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


def test_arrival_that_makes_much_work_lets_the_loop_go_on_when_its_time_is_up() -> None:
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


def test_turn_cannot_begin_within_a_turn() -> None:
    class Nested(Recorder):
        def on_receive(self, message: Any) -> None:
            self.runtime.run_until_idle()

    runtime = Runtime()
    process = runtime.spawn(Nested)

    process.tell("go")
    runtime.run_until_idle()

    assert runtime.failures == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_base_exception_is_raised_to_the_loop_and_stops_no_process(error: type[BaseException]) -> None:
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


def test_loop_is_asked_for_another_turn_after_an_interrupt() -> None:
    steps = Steps()
    runtime = Runtime(steps)
    process = runtime.spawn(Recorder)
    process.tell(KeyboardInterrupt())
    process.tell("next")

    with pytest.raises(KeyboardInterrupt):
        steps.run_one()
    steps.run_one()

    assert process.got == ["next"]


# Steps, and what is sent at the end of a round ------------------------------------------------------------------------


class Session(Recorder):
    """Files what arrives at once: tells `queue`, and notes that it has something to send."""

    def __init__(self, got: list[Any], queue: Process | None = None) -> None:
        super().__init__(got)
        self.queue = queue
        self.is_dirty = False

    def on_receive(self, message: Any) -> None:
        super().on_receive(message)
        if self.queue is not None:
            self.queue.tell(("filed", message))

    def note_dirty(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self.runtime.flush_later(self)

    def flush(self) -> None:
        self.is_dirty = False
        self.got.append("flush")


class Answering(Recorder):
    """A queue whose turn gives each session its answer."""

    def __init__(self, got: list[Any], *sessions: Session) -> None:
        super().__init__(got)
        self.sessions = list(sessions)

    def on_receive(self, message: Any) -> None:
        super().on_receive(message)
        for session in self.sessions:
            session.note_dirty()


def all_steps(steps: Steps) -> None:
    while steps.waiting:
        steps.run_one()


def test_command_received_alone_is_filed_served_and_flushed_before_it_returns() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    queue = runtime.spawn(Answering, order)
    session = runtime.spawn(Session, order, queue)
    queue.sessions.append(session)

    session.arrive("FET")

    assert order == ["FET", ("filed", "FET"), "flush"]
    assert len(steps.waiting) == 1, "the end of the round"
    assert runtime.idle


def test_arrivals_of_one_round_are_all_filed_before_a_queue_takes_its_turn() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    queue = runtime.spawn(Answering, order)
    sessions = [runtime.spawn(Session, order, queue) for _ in range(4)]
    queue.sessions += sessions
    sessions[0].arrive("alone")
    order.clear()

    for number, session in enumerate(sessions[1:]):
        session.arrive(number)
    before = list(order)
    all_steps(steps)

    assert before == [0, 1, 2]
    assert order[3:] == [*(("filed", number) for number in range(3)), *["flush"] * 4]


def test_arrivals_that_meet_are_gathered_until_they_come_alone_again() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    queue = runtime.spawn(Recorder, order)
    session = runtime.spawn(Session, order, queue)

    session.arrive("alone")
    session.arrive("meets it")
    all_steps(steps)
    order.clear()
    for number in range(GATHER_ROUNDS + 1):
        session.arrive(number)
        at_once = list(order)
        all_steps(steps)
        order.clear()
        assert at_once == ([number] if number < GATHER_ROUNDS else [number, ("filed", number)])


def test_arrival_that_wakes_no_process_does_not_count_into_the_next_round() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    queue = runtime.spawn(Recorder, order)
    files, stands = runtime.spawn(Session, order, queue), runtime.spawn(Session, order)
    files.arrive("alone")
    files.arrive("meets it")
    all_steps(steps)

    for _ in range(GATHER_ROUNDS):  # each in a round of its own: nothing is gathered behind them
        stands.arrive("a fetch that stands behind a publish")
        all_steps(steps)
    order.clear()
    files.arrive("alone again")

    assert order == ["alone again", ("filed", "alone again")]


def test_session_that_crashes_on_an_arrival_stops_alone() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    fails, other = runtime.spawn(Session, order), runtime.spawn(Session, order)

    fails.arrive(ZeroDivisionError("a bug"))
    fails.arrive("dropped")
    other.arrive("behind it")
    all_steps(steps)

    assert not fails.alive
    assert other.alive
    assert order == ["behind it"]
    assert runtime.failures == 1


def test_interrupt_during_an_arrival_loses_no_other_mail() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    queue = runtime.spawn(Recorder, order)
    interrupted, other = runtime.spawn(Session, order), runtime.spawn(Session, order, queue)
    queue.tell("mail")

    with pytest.raises(KeyboardInterrupt):
        interrupted.arrive(KeyboardInterrupt())
    other.arrive("later")
    all_steps(steps)

    assert interrupted.alive
    assert sorted(map(str, order)) == sorted(["mail", "later", str(("filed", "later"))])


def test_step_is_run_in_the_name_of_its_process() -> None:
    runtime = Runtime()
    queue, other = runtime.spawn(Recorder), runtime.spawn(Recorder)
    watcher = runtime.spawn(Recorder)
    runtime.monitor(watcher, queue)

    good = runtime.run_in(queue, queue.got.append, "applied")
    bad = runtime.run_in(queue, lambda: 1 // 0)
    runtime.run_until_idle()

    assert (good, bad) == (True, False)
    assert (queue.got, queue.alive, other.alive) == (["applied"], False, True)
    assert [type(down.reason) for down in watcher.got] == [ZeroDivisionError]


def test_step_of_a_process_that_has_ended_is_not_run() -> None:
    runtime, done = Runtime(), list[str]()
    process = runtime.spawn(Recorder)
    process.stop()
    runtime.run_until_idle()

    assert not runtime.run_in(process, done.append, "done")
    assert done == []


def test_interrupt_in_a_step_is_raised_and_stops_no_process() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)

    with pytest.raises(KeyboardInterrupt):
        runtime.run_in(process, process.on_receive, KeyboardInterrupt())

    assert process.alive


def test_session_is_flushed_once_behind_all_mail_of_the_turn() -> None:
    order: list[Any] = []
    runtime = Runtime()
    session = runtime.spawn(Session, order)
    queues = [runtime.spawn(Answering, order, session) for _ in range(3)]

    for number, queue in enumerate(queues):
        queue.tell(number)
    runtime.run_until_idle()

    assert order == [0, 1, 2, "flush"]


def test_mail_that_comes_of_a_flush_is_served_and_flushed_in_the_same_turn() -> None:
    """A flush may file a fetch that stood behind a publish."""

    class Standing(Session):
        def flush(self) -> None:
            super().flush()
            if queue.got.count("fetch") < 2:
                queue.tell("fetch")

    order: list[Any] = []
    steps = Steps()
    runtime = Runtime(steps)
    session = runtime.spawn(Standing, order)
    queue = runtime.spawn(Answering, order, session)

    queue.tell("publish")
    steps.run_one()

    assert order == ["publish", "flush", "fetch", "flush", "fetch", "flush"]
    assert steps.waiting == []


def test_flush_that_fails_ends_its_process_only() -> None:
    class Failing(Session):
        def flush(self) -> None:
            raise ZeroDivisionError("a bug")

    order: list[Any] = []
    runtime = Runtime()
    fails, ended, other = runtime.spawn(Failing, order), runtime.spawn(Session, order), runtime.spawn(Session, order)

    for session in (fails, ended, other):
        session.note_dirty()
    ended.stop()
    runtime.run_until_idle()

    assert (fails.alive, other.alive) == (False, True)
    assert order == ["flush"], "who has ended sends nothing"


def test_interrupted_flush_is_continued_in_the_next_turn() -> None:
    class Interrupted(Session):
        def flush(self) -> None:
            order.append("interrupted")
            if len(order) == 1:
                raise KeyboardInterrupt

    order: list[Any] = []
    runtime = Runtime()
    for session in (runtime.spawn(Interrupted, order), runtime.spawn(Session, order)):
        session.note_dirty()

    with pytest.raises(KeyboardInterrupt):
        runtime.run_until_idle()
    runtime.run_until_idle()

    assert order == ["interrupted", "interrupted", "flush"]


def test_session_with_something_to_send_asks_the_loop_for_a_turn() -> None:
    steps, order = Steps(), list[Any]()
    runtime = Runtime(steps)
    session = runtime.spawn(Session, order)

    session.note_dirty()
    idle_before = runtime.idle
    steps.run_one()

    assert not idle_before
    assert order == ["flush"]
    assert runtime.idle


def test_turn_whose_time_is_up_flushes_before_it_ends() -> None:
    """An answer must not wait for the work of others."""
    steps, now_s, order = Steps(), iter(range(1_000_000)), list[Any]()
    runtime = Runtime(steps, turn_s=2, clock=lambda: next(now_s))
    session = runtime.spawn(Session, order)
    queues = [runtime.spawn(Answering, order, session) for _ in range(9)]

    for number, queue in enumerate(queues):
        queue.tell(number)
    steps.run_one()

    assert order[-1] == "flush"
    assert len(order) < len(queues)
    assert len(steps.waiting) == 1


def test_flush_asked_for_within_a_turn_is_done_at_once_and_not_again() -> None:
    """Before the log waits for its disk, commands that need no sync are answered."""

    class Log(Recorder):
        def on_receive(self, message: Any) -> None:
            self.runtime.flush()
            super().on_receive("sync")

    order: list[Any] = []
    runtime = Runtime()
    session = runtime.spawn(Session, order)
    queue, log = runtime.spawn(Answering, order, session), runtime.spawn(Log, order)

    queue.tell("fetch")
    log.tell("write")
    runtime.run_until_idle()

    assert order == ["fetch", "flush", "sync"]
