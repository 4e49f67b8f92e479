"""AsyncTaskFluxClient: a TaskFlux server for a program with an event loop.

    await client.enqueue(...) --> CallScript --> steps, which the calling task takes --> server

Tasks may share one client: each call uses a connection of its own while it lasts, and so does each record that is held.
Names, arguments and meanings are those of TaskFluxClient; calls and script are the same.
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar, assert_never, cast

from wakeq.client.connection import (
    READ_BYTES,
    Tls,
    broken,
    closed_by_peer,
    configure_socket,
    tls_context,
    token_source,
    unreachable,
)
from wakeq.client.route import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    RECONNECT_FOR_S,
    Timeouts,
    client_closed,
    parse_address,
)
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


class AsyncStream:
    """A connected socket on the loop."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not."""
        if isinstance(error := self._reader.exception(), OSError):
            return broken(self.address, error)
        return closed_by_peer(self.address) if self._reader.at_eof() or self._writer.is_closing() else None

    async def send(self, data: bytes) -> None:
        """Write all of the data."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise broken(self.address, error) from error

    async def receive(self, timeout_s: float) -> bytes:
        """Wait for data and return it; empty if none arrives in time."""
        try:
            data = await asyncio.wait_for(self._reader.read(READ_BYTES), timeout_s)
        except TimeoutError:
            return b""
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed_by_peer(self.address)
        return data

    def close(self) -> None:
        self._writer.close()


class AsyncTaskFluxClient:
    """A TaskFlux server. The client connects when it is first used, and follows the leader of a cluster by itself."""

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
        """`address` is HOST:PORT, or several separated by commas; default: WAKEQ_TASKFLUX.

        `dialect` is that of the server; `token` and `tls` are those of AsyncClient.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._dialect = requests.dialect_named(dialect)
        self._context = tls_context(tls)
        clock = lambda: asyncio.get_running_loop().time()  # noqa: E731
        self._script = CallScript(address or default_address(), self._dialect, timeouts, clock, token_source(token))
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._script.address

    async def connect(self) -> None:
        """Connect, or raise BrokerUnreachable."""
        await self._run(self._script.connect())

    async def close(self) -> None:
        """Close the unused connections now, and the others as soon as they are unused."""
        self._closed.set()
        for connection in self._script.close():
            _stream(connection).close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # Records ------------------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, payload: bytes | str, *, key: int = 0) -> None:
        """Store a record; it is durable when this returns. If the connection breaks: OutcomeUnknown."""
        await self.enqueue_many(queue, [(key, payload)])

    async def enqueue_many(self, queue: str, records: Iterable[tuple[int, bytes | str]]) -> None:
        """Store records, pairs of (key, payload), many at a time; NotAllEnqueued if some were refused."""
        await self._run(self._script.call(requests.enqueues(queue, records, self._dialect)))

    def dequeue(self, queue: str = "", *, wait: float = 0) -> "AsyncHeldRecord":
        """`async with client.dequeue("q", wait=5) as record:` takes a record, or None, and acknowledges it at the end.

        If the block raises, the record returns to the queue.
        """
        return AsyncHeldRecord(self, queue, wait)

    async def count(self, queue: str = "") -> int:
        """Return the number of records in a queue, not counting those that are held."""
        return await self._run(self._script.call(requests.count(queue, self._dialect)))

    # Queues -------------------------------------------------------------------------------------------------------

    async def create(
        self,
        queue: str,
        *,
        implementation: str = "H4",
        max_size: int | None = None,
        max_payload: int | None = None,
        key_range: tuple[int, int] | None = None,
    ) -> None:
        """Create a queue; "QA" requires a key range, which includes both ends."""
        await self._run(
            self._script.call(requests.create(queue, implementation, max_size, max_payload, key_range, self._dialect))
        )

    async def delete(self, queue: str) -> None:
        """Delete a queue and its records."""
        await self._run(self._script.call(requests.delete(queue, self._dialect)))

    async def list(self) -> dict[str, QueueInfo]:
        """Return all queues by name."""
        return await self._run(self._script.call(requests.queues(self._dialect)))

    async def metadata(self) -> Cluster:
        """Return the nodes of the cluster and its leader."""
        return await self._run(self._script.call(requests.cluster(self._dialect)))

    # Steps --------------------------------------------------------------------------------------------------------

    async def _run(self, steps: Steps[T]) -> T:
        """Perform the steps of a call, one after the other. The script decides what an error means."""
        outcome: object = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as end:
                return cast(T, end.value)
            outcome, error = None, None
            try:
                outcome = await self._perform(step)
            except BaseException as failure:
                error = failure

    async def _perform(self, step: Step) -> object:
        match step:
            case Connect(address=address, timeout_s=timeout_s):
                return await self._dial(address, timeout_s)
            case Send(connection=connection, data=data):
                await _stream(connection).send(data)
            case Receive(connection=connection, timeout_s=timeout_s):
                return await _stream(connection).receive(timeout_s)
            case Close(connection=connection):
                _stream(connection).close()
            case Pause(seconds=seconds):
                await self._pause(seconds)
            case _:
                assert_never(step)
        return None

    async def _dial(self, address: str, timeout_s: float) -> AsyncStream:
        try:
            made = asyncio.open_connection(*parse_address(address), ssl=self._context)
            reader, writer = await asyncio.wait_for(made, timeout_s)
        # TimeoutError is an OSError.
        except OSError as error:
            raise unreachable(address, error) from error
        configure_socket(writer.get_extra_info("socket"))
        return AsyncStream(address, reader, writer)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return
        raise client_closed()


class AsyncHeldRecord:
    """A record that the client holds for the length of a block."""

    def __init__(self, client: AsyncTaskFluxClient, queue: str, wait_s: float) -> None:
        self._client = client
        self._queue = queue
        self._wait_s = wait_s
        # The connection that holds the record.
        self._connection: PooledConnection | None = None
        self._returns_record = False

    async def __aenter__(self) -> Record | None:
        client = self._client
        call = requests.dequeue(self._queue, self._wait_s, client._dialect)
        connection, record = await client._run(client._script.ask(call))
        if isinstance(record, Record):
            self._connection = connection
            return record
        await client._run(client._script.return_connection(connection))
        return None

    def give_back(self) -> None:
        """Return the record to the queue at the end of the block, even if the block does not raise."""
        self._returns_record = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            ack = error is None and not self._returns_record
            request = requests.end_record(self._queue, ack=ack, dialect=self._client._dialect)
            await self._client._run(self._client._script.end_record(connection, request))
        except Disconnected:
            # The server returns the record when the connection ends. After an error, that of the block matters more.
            if error is None:
                raise


def _stream(connection: PooledConnection) -> AsyncStream:
    assert isinstance(connection.stream, AsyncStream), "this client makes no other"
    return connection.stream
