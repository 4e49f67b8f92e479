"""MoniqueClient: MoniQue for a program that waits for each answer.

    client.push(...), receive() --> Session --> frames, carried by the thread that called --> server

One connection, used by one thread at a time: the others wait, also for the whole of a `receive`.  Anything that is more
than one line belongs into session.py or posts.py.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts, hung, was_closed
from wakeq.client.credentials import Tls
from wakeq.client.monique import posts
from wakeq.client.monique.line import Line
from wakeq.client.monique.posts import CREATOR, Data, Post
from wakeq.client.monique.session import DEFAULT_ADDRESS, INBOX_MAX, Answer, Pair, Session
from wakeq.client.on_loop import refuse_client_on_loop
from wakeq.client.transport import Wire, dial
from wakeq.protocol.errors import Busy, Disconnected, WakeqError
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.messages import Encoding
from wakeq.protocol.wire.monique.tags import Type


class MoniqueClient:
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
        """Connect to `address`: HOST:PORT, several with commas between, or ws://HOST:PORT/PATH.

        `creator` is the name under which messages are made; `token` and `tls` are those of Client (wss:// is TLS too).
        Raises BrokerUnreachable if there is nobody.
        """
        refuse_client_on_loop("MoniqueClient")
        self.creator = creator
        self._timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._line = Line(address, self._timeouts, token=token, tls=tls, cookies=cookies)
        self._session = self._line.session
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._answers: dict[int, Reply | WakeqError] = {}
        self._transport: Wire | None = None
        with self._lock:
            self._connect()

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._line.address

    def close(self) -> None:
        """End the connection, also for a thread that waits."""
        self._closed.set()
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(Disconnected):  # it is over already, and that is what was wanted
                transport.send(self._session.goodbye(), timeout_s=self._timeouts.connect_s)
            transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what others say ---

    def subscribe(self, *pairs: Pair) -> None:
        """Hear messages of these (spec, type); either may be "*".  In effect when this returns."""
        self._call(lambda session: session.subscribe(pairs))

    def unsubscribe(self, *pairs: Pair) -> None:
        """Take just these back."""
        self._call(lambda session: session.unsubscribe(pairs))

    def receive(self, timeout: float | None = None) -> Post | None:
        """The next message; None if none came in so many seconds.  Without a number it waits."""
        refuse_client_on_loop("MoniqueClient")
        until_s = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._wait(lambda: bool(self._session.inbox), until_s)
            return self._session.inbox.popleft() if self._session.inbox else None

    def listen(self, timeout: float | None = None) -> Iterator[Post]:
        """Messages as they come, until none came for so many seconds."""
        while (post := self.receive(timeout)) is not None:
            yield post

    # --- what we say ---

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
        """Send a new message; `expires` is after how many seconds nobody wants an answer.  Returns what was sent."""
        post = posts.make(spec, data, type=type, encoding=encoding, pid=pid, creator=self.creator, expires_in_s=expires)
        self.send(post)
        return post

    def send(self, post: Post) -> None:
        """Send a message that was made before.  If the connection breaks: OutcomeUnknown."""
        self._call(lambda session: session.push(post))

    def ask(self, spec: str, data: Data, *, encoding: Encoding = "JSON", timeout: float | None = None) -> Post | None:
        """Send a task and wait for its result, or the error instead; None if neither came in so many seconds."""
        task = posts.make(spec, data, encoding=encoding, creator=self.creator, expires_in_s=timeout)
        until_s = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            awaited = self._session.awaited
            try:
                self._call(lambda session: session.await_answer(task))
                self.send(task)
                self._wait(lambda: awaited[task.id] is not None, until_s)
            finally:
                answer = awaited.pop(task.id, None)
        return answer

    def result(self, task: Post, data: Data, *, encoding: Encoding = "JSON") -> None:
        """Answer a task."""
        self.send(posts.result_of(task, data, encoding=encoding, creator=self.creator))

    def error(self, task: Post, code: int, text: str) -> None:
        """Answer a task with an error; 500 is the component's own, 502 the task's."""
        self.send(posts.error_of(task, code, text, creator=self.creator))

    def ping(self) -> float:
        """The seconds that an answer takes."""
        began_ns = time.perf_counter_ns()
        self._call(lambda session: session.ping(time.time_ns()))
        return (time.perf_counter_ns() - began_ns) / 1e9

    # --- steps ---

    def _call(self, say: Callable[[Session], int | None]) -> None:
        """Say something, and wait until it is answered."""
        refuse_client_on_loop("MoniqueClient")
        with self._lock:
            ticket = say(self._session)
            if ticket is None:
                return
            until_s = time.monotonic() + self._timeouts.answer_s
            try:
                self._wait(lambda: ticket in self._answers, until_s, is_call=True)
            finally:
                if ticket not in self._answers:
                    self._session.abandon(ticket)
            if ticket not in self._answers:
                raise hung(self.address, self._timeouts)
            outcome = self._answers.pop(ticket)
        if isinstance(outcome, WakeqError):
            raise outcome

    def _wait(self, is_over: Callable[[], bool], until_s: float | None, *, is_call: bool = False) -> None:
        """Carry bytes until it is over, or the time is."""
        while True:
            try:
                self._flush()
            except (KeyboardInterrupt, SystemExit):  # perhaps in the middle of a frame: what came next would be torn
                self._drop()
                raise
            if is_over():
                return
            if is_call and self._session.is_full:
                raise Busy(f"{INBOX_MAX} messages wait to be received; take them first")
            left_s = self._timeouts.answer_s if until_s is None else until_s - time.monotonic()
            if left_s <= 0:
                return
            self._read(left_s)

    def _flush(self) -> None:
        """Send what is to be sent, on a new connection if there is none."""
        if self._closed.is_set():
            raise was_closed()
        if self._transport is None:
            self._connect()
        assert self._transport is not None, "connected"
        data = self._session.bytes_to_send()
        if data:
            try:
                self._transport.send(data, timeout_s=self._timeouts.answer_s)
            except Disconnected as error:
                self._lost(error)
                self._flush()

    def _read(self, timeout_s: float) -> None:
        assert self._transport is not None, "connected"
        try:
            data = self._transport.receive(timeout_s=timeout_s)
            if data:
                self._note(self._session.receive(data))
        except Disconnected as error:
            self._lost(error)

    def _note(self, answers: list[Answer]) -> None:
        self._answers.update((answer.ticket, answer.outcome) for answer in answers)

    def _lost(self, error: Disconnected) -> None:
        """The connection ended; the next step makes another one, or this raises."""
        self._drop()
        if self._closed.is_set():
            raise was_closed()
        self._closed.wait(self._line.lost(error))

    def _drop(self) -> None:
        """Let go of the connection, and of what cannot be said again."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._note(self._session.disconnected())

    def _connect(self) -> None:
        """Have a connection whose server has agreed, or raise what became of all attempts."""
        while not self._closed.is_set():
            transport = None
            try:
                transport = dial(self.address, self._line.context, timeout_s=self._timeouts.connect_s)
                self._shake_hands(transport)
            except (WakeqError, TimeoutError) as error:
                if transport is not None:
                    transport.close()
                self._note(self._session.disconnected())
                self._closed.wait(self._line.failed(error))
            else:
                self._transport = transport
                self._line.found()
                return
        raise was_closed()

    def _shake_hands(self, transport: Wire) -> None:
        until_s = time.monotonic() + self._timeouts.connect_s
        self._line.begin()
        transport.send(self._session.bytes_to_send(), timeout_s=self._timeouts.connect_s)
        while not self._session.is_open:
            data = transport.receive(timeout_s=until_s - time.monotonic())
            if data:
                self._note(self._session.receive(data))
            elif time.monotonic() >= until_s:
                raise TimeoutError
