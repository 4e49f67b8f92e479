"""Tests of outside_of_loop: the thread, context and exceptions of the call."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from wakeq.testing.loops import outside_of_loop

WHO: ContextVar[str] = ContextVar("who")


def context_and_thread() -> tuple[str, threading.Thread]:
    return WHO.get(), threading.current_thread()


async def from_within() -> tuple[str, threading.Thread]:
    return outside_of_loop(context_and_thread)


def test_call_without_a_loop_runs_in_this_thread() -> None:
    WHO.set("a test")

    assert outside_of_loop(context_and_thread) == ("a test", threading.current_thread())


def test_call_on_a_loop_runs_in_another_thread_with_the_same_context() -> None:
    WHO.set("a test")

    who, thread = asyncio.run(from_within())

    assert who == "a test"
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("error", [ZeroDivisionError("one"), SystemExit(3)])
def test_exception_of_the_call_is_raised(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def within() -> BaseException:
        try:
            outside_of_loop(fails)
        except BaseException as raised:
            return raised
        raise AssertionError("nothing was raised")

    assert asyncio.run(within()) is error
