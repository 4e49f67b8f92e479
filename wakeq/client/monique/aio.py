"""AsyncMoniqueClient: MoniQue for a program with an event loop.

    await client.push(...), receive() --> Session --> frames, carried by one task of the client --> server

Tasks share one client.  It says and hears what MoniqueClient does, by the same session and posts.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from wakeq.client.core.route import parse_address
from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, hung, was_closed
from wakeq.client.credentials import Tls
from wakeq.client.monique import posts
from wakeq.client.monique.line import Line
from wakeq.client.monique.posts import CREATOR, Data, Post
from wakeq.client.monique.session import DEFAULT_ADDRESS, INBOX_MAX, Answer, Pair, Session
from wakeq.client.transport import READ_BYTES, broken, closed, guard, unreachable
from wakeq.protocol.errors import Busy, Disconnected, WakeqError
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.messages import Encoding
from wakeq.protocol.wire.monique.tags import Type


class AsyncMoniqueClient:
    """See the head of this file.  It connects again by itself; what others push meanwhile is lost."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        creator: str = CREATOR,
        cookies: Mapping[str, str] | None = None,
        token: str | None = None,
        tls: Tls = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
    ) -> None:
        """`address` is HOST:PORT, several with commas between, or ws://HOST:PORT/PATH.

        `creator` is the name under which messages are made; `token` and `tls` are those of Client (wss:// is TLS too).
        """
        self.creator = creator
        self._timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._line = Line(address, self._timeouts, token=token, tls=tls, cookies=cookies)
        self._session = self._line.session
        self._futures: dict[int, asyncio.Future[Reply]] = {}
        self._news = asyncio.Condition()
        self._writer: asyncio.StreamWriter | None = None
        self._carrier: asyncio.Task[None] | None = None
        self._taken = asyncio.Event()  # from a full inbox
        self._failure: WakeqError | None = None  # of the carrier

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._line.address

    async def connect(self) -> None:
        """Have a connection, or raise BrokerUnreachable."""
        reader = await self._connect()
        self._carrier = asyncio.create_task(self._carry(reader))

    async def close(self) -> None:
        """End the connection; who waits hears that it was closed."""
        carrier, self._carrier = self._carrier, None
        self._failure = self._failure or was_closed()
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write(self._session.goodbye())
        if carrier is not None:
            carrier.cancel()
            with suppress(asyncio.CancelledError):
                await carrier
        self._hang_up()
        await self._fail(self._failure)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- what others say ---

    async def subscribe(self, *pairs: Pair) -> None:
        """Hear messages of these (spec, type); either may be "*".  In effect when this returns."""
        await self._call(lambda session: session.subscribe(pairs))

    async def unsubscribe(self, *pairs: Pair) -> None:
        """Take just these back."""
        await self._call(lambda session: session.unsubscribe(pairs))

    async def receive(self, timeout: float | None = None) -> Post | None:
        """The next message; None if none came in so many seconds.  Without a number it waits."""
        inbox = self._session.inbox
        await self._wait(lambda: bool(inbox), timeout)
        if not inbox:
            return None
        self._taken.set()
        return inbox.popleft()

    async def listen(self, timeout: float | None = None) -> AsyncIterator[Post]:
        """Messages as they come, until none came for so many seconds."""
        while (post := await self.receive(timeout)) is not None:
            yield post

    # --- what we say ---

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
        """Send a new message; `expires` is after how many seconds nobody wants an answer.  Returns what was sent."""
        post = posts.make(spec, data, type=type, encoding=encoding, pid=pid, creator=self.creator, expires_in_s=expires)
        await self.send(post)
        return post

    async def send(self, post: Post) -> None:
        """Send a message that was made before.  If the connection breaks: OutcomeUnknown."""
        await self._call(lambda session: session.push(post))

    async def ask(
        self, spec: str, data: Data, *, encoding: Encoding = "JSON", timeout: float | None = None
    ) -> Post | None:
        """Send a task and wait for its result, or the error instead; None if neither came in so many seconds."""
        task = posts.make(spec, data, encoding=encoding, creator=self.creator, expires_in_s=timeout)
        awaited = self._session.awaited
        try:
            await self._call(lambda session: session.await_answer(task))
            await self.send(task)
            await self._wait(lambda: awaited[task.id] is not None, timeout)
        finally:
            answer = awaited.pop(task.id, None)
        return answer

    async def result(self, task: Post, data: Data, *, encoding: Encoding = "JSON") -> None:
        """Answer a task."""
        await self.send(posts.result_of(task, data, encoding=encoding, creator=self.creator))

    async def error(self, task: Post, code: int, text: str) -> None:
        """Answer a task with an error; 500 is the component's own, 502 the task's."""
        await self.send(posts.error_of(task, code, text, creator=self.creator))

    async def ping(self) -> float:
        """The seconds that an answer takes."""
        began_ns = time.perf_counter_ns()
        await self._call(lambda session: session.ping(time.time_ns()))
        return (time.perf_counter_ns() - began_ns) / 1e9

    # --- waiting ---

    async def _call(self, say: Callable[[Session], int | None]) -> None:
        """Say something, and wait until it is answered."""
        self._look()
        if self._session.is_full:
            raise Busy(f"{INBOX_MAX} messages wait to be received; take them first")
        ticket = say(self._session)
        if ticket is None:
            return
        future = self._futures[ticket] = asyncio.get_running_loop().create_future()
        self._flush()
        try:
            async with asyncio.timeout(self._timeouts.answer_s):
                await future
        except TimeoutError:
            raise hung(self.address, self._timeouts) from None
        finally:
            if self._futures.pop(ticket, None) is not None and not future.done():
                self._session.abandon(ticket)

    async def _wait(self, is_over: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until it is over, or so many seconds have passed."""
        if is_over():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._news:
                while not is_over():
                    self._look()
                    await self._news.wait()

    def _look(self) -> None:
        """Raise if there is nobody who carries anything."""
        if self._failure is not None:
            raise self._failure
        if self._carrier is None:
            raise Disconnected("not connected; use `async with`, or await connect() first")

    # --- carrying ---

    async def _carry(self, reader: asyncio.StreamReader) -> None:
        """Take what comes, on one connection after the other, until none can be had."""
        try:
            while True:
                try:
                    await self._read(reader)
                except Disconnected as error:
                    self._hang_up()
                    self._settle(self._session.disconnected())
                    await asyncio.sleep(self._line.lost(error))
                    reader = await self._connect()
        except Exception as error:
            self._failure = error if isinstance(error, WakeqError) else Disconnected(f"a bug of this client: {error!r}")
            await self._fail(self._failure)
            if self._failure is not error:
                raise

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            if self._session.is_full:
                self._taken.clear()
                await self._taken.wait()
                continue
            await self._hear(reader)
            self._flush()
            async with self._news:
                self._news.notify_all()

    def _settle(self, answers: list[Answer]) -> None:
        for answer in answers:
            future = self._futures.get(answer.ticket)
            if future is None or future.done():
                continue
            if isinstance(answer.outcome, WakeqError):
                future.set_exception(answer.outcome)
            else:
                future.set_result(answer.outcome)

    async def _fail(self, error: WakeqError) -> None:
        """Nobody will answer any more."""
        self._settle(self._session.give_up(error))
        async with self._news:
            self._news.notify_all()

    def _flush(self) -> None:
        if self._writer is not None:
            data = self._session.bytes_to_send()
            if data:
                self._writer.write(data)

    def _hang_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    async def _connect(self) -> asyncio.StreamReader:
        """Have a connection whose server has agreed, or raise what became of all attempts."""
        while True:
            try:
                async with asyncio.timeout(self._timeouts.connect_s):
                    reader = await self._dial()
            except (WakeqError, TimeoutError) as error:
                self._hang_up()
                self._settle(self._session.disconnected())
                await asyncio.sleep(self._line.failed(error))
            else:
                self._line.found()
                return reader

    async def _dial(self) -> asyncio.StreamReader:
        try:
            reader, self._writer = await asyncio.open_connection(*parse_address(self.address), ssl=self._line.context)
        except OSError as error:
            raise unreachable(self.address, error) from error
        guard(self._writer.get_extra_info("socket"))
        self._line.begin()
        self._flush()
        while not self._session.is_open:
            await self._hear(reader)
        self._flush()
        return reader

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Take what comes next."""
        try:
            data = await reader.read(READ_BYTES)
        except OSError as error:
            raise broken(self.address, error) from error
        if not data:
            raise closed(self.address)
        self._settle(self._session.receive(data))
