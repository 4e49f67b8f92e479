"""AsyncMoniqueClient: MoniQue for a program with an event loop.

    await client.push(...), receive() --> Session --> frames; one task of the client reads --> server

Tasks share one client. Names, arguments and meanings are those of MoniqueClient; session and posts are the same.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from wakeq.client.connection import READ_BYTES, Tls, broken, closed_by_peer, configure_socket, unreachable
from wakeq.client.monique import posts
from wakeq.client.monique.posts import CREATOR, Data, Post
from wakeq.client.monique.session import INBOX_MAX, Answer, Connector, Pair, Session, default_address
from wakeq.client.route import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    RECONNECT_FOR_S,
    Timeouts,
    client_closed,
    no_answer,
    parse_address,
)
from wakeq.protocol.errors import Busy, Disconnected, WakeqError
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.messages import Encoding
from wakeq.protocol.wire.monique.tags import Type


class AsyncMoniqueClient:
    """A connection to a server; the client reconnects by itself. Messages pushed by others meanwhile are lost."""

    def __init__(
        self,
        address: str | None = None,
        *,
        creator: str = CREATOR,
        cookies: Mapping[str, str] | None = None,
        token: str | None = None,
        tls: Tls = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
    ) -> None:
        """`address` is HOST:PORT, several with commas between, or ws://HOST:PORT/PATH; default: WAKEQ_HTTP.

        `creator` is the name that messages carry; `token` and `tls` are those of Client (wss:// is TLS, too).
        """
        self.creator = creator
        self._timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._connector = Connector(address or default_address(), self._timeouts, token=token, tls=tls, cookies=cookies)
        self._session = self._connector.session
        self._futures: dict[int, asyncio.Future[Reply]] = {}
        # Notified after each read.
        self._received = asyncio.Condition()
        self._writer: asyncio.StreamWriter | None = None
        # Reads from the connection, and reconnects.
        self._reader_task: asyncio.Task[None] | None = None
        # The program has received a message from a full inbox.
        self._inbox_drained = asyncio.Event()
        # Why the reader task has ended.
        self._failure: WakeqError | None = None

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._connector.address

    async def connect(self) -> None:
        """Connect, or raise BrokerUnreachable."""
        reader = await self._connect()
        self._reader_task = asyncio.create_task(self._read_for_ever(reader))

    async def close(self) -> None:
        """Close the connection; calls that wait raise Closed."""
        reader_task, self._reader_task = self._reader_task, None
        self._failure = self._failure or client_closed()
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write(self._session.goodbye())
        if reader_task is not None:
            reader_task.cancel()
            with suppress(asyncio.CancelledError):
                await reader_task
        self._drop()
        await self._fail(self._failure)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- receiving ---

    async def subscribe(self, *pairs: Pair) -> None:
        """Receive messages of these (spec, type) from now on; either may be "*"."""
        await self._call(lambda session: session.subscribe(pairs))

    async def unsubscribe(self, *pairs: Pair) -> None:
        """End just these subscriptions."""
        await self._call(lambda session: session.unsubscribe(pairs))

    async def receive(self, timeout: float | None = None) -> Post | None:
        """Return the next message, or None after `timeout` seconds. Without a timeout, wait."""
        inbox = self._session.inbox
        await self._wait(lambda: bool(inbox), timeout)
        if not inbox:
            return None
        self._inbox_drained.set()
        return inbox.popleft()

    async def listen(self, timeout: float | None = None) -> AsyncIterator[Post]:
        """Iterate over messages, until none arrives for `timeout` seconds."""
        while (post := await self.receive(timeout)) is not None:
            yield post

    # --- sending ---

    async def push(
        self,
        spec: str,
        data: Data,
        *,
        type: Type = "config",
        encoding: Encoding = "JSON",
        pid: str = "",
        expires: float | None = None,
    ) -> Post:
        """Send a new message and return it. After `expires` seconds an answer is not wanted any more."""
        post = posts.make(spec, data, type=type, encoding=encoding, pid=pid, creator=self.creator, expires_in_s=expires)
        await self.send(post)
        return post

    async def send(self, post: Post) -> None:
        """Send a message that was made before. If the connection breaks: OutcomeUnknown."""
        await self._call(lambda session: session.push(post))

    async def ask(
        self, spec: str, data: Data, *, encoding: Encoding = "JSON", timeout: float | None = None
    ) -> Post | None:
        """Send a task and return its result, or the error instead; None if neither arrives within `timeout` seconds."""
        task = posts.make(spec, data, encoding=encoding, creator=self.creator, expires_in_s=timeout)
        awaited = self._session.awaited
        try:
            await self._call(lambda session: session.expect_answer(task))
            await self.send(task)
            await self._wait(lambda: awaited[task.id] is not None, timeout)
        finally:
            answer = awaited.pop(task.id, None)
        return answer

    async def result(self, task: Post, data: Data, *, encoding: Encoding = "JSON") -> None:
        """Answer a task with a result."""
        await self.send(posts.result_of(task, data, encoding=encoding, creator=self.creator))

    async def error(self, task: Post, code: int, text: str) -> None:
        """Answer a task with an error. Code 500 stands for an error of the component, 502 for one of the task."""
        await self.send(posts.error_of(task, code, text, creator=self.creator))

    async def ping(self) -> float:
        """Return how many seconds an answer takes."""
        began_ns = time.perf_counter_ns()
        await self._call(lambda session: session.ping(time.time_ns()))
        return (time.perf_counter_ns() - began_ns) / 1e9

    # --- waiting ---

    async def _call(self, send: Callable[[Session], int | None]) -> None:
        """Send a command and wait for its answer."""
        self._check()
        if self._session.is_full:
            raise Busy(f"{INBOX_MAX} messages wait to be received; receive them first")
        ticket = send(self._session)
        if ticket is None:
            return
        future = self._futures[ticket] = asyncio.get_running_loop().create_future()
        self._flush()
        try:
            async with asyncio.timeout(self._timeouts.answer_s):
                await future
        except TimeoutError:
            raise no_answer(self.address, self._timeouts) from None
        finally:
            if self._futures.pop(ticket, None) is not None and not future.done():
                self._session.abandon(ticket)

    async def _wait(self, is_over: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until `is_over`, or until the timeout has passed."""
        if is_over():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._received:
                while not is_over():
                    self._check()
                    await self._received.wait()

    def _check(self) -> None:
        """Raise an error if no reader task runs."""
        if self._failure is not None:
            raise self._failure
        if self._reader_task is None:
            raise Disconnected("not connected; use `async with`, or await connect() first")

    # --- the reader task ---

    async def _read_for_ever(self, reader: asyncio.StreamReader) -> None:
        """Read from one connection after the other, until no server can be reached."""
        try:
            while True:
                try:
                    await self._read(reader)
                except Disconnected as error:
                    self._drop()
                    self._deliver(self._session.disconnected())
                    await asyncio.sleep(self._connector.lost(error))
                    reader = await self._connect()
        except Exception as error:
            self._failure = (
                error if isinstance(error, WakeqError) else Disconnected(f"this client failed by a bug: {error!r}")
            )
            await self._fail(self._failure)
            if self._failure is not error:
                raise

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            if self._session.is_full:
                self._inbox_drained.clear()
                await self._inbox_drained.wait()
                continue
            await self._receive(reader)
            self._flush()
            async with self._received:
                self._received.notify_all()

    def _deliver(self, answers: list[Answer]) -> None:
        for answer in answers:
            future = self._futures.get(answer.ticket)
            if future is None or future.done():
                continue
            if isinstance(answer.outcome, WakeqError):
                future.set_exception(answer.outcome)
            else:
                future.set_result(answer.outcome)

    async def _fail(self, error: WakeqError) -> None:
        """Fail all calls that wait."""
        self._deliver(self._session.fail_all(error))
        async with self._received:
            self._received.notify_all()

    def _flush(self) -> None:
        if self._writer is not None:
            data = self._session.bytes_to_send()
            if data:
                self._writer.write(data)

    def _drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    async def _connect(self) -> asyncio.StreamReader:
        """Make a connection and finish the handshake, or raise an error that lists all attempts."""
        while True:
            try:
                async with asyncio.timeout(self._timeouts.connect_s):
                    reader = await self._dial()
            except (WakeqError, TimeoutError) as error:
                self._drop()
                self._deliver(self._session.disconnected())
                await asyncio.sleep(self._connector.failed(error))
            else:
                self._connector.connected()
                return reader

    async def _dial(self) -> asyncio.StreamReader:
        try:
            reader, self._writer = await asyncio.open_connection(
                *parse_address(self.address), ssl=self._connector.context
            )
        except OSError as error:
            raise unreachable(self.address, error) from error
        configure_socket(self._writer.get_extra_info("socket"))
        self._connector.begin()
        self._flush()
        while not self._session.is_open:
            await self._receive(reader)
        self._flush()
        return reader

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Read once from the socket and deliver the answers."""
        try:
            data = await reader.read(READ_BYTES)
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed_by_peer(self.address)
        self._deliver(self._session.receive(data))
