"""SharedClient: the connection by which the tasks of a worker are published, for any number of threads.

    publish  -->  Client, made when it is first needed        close_when_unused  -->  closed when the last one has its answer

Letting go interrupts nobody: who is publishing then ends as he began, and who publishes later makes another connection.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wakeq.client.message import Body

if TYPE_CHECKING:
    from wakeq.client.blocking import Client


class Shared:
    """A connection, and how many publish by it now."""

    __slots__ = ("client", "is_let_go", "users")

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.users = 0
        self.is_let_go = False


class SharedClient:
    """An outbox with a connection of its own, for as long as somebody needs it."""

    def __init__(self, connect: Callable[[], "Client"]) -> None:
        self._connect = connect
        self._shared: Shared | None = None
        self._lock = threading.Lock()

    def publish(self, queue: str, body: Body, **options: Any) -> str:
        """As a Client does."""
        with self._client() as client:
            return client.publish(queue, body, **options)

    def publish_many(self, queue: str, bodies: Iterable[Body], **options: Any) -> list[str]:
        """As a Client does."""
        with self._client() as client:
            return client.publish_many(queue, bodies, **options)

    def close_when_unused(self) -> None:
        """Close the connection, now or when the last one who publishes by it has his answer."""
        with self._lock:
            shared, self._shared = self._shared, None
            if shared is None:
                return
            shared.is_let_go = True
            is_unused = not shared.users
        if is_unused:
            shared.client.close()

    @contextmanager
    def _client(self) -> Iterator["Client"]:
        with self._lock:
            if self._shared is None:
                self._shared = Shared(self._connect())
            shared = self._shared
            shared.users += 1
        try:
            yield shared.client
        finally:
            with self._lock:
                shared.users -= 1
                is_last = shared.is_let_go and not shared.users
            if is_last:
                shared.client.close()
