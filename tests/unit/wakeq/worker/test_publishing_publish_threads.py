"""Tests of run_in_publish_thread; test_task.py proves that tasks use these threads."""

import asyncio
import gc
import threading
from contextvars import ContextVar

import pytest

from wakeq.worker.publishing import run_in_publish_thread

WHO: ContextVar[str] = ContextVar("who")


def test_call_runs_in_a_publish_thread_with_the_context_of_the_caller() -> None:
    async def ask() -> tuple[str, str]:
        WHO.set("ada")
        return await run_in_publish_thread(lambda: (threading.current_thread().name, WHO.get()))

    name, who = asyncio.run(ask())

    assert name.startswith("wakeq-publish")
    assert who == "ada"


def test_exception_of_the_call_is_raised() -> None:
    async def ask() -> None:
        await run_in_publish_thread(lambda: int("x"))

    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(ask())


def test_threads_end_with_their_loop() -> None:
    made: list[threading.Thread] = []

    asyncio.run(run_in_publish_thread(lambda: made.append(threading.current_thread())))
    gc.collect()

    made[0].join(10)
    assert not made[0].is_alive()
