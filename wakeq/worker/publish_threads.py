"""run_in_publish_thread: threads in which the coroutines of a loop publish; each call there waits for the broker.

    publish_async  -->  run_in_publish_thread  -->  a publish thread  -->  publish

The default threads of a loop are few and are shared with other code. While the broker is away, waiting calls would
occupy all of them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

# For one loop. Messages that are published at the same time share one sync of the log.
THREADS_MAX = 32

T = TypeVar("T")

# The threads end together with their loop.
_THREADS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def run_in_publish_thread(call: Callable[[], T]) -> T:
    """Run a call in a thread, in the context of the caller, without blocking the loop."""
    loop = asyncio.get_running_loop()
    threads = _THREADS.get(loop)
    if threads is None:
        threads = _THREADS[loop] = ThreadPoolExecutor(THREADS_MAX, "wakeq-publish")
    return await loop.run_in_executor(threads, copy_context().run, call)
