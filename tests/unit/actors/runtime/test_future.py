"""What a future promises: the answer for threads that wait and coroutines that await, and no wait that never ends."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from tests.helpers.loops.recorder import Steps
from wakeq.actors.runtime import Future, Process, Runtime


class Oracle(Process):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message * 2


def ask(oracle: Process, message: object) -> Any:
    return oracle.actor_ref.ask(message, block=False)


async def wait(future: Any) -> Any:
    return await future


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# The answer ----------------------------------------------------------------------------------------------------------


def test_future_holds_the_value_that_on_receive_returns() -> None:
    runtime = Runtime()

    future = ask(runtime.spawn(Oracle), 21)
    before = future.done()
    runtime.run_until_idle()

    assert not before
    assert future.done()
    assert future.get() == 42


def test_exception_goes_to_the_asker_and_ends_the_process() -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)

    future = ask(oracle, ValueError("bad"))
    runtime.run_until_idle()

    with pytest.raises(ValueError, match="bad"):
        future.get()
    assert not oracle.alive


@pytest.mark.parametrize("end", [lambda p: p.stop(), lambda p: p.tell(ValueError("bad"))])
def test_asks_behind_the_end_fail_with_actor_dead_error(end: Callable[[Process], None]) -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)

    first = ask(oracle, 1)
    end(oracle)
    behind = ask(oracle, 2)
    runtime.run_until_idle()
    late = ask(oracle, 3)

    assert first.get() == 2
    for future in (behind, late):
        with pytest.raises(pykka.ActorDeadError):
            future.get()


def test_ask_from_another_thread_to_a_process_that_ended_meanwhile_fails() -> None:
    steps = Steps()
    runtime = Runtime(steps, steps)
    oracle = runtime.spawn(Oracle)
    futures: list[Any] = []
    oracle.stop()

    in_thread(lambda: futures.append(ask(oracle, 1))).join()
    while steps.waiting:
        steps.run_one()

    with pytest.raises(pykka.ActorDeadError):
        futures[0].get()


def test_ask_that_is_interrupted_does_not_leave_the_asker_waiting() -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)
    future = ask(oracle, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        runtime.run_until_idle()

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        future.get()
    assert oracle.alive


def test_second_answer_is_an_error_and_the_first_stays() -> None:
    future = Future[int]()
    future.set(1)

    for again in (lambda: future.set(2), lambda: future.set_exception((ValueError, ValueError(), None))):
        with pytest.raises(Exception, match="FINISHED"):
            again()

    assert future.get() == 1


# Waiting in a thread -------------------------------------------------------------------------------------------------


def test_thread_waits_until_the_answer_is_there() -> None:
    called, got = threading.Event(), list[Any]()
    runtime = Runtime(lambda _: None, lambda _: called.set())
    ref = runtime.spawn(Oracle).actor_ref

    thread = in_thread(lambda: got.append(ref.ask(21, timeout=10)))
    assert called.wait(10)
    runtime.run_until_idle()
    thread.join()

    assert got == [42]


def test_thread_that_waits_too_long_hears_it_as_from_any_future_of_pykka() -> None:
    runtime, heard = Runtime(), list[str]()
    ref = runtime.spawn(Oracle).actor_ref

    def wait_for_nothing() -> None:
        with pytest.raises(pykka.Timeout, match="no answer within 0"):
            ref.ask(21, timeout=0)
        heard.append("timeout")

    in_thread(wait_for_nothing).join()

    assert heard == ["timeout"]


def test_timeout_that_is_the_answer_is_not_taken_for_the_waiter_s() -> None:
    future = Future[None]()
    future.set_exception((TimeoutError, TimeoutError("of the disk"), None))

    with pytest.raises(TimeoutError, match="of the disk"):
        future.get(timeout=1)


def test_thread_that_serves_may_not_wait_for_its_own_answer() -> None:
    runtime = Runtime()
    ref = runtime.spawn(Oracle).actor_ref

    for wait_here in (lambda: ref.ask(1), lambda: ref.stop(timeout=1)):
        with pytest.raises(RuntimeError, match="the thread that waits here would have to give it"):
            wait_here()
    runtime.run_until_idle()

    assert not ref.is_alive()


# Awaiting on a loop --------------------------------------------------------------------------------------------------


def test_future_is_awaited_on_the_loop_that_serves() -> None:
    async def main() -> list[int]:
        runtime = Runtime()
        runtime.attach(asyncio.get_running_loop())
        oracle = runtime.spawn(Oracle)
        one = ask(oracle, 1)
        return [await one, await one, await asyncio.wait_for(ask(oracle, 2), 10)]

    assert asyncio.run(main()) == [2, 2, 4]


def test_future_that_pykka_makes_of_others_is_awaited_without_blocking_the_loop() -> None:
    """Its answer comes by a hook, which waits: `stop` and `map` are of that kind."""

    async def main() -> list[Any]:
        runtime = Runtime()
        runtime.attach(asyncio.get_running_loop())
        ref = runtime.spawn(Oracle).actor_ref
        mapped = ref.ask(1, block=False).map(lambda answer: answer + 1)
        return [await mapped, await ref.stop(block=False), await ref.stop(block=False)]

    assert asyncio.run(main()) == [3, True, False]


def test_answer_reaches_the_others_when_one_awaiter_gives_up() -> None:
    async def main() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        future = Future[str]()
        waiting = [asyncio.ensure_future(wait(future)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        future.set("here")
        return await asyncio.gather(*waiting, return_exceptions=True)

    complaints: list[Any] = []
    got = asyncio.run(main())

    assert complaints == []
    assert got[0] == got[2] == "here"
    assert isinstance(got[1], asyncio.CancelledError)


def test_answer_of_another_thread_wakes_its_awaiter() -> None:
    async def main() -> Any:
        future = Future[str]()
        task = asyncio.ensure_future(wait(future))
        await asyncio.sleep(0)
        in_thread(lambda: future.set("from there"))
        return await asyncio.wait_for(task, 10)

    # In debug mode a loop refuses what other threads may not do to it.
    assert asyncio.run(main(), debug=True) == "from there"
