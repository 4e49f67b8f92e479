"""run_in_publish_thread: the threads in which the coroutines of a loop publish, each with one call that waits for the broker.

    publish_async  -->  run_in_publish_thread  -->  a thread of ours  -->  publish

The loop's own threads are few, and everybody's: while a broker is away the waiting calls would take them all.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

THREADS_MAX = 32  # of one loop; what is published at the same time shares a sync

T = TypeVar("T")

_THREADS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()  # they end with it


async def run_in_publish_thread(call: Callable[[], T]) -> T:
    """Do it in the context of the caller, whose loop goes on."""
    loop = asyncio.get_running_loop()
    threads = _THREADS.get(loop)
    if threads is None:
        threads = _THREADS[loop] = ThreadPoolExecutor(THREADS_MAX, "wakeq-publish")
    return await loop.run_in_executor(threads, copy_context().run, call)
