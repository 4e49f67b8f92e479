"""Caller: asks the broker and waits for the answer, for any number of threads at once.

    call  -->  Session  -->  one write for what came meanwhile  -->  broker
    thread  <--  its bell, by ticket  <--  Session  <--  whichever thread serves

One thread at a time serves the connection: it reads for all who wait, and makes a new connection when the old one
is lost; when its own answer is there, another one takes over.  So a thread in a long fetch keeps nobody waiting.
Each call has a bell of its own, so that an answer wakes nobody but its asker.
The rules of the conversation are the session's, where to connect is the route's.  Never holds the lock while it waits.
"""

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from wakeq.client.core.question import repeatable
from wakeq.client.core.requests import Request
from wakeq.client.core.route import Route, elsewhere
from wakeq.client.core.session import MUTE_AFTER_S, Answer, Event, Moved, NotTheProtocol, Session, Ticket
from wakeq.client.core.timeouts import Closed, Timeouts, foreign, hung, mute, silent, ungreeted, was_closed
from wakeq.client.credentials import TokenSource, no_token
from wakeq.client.on_loop import refuse_client_on_loop
from wakeq.client.transport import Wire, closed
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

T = TypeVar("T")


class Waiting:
    """A call that waits: for its outcome, or to be the one who serves.  The bell is silent while its lock is held."""

    __slots__ = ("bell", "outcome")

    def __init__(self) -> None:
        self.outcome: wire.Reply | WakeqError | None = None
        self.bell = threading.Lock()
        self.bell.acquire()

    def ring(self) -> None:
        """Wake its thread; once is enough, and too often does no harm: it looks around and waits again."""
        if self.bell.locked():
            self.bell.release()


class Caller:
    """One conversation with the broker, over as many connections as it takes."""

    def __init__(
        self,
        addresses: str,
        timeouts: Timeouts,
        dial: Callable[[str], Wire],
        token: TokenSource = no_token,
        *,
        waits: bool = True,
    ) -> None:
        """Connect; raise what is in the way.  Without `waits` every answer is there at once, as in memory."""
        self._waits = waits
        if waits:
            refuse_client_on_loop("Client")
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self._timeouts = timeouts
        self._dial = dial
        self._token = token
        mute_after_s = MUTE_AFTER_S if self._route.has_others else inf
        self._session = Session(secrets.token_hex(16), answer_timeout_s=timeouts.answer_s, mute_after_s=mute_after_s)
        self._connection: Wire | None = None
        self._lost: WakeqError | None = None  # why the last connection ended, while there is no other one
        self._waiting: dict[Ticket, Waiting] = {}  # calls without an outcome, the oldest first
        self._lock = threading.Lock()
        self._serving = False  # a thread cares for the connection
        self._writing: Wire | None = None  # where a thread writes, for all who ask meanwhile
        self._closed = threading.Event()
        _callers.add(self)
        with self._lock:
            self._reconnect()
        if self._lost is not None:
            raise self._lost

    @property
    def address(self) -> str:
        return self._route.address

    @property
    def broker_version(self) -> str:
        return self._session.greeting.version if self._session.greeting else ""

    def call(self, request: Request[T]) -> T:
        """Ask, and wait for the answer through as many connections as it takes."""
        if self._waits:
            refuse_client_on_loop("Client")
        waiting = Waiting()
        with self._lock:
            if self._closed.is_set():
                raise was_closed()
            self._find_out_first(request.command)
            ticket = self._session.ask(request.command, time.monotonic())
            self._waiting[ticket] = waiting
            try:
                self._send()
                while (outcome := waiting.outcome) is None:
                    self._watch(waiting) if self._serving or self._is_writing else self._serve()
            except BaseException:  # an interrupt
                self._forget(ticket, waiting)
                raise
            finally:
                self._waiting.pop(ticket, None)
                self._hand_on()
        if isinstance(outcome, WakeqError):
            raise outcome
        return request.read(outcome)

    def _forget(self, ticket: Ticket, waiting: Waiting) -> None:
        """Nobody waits for this answer any more: a message that has come with it, or will come, is given back."""
        if waiting.outcome is None:
            self._session.abandon(ticket)
        elif not isinstance(waiting.outcome, WakeqError):
            self._session.give_back(waiting.outcome)
            self._send()

    def _hand_on(self) -> None:
        """Whoever leaves sees to it that one of those who wait serves; the oldest is likely to wait for longest."""
        if self._waiting and not self._serving:
            next(iter(self._waiting.values())).ring()

    def close(self) -> None:
        """End the connection, also under calls that wait, which raise Closed."""
        self._closed.set()
        if connection := self._connection:
            connection.close()

    def _find_out_first(self, command: wire.Command) -> None:
        """A connection that is gone already had better be found out before it is in doubt whether this arrived."""
        connection = self._connection
        if connection is None or self._serving or self._is_writing or repeatable(command):
            return
        if (error := connection.fault()) is not None:
            self._drop(error if self._route.has_others else closed(self.address))  # the only one is dialled at once

    @property
    def _is_writing(self) -> bool:
        """Whether a thread writes to the connection: it sends what we ask too, and sees to it that somebody serves."""
        return self._connection is not None and self._writing is self._connection

    # Serving ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Do one step for all who wait: hear something, or have a connection again."""
        self._serving = True
        try:
            if self._connection is None:
                self._reconnect()
            else:
                self._hear(self._connection)
        except BaseException:  # an interrupt, perhaps in the middle of a line: what came next would make no sense
            self._drop(closed(self.address))
            raise
        finally:
            self._serving = False

    def _watch(self, waiting: Waiting) -> None:
        """Wait until the thread that serves has heard our answer, or leaves the connection to us."""
        try:
            self._lock.release()  # inside, so that an interrupt right behind it finds the way back
            waiting.bell.acquire()
        finally:
            self._lock.acquire()

    def _hear(self, connection: Wire) -> None:
        """Take what comes next, or find out that nothing does."""
        try:
            session = self._session
            until_s = min(session.next_look_s(), time.monotonic() + session.look_every_s)
            if not self._take(connection, until_s):
                self._look_for_life(connection)
        except WakeqError as error:
            if connection is self._connection:
                self._drop(error)
        self._send()

    def _take(self, connection: Wire, until_s: float) -> bool:
        """Wait for what comes next, and hand it out.  False if nothing came."""
        wait_s = until_s - time.monotonic()
        try:
            self._lock.release()
            data = connection.receive(timeout_s=wait_s)
        finally:
            self._lock.acquire()
        if data and connection is self._connection:
            moved = self._keep(self._understood(data))
            if moved is not None:
                raise elsewhere(self.address, moved.leader)
        return bool(data)

    def _understood(self, data: bytes) -> list[Event]:
        try:
            return self._session.receive(data, time.monotonic())
        except NotTheProtocol as error:
            raise foreign(self.address, error) from error

    def _look_for_life(self, connection: Wire) -> None:
        now_s = time.monotonic()
        if connection is not self._connection:
            return
        if self._session.is_hung(now_s):
            error = hung(self.address, self._timeouts)
            self._keep(self._session.give_up_due(error, now_s))
            raise error
        if self._session.is_mute(now_s):
            self._session.be_patient()
            raise silent(self.address)

    def _send(self) -> None:
        """Write what was asked, also by those who ask while we write: theirs leaves together, in the next write."""
        connection = self._connection
        if connection is None or self._is_writing:
            return
        self._writing = connection
        try:
            while self._connection is connection and (data := self._session.bytes_to_send()):
                self._write(connection, data)
        except BaseException as error:
            if connection is self._connection:
                self._drop(error if isinstance(error, WakeqError) else closed(self.address))
            if not isinstance(error, WakeqError):  # an interrupt, perhaps in the middle of a line
                raise
        finally:
            if self._writing is connection:
                self._writing = None

    def _write(self, connection: Wire, data: bytes) -> None:
        try:
            self._lock.release()
            connection.send(data, timeout_s=self._timeouts.answer_s)
        finally:
            self._lock.acquire()

    def _keep(self, events: Sequence[Event]) -> Moved | None:
        """Keep answers for those who wait; say whether the broker sent us away."""
        moved = None
        for event in events:
            if isinstance(event, Answer):
                if (waiting := self._waiting.pop(event.ticket, None)) is not None:
                    waiting.outcome = event.outcome
                    waiting.ring()
                if not isinstance(event.outcome, WakeqError):
                    self._route.renew()
            elif isinstance(event, Moved):
                moved = event
        return moved  # a blocking client never sleeps, so it is not woken

    # Connections ------------------------------------------------------------------------------------------

    def _drop(self, error: WakeqError) -> None:
        """End the connection; what must not be repeated is answered by that."""
        if self._connection is not None:
            self._connection.close()
            self._connection, self._lost = None, error
            self._keep(self._session.disconnected())

    def _reconnect(self) -> None:
        """Have a connection again, or answer everything with why there is none."""
        try:
            if self._closed.is_set():
                raise was_closed()
            pause_s = self._route.lost(self._lost, time.monotonic()) if self._lost is not None else 0.0
            while error := self._attempt(pause_s):
                pause_s = self._route.failed(error, time.monotonic())
            self._lost = None
        except WakeqError as error:
            self._lost = error
            self._route.renew()
            self._keep(self._session.give_up(error))

    def _attempt(self, pause_s: float) -> WakeqError | None:
        """Make a connection, greeted by the broker, after a pause; return what was in the way."""
        try:
            self._lock.release()
            if self._closed.wait(pause_s):
                raise was_closed()
            token = self._token()
            connection = self._dial(self.address)
        except Closed:
            raise
        except WakeqError as error:
            return error
        finally:
            self._lock.acquire()
        self._connection = connection
        self._session.connected(time.monotonic(), token)
        self._send()
        until_s = time.monotonic() + min(self._timeouts.connect_s, self._session.patience_s)
        try:
            if self._closed.is_set():  # while we dialled, when there was no connection that `close` could end
                raise was_closed()
            while self._session.greeting is None:
                if time.monotonic() >= until_s:
                    self._session.be_patient()
                    raise mute(self.address)
                self._take(connection, until_s)
        except WakeqError as error:
            connection.close()
            self._connection = None
            self._keep(self._session.disconnected())
            if self._closed.is_set():
                raise was_closed() from error
            return ungreeted(error)
        self._route.found(time.monotonic())
        return None

    def begin_in_child(self) -> None:
        """In a forked child: leave the connection to the parent, be a client of its own."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._lost, self._serving, self._writing = None, None, False, None
        self._session = self._session.successor(secrets.token_hex(16))
        self._waiting = {}
        self._lock = threading.Lock()  # the old one may be held by a thread that is not here
        if not self._closed.is_set():
            self._closed = threading.Event()


_callers: "weakref.WeakSet[Caller]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for caller in list(_callers):
        caller.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
