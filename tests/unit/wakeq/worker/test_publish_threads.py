"""Proves the threads in which coroutines publish (publishers.py); test_task.py proves that tasks use them."""

import asyncio
import gc
import threading
from contextvars import ContextVar

import pytest

from wakeq.worker.publish_threads import run_in_publish_thread

WHO: ContextVar[str] = ContextVar("who")


def test_a_call_is_done_in_a_thread_of_ours_and_in_the_context_of_the_caller() -> None:
    async def ask() -> tuple[str, str]:
        WHO.set("ada")
        return await run_in_publish_thread(lambda: (threading.current_thread().name, WHO.get()))

    name, who = asyncio.run(ask())

    assert name.startswith("wakeq-publish")
    assert who == "ada"


def test_what_a_call_raises_rises_from_it() -> None:
    async def ask() -> None:
        await run_in_publish_thread(lambda: int("x"))

    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(ask())


def test_the_threads_end_with_their_loop() -> None:
    made: list[threading.Thread] = []

    asyncio.run(run_in_publish_thread(lambda: made.append(threading.current_thread())))
    gc.collect()

    made[0].join(10)
    assert not made[0].is_alive()
