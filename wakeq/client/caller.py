"""Caller: sends requests to the broker and waits for the answers, for any number of threads at once.

    call  -->  Session  -->  one write for all commands that were waiting  -->  broker
    thread  <--  its bell, by ticket  <--  Session  <--  the thread that serves

One thread at a time serves the connection: it reads for all waiting threads and reconnects when the connection is lost.
When its own answer has arrived, another thread takes over. So a thread in a long fetch does not delay the others. Each
call has a bell of its own, so that an answer wakes only its caller. The rules of the conversation are in Session, the
choice of the address is in Route. No thread waits for anything while it holds the lock.
"""

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from wakeq.client.connection import Connection, TokenSource, closed_by_peer, no_token, refuse_client_on_loop
from wakeq.client.identity import of_client
from wakeq.client.requests import Request
from wakeq.client.route import (
    Closed,
    Route,
    Timeouts,
    client_closed,
    ended_before_greeting,
    fell_silent,
    no_answer,
    no_greeting,
    redirect,
    wrong_protocol,
)
from wakeq.client.session import (
    SILENCE_LIMIT_S,
    Answer,
    Event,
    Redirected,
    Session,
    Ticket,
    WrongProtocol,
    is_repeatable,
)
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

T = TypeVar("T")


class WaitingCall:
    """A call that waits for its outcome, or for its turn to serve. `bell` is a lock; releasing it wakes the thread."""

    __slots__ = ("bell", "outcome")

    def __init__(self) -> None:
        self.outcome: wire.Reply | WakeqError | None = None
        self.bell = threading.Lock()
        self.bell.acquire()

    def ring(self) -> None:
        """Wake the thread. To wake it without need does no harm: it finds no outcome and waits again."""
        if self.bell.locked():
            self.bell.release()


class Caller:
    """One conversation with the broker, over any number of connections."""

    def __init__(
        self,
        addresses: str,
        timeouts: Timeouts,
        dial: Callable[[str], Connection],
        token: TokenSource = no_token,
        *,
        waits: bool = True,
    ) -> None:
        """Connect, or raise the error that prevents it. Without `waits`, answers never take time, as in memory."""
        self._waits = waits
        if waits:
            refuse_client_on_loop("Client")
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self._timeouts = timeouts
        self._dial = dial
        self._token = token
        silence_limit_s = SILENCE_LIMIT_S if self._route.has_others else inf
        self._session = Session(
            secrets.token_hex(16),
            answer_timeout_s=timeouts.answer_s,
            silence_limit_s=silence_limit_s,
            introduce=of_client,
        )
        self._connection: Connection | None = None
        # Why the last connection ended, while there is no new one.
        self._lost: WakeqError | None = None
        # Calls without an outcome, oldest first.
        self._waiting: dict[Ticket, WaitingCall] = {}
        self._lock = threading.Lock()
        # A thread serves the connection.
        self._serving = False
        # The connection to which a thread is writing, also for the threads that ask meanwhile.
        self._writing: Connection | None = None
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
        """Send a request and return the result, over as many connections as that takes."""
        if self._waits:
            refuse_client_on_loop("Client")
        waiting = WaitingCall()
        with self._lock:
            if self._closed.is_set():
                raise client_closed()
            self._check_connection(request.command)
            ticket = self._session.ask(request.command, time.monotonic())
            self._waiting[ticket] = waiting
            try:
                self._send()
                while (outcome := waiting.outcome) is None:
                    self._wait_for_bell(waiting) if self._serving or self._is_writing else self._serve()
            # An interrupt, such as Ctrl-C.
            except BaseException:
                self._forget(ticket, waiting)
                raise
            finally:
                self._waiting.pop(ticket, None)
                self._wake_next_server()
        if isinstance(outcome, WakeqError):
            raise outcome
        return request.read(outcome)

    def _forget(self, ticket: Ticket, waiting: WaitingCall) -> None:
        """Abandon a call. A message that has arrived for it, or will arrive, is released."""
        if waiting.outcome is None:
            self._session.abandon(ticket)
        elif not isinstance(waiting.outcome, WakeqError):
            self._session.release_messages(waiting.outcome)
            self._send()

    def _wake_next_server(self) -> None:
        """Wake a waiting thread to serve the connection; the oldest call is likely to wait longest."""
        if self._waiting and not self._serving:
            next(iter(self._waiting.values())).ring()

    def close(self) -> None:
        """Close the connection; calls that wait raise Closed."""
        self._closed.set()
        if connection := self._connection:
            connection.close()

    def _check_connection(self, command: wire.Command) -> None:
        """Before a command that must not be repeated, detect a dead connection: it would leave the command in doubt."""
        connection = self._connection
        if connection is None or self._serving or self._is_writing or is_repeatable(command):
            return
        if (error := connection.fault()) is not None:
            # With a plain Disconnected the route dials the only address again at once.
            self._drop(error if self._route.has_others else closed_by_peer(self.address))

    @property
    def _is_writing(self) -> bool:
        """Whether a thread is writing to the connection. It also sends our commands and wakes the next server."""
        return self._connection is not None and self._writing is self._connection

    # Serving ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Do one step for all waiting calls: receive something, or reconnect."""
        self._serving = True
        try:
            if self._connection is None:
                self._reconnect()
            else:
                self._receive_or_check(self._connection)
        # An interrupt may come in the middle of a line, and the rest of the stream would make no sense.
        except BaseException:
            self._drop(closed_by_peer(self.address))
            raise
        finally:
            self._serving = False

    def _wait_for_bell(self, waiting: WaitingCall) -> None:
        """Wait until the serving thread has received our answer, or leaves the connection to us."""
        # The release stands inside of `try`, so that an interrupt right after it still reaches `finally`.
        try:
            self._lock.release()
            waiting.bell.acquire()
        finally:
            self._lock.acquire()

    def _receive_or_check(self, connection: Connection) -> None:
        """Receive data, or check the broker for signs of life if none arrives."""
        try:
            session = self._session
            until_s = min(session.next_check_s(), time.monotonic() + session.check_every_s)
            if not self._receive(connection, until_s):
                self._check_life(connection)
        except WakeqError as error:
            if connection is self._connection:
                self._drop(error)
        self._send()

    def _receive(self, connection: Connection, until_s: float) -> bool:
        """Wait for data and pass the answers on. Return False if nothing arrived."""
        wait_s = until_s - time.monotonic()
        try:
            self._lock.release()
            data = connection.receive(timeout_s=wait_s)
        finally:
            self._lock.acquire()
        if data and connection is self._connection:
            try:
                events = self._session.receive(data, time.monotonic())
            except WrongProtocol as error:
                raise wrong_protocol(self.address, error) from error
            redirected = self._deliver(events)
            if redirected is not None:
                raise redirect(self.address, redirected.leader)
        return bool(data)

    def _check_life(self, connection: Connection) -> None:
        now_s = time.monotonic()
        if connection is not self._connection:
            return
        if self._session.is_hung(now_s):
            error = no_answer(self.address, self._timeouts)
            self._deliver(self._session.fail_overdue(error, now_s))
            raise error
        if self._session.is_silent(now_s):
            self._session.double_silence_limit()
            raise fell_silent(self.address)

    def _send(self) -> None:
        """Write all unsent commands. Commands that other threads add meanwhile leave together, in the next write."""
        connection = self._connection
        if connection is None or self._is_writing:
            return
        self._writing = connection
        try:
            while self._connection is connection and (data := self._session.bytes_to_send()):
                self._write(connection, data)
        except BaseException as error:
            if connection is self._connection:
                self._drop(error if isinstance(error, WakeqError) else closed_by_peer(self.address))
            # An interrupt.
            if not isinstance(error, WakeqError):
                raise
        finally:
            if self._writing is connection:
                self._writing = None

    def _write(self, connection: Connection, data: bytes) -> None:
        try:
            self._lock.release()
            connection.send(data, timeout_s=self._timeouts.answer_s)
        finally:
            self._lock.acquire()

    def _deliver(self, events: Sequence[Event]) -> Redirected | None:
        """Give answers to the calls that wait for them. Return a redirection, if there is one.

        The client never says ISLP, so it is never woken.
        """
        redirected = None
        for event in events:
            if isinstance(event, Answer):
                if (waiting := self._waiting.pop(event.ticket, None)) is not None:
                    waiting.outcome = event.outcome
                    waiting.ring()
                if not isinstance(event.outcome, WakeqError):
                    self._route.reset()
            elif isinstance(event, Redirected):
                redirected = event
        return redirected

    # Connections ------------------------------------------------------------------------------------------

    def _drop(self, error: WakeqError) -> None:
        """Close the connection and fail the commands that must not be repeated."""
        if self._connection is not None:
            self._connection.close()
            self._connection, self._lost = None, error
            self._deliver(self._session.disconnected())

    def _reconnect(self) -> None:
        """Connect, or answer all commands with the error that prevents it."""
        try:
            if self._closed.is_set():
                raise client_closed()
            pause_s = self._route.lost(self._lost, time.monotonic()) if self._lost is not None else 0.0
            while error := self._attempt(pause_s):
                pause_s = self._route.failed(error, time.monotonic())
            self._lost = None
        except WakeqError as error:
            self._lost = error
            self._route.reset()
            self._deliver(self._session.fail_all(error))

    def _attempt(self, pause_s: float) -> WakeqError | None:
        """Make a connection after a pause and wait for the greeting. Return the error if there is one."""
        try:
            self._lock.release()
            if self._closed.wait(pause_s):
                raise client_closed()
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
        until_s = time.monotonic() + min(self._timeouts.connect_s, self._session.silence_limit_s)
        try:
            # While this thread was dialling, `close` had no connection to close.
            if self._closed.is_set():
                raise client_closed()
            while self._session.greeting is None:
                if time.monotonic() >= until_s:
                    self._session.double_silence_limit()
                    raise no_greeting(self.address)
                self._receive(connection, until_s)
        except WakeqError as error:
            connection.close()
            self._connection = None
            self._deliver(self._session.disconnected())
            if self._closed.is_set():
                raise client_closed() from error
            return ended_before_greeting(error)
        self._route.connected(time.monotonic())
        return None

    def begin_in_child(self) -> None:
        """Begin a new conversation in a forked child, and leave the connection to the parent."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._lost, self._serving, self._writing = None, None, False, None
        self._session = self._session.successor(secrets.token_hex(16))
        self._waiting = {}
        # The old lock may be held by a thread that does not exist in the child.
        self._lock = threading.Lock()
        if not self._closed.is_set():
            self._closed = threading.Event()


_callers: "weakref.WeakSet[Caller]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for caller in list(_callers):
        caller.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
