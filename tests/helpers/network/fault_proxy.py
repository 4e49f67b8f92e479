"""FaultProxy: it stands between a client and a broker and does to their connections what networks do.

    client --> FaultProxy --> broker          cut, half_open, freeze, delay, freeze_at(a command) ... mend

It runs on a thread of its own.  Each method returns when its fault is in place, so a test never waits for it.  It
counts what it carries, and never changes, drops or repeats a part of a stream that goes on afterwards: a connection
that lost something stays lost.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

READ_BYTES = 64 * 1024
PATIENCE_S = 20.0

T = TypeVar("T")


class _Link:
    """One connection of the client and the one of ours that carries it on; a deaf one carries nothing any more."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.writers = (client, broker)
        self.deaf = False

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class FaultProxy:
    """A way to the broker at `target` that a test can break and mend."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.connections = 0  # that clients have made until now
        self.bytes_carried = 0
        self.target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._half_open = False
        self._delay_s = 0.0
        self._trap = b""
        self._trapped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._await(asyncio.start_server(self._carry, sock=self._listener))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Faults -------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End all connections with a reset; new ones are served."""
        self._do(self._cut)

    def half_open(self) -> None:
        """Carry nothing any more on the connections there are, not even their end, and on those that are made."""

        def begin() -> None:
            self._half_open = True
            for link in self._links:
                link.deaf = True

        self._do(begin)

    def freeze(self) -> None:
        """Hold everything back; `mend` lets it go on."""
        self._do(self._flowing.clear)

    def freeze_at(self, text: bytes) -> None:
        """Freeze just before the part of a stream with this text is carried on, in either direction."""

        def set_trap() -> None:
            self._trapped.clear()
            self._trap = text

        self._do(set_trap)

    def wait_frozen(self) -> None:
        """Return when the text of `freeze_at` has come."""
        assert self._trapped.wait(PATIENCE_S), f"{self._trap!r} did not come within {PATIENCE_S} s"

    def delay(self, delay_s: float) -> None:
        """Carry everything so much later."""

        def begin() -> None:
            self._delay_s = delay_s

        self._do(begin)

    def mend(self) -> None:
        """The way is whole again for whoever connects, and for what was only held back."""

        def end() -> None:
            self._half_open, self._delay_s, self._trap = False, 0.0, b""
            self._flowing.set()

        self._do(end)

    # On the loop --------------------------------------------------------------------------------------------

    def _do(self, what: Callable[[], None]) -> None:
        async def done() -> None:
            what()

        self._await(done())

    def _await(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_S)

    def _cut(self) -> None:
        for link in self._links:
            link.abort()

    async def _end(self) -> None:
        self._server.close()
        self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Carry one connection until both sides have ended it."""
        self.connections += 1
        try:
            broker, to_broker = await asyncio.open_connection(*self.target)
        except OSError:
            to_client.transport.abort()
            return
        link = _Link(to_client, to_broker)
        link.deaf = self._half_open
        self._links.add(link)
        pumps = [self._start(self._pump(link, client, to_broker)), self._start(self._pump(link, broker, to_client))]
        await asyncio.wait(pumps)
        self._links.discard(link)
        link.abort()

    def _start(self, pump: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(pump)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(link, reader, writer)
        except OSError:  # a reset of one side is one for the other
            if not link.deaf:
                link.abort()
        if link.deaf:
            await asyncio.Event().wait()  # the other side never hears of the end
        elif not writer.is_closing():
            writer.write_eof()

    async def _forward(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            if self._trap and self._trap in data:
                self._flowing.clear()
                self._trapped.set()
            await self._flowing.wait()
            await asyncio.sleep(self._delay_s)
            if not link.deaf:
                self.bytes_carried += len(data)
                writer.write(data)
                await writer.drain()
        await self._flowing.wait()
