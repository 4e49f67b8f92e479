"""SharedClient: the connection with which the tasks of a worker are published, for any number of threads.

    publish  -->  Client, made when it is first needed        close_when_unused  -->  closed after the last publish

Closing interrupts no publish that is under way. A thread that publishes later gets a new connection.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wakeq.client.message import Body

if TYPE_CHECKING:
    from wakeq.client.blocking import Client


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
