"""MoniqueClient: MoniQue for a program that waits for each answer.

    client.push(...), receive() --> Session --> frames; the calling thread reads and writes --> server

One thread at a time uses the connection; other threads wait, also while one waits in `receive`. Anything that takes
more than one line belongs in session.py or posts.py.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from wakeq.client.connection import Connection, Tls, dial, refuse_client_on_loop
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
)
from wakeq.protocol.errors import Busy, Disconnected, WakeqError
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.messages import Encoding
from wakeq.protocol.wire.monique.tags import Type


class MoniqueClient:
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
        """Connect to `address`: HOST:PORT, several separated by commas, or ws://HOST:PORT/PATH; default: WAKEQ_HTTP.

        `creator` is the name that messages carry; `token` and `tls` are those of Client (wss:// is TLS, too).
        Raises BrokerUnreachable if no server answers.
        """
        refuse_client_on_loop("MoniqueClient")
        self.creator = creator
        self._timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._connector = Connector(address or default_address(), self._timeouts, token=token, tls=tls, cookies=cookies)
        self._session = self._connector.session
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._answers: dict[int, Reply | WakeqError] = {}
        self._connection: Connection | None = None
        with self._lock:
            self._connect()

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._connector.address

    def close(self) -> None:
        """Close the connection, also for a thread that waits."""
        self._closed.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            # A connection that has ended already is as good as closed.
            with suppress(Disconnected):
                connection.send(self._session.goodbye(), timeout_s=self._timeouts.connect_s)
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # --- receiving ---

    def subscribe(self, *pairs: Pair) -> None:
        """Receive messages of these (spec, type) from now on; either may be "*"."""
        self._call(lambda session: session.subscribe(pairs))

    def unsubscribe(self, *pairs: Pair) -> None:
        """End just these subscriptions."""
        self._call(lambda session: session.unsubscribe(pairs))

    def receive(self, timeout: float | None = None) -> Post | None:
        """Return the next message, or None after `timeout` seconds. Without a timeout, wait."""
        refuse_client_on_loop("MoniqueClient")
        until_s = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._wait(lambda: bool(self._session.inbox), until_s)
            return self._session.inbox.popleft() if self._session.inbox else None

    def listen(self, timeout: float | None = None) -> Iterator[Post]:
        """Iterate over messages, until none arrives for `timeout` seconds."""
        while (post := self.receive(timeout)) is not None:
            yield post

    # --- sending ---

    def push(
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
        self.send(post)
        return post

    def send(self, post: Post) -> None:
        """Send a message that was made before. If the connection breaks: OutcomeUnknown."""
        self._call(lambda session: session.push(post))

    def ask(self, spec: str, data: Data, *, encoding: Encoding = "JSON", timeout: float | None = None) -> Post | None:
        """Send a task and return its result, or the error instead; None if neither arrives within `timeout` seconds."""
        task = posts.make(spec, data, encoding=encoding, creator=self.creator, expires_in_s=timeout)
        until_s = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            awaited = self._session.awaited
            try:
                self._call(lambda session: session.expect_answer(task))
                self.send(task)
                self._wait(lambda: awaited[task.id] is not None, until_s)
            finally:
                answer = awaited.pop(task.id, None)
        return answer

    def result(self, task: Post, data: Data, *, encoding: Encoding = "JSON") -> None:
        """Answer a task with a result."""
        self.send(posts.result_of(task, data, encoding=encoding, creator=self.creator))

    def error(self, task: Post, code: int, text: str) -> None:
        """Answer a task with an error. Code 500 stands for an error of the component, 502 for one of the task."""
        self.send(posts.error_of(task, code, text, creator=self.creator))

    def ping(self) -> float:
        """Return how many seconds an answer takes."""
        began_ns = time.perf_counter_ns()
        self._call(lambda session: session.ping(time.time_ns()))
        return (time.perf_counter_ns() - began_ns) / 1e9

    # --- one call ---

    def _call(self, send: Callable[[Session], int | None]) -> None:
        """Send a command and wait for its answer."""
        refuse_client_on_loop("MoniqueClient")
        with self._lock:
            ticket = send(self._session)
            if ticket is None:
                return
            until_s = time.monotonic() + self._timeouts.answer_s
            try:
                self._wait(lambda: ticket in self._answers, until_s, is_call=True)
            finally:
                if ticket not in self._answers:
                    self._session.abandon(ticket)
            if ticket not in self._answers:
                raise no_answer(self.address, self._timeouts)
            outcome = self._answers.pop(ticket)
        if isinstance(outcome, WakeqError):
            raise outcome

    def _wait(self, is_over: Callable[[], bool], until_s: float | None, *, is_call: bool = False) -> None:
        """Send and receive until `is_over`, or until the time has passed."""
        while True:
            try:
                self._flush()
            # An interrupt may come in the middle of a frame, and the rest of the stream would make no sense.
            except (KeyboardInterrupt, SystemExit):
                self._drop()
                raise
            if is_over():
                return
            if is_call and self._session.is_full:
                raise Busy(f"{INBOX_MAX} messages wait to be received; receive them first")
            left_s = self._timeouts.answer_s if until_s is None else until_s - time.monotonic()
            if left_s <= 0:
                return
            self._read(left_s)

    def _flush(self) -> None:
        """Send the unsent bytes, on a new connection if there is none."""
        if self._closed.is_set():
            raise client_closed()
        if self._connection is None:
            self._connect()
        assert self._connection is not None, "connected"
        data = self._session.bytes_to_send()
        if data:
            try:
                self._connection.send(data, timeout_s=self._timeouts.answer_s)
            except Disconnected as error:
                self._lost(error)
                self._flush()

    def _read(self, timeout_s: float) -> None:
        assert self._connection is not None, "connected"
        try:
            data = self._connection.receive(timeout_s=timeout_s)
            if data:
                self._keep(self._session.receive(data))
        except Disconnected as error:
            self._lost(error)

    def _keep(self, answers: list[Answer]) -> None:
        self._answers.update((answer.ticket, answer.outcome) for answer in answers)

    def _lost(self, error: Disconnected) -> None:
        """Wait until a new connection may be made. Raise if the time for attempts is used up."""
        self._drop()
        if self._closed.is_set():
            raise client_closed()
        self._closed.wait(self._connector.lost(error))

    def _drop(self) -> None:
        """Close the connection and fail the commands that must not be repeated."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._keep(self._session.disconnected())

    def _connect(self) -> None:
        """Make a connection and finish the handshake, or raise an error that lists all attempts."""
        while not self._closed.is_set():
            connection = None
            try:
                connection = dial(self.address, self._connector.context, timeout_s=self._timeouts.connect_s)
                self._shake_hands(connection)
            except (WakeqError, TimeoutError) as error:
                if connection is not None:
                    connection.close()
                self._keep(self._session.disconnected())
                self._closed.wait(self._connector.failed(error))
            else:
                self._connection = connection
                self._connector.connected()
                return
        raise client_closed()

    def _shake_hands(self, connection: Connection) -> None:
        until_s = time.monotonic() + self._timeouts.connect_s
        self._connector.begin()
        connection.send(self._session.bytes_to_send(), timeout_s=self._timeouts.connect_s)
        while not self._session.is_open:
            data = connection.receive(timeout_s=until_s - time.monotonic())
            if data:
                self._keep(self._session.receive(data))
            elif time.monotonic() >= until_s:
                raise TimeoutError
