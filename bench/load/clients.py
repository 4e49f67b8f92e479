"""Raw clients: the four roles of a connection, each an asyncio.Protocol that a peer's module fills in.

    Caller    one request at a time, for latencies       Producer   as many as the window allows
    Consumer  fetches and acknowledges             Member     one of a fleet: both, one command at a time

Requests are bytes made beforehand and answers are counted rather than parsed where that is enough, because
the generator shares the machine with the server.  Nothing here knows a protocol.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from enum import Enum, auto
from typing import Any, TypeVar, cast

from bench.load.flow import Flow, Load

REPLY_S_MAX = 60.0


class PeerFailed(Exception):
    """A server refused, answered nonsense, or hung up: the cell is worth nothing."""


class Connection(asyncio.Protocol):
    """A socket; `rest` has the unfinished end of the last read."""

    def __init__(self) -> None:
        self.rest = b""
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        self.send = self.transport.write  # one call less for each batch

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closing:
            self.failed(PeerFailed(f"the server closed a connection ({error or 'end of stream'})"))

    def close(self) -> None:
        self.closing = True
        self.transport.close()

    async def hello(self) -> None:
        """Return the bytes that the protocol needs before the first command."""

    def expect(self, reply: bytes, word: bytes) -> bytes:
        if word not in reply:
            raise PeerFailed(f"expected {word.decode()}, got {reply[:200].decode(errors='replace')}")
        return reply

    @abstractmethod
    def failed(self, error: Exception) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)


async def connect(client: ConnectionT, port: int, source_host: str | None = None) -> ConnectionT:
    """Open it; another loopback source address gives another 28,000 ports."""
    source = (source_host, 0) if source_host else None
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port, local_addr=source)
    await asyncio.wait_for(client.hello(), REPLY_S_MAX)
    return client


class Caller(Connection):
    """One command at a time.  `fetch` and `wake` return a handle for `ack`."""

    def __init__(self) -> None:
        super().__init__()
        self._inbox: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    def deliver(self, reply: Any) -> None:
        self._inbox.append(reply)
        self._wake()

    def failed(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def reply(self) -> Any:
        while not self._inbox:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._inbox.popleft()

    async def call(self, request: bytes) -> Any:
        self.send(request)
        return await self.reply()

    async def declare(self) -> None:
        """Make the queue so that one message wakes one worker, where a protocol has such a thing."""

    @abstractmethod
    async def publish(self, body: bytes) -> None: ...

    @abstractmethod
    async def fetch(self) -> Any: ...

    @abstractmethod
    async def ack(self, handle: Any) -> None: ...

    @abstractmethod
    async def doze(self) -> None:
        """Be a worker that has nothing to do; returns when the server knows, or will before anything else."""

    @abstractmethod
    async def wake(self) -> Any:
        """After `doze`: wait for a message and have it in hand."""

    @abstractmethod
    async def ping(self) -> None:
        """The cheapest question that the server's main loop answers."""


class Producer(Connection):
    """Keeps its window full for as long as the flow allows."""

    def __init__(self, flow: Flow, load: Load) -> None:
        super().__init__()
        self.flow, self.load = flow, load
        self.in_flight = 0
        self.prepare(load)

    def failed(self, error: Exception) -> None:
        self.flow.fail(error)

    def refill(self) -> None:
        """Send as much as the flow grants."""
        batch = self.load.batch
        requests = self.flow.grant(self.load.window - self.in_flight, batch=batch)
        if requests:
            self.in_flight += requests
            self.send(self.requests(requests))
        elif not self.in_flight and not self.flow.closed:
            self.flow.resume_later(self.refill)

    def data_received(self, data: bytes) -> None:
        try:
            confirmed = self.confirmations(data)
        except PeerFailed as error:
            self.flow.fail(error)
            return
        if confirmed:
            self.in_flight -= confirmed
            self.flow.confirm(confirmed * self.load.batch)
            self.refill()

    @abstractmethod
    def prepare(self, load: Load) -> None:
        """Encode the requests once; they are sent many times."""

    @abstractmethod
    def requests(self, count: int) -> bytes: ...

    @abstractmethod
    def confirmations(self, data: bytes) -> int:
        """How many requests this read answers."""


class Consumer(Connection):
    """Fetches at most `window` at a time and acknowledges each message by a request of its own."""

    def __init__(self, flow: Flow, window: int) -> None:
        super().__init__()
        self.flow, self.window = flow, window

    def failed(self, error: Exception) -> None:
        self.flow.fail(error)

    @abstractmethod
    def begin(self) -> None: ...


class PollingConsumer(Consumer):
    """For protocols where a blocked fetch delays the commands behind it.

    Such a client polls without blocking while there is work, twice as many after each burst that was filled
    and half as many after one that was not, and blocks only when nothing else is under way.
    """

    polls = acks = 0  # under way
    burst = 1

    def begin(self) -> None:
        self.polls = 1
        self.send(self.blocking_fetch())

    def data_received(self, data: bytes) -> None:
        try:
            handles, empty, acked = self.parse(data)
        except PeerFailed as error:
            self.flow.fail(error)
            return
        self.polls -= len(handles) + empty
        self.acks += len(handles) - acked
        request = self.acknowledge(handles) if handles else b""
        more = self._polls_to_send(filled=bool(handles), empty=empty)
        if more:
            request += self.fetches(more)
        elif not self.polls and not self.acks and not self.closing:
            more, request = 1, request + self.blocking_fetch()
        self.polls += more
        if request:
            self.send(request)
        if acked:
            self.flow.finish(acked)

    def _polls_to_send(self, *, filled: bool, empty: int) -> int:
        if empty:
            self.burst = max(1, self.burst // 2)
            return 0
        if not filled:
            return 0
        self.burst = min(self.window, self.burst * 2)
        return max(0, self.burst - self.polls)

    @abstractmethod
    def parse(self, data: bytes) -> tuple[list[bytes], int, int]:
        """Return the handles of messages, the number of empty answers and that of acknowledgements in this read."""

    @abstractmethod
    def acknowledge(self, handles: list[bytes]) -> bytes: ...

    @abstractmethod
    def fetches(self, count: int) -> bytes: ...

    @abstractmethod
    def blocking_fetch(self) -> bytes:
        """One fetch that waits a second at most."""


class Step(Enum):
    """The command that waits for its answer."""

    GREET = auto()  # before the first life
    PUBLISH = auto()
    FETCH = auto()
    ACKNOWLEDGE = auto()


class Member(Connection):
    """One of a fleet: life after life it publishes, fetches and acknowledges, one command at a time.

    Every member publishes before it fetches, so there is always a message to fetch, perhaps one of another member.  So
    a fetch never waits, and an empty answer ends the cell.
    """

    stored: bytes  # A word of the answer to a publish.
    removed: bytes  # A word of the answer to an acknowledgement.

    def __init__(self, flow: Flow, body: bytes, queue: str) -> None:
        super().__init__()
        self.flow, self.body, self.queue = flow, body, queue
        self._step = Step.GREET
        self._greeted: asyncio.Future[bytes] | None = None

    def failed(self, error: Exception) -> None:
        self.flow.fail(error)

    async def greet(self, request: bytes, word: bytes) -> None:
        """Send the bytes that come before the first life, and wait for an answer with this word."""
        self._greeted = asyncio.get_running_loop().create_future()
        self.send(request)
        self.expect(await self._greeted, word)

    def begin(self) -> None:
        """Begin the next life, as long as the flow grants one."""
        if self.flow.grant(1):
            self._step = Step.PUBLISH
            self.send(self.publish())

    def data_received(self, data: bytes) -> None:
        answer = self.rest + data
        if not self.is_whole(answer):
            self.rest = answer
            return
        self.rest = b""
        try:
            self._go_on(answer)
        except PeerFailed as error:
            self.flow.fail(error)

    def _go_on(self, answer: bytes) -> None:
        match self._step:
            case Step.GREET:
                assert self._greeted is not None
                self._greeted.set_result(answer)
            case Step.PUBLISH:
                self.expect(answer, self.stored)
                self._step = Step.FETCH
                self.send(self.fetch())
            case Step.FETCH:
                self._step = Step.ACKNOWLEDGE
                self.send(self.acknowledge(answer))
            case Step.ACKNOWLEDGE:
                self.expect(answer, self.removed)
                self.flow.finish(1)
                self.begin()

    def is_whole(self, answer: bytes) -> bool:
        """Whether nothing of this answer is still under way."""
        return answer.endswith(b"\n")

    @abstractmethod
    def publish(self) -> bytes: ...

    @abstractmethod
    def fetch(self) -> bytes: ...

    @abstractmethod
    def acknowledge(self, answer: bytes) -> bytes:
        """The acknowledgement of the message that this answer to a fetch brings; PeerFailed if it brings none."""
