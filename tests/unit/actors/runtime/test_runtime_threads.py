"""What the runtime promises to threads: nothing they tell is lost, out of order or served after the end."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from tests.helpers.loops.recorder import Recorder, Steps
from wakeq.actors.runtime import Process, Runtime


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
        await process.actor_ref.ask("late", block=False)

    asyncio.run(main())
    runtime.run_until_idle()

    assert before == []
    assert sorted(process.got) == ["early", "late"]


def test_loop_is_asked_once_for_what_threads_tell_and_again_when_that_is_served() -> None:
    steps, asked = Steps(), []
    runtime = Runtime(steps, steps)
    recorder = runtime.spawn(Recorder)

    for round_ in range(3):
        for number in range(2):
            teller = threading.Thread(target=recorder.tell, args=((round_, number),))
            teller.start()
            teller.join()
        asked.append(len(steps.waiting))
        while steps.waiting:
            steps.run_one()

    assert asked == [1, 1, 1]
    assert recorder.got == [(round_, number) for round_ in range(3) for number in range(2)]


def test_closed_runtime_handles_no_mail() -> None:
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


def test_thread_that_tells_into_a_closed_loop_gets_an_error() -> None:
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
