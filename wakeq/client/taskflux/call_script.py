"""CallScript: which bytes a TaskFlux client sends where and in which order, as a generator of steps.

    a call --> CallScript --> Connect, Send, Receive, Pause, Close --> a thread or task takes each step --> result

A connection serves one call at a time, and a record is held on the connection that delivered it, so there is a pool of
connections. Route decides where to connect, a Request what is sent. Pure: the clock is passed in, and nothing waits.
"""

import os
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from wakeq.client.connection import TokenSource, no_token
from wakeq.client.route import Route, Timeouts, client_closed, ended_before_greeting, fell_silent, no_answer, redirect
from wakeq.client.session import SILENCE_LIMIT_S, PeerSilent
from wakeq.client.taskflux.requests import Handshake, Request, SingleRequest, UnexpectedAnswer, cluster_in
from wakeq.protocol.errors import Disconnected, OutcomeUnknown, WakeqError
from wakeq.protocol.wire.taskflux.codec import ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import Bad, ClusterMetadataRequest
from wakeq.protocol.wire.taskflux.dialects import Dialect

PORT = 2602
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"
# The number of unused connections that are kept for later calls.
IDLE_MAX = 16

T = TypeVar("T")


class Stream(Protocol):
    """The bytes of a connection, as far as the script looks at them without waiting."""

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not."""


class PooledConnection:
    """One connection, and the reader of its answers."""

    __slots__ = ("address", "reader", "stream")

    def __init__(self, address: str, stream: Stream, dialect: Dialect) -> None:
        self.address = address
        self.stream = stream
        self.reader = ResponseReader(dialect)


class Connect(Struct, frozen=True):
    """Connect; the result is a Stream."""

    address: str
    timeout_s: float


class Send(Struct, frozen=True):
    """Write all of the data."""

    connection: Any
    data: bytes


class Receive(Struct, frozen=True):
    """Wait for data; the result is empty if none arrives in time."""

    connection: Any
    timeout_s: float


class Close(Struct, frozen=True):
    """Close the connection."""

    connection: Any


class Pause(Struct, frozen=True):
    """Wait."""

    seconds: float


Step: TypeAlias = Connect | Send | Receive | Close | Pause
Steps: TypeAlias = Generator[Step, Any, T]


def default_address() -> str:
    """Return the address for a client that was given none: WAKEQ_TASKFLUX, or the usual port of this machine."""
    return os.environ.get("WAKEQ_TASKFLUX") or DEFAULT_ADDRESS


def with_port(addresses: str) -> str:
    """Add the usual port to addresses that have none."""
    parts = [part.strip() for part in addresses.split(",")]
    return ",".join(part if ":" in part.rpartition("]")[2] else f"{part}:{PORT}" for part in parts)


class CallScript:
    """The steps of calls. Steps of several calls may alternate, but no two may be taken at the same time."""

    def __init__(
        self,
        addresses: str,
        dialect: Dialect,
        timeouts: Timeouts,
        clock: Callable[[], float],
        token: TokenSource = no_token,
    ) -> None:
        self.dialect = dialect
        self._timeouts = timeouts
        self._clock = clock
        self._token = token
        self._route = Route(with_port(addresses), reconnect_for_s=timeouts.reconnect_for_s)
        self._initial_silence_limit_s = SILENCE_LIMIT_S if self._route.has_others else inf
        # How long a server may be silent now; it doubles with each server that was left for its silence.
        self._silence_limit_s = self._initial_silence_limit_s
        # At least one call was answered.
        self._was_answered = False
        self._idle: list[PooledConnection] = []
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._route.address

    def close(self) -> list[PooledConnection]:
        """Allow no more calls; return the connections to close."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        return idle

    def call(self, make: Callable[[], Request[T]]) -> Steps[T]:
        """Send a request to the leader and return the result."""
        connection, result = yield from self.ask(make)
        yield from self.return_connection(connection)
        return result

    def ask(self, make: Callable[[], Request[T]]) -> Steps[tuple[PooledConnection, T]]:
        """Send a request to the leader. Return the connection, too: it may hold the record of the answer."""
        while True:
            connection = yield from self._working_connection()
            request = make()
            try:
                yield from self._exchange(connection, request)
            except Disconnected as error:
                yield Close(connection)
                yield from self._lost(connection, request, error)
                continue
            # After an interrupt the next answer on this connection belongs to no call.
            except BaseException:
                yield Close(connection)
                raise
            if request.moved is not None:
                yield from self._follow_leader(connection, request.moved.leader)
                continue
            self._answered()
            try:
                return connection, request.result()
            except Disconnected:
                yield Close(connection)
                raise
            except WakeqError:
                yield from self.return_connection(connection)
                raise

    def end_record(self, connection: PooledConnection, request: Request[T]) -> Steps[T]:
        """Acknowledge or return a record on the connection that holds it, and give the connection back."""
        try:
            yield from self._exchange(connection, request)
        except Disconnected as error:
            yield Close(connection)
            yield from self._leave(connection, error)
            raise
        except BaseException:
            yield Close(connection)
            raise
        self._answered()
        yield from self.return_connection(connection)
        if request.moved is not None:
            raise redirect(connection.address, None)
        return request.result()

    def return_connection(self, connection: PooledConnection) -> Steps[None]:
        """Keep a connection for the next call."""
        if self._is_closed or len(self._idle) >= IDLE_MAX:
            yield Close(connection)
        else:
            self._idle.append(connection)

    # --- connections -----------------------------------------------------------------------------------------------

    def connect(self) -> Steps[None]:
        """Make a connection, or raise the error that prevents it."""
        connection = yield from self._working_connection()
        yield from self.return_connection(connection)

    def _working_connection(self) -> Steps[PooledConnection]:
        """Return a connection that is not known to be broken."""
        while True:
            if self._is_closed:
                raise client_closed()
            if not self._idle:
                return (yield from self._dial())
            connection = self._idle.pop()
            fault = connection.stream.fault()
            if fault is None and connection.address == self._route.address:
                return connection
            yield Close(connection)
            if fault is not None:
                yield from self._leave(connection, fault)

    def _dial(self) -> Steps[PooledConnection]:
        while True:
            address = self._route.address
            try:
                token = self._token()
                connection = PooledConnection(address, (yield from self._stream_to(address)), self.dialect)
                try:
                    yield from self._exchange(connection, Handshake(self.dialect, token))
                except BaseException:
                    yield Close(connection)
                    raise
            except WakeqError as error:
                yield Pause(self._route.failed(ended_before_greeting(error, "TaskFlux"), self._clock()))
                continue
            self._route.connected(self._clock())
            return connection

    def _stream_to(self, address: str) -> Steps[Stream]:
        timeout_s = self._timeouts.connect_s
        # Before the first answer no other node is known to be faster.
        if self._was_answered:
            timeout_s = min(timeout_s, self._silence_limit_s)
        try:
            stream: Stream = yield Connect(address, timeout_s)
        except WakeqError as error:
            # As with a silence: all nodes may be slow, or far away.
            if isinstance(error.__cause__, TimeoutError):
                self._silence_limit_s *= 2
            raise
        return stream

    def _exchange(self, connection: PooledConnection, request: Request[Any]) -> Steps[None]:
        """Send all packets of a request and receive all of its answers."""
        is_over = False
        while not is_over:
            while packets := request.next_packets():
                yield Send(connection, encode(packets, self.dialect))
            timeout_s = min(self._timeouts.answer_s, self._silence_limit_s) + request.wait_s
            data = yield Receive(connection, timeout_s)
            if not data:
                raise self._silence_of(connection)
            for answer in connection.reader.receive(data):
                if isinstance(answer, Bad):
                    raise UnexpectedAnswer(
                        f"{connection.address} speaks another protocol: {answer.error}; is the dialect right?"
                    )
                if is_over:
                    raise UnexpectedAnswer(f"{connection.address} sent {type(answer).__name__} without a request")
                is_over = request.take(answer)
        if isinstance(request, Handshake):
            request.result()

    def _answered(self) -> None:
        """Note that the server has answered."""
        self._route.reset()
        self._was_answered = True
        self._silence_limit_s = self._initial_silence_limit_s

    def _silence_of(self, connection: PooledConnection) -> PeerSilent:
        """Return the error for a silent server. If there are other servers, they are asked soon."""
        if self._silence_limit_s >= self._timeouts.answer_s:
            return no_answer(connection.address, self._timeouts)
        # The server may only be slow, so the next one is given more time, until one answers.
        self._silence_limit_s *= 2
        return fell_silent(connection.address)

    def _lost(self, connection: PooledConnection, request: Request[Any], error: Disconnected) -> Steps[None]:
        """Decide whether a request may be sent again, and when."""
        if isinstance(error, UnexpectedAnswer):
            yield from self._close_idle(connection.address)
            raise error
        if not request.may_repeat:
            yield from self._leave(connection, error)
            raise OutcomeUnknown(
                f"{error}; the request may or may not have been done, so it is not repeated"
            ) from error
        yield from self._close_idle(connection.address)
        # If the addresses differ, another call has noticed the loss first, and the route leads elsewhere already.
        if connection.address == self._route.address:
            yield Pause(self._route.lost(error, self._clock()))

    def _leave(self, connection: PooledConnection, error: Disconnected) -> Steps[None]:
        """Make the next call use another server; the current call is over."""
        yield from self._close_idle(connection.address)
        if isinstance(error, PeerSilent) and connection.address == self._route.address:
            # How long to wait for which server is decided by the next call.
            with suppress(WakeqError):
                self._route.lost(error, self._clock())
            self._route.reset()

    def _close_idle(self, address: str) -> Steps[None]:
        """Close the unused connections to an address."""
        closing = [connection for connection in self._idle if connection.address == address]
        self._idle = [connection for connection in self._idle if connection.address != address]
        for connection in closing:
            yield Close(connection)

    def _follow_leader(self, connection: PooledConnection, leader: int) -> Steps[None]:
        """Go to the leader. The server has named its position in the list of addresses."""
        address: str | None = None
        if leader >= 0:
            metadata = SingleRequest(ClusterMetadataRequest(), cluster_in, "", self.dialect)
            # If the server is gone, the route knows other nodes.
            with suppress(Disconnected):
                yield from self._exchange(connection, metadata)
                address = dict(enumerate(metadata.result().addresses)).get(leader)
        yield Close(connection)
        yield from self._close_idle(connection.address)
        # If the addresses differ, another call was redirected before.
        if connection.address == self._route.address:
            error = redirect(connection.address, None if address is None else with_port(address))
            yield Pause(self._route.lost(error, self._clock()))
