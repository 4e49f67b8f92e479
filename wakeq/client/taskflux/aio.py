"""AsyncTaskFluxClient: a TaskFlux server for a program with an event loop.

    await client.enqueue(...) --> Course --> steps, taken by the task that called --> server

Tasks share one client: each call has a connection of its own while it lasts, and so has each record that is held.
It says and hears what TaskFluxClient does, by the same calls and the same course.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, assert_never

from wakeq.client.core.route import parse_address
from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, was_closed
from wakeq.client.credentials import Tls, context_of, token_source
from wakeq.client.taskflux import calls
from wakeq.client.taskflux.course import DEFAULT_ADDRESS, Course, Dial, Hang, Hear, Link, Pause, Say, Step, Steps
from wakeq.client.taskflux.records import Cluster, QueueInfo, Record
from wakeq.client.transport import READ_BYTES, broken, closed, guard, unreachable
from wakeq.protocol.errors import Disconnected

T = TypeVar("T")


class Stream:
    """A connected socket on the loop."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader, self._writer = reader, writer

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended; None if it is not."""
        if isinstance(error := self._reader.exception(), OSError):
            return broken(self.address, error)
        return closed(self.address) if self._reader.at_eof() or self._writer.is_closing() else None

    async def send(self, data: bytes) -> None:
        """Write all of it."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise broken(self.address, error) from error

    async def receive(self, timeout_s: float) -> bytes:
        """Whatever has come, once something has; empty if nothing came in time."""
        try:
            data = await asyncio.wait_for(self._reader.read(READ_BYTES), timeout_s)
        except TimeoutError:
            return b""
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed(self.address)
        return data

    def close(self) -> None:
        """End it."""
        self._writer.close()


class AsyncTaskFluxClient:
    """See the head of this file.  It connects when it is first used; it follows a cluster's leader by itself."""

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
        """`address` is HOST:PORT, or several with commas between; `dialect` what the server speaks.

        `token` and `tls` are those of AsyncClient.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._dialect = calls.dialect_named(dialect)
        self._context = context_of(tls)
        clock = lambda: asyncio.get_running_loop().time()  # noqa: E731
        self._course = Course(address, self._dialect, timeouts, clock, token_source(token))
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._course.address

    async def connect(self) -> None:
        """Have a connection, or raise BrokerUnreachable."""
        await self._run(self._course.connect())

    async def close(self) -> None:
        """Close all connections that nobody uses, and the others when they are not used any more."""
        self._closed.set()
        for link in self._course.close():
            _stream(link).close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # Records ------------------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, payload: bytes | str, *, key: int = 0) -> None:
        """Store a record; it is durable when this returns.  If the connection breaks: OutcomeUnknown."""
        await self.enqueue_many(queue, [(key, payload)])

    async def enqueue_many(self, queue: str, records: Iterable[tuple[int, bytes | str]]) -> None:
        """Store records, (key, payload) each, without waiting for each; NotAllEnqueued if some were refused."""
        await self._run(self._course.call(calls.enqueues(queue, records, self._dialect)))

    def dequeue(self, queue: str = "", *, wait: float = 0) -> "AsyncTaking":
        """`async with client.dequeue("q", wait=5) as record:` takes a record, or None; done at the end of the block.

        If the block raises, the record goes back.
        """
        return AsyncTaking(self, queue, wait)

    async def count(self, queue: str = "") -> int:
        """How many records a queue has, but for those that are held."""
        return await self._run(self._course.call(calls.count(queue, self._dialect)))

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
        """Make a queue; "QA" needs a key range, of which both ends belong to it."""
        await self._run(
            self._course.call(calls.create(queue, implementation, max_size, max_payload, key_range, self._dialect))
        )

    async def delete(self, queue: str) -> None:
        """Remove a queue and its records for good."""
        await self._run(self._course.call(calls.delete(queue, self._dialect)))

    async def list(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return await self._run(self._course.call(calls.queues(self._dialect)))

    async def metadata(self) -> Cluster:
        """Which nodes there are, and which of them leads."""
        return await self._run(self._course.call(calls.cluster(self._dialect)))

    # Steps --------------------------------------------------------------------------------------------------------

    async def _run(self, steps: Steps[T]) -> T:
        """Take the steps of a call, one after the other."""
        advance: Callable[[], Step] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = await self._take(step)
            except BaseException as error:  # the course decides what becomes of it
                advance = lambda error=error: steps.throw(error)  # type: ignore[misc]  # noqa: E731
            else:
                advance = lambda value=value: steps.send(value)  # type: ignore[misc]  # noqa: E731

    async def _take(self, step: Step) -> object:
        match step:
            case Dial(address=address, timeout_s=timeout_s):
                return await self._dial(address, timeout_s)
            case Say(link=link, data=data):
                await _stream(link).send(data)
            case Hear(link=link, timeout_s=timeout_s):
                return await _stream(link).receive(timeout_s)
            case Hang(link=link):
                _stream(link).close()
            case Pause(seconds=seconds):
                await self._pause(seconds)
            case _:
                assert_never(step)
        return None

    async def _dial(self, address: str, timeout_s: float) -> Stream:
        try:
            made = asyncio.open_connection(*parse_address(address), ssl=self._context)
            reader, writer = await asyncio.wait_for(made, timeout_s)
        except OSError as error:  # of which TimeoutError is one
            raise unreachable(address, error) from error
        guard(writer.get_extra_info("socket"))
        return Stream(address, reader, writer)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return
        raise was_closed()

    async def _settle(self, link: Link, queue: str, *, ack: bool) -> None:
        await self._run(self._course.settle(link, calls.settle(queue, ack=ack, dialect=self._dialect)))

    async def _ask(self, queue: str, wait_s: float) -> tuple[Link, Record | bool]:
        return await self._run(self._course.ask(calls.dequeue(queue, wait_s, self._dialect)))

    async def _put_back(self, link: Link) -> None:
        await self._run(self._course.put_back(link))


class AsyncTaking:
    """A record for the length of a block."""

    def __init__(self, client: AsyncTaskFluxClient, queue: str, wait_s: float) -> None:
        self._client, self._queue, self._wait_s = client, queue, wait_s
        self._link: Link | None = None
        self._gives_back = False

    async def __aenter__(self) -> Record | None:
        link, record = await self._client._ask(self._queue, self._wait_s)
        if isinstance(record, Record):
            self._link = link
            return record
        await self._client._put_back(link)
        return None

    def give_back(self) -> None:
        """Have the record go back at the end of the block, although the block does not raise."""
        self._gives_back = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            await self._client._settle(link, self._queue, ack=error is None and not self._gives_back)
        except Disconnected:
            if error is None:  # the record is back, or will be: that the block failed is the better news
                raise


def _stream(link: Link) -> Stream:
    assert isinstance(link.wire, Stream), "this client makes no other"
    return link.wire
