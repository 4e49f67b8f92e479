"""TaskFluxClient: a TaskFlux server for a program that waits for each answer.

    client.enqueue(...) --> Course --> steps, taken by the thread that called --> server

Threads may share one client: each call has a connection of its own while it lasts, and so has each record that is held.
Anything that is more than one line belongs into calls.py or course.py.
"""

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, assert_never, cast

from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, was_closed
from wakeq.client.credentials import Tls, context_of, token_source
from wakeq.client.on_loop import refuse_client_on_loop
from wakeq.client.taskflux import calls
from wakeq.client.taskflux.course import DEFAULT_ADDRESS, Course, Dial, Hang, Hear, Link, Pause, Say, Step, Steps
from wakeq.client.taskflux.records import Cluster, QueueInfo, Record
from wakeq.client.transport import Wire, dial
from wakeq.protocol.errors import Disconnected

T = TypeVar("T")


class TaskFluxClient:
    """See the head of this file.  It follows a cluster's leader by itself."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        dialect: str = "spec",
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: str | None = None,
        tls: Tls = None,
    ) -> None:
        """Connect to `address`, HOST:PORT or several with commas between; raises BrokerUnreachable if there is nobody.

        `dialect` is what the server speaks: "spec", or "csharp" for the original one; `token` and `tls` as for Client.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._answer_timeout_s = answer_timeout_s
        self._dialect = calls.dialect_named(dialect)
        self._context = context_of(tls)
        self._course = Course(address, self._dialect, timeouts, time.monotonic, token_source(token))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._run(self._course.connect())

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._course.address

    def close(self) -> None:
        """Close all connections that nobody uses, and the others when they are not used any more."""
        self._closed.set()
        with self._lock:
            links = self._course.close()
        for link in links:
            _transport(link).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # Records ------------------------------------------------------------------------------------------------------

    def enqueue(self, queue: str, payload: bytes | str, *, key: int = 0) -> None:
        """Store a record; it is durable when this returns.  If the connection breaks: OutcomeUnknown."""
        self.enqueue_many(queue, [(key, payload)])

    def enqueue_many(self, queue: str, records: Iterable[tuple[int, bytes | str]]) -> None:
        """Store records, (key, payload) each, without waiting for each; NotAllEnqueued if some were refused."""
        self._run(self._course.call(calls.enqueues(queue, records, self._dialect)))

    def dequeue(self, queue: str = "", *, wait: float = 0) -> "Taking":
        """`with client.dequeue("q", wait=5) as record:` takes a record, or None; done at the end of the block.

        If the block raises, the record goes back.
        """
        return Taking(self, queue, wait)

    def count(self, queue: str = "") -> int:
        """How many records a queue has, but for those that are held."""
        return self._run(self._course.call(calls.count(queue, self._dialect)))

    # Queues -------------------------------------------------------------------------------------------------------

    def create(
        self,
        queue: str,
        *,
        implementation: str = "H4",
        max_size: int | None = None,
        max_payload: int | None = None,
        key_range: tuple[int, int] | None = None,
    ) -> None:
        """Make a queue; "QA" needs a key range, of which both ends belong to it."""
        self._run(
            self._course.call(calls.create(queue, implementation, max_size, max_payload, key_range, self._dialect))
        )

    def delete(self, queue: str) -> None:
        """Remove a queue and its records for good."""
        self._run(self._course.call(calls.delete(queue, self._dialect)))

    def list(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self._run(self._course.call(calls.queues(self._dialect)))

    def metadata(self) -> Cluster:
        """Which nodes there are, and which of them leads."""
        return self._run(self._course.call(calls.cluster(self._dialect)))

    # Steps --------------------------------------------------------------------------------------------------------

    def _run(self, steps: Steps[T]) -> T:
        """Take the steps of a call, one after the other; between them others may take theirs."""
        refuse_client_on_loop("TaskFluxClient")
        advance: Callable[[], Step] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                with self._lock:
                    step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = self._take(step)
            except BaseException as error:  # the course decides what becomes of it
                advance = lambda error=error: steps.throw(error)  # type: ignore[misc]  # noqa: E731
            else:
                advance = lambda value=value: steps.send(value)  # type: ignore[misc]  # noqa: E731

    def _take(self, step: Step) -> object:
        match step:
            case Dial(address=address, timeout_s=timeout_s):
                return dial(address, self._context, timeout_s=timeout_s)
            case Say(link=link, data=data):
                _transport(link).send(data, timeout_s=self._answer_timeout_s)
            case Hear(link=link, timeout_s=timeout_s):
                return _transport(link).receive(timeout_s=timeout_s)
            case Hang(link=link):
                _transport(link).close()
            case Pause(seconds=seconds):
                if self._closed.wait(seconds):
                    raise was_closed()
            case _:
                assert_never(step)
        return None

    def _settle(self, link: Link, queue: str, *, ack: bool) -> None:
        self._run(self._course.settle(link, calls.settle(queue, ack=ack, dialect=self._dialect)))

    def _ask(self, queue: str, wait_s: float) -> tuple[Link, Record | bool]:
        return self._run(self._course.ask(calls.dequeue(queue, wait_s, self._dialect)))

    def _put_back(self, link: Link) -> None:
        self._run(self._course.put_back(link))


class Taking:
    """A record for the length of a block."""

    def __init__(self, client: TaskFluxClient, queue: str, wait_s: float) -> None:
        self._client, self._queue, self._wait_s = client, queue, wait_s
        self._link: Link | None = None
        self._gives_back = False

    def __enter__(self) -> Record | None:
        link, record = self._client._ask(self._queue, self._wait_s)
        if isinstance(record, Record):
            self._link = link
            return record
        self._client._put_back(link)
        return None

    def give_back(self) -> None:
        """Have the record go back at the end of the block, although the block does not raise."""
        self._gives_back = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            self._client._settle(link, self._queue, ack=error is None and not self._gives_back)
        except Disconnected:
            if error is None:  # the record is back, or will be: that the block failed is the better news
                raise


def _transport(link: Link) -> Wire:
    return cast(Wire, link.wire)  # this client makes no other
