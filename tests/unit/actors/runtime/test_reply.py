"""What ask promises: the value, the exception, or ActorDeadError; awaited without blocking the loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from wakeq.actors.runtime import NoReplyYet, Process, Reply, Runtime


class Oracle(Process):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message * 2


def test_reply_holds_the_value_that_on_receive_returns() -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)

    reply = oracle.ask(21)
    before = reply.done()
    runtime.run_until_idle()

    assert not before
    assert reply.done()
    assert reply.result() == 42


def test_unanswered_reply_raises_an_error_for_its_result() -> None:
    with pytest.raises(NoReplyYet):
        Reply().result()


def test_exception_goes_to_the_asker_and_ends_the_process() -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)

    reply = oracle.ask(ValueError("bad"))
    runtime.run_until_idle()

    with pytest.raises(ValueError, match="bad"):
        reply.result()
    assert not oracle.alive


@pytest.mark.parametrize("end", [lambda p: p.stop(), lambda p: p.tell(ValueError("bad"))])
def test_asks_behind_the_end_fail_with_actor_dead_error(end: Callable[[Process], None]) -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)

    first = oracle.ask(1)
    end(oracle)
    behind = oracle.ask(2)
    runtime.run_until_idle()
    late = oracle.ask(3)

    assert first.result() == 2
    for reply in (behind, late):
        with pytest.raises(pykka.ActorDeadError):
            reply.result()


def test_ask_from_another_thread_to_a_process_that_ended_meanwhile_fails() -> None:
    callbacks: list[Callable[[], None]] = []
    runtime = Runtime(callbacks.append, callbacks.append)
    oracle = runtime.spawn(Oracle)
    replies: list[Reply] = []

    oracle.stop()
    thread = threading.Thread(target=lambda: replies.append(oracle.ask(1)))
    thread.start()
    thread.join()
    turn, hand_over = callbacks
    turn()
    hand_over()

    with pytest.raises(pykka.ActorDeadError):
        replies[0].result()


def test_reply_is_awaited_on_the_loop() -> None:
    async def main() -> list[int]:
        runtime = Runtime()
        runtime.attach(asyncio.get_running_loop())
        oracle = runtime.spawn(Oracle)
        one = oracle.ask(1)
        return [await one, await one, await asyncio.wait_for(oracle.ask(2), 10)]

    assert asyncio.run(main()) == [2, 2, 4]


def test_reply_reaches_the_others_when_one_awaiter_gives_up() -> None:
    async def main() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        reply = Reply()
        waiting = [asyncio.ensure_future(_wait(reply)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        reply.set("here")
        return await asyncio.gather(*waiting, return_exceptions=True)

    complaints: list[Any] = []
    got = asyncio.run(main())

    assert complaints == []
    assert got[0] == got[2] == "here"
    assert isinstance(got[1], asyncio.CancelledError)


async def _wait(reply: Reply) -> Any:
    return await reply


def test_reply_set_by_another_thread_wakes_its_awaiter() -> None:
    async def main() -> Any:
        reply = Reply()
        task = asyncio.ensure_future(_wait(reply))
        await asyncio.sleep(0)
        threading.Thread(target=reply.set, args=("from there",)).start()
        return await asyncio.wait_for(task, 10)

    # In debug mode a loop refuses what other threads may not do to it.
    assert asyncio.run(main(), debug=True) == "from there"


def test_first_settlement_counts() -> None:
    reply = Reply()

    reply.set(1)
    reply.set(2)
    reply.set_exception(ValueError())

    assert reply.result() == 1


def test_ask_that_is_interrupted_does_not_leave_the_asker_waiting() -> None:
    runtime = Runtime()
    oracle = runtime.spawn(Oracle)
    reply = oracle.ask(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        runtime.run_until_idle()

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        reply.result()
    assert oracle.alive
