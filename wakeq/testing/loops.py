"""outside_of_loop: does something that needs an event loop of its own, also where one is running already."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def outside_of_loop(call: Callable[[], T]) -> T:
    """Call it in this thread if no loop runs here; else in another one, and wait for it: no loop runs within a loop."""
    if not _in_loop():
        return call()
    outcome: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(call))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="wakeq-testing").start()
    return outcome.result()


def _in_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False
