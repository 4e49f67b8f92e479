"""Publishing: how the messages of a worker's tasks get to the broker, from any thread or loop.

    publish  -->  SharedClient  -->  a Client, made when it is first needed, closed after the last publish
    publish_async  -->  run_in_publish_thread  -->  publish

Closing interrupts no publish that is under way. A thread that publishes later gets a new connection. Coroutines publish
in threads of their own: the default threads of a loop are few and are shared with other code, and while the broker is
away, waiting calls would occupy all of them.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from wakeq.client.arguments.spans import Span
from wakeq.client.message import Body

if TYPE_CHECKING:
    from wakeq.client.blocking import Client

# For one loop. Messages that are published at the same time share one sync of the log.
THREADS_MAX = 32

T = TypeVar("T")

# The threads end together with their loop.
_THREADS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


class Outbox(Protocol):
    """Publishes the messages of tasks: a Client, or a substitute in tests."""

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: Span = 0,
        timeout: Span | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str: ...

    def publish_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: Span = 0,
        timeout: Span | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> list[str]: ...


class CountedClient:
    """A client, and the number of threads that publish with it."""

    __slots__ = ("client", "closes_when_unused", "users")

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.users = 0
        self.closes_when_unused = False


class SharedClient:
    """An outbox with a client of its own, which is open as long as it is needed."""

    def __init__(self, connect: Callable[[], "Client"]) -> None:
        self._connect = connect
        self._current: CountedClient | None = None
        self._lock = threading.Lock()

    def publish(self, queue: str, body: Body, **options: Any) -> str:
        """Publish as Client.publish does."""
        with self._client() as client:
            return client.publish(queue, body, **options)

    def publish_many(self, queue: str, bodies: Iterable[Body], **options: Any) -> list[str]:
        """Publish as Client.publish_many does."""
        with self._client() as client:
            return client.publish_many(queue, bodies, **options)

    def close_when_unused(self) -> None:
        """Close the client, now or as soon as the last publish has its answer."""
        with self._lock:
            current, self._current = self._current, None
            if current is None:
                return
            current.closes_when_unused = True
            is_unused = not current.users
        if is_unused:
            current.client.close()

    @contextmanager
    def _client(self) -> Iterator["Client"]:
        with self._lock:
            if self._current is None:
                self._current = CountedClient(self._connect())
            current = self._current
            current.users += 1
        try:
            yield current.client
        finally:
            with self._lock:
                current.users -= 1
                is_last = current.closes_when_unused and not current.users
            if is_last:
                current.client.close()


async def run_in_publish_thread(call: Callable[[], T]) -> T:
    """Run a call in a thread, in the context of the caller, without blocking the loop."""
    loop = asyncio.get_running_loop()
    threads = _THREADS.get(loop)
    if threads is None:
        threads = _THREADS[loop] = ThreadPoolExecutor(THREADS_MAX, "wakeq-publish")
    return await loop.run_in_executor(threads, copy_context().run, call)
