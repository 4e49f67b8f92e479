"""AsyncCaller: asks the broker on an event loop, for any number of tasks at once.

    call  -->  Session  -->  one write for each turn of the loop  -->  broker
    task  <--  future by ticket  <--  Session  <--  Link.data_received

The rules of the conversation are the session's, where to connect is the route's; here is only the waiting, none of
which keeps another task waiting.  A lost connection is made again in the background, whether somebody calls or not.
"""

import asyncio
import secrets
from collections.abc import Sequence
from math import inf
from typing import Protocol, TypeVar, cast

from wakeq.client.core.requests import Request
from wakeq.client.core.route import Route, elsewhere, parse_address
from wakeq.client.core.session import (
    MUTE_AFTER_S,
    UNDER_WAY_MAX,
    Answer,
    Awoken,
    Event,
    Greeted,
    Moved,
    NotTheProtocol,
    Session,
    Ticket,
)
from wakeq.client.core.timeouts import Timeouts, foreign, hung, mute, silent, ungreeted, was_closed
from wakeq.client.credentials import NONE, Credentials
from wakeq.client.transport import broken, closed, guard, unreachable
from wakeq.protocol.errors import Disconnected, WakeqError
from wakeq.protocol.wire.worker import codec as wire

GOODBYE_S_MAX = 1.0  # for what is still to be sent when a client is closed

T = TypeVar("T")


class Listener(Protocol):
    """Who wants to hear what the broker says unasked.  Called on the loop, never after `close`; must not raise."""

    def awoken(self, queue: str) -> None:
        """There may be something in this queue."""

    def connected(self) -> None:
        """There is a new connection; the subscriptions were restated on it."""

    def disconnected(self, error: WakeqError) -> None:
        """The connection is gone; another one is on its way."""


class Link(asyncio.Protocol):
    """One connection.  `greeted` is done when the broker answered HELLO, `ended` when the socket is closed."""

    transport: asyncio.WriteTransport

    def __init__(self, caller: "AsyncCaller", address: str) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.greeted: asyncio.Future[WakeqError | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._caller = caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        guard(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._caller.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)
        self._caller.lost(self, broken(self.address, error) if isinstance(error, OSError) else closed(self.address))

    def abort(self) -> None:
        """End it now.  One that has ended is left alone: asyncio would end it once more, and fail."""
        if not self.ended.done():
            self.transport.abort()


class AsyncCaller:
    """One conversation with the broker, over as many connections as it takes."""

    def __init__(
        self, addresses: str, timeouts: Timeouts, listener: Listener | None, credentials: Credentials = NONE
    ) -> None:
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self._timeouts = timeouts
        self._listener = listener
        self._credentials = credentials
        mute_after_s = MUTE_AFTER_S if self._route.has_others else inf
        self._session = Session(secrets.token_hex(16), answer_timeout_s=timeouts.answer_s, mute_after_s=mute_after_s)
        self._futures: dict[Ticket, asyncio.Future[wire.Reply | WakeqError]] = {}
        self._room = asyncio.Semaphore(UNDER_WAY_MAX - 1)  # one place is kept for the session's own PING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failure: WakeqError | None = None  # why nobody could be reached, the last time
        self._look: asyncio.TimerHandle | None = None
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
        """Have a connection, or raise what is in the way."""
        loop = self._own_loop()
        while self._link is None or not self._link.greeted.done():
            self._failure = None
            self._connecting = self._connecting or loop.create_task(self._reconnect(loop, None))
            await asyncio.wait([self._connecting])
            if self._failure is not None:
                raise self._failure
            self._own_loop()  # it may have been closed meanwhile

    async def call(self, request: Request[T]) -> T:
        """Ask, and wait for the answer through as many connections as it takes."""
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
        """A call was cancelled: a message that came for it, or will come, is given back."""
        if self._futures.pop(ticket, None) is not None:
            self._session.abandon(ticket)
        elif not future.cancelled() and not isinstance(outcome := future.result(), WakeqError):
            self._session.give_back(outcome)
            if self._loop is not None and not self._closed:
                self._send_soon(self._loop)

    async def drain(self) -> None:
        """Return when everything that was asked is answered, but for fetches that still wait."""
        loop = self._own_loop()
        while self._link is not None and self._session.owes(loop.time()):
            self._drainers.append(loop.create_future())
            await self._drainers[-1]

    async def close(self) -> None:
        """Send what is to be sent, and end the connection; every call that waits raises Closed."""
        if self._closed:
            return
        self._closed, link = True, self._link
        self._flush()
        self._link = None
        if self._look is not None:
            self._look.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._deliver(self._session.give_up(was_closed()))
        self._wake_drainers()
        if link is not None:
            link.transport.close()  # it sends what is in its buffer first
            try:
                await asyncio.wait([link.ended], timeout=GOODBYE_S_MAX)
            finally:
                link.abort()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that this caller lives on, which is the one of its first call."""
        if self._closed:
            raise was_closed()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("this AsyncClient belongs to another event loop or process; make one for each")
        return loop

    # Sending ----------------------------------------------------------------------------------------------

    def _send_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """What all tasks ask in one turn of the loop goes out as one write."""
        if self._link is None:
            if self._connecting is None:
                self._route.renew()
                self._connecting = loop.create_task(self._reconnect(loop, None))
        elif not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._link is not None and (data := self._session.bytes_to_send()):
            self._link.transport.write(data)

    # Hearing ----------------------------------------------------------------------------------------------

    def received(self, link: Link, data: bytes) -> None:
        """Take what a connection brought."""
        if link is not self._link or self._loop is None:
            return
        try:
            events = self._session.receive(data, self._loop.time())
        except NotTheProtocol as error:
            self.lost(link, foreign(link.address, error))
            return
        except WakeqError as error:
            self.lost(link, error)
            return
        self._deliver(events)
        if moved := next((event for event in events if isinstance(event, Moved)), None):
            self.lost(link, elsewhere(link.address, moved.leader))
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
                        self._route.renew()
                case Awoken(queue):
                    if self._listener is not None:
                        self._listener.awoken(queue)
                case Greeted():
                    self._greeted()

    def _greeted(self) -> None:
        assert self._link is not None
        assert self._loop is not None
        self._route.found(self._loop.time())
        if not self._link.greeted.done():
            self._link.greeted.set_result(None)
        if self._listener is not None:
            self._listener.connected()

    def _wake_drainers(self) -> None:
        drainers, self._drainers = self._drainers, []
        for drainer in drainers:
            if not drainer.done():
                drainer.set_result(None)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look = loop.call_later(self._session.look_every_s, self._look_now, loop)

    def _look_now(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether the broker still says what it owes."""
        link = self._link
        if link is None:
            return
        if self._session.is_hung(loop.time()):
            error = hung(link.address, self._timeouts)
            self._deliver(self._session.give_up_due(error, loop.time()))
            self.lost(link, error)
            return
        if self._session.is_mute(loop.time()):
            self._session.be_patient()
            self.lost(link, silent(link.address))
            return
        self._flush()
        self._look_later(loop)

    # Connections ------------------------------------------------------------------------------------------

    def lost(self, link: Link, error: WakeqError) -> None:
        """A connection is of no use any more: make another one."""
        if link is not self._link or self._loop is None:
            return
        self._link = None
        link.abort()
        if self._look is not None:
            self._look.cancel()
        self._deliver(self._session.disconnected())
        self._wake_drainers()
        if not link.greeted.done():  # whoever makes it goes on from here
            link.greeted.set_result(error)
            return
        self._connecting = self._loop.create_task(self._reconnect(self._loop, error))
        if self._listener is not None:
            self._listener.disconnected(error)

    async def _reconnect(self, loop: asyncio.AbstractEventLoop, lost: WakeqError | None) -> None:
        """Have a connection again, or answer everything with why there is none."""
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
            if self._connecting is asyncio.current_task():  # it may be lost again, and another one be on its way
                self._connecting = None

    def _give_up(self, error: WakeqError) -> None:
        self._failure = error
        self._deliver(self._session.give_up(error))

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> WakeqError | None:
        """Make a connection, greeted by the broker; return what was in the way."""
        address = self._route.address
        host, port = parse_address(address)
        try:
            token, context = self._credentials.token(), self._credentials.context
            async with asyncio.timeout(self._timeouts.connect_s):
                _, link = await loop.create_connection(lambda: Link(self, address), host, port, ssl=context)
        except OSError as error:  # a timeout is one too
            return unreachable(address, error)
        except WakeqError as error:
            return error
        if link.ended.done():
            return ungreeted(closed(address))
        self._link = link
        self._session.connected(loop.time(), token)
        self._flush()
        self._look_later(loop)
        await asyncio.wait([link.greeted], timeout=min(self._timeouts.connect_s, self._session.patience_s))
        if not link.greeted.done():
            self._session.be_patient()
            self.lost(link, mute(address))
        unfit = link.greeted.result()
        return unfit and ungreeted(unfit)
