"""AsyncCaller: sends requests to the broker on an event loop, for any number of tasks at once.

    call  -->  Session  -->  one write for each turn of the loop  -->  broker
    task  <--  future by ticket  <--  Session  <--  AsyncConnection.data_received

The rules of the conversation are in Session, the choice of the address is in Route. This file only waits, and no task
waits for another. A lost connection is made again in the background, whether there are calls or not.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol, TypeVar, cast

from wakeq.client.connection import NO_CREDENTIALS, Credentials, broken, closed_by_peer, configure_socket, unreachable
from wakeq.client.identity import of_client
from wakeq.client.requests import Request
from wakeq.client.route import (
    Route,
    Timeouts,
    client_closed,
    ended_before_greeting,
    fell_silent,
    no_answer,
    no_greeting,
    parse_address,
    redirect,
    wrong_protocol,
)
from wakeq.client.session import (
    SILENCE_LIMIT_S,
    UNDER_WAY_MAX,
    Answer,
    Event,
    Greeted,
    Redirected,
    Session,
    Ticket,
    Woken,
    WrongProtocol,
)
from wakeq.protocol.errors import Disconnected, WakeqError
from wakeq.protocol.wire.worker import codec as wire

# How long `close` waits until all bytes are sent.
CLOSE_S_MAX = 1.0

T = TypeVar("T")


class Listener(Protocol):
    """Receives events that no call asked for. Called on the loop, never after `close`; it must not raise."""

    def awoken(self, queue: str) -> None:
        """This queue may have a message."""

    def connected(self) -> None:
        """A new connection was made; the subscriptions were restated on it."""

    def disconnected(self, error: WakeqError) -> None:
        """The connection was lost; the client is making another one."""


class AsyncConnection(asyncio.Protocol):
    """One connection. `greeted` is done when the broker has answered HELLO, `ended` when the socket is closed."""

    transport: asyncio.WriteTransport

    def __init__(self, caller: "AsyncCaller", address: str) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.greeted: asyncio.Future[WakeqError | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._caller = caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        configure_socket(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._caller.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)
        self._caller.lost(
            self, broken(self.address, error) if isinstance(error, OSError) else closed_by_peer(self.address)
        )

    def abort(self) -> None:
        """Close the connection now, unless it is closed: asyncio fails when a closed transport is aborted."""
        if not self.ended.done():
            self.transport.abort()


class AsyncCaller:
    """One conversation with the broker, over any number of connections."""

    def __init__(
        self,
        addresses: str,
        timeouts: Timeouts,
        listener: Listener | None,
        credentials: Credentials = NO_CREDENTIALS,
        introduce: Callable[[], wire.Hello] = of_client,
    ) -> None:
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self._timeouts = timeouts
        self._listener = listener
        self._credentials = credentials
        silence_limit_s = SILENCE_LIMIT_S if self._route.has_others else inf
        self._session = Session(
            secrets.token_hex(16),
            answer_timeout_s=timeouts.answer_s,
            silence_limit_s=silence_limit_s,
            introduce=introduce,
        )
        self._futures: dict[Ticket, asyncio.Future[wire.Reply | WakeqError]] = {}
        # One place is left for the session's own PING.
        self._room = asyncio.Semaphore(UNDER_WAY_MAX - 1)
        # The loop of the first call.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: AsyncConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        # Why no broker could be reached the last time.
        self._failure: WakeqError | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._drainers: list[asyncio.Future[None]] = []
        self._closed = False

    @property
    def address(self) -> str:
        return self._route.address

    @property
    def broker_version(self) -> str:
        return self._session.greeting.version if self._session.greeting else ""

    # Calls ------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Return when there is a connection; raise the error that prevents it."""
        loop = self._own_loop()
        while self._connection is None or not self._connection.greeted.done():
            self._failure = None
            self._connecting = self._connecting or loop.create_task(self._reconnect(loop, None))
            await asyncio.wait([self._connecting])
            if self._failure is not None:
                raise self._failure
            # The client may have been closed meanwhile.
            self._own_loop()

    async def call(self, request: Request[T]) -> T:
        """Send a request and return the result, over as many connections as that takes."""
        async with self._room:
            loop = self._own_loop()
            ticket = self._session.ask(request.command, loop.time())
            future = self._futures[ticket] = loop.create_future()
            self._send_soon(loop)
            try:
                outcome = await future
            except asyncio.CancelledError:
                self._forget(ticket, future)
                raise
        if isinstance(outcome, WakeqError):
            raise outcome
        return request.read(outcome)

    def _forget(self, ticket: Ticket, future: "asyncio.Future[wire.Reply | WakeqError]") -> None:
        """Abandon a cancelled call. A message that has arrived for it, or will arrive, is released."""
        if self._futures.pop(ticket, None) is not None:
            self._session.abandon(ticket)
        elif not future.cancelled() and not isinstance(outcome := future.result(), WakeqError):
            self._session.release_messages(outcome)
            if self._loop is not None and not self._closed:
                self._send_soon(self._loop)

    async def drain(self) -> None:
        """Return when every call so far is answered, except for fetches that still wait."""
        loop = self._own_loop()
        while self._connection is not None and self._session.owes_answer(loop.time()):
            self._drainers.append(loop.create_future())
            await self._drainers[-1]

    async def close(self) -> None:
        """Send the unsent bytes and close the connection; every call that waits raises Closed."""
        if self._closed:
            return
        self._closed, connection = True, self._connection
        self._flush()
        self._connection = None
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._deliver(self._session.fail_all(client_closed()))
        self._wake_drainers()
        if connection is not None:
            # The transport first sends the rest of its buffer.
            connection.transport.close()
            try:
                await asyncio.wait([connection.ended], timeout=CLOSE_S_MAX)
            finally:
                connection.abort()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which must be that of the first call."""
        if self._closed:
            raise client_closed()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("this AsyncClient belongs to another event loop or process; make one for each")
        return loop

    # Sending ----------------------------------------------------------------------------------------------

    def _send_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule one write for all commands of this turn of the loop."""
        if self._connection is None:
            if self._connecting is None:
                self._route.reset()
                self._connecting = loop.create_task(self._reconnect(loop, None))
        elif not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._connection is not None and (data := self._session.bytes_to_send()):
            self._connection.transport.write(data)

    # Receiving ----------------------------------------------------------------------------------------------

    def received(self, connection: AsyncConnection, data: bytes) -> None:
        """Process the bytes of a connection."""
        if connection is not self._connection or self._loop is None:
            return
        try:
            events = self._session.receive(data, self._loop.time())
        except WrongProtocol as error:
            self.lost(connection, wrong_protocol(connection.address, error))
            return
        except WakeqError as error:
            self.lost(connection, error)
            return
        self._deliver(events)
        if redirected := next((event for event in events if isinstance(event, Redirected)), None):
            self.lost(connection, redirect(connection.address, redirected.leader))
            return
        self._flush()
        self._wake_drainers()

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Answer(ticket, outcome):
                    future = self._futures.pop(ticket, None)
                    if future is not None and not future.done():
                        future.set_result(outcome)
                    if not isinstance(outcome, WakeqError):
                        self._route.reset()
                case Woken(queue):
                    if self._listener is not None:
                        self._listener.awoken(queue)
                case Greeted():
                    self._greeted()

    def _greeted(self) -> None:
        assert self._connection is not None
        assert self._loop is not None
        self._route.connected(self._loop.time())
        if not self._connection.greeted.done():
            self._connection.greeted.set_result(None)
        if self._listener is not None:
            self._listener.connected()

    def _wake_drainers(self) -> None:
        drainers, self._drainers = self._drainers, []
        for drainer in drainers:
            if not drainer.done():
                drainer.set_result(None)

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_timer = loop.call_later(self._session.check_every_s, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check whether the broker still answers."""
        connection = self._connection
        if connection is None:
            return
        if self._session.is_hung(loop.time()):
            error = no_answer(connection.address, self._timeouts)
            self._deliver(self._session.fail_overdue(error, loop.time()))
            self.lost(connection, error)
            return
        if self._session.is_silent(loop.time()):
            self._session.double_silence_limit()
            self.lost(connection, fell_silent(connection.address))
            return
        self._flush()
        self._schedule_check(loop)

    # Connections ------------------------------------------------------------------------------------------

    def lost(self, connection: AsyncConnection, error: WakeqError) -> None:
        """Replace a connection that was lost or is useless."""
        if connection is not self._connection or self._loop is None:
            return
        self._connection = None
        connection.abort()
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._deliver(self._session.disconnected())
        self._wake_drainers()
        # `_dial` still waits for the greeting and goes on with this error.
        if not connection.greeted.done():
            connection.greeted.set_result(error)
            return
        self._connecting = self._loop.create_task(self._reconnect(self._loop, error))
        if self._listener is not None:
            self._listener.disconnected(error)

    async def _reconnect(self, loop: asyncio.AbstractEventLoop, lost: WakeqError | None) -> None:
        """Connect, or answer all commands with the error that prevents it."""
        try:
            pause_s = self._route.lost(lost, loop.time()) if lost is not None else 0.0
            while True:
                await asyncio.sleep(pause_s)
                error = await self._dial(loop)
                if error is None:
                    break
                pause_s = self._route.failed(error, loop.time())
        except WakeqError as error:
            self._give_up(error)
        except Exception as bug:
            self._give_up(Disconnected(f"no connection can be made to {self.address}: {bug!r}"))
            raise
        finally:
            # The new connection may have been lost already, and another task be making the next one.
            if self._connecting is asyncio.current_task():
                self._connecting = None

    def _give_up(self, error: WakeqError) -> None:
        self._failure = error
        self._deliver(self._session.fail_all(error))

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> WakeqError | None:
        """Make a connection and wait for the greeting. Return the error if there is one."""
        address = self._route.address
        host, port = parse_address(address)
        try:
            token, context = self._credentials.token(), self._credentials.context
            async with asyncio.timeout(self._timeouts.connect_s):
                _, connection = await loop.create_connection(
                    lambda: AsyncConnection(self, address), host, port, ssl=context
                )
        # TimeoutError is an OSError.
        except OSError as error:
            return unreachable(address, error)
        except WakeqError as error:
            return error
        if connection.ended.done():
            return ended_before_greeting(closed_by_peer(address))
        self._connection = connection
        self._session.connected(loop.time(), token)
        self._flush()
        self._schedule_check(loop)
        await asyncio.wait([connection.greeted], timeout=min(self._timeouts.connect_s, self._session.silence_limit_s))
        if not connection.greeted.done():
            self._session.double_silence_limit()
            self.lost(connection, no_greeting(address))
        error_or_none = connection.greeted.result()
        return error_or_none and ended_before_greeting(error_or_none)
