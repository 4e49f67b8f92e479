"""HandLoop: an event loop without sockets; connections are in memory, and time passes as its owner likes.

    create_server(make_door) ... connect(port) --> an End;  end.give(data) is one read of the socket
    transport.write(data) --> end.written, or, between two nodes on one loop, `flying` until it is delivered
    settle() --> every callback that can run now has run

Callbacks run in rounds, in the order of any other loop.  It must never touch a socket that sends, and never know which
protocol it carries.
"""

import asyncio
import heapq
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from typing import Any, cast

MakeProtocol = Callable[[], asyncio.BaseProtocol]

HOST = "127.0.0.1"


class Handle:
    """A callback that will run, unless it is cancelled before."""

    __slots__ = ("args", "callback", "context", "due_s")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context or copy_context()
        self.due_s = 0.0

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due_s


class End(asyncio.Transport):
    """A connection: the transport of the broker's end, and the actions of the peer at the other end."""

    def __init__(self, loop: "HandLoop", protocol: Any, number: int) -> None:
        super().__init__()
        self.protocol = protocol
        self.other: End | None = None  # if the peer is a protocol on the same loop
        self.written: list[bytes] = []  # by the broker, and not taken yet, if the peer is not
        self._loop = loop
        self._number = number
        self._is_closing = False

    # The peer's end -----------------------------------------------------------------------------------------------

    def give(self, data: bytes) -> None:
        """Let one read of the socket bring these bytes."""
        self.protocol.data_received(data)

    def take(self) -> bytes:
        """Return the bytes that were written since the last time."""
        data = b"".join(self.written)
        self.written.clear()
        return data

    # The transport of the broker's end ----------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.other is None:
            self.written.append(data)
        else:
            self._loop.flying.append((self.other, bytes(data)))

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "peername":
                return HOST, self._number
            case "socket":
                return SocketOptions()
            case _:
                return default

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """No peer here waits for the end of the stream."""

    def pause_reading(self) -> None:
        """Do nothing: bytes arrive only by `give`."""

    def resume_reading(self) -> None:
        """See pause_reading."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        for end in (self, self.other):
            if end is not None and not end._is_closing:
                end._is_closing = True
                self._loop.call_soon(end.protocol.connection_lost, None)

    abort = close


class SocketOptions:
    """Takes the options that a door sets on the socket of a connection."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def setsockopt(self, *_: object) -> None:
        """No option matters in memory."""


class HandServer:
    """A port that accepts connections, until it is closed."""

    def __init__(self, listeners: dict[int, MakeProtocol], port: int, bound: socket.socket) -> None:
        self._listeners = listeners
        self._port = port
        self._bound = bound

    def close(self) -> None:
        self._listeners.pop(self._port, None)
        self._bound.close()

    async def wait_closed(self) -> None:
        """`close` leaves nothing to wait for."""


class HandLoop:
    """The part of an event loop that a node uses; everything else is missing, and a use of it fails."""

    def __init__(self, advance: Callable[[float], None] | None = None) -> None:
        """`advance` makes time pass where nothing else is to be done; without it the loop waits for real time."""
        self.flying: deque[tuple[End, bytes]] = deque()  # written to an end on this loop, and not delivered yet
        self._advance = advance
        self._listeners: dict[int, MakeProtocol] = {}  # by port
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []  # a heap, by the moment and the order of the calls
        self._order = count()
        self._bell = threading.Event()  # another thread has added to `_ready`
        self._failure: BaseException | None = None  # of a callback; raised at the end of its round
        self._self = cast(asyncio.AbstractEventLoop, self)

    @contextmanager
    def running(self) -> Generator["HandLoop", None, None]:
        """Be the running loop of this thread for the length of the block."""
        asyncio._set_running_loop(self._self)
        try:
            yield self
        finally:
            asyncio._set_running_loop(None)

    # Rounds -------------------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Run the timers that are due, and all callbacks that wait by then."""
        timers, ready = self._timers, self._ready
        if timers:
            now_s = time.monotonic()
            while timers and timers[0][0] <= now_s:
                ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.callback is not None:
                handle.context.run(handle.callback, *handle.args)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def settle(self) -> None:
        """Run rounds until no callback is left; undelivered bytes stay undelivered, and no time passes."""
        self.run_once()
        while self._ready:
            self.run_once()

    def deliver(self, *, but: End | None = None) -> None:
        """Deliver all bytes, and those that are written because of them; the end `but` gets nothing yet."""
        self.settle()
        while reads := [(end, data) for end, data in self.flying if end is not but]:
            self.flying = deque((end, data) for end, data in self.flying if end is but)
            for end, data in reads:
                if not end.is_closing():
                    end.give(data)
            self.settle()

    def land(self, end: End) -> None:
        """Deliver the bytes for this end in one read."""
        reads = [data for to, data in self.flying if to is end]
        self.flying = deque((to, data) for to, data in self.flying if to is not end)
        end.give(b"".join(reads))
        self.settle()

    def wait(self) -> None:
        """Wait for the next timer or another thread."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        wait_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if self._ready:
            return
        if self._advance is None:
            self._bell.wait(wait_s)
            self._bell.clear()
        else:
            assert wait_s is not None, "there is no timer, and nothing else can happen here"
            self._advance(wait_s)

    def run_until_complete(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run and wait until this work is done; return its result."""
        task = self.create_task(work)
        while not task.done():
            self.deliver()
            if not task.done():
                self.wait()
        return task.result()

    # Connections --------------------------------------------------------------------------------------------------

    def connect(self, port: int) -> End:
        """Connect to a port from outside of the loop."""
        end = End(self, self._listeners[port](), next(self._order))
        end.protocol.connection_made(end)
        return end

    async def create_server(self, protocol_factory: MakeProtocol, *, sock: socket.socket, **_: Any) -> HandServer:
        port = sock.getsockname()[1]
        self._listeners[port] = protocol_factory
        return HandServer(self._listeners, port, sock)

    async def create_connection(self, protocol_factory: MakeProtocol, host: str, port: int, **_: Any) -> Any:
        if port not in self._listeners:
            raise ConnectionRefusedError(f"no server of this loop has the port {port} of {host}")
        ends = [End(self, make(), next(self._order)) for make in (self._listeners[port], protocol_factory)]
        for end, other in zip(ends, reversed(ends), strict=True):
            end.other = other
        for end in ends:
            end.protocol.connection_made(end)
        return ends[1], ends[1].protocol

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    # Callbacks, futures and tasks ---------------------------------------------------------------------------------

    def time(self) -> float:
        return time.monotonic()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = self.call_soon(callback, *args, context=context)
        self._bell.set()
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(time.monotonic() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context)
        handle.due_s = when
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_future(self) -> Any:
        return asyncio.Future(loop=self._self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return asyncio.Task(coro, loop=self._self, **options)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Do at once the work that was meant for another thread."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._failure = context.get("exception") or RuntimeError(context["message"])

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False
