"""outside_of_loop: runs a call that needs an event loop of its own, even if this thread runs a loop already."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def outside_of_loop(call: Callable[[], T]) -> T:
    """Make the call in this thread if it runs no loop; else in another thread, and wait for it."""
    is_in_loop = False
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        is_in_loop = True
    if not is_in_loop:
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
