"""outside_of_loop: the call sees what its caller sees, wherever it is done."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from wakeq.testing.loops import outside_of_loop

WHO: ContextVar[str] = ContextVar("who")


def told() -> tuple[str, threading.Thread]:
    return WHO.get(), threading.current_thread()


async def from_within() -> tuple[str, threading.Thread]:
    return outside_of_loop(told)


def test_without_a_loop_the_call_is_done_here() -> None:
    WHO.set("a test")

    assert outside_of_loop(told) == ("a test", threading.current_thread())


def test_within_a_loop_it_is_done_in_another_thread_and_in_the_same_context() -> None:
    WHO.set("a test")

    who, thread = asyncio.run(from_within())

    assert who == "a test"
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("error", [ZeroDivisionError("one"), SystemExit(3)])
def test_what_the_call_raises_is_the_callers(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def within() -> BaseException:
        try:
            outside_of_loop(fails)
        except BaseException as raised:
            return raised
        raise AssertionError("nothing was raised")

    assert asyncio.run(within()) is error
