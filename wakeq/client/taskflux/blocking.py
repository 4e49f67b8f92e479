"""TaskFluxClient: a TaskFlux server for a program that waits for each answer.

    client.enqueue(...) --> CallScript --> steps, which the calling thread takes --> server

Threads may share one client: each call uses a connection of its own while it lasts, and so does each record that is
held. Anything that takes more than one line belongs in requests.py or call_script.py.
"""

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar, assert_never, cast

from wakeq.client.connection import Connection, Tls, dial, refuse_client_on_loop, tls_context, token_source
from wakeq.client.route import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, client_closed
from wakeq.client.taskflux import requests
from wakeq.client.taskflux.call_script import (
    CallScript,
    Close,
    Connect,
    Pause,
    PooledConnection,
    Receive,
    Send,
    Step,
    Steps,
    default_address,
)
from wakeq.client.taskflux.requests import Cluster, QueueInfo, Record
from wakeq.protocol.errors import Disconnected

T = TypeVar("T")


class TaskFluxClient:
    """A TaskFlux server. The client follows the leader of a cluster by itself."""

    def __init__(
        self,
        address: str | None = None,
        *,
        dialect: str = "spec",
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: str | None = None,
        tls: Tls = None,
    ) -> None:
        """Connect to `address`: HOST:PORT, or several with commas; default: WAKEQ_TASKFLUX.

        Raises BrokerUnreachable if no server answers.

        `dialect` is that of the server: "spec", or "csharp" for the original one; `token` and `tls` are as for Client.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._answer_timeout_s = answer_timeout_s
        self._dialect = requests.dialect_named(dialect)
        self._context = tls_context(tls)
        self._script = CallScript(
            address or default_address(), self._dialect, timeouts, time.monotonic, token_source(token)
        )
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._run(self._script.connect())

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._script.address

    def close(self) -> None:
        """Close the unused connections now, and the others as soon as they are unused."""
        self._closed.set()
        with self._lock:
            connections = self._script.close()
        for connection in connections:
            _stream(connection).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # Records ------------------------------------------------------------------------------------------------------

    def enqueue(self, queue: str, payload: bytes | str, *, key: int = 0) -> None:
        """Store a record; it is durable when this returns. If the connection breaks: OutcomeUnknown."""
        self.enqueue_many(queue, [(key, payload)])

    def enqueue_many(self, queue: str, records: Iterable[tuple[int, bytes | str]]) -> None:
        """Store records, pairs of (key, payload), many at a time; NotAllEnqueued if some were refused."""
        self._run(self._script.call(requests.enqueues(queue, records, self._dialect)))

    def dequeue(self, queue: str = "", *, wait: float = 0) -> "HeldRecord":
        """`with client.dequeue("q", wait=5) as record:` takes a record, or None, and acknowledges it at the end.

        If the block raises, the record returns to the queue.
        """
        return HeldRecord(self, queue, wait)

    def count(self, queue: str = "") -> int:
        """Return the number of records in a queue, not counting those that are held."""
        return self._run(self._script.call(requests.count(queue, self._dialect)))

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
        """Create a queue; "QA" requires a key range, which includes both ends."""
        self._run(
            self._script.call(requests.create(queue, implementation, max_size, max_payload, key_range, self._dialect))
        )

    def delete(self, queue: str) -> None:
        """Delete a queue and its records."""
        self._run(self._script.call(requests.delete(queue, self._dialect)))

    def list(self) -> dict[str, QueueInfo]:
        """Return all queues by name."""
        return self._run(self._script.call(requests.queues(self._dialect)))

    def metadata(self) -> Cluster:
        """Return the nodes of the cluster and its leader."""
        return self._run(self._script.call(requests.cluster(self._dialect)))

    # Steps --------------------------------------------------------------------------------------------------------

    def _run(self, steps: Steps[T]) -> T:
        """Perform the steps of a call, one after the other. The script decides what an error means.

        Between two steps, other threads may take theirs.
        """
        refuse_client_on_loop("TaskFluxClient")
        outcome: object = None
        error: BaseException | None = None
        while True:
            try:
                with self._lock:
                    step = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as end:
                return cast(T, end.value)
            outcome, error = None, None
            try:
                outcome = self._perform(step)
            except BaseException as failure:
                error = failure

    def _perform(self, step: Step) -> object:
        match step:
            case Connect(address=address, timeout_s=timeout_s):
                return dial(address, self._context, timeout_s=timeout_s)
            case Send(connection=connection, data=data):
                _stream(connection).send(data, timeout_s=self._answer_timeout_s)
            case Receive(connection=connection, timeout_s=timeout_s):
                return _stream(connection).receive(timeout_s=timeout_s)
            case Close(connection=connection):
                _stream(connection).close()
            case Pause(seconds=seconds):
                if self._closed.wait(seconds):
                    raise client_closed()
            case _:
                assert_never(step)
        return None


class HeldRecord:
    """A record that the client holds for the length of a block."""

    def __init__(self, client: TaskFluxClient, queue: str, wait_s: float) -> None:
        self._client = client
        self._queue = queue
        self._wait_s = wait_s
        # The connection that holds the record.
        self._connection: PooledConnection | None = None
        self._returns_record = False

    def __enter__(self) -> Record | None:
        client = self._client
        connection, record = client._run(
            client._script.ask(requests.dequeue(self._queue, self._wait_s, client._dialect))
        )
        if isinstance(record, Record):
            self._connection = connection
            return record
        client._run(client._script.return_connection(connection))
        return None

    def give_back(self) -> None:
        """Return the record to the queue at the end of the block, even if the block does not raise."""
        self._returns_record = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            ack = error is None and not self._returns_record
            request = requests.end_record(self._queue, ack=ack, dialect=self._client._dialect)
            self._client._run(self._client._script.end_record(connection, request))
        except Disconnected:
            # The server returns the record when the connection ends. After an error, that of the block matters more.
            if error is None:
                raise


def _stream(connection: PooledConnection) -> Connection:
    # This client makes no other streams.
    return cast(Connection, connection.stream)
