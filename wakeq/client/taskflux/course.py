"""Course: in which order a TaskFlux client speaks with whom, as a generator of steps that somebody else takes.

    a call --> Course --> Dial, Say, Hear, Pause, Hang --> a thread or a task --> what came of it --> ... --> result

A connection serves one call at a time, and a record is held on the connection that brought it; so there is a pool of
them.  Where to connect is the Route's, what is said the Request's.  Pure: it is told what time it is, and never waits.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from wakeq.client.core.route import Route, elsewhere
from wakeq.client.core.session import MUTE_AFTER_S, Silent
from wakeq.client.core.timeouts import Timeouts, hung, silent, ungreeted, was_closed
from wakeq.client.credentials import TokenSource, no_token
from wakeq.client.taskflux.requests import Greeting, Request, Single, Unexpected, cluster_in
from wakeq.protocol.errors import Disconnected, OutcomeUnknown, WakeqError
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.encoder import encode
from wakeq.protocol.wire.taskflux.packets import Bad, ClusterMetadataRequest
from wakeq.protocol.wire.taskflux.reader import ResponseReader

PORT = 2602
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"
IDLE_MAX = 16  # connections that are kept although nobody uses them

T = TypeVar("T")


class Wire(Protocol):
    """A connection, as far as it can be looked at without waiting."""

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended; None if it is not."""


class Link:
    """One connection and what was read of it."""

    __slots__ = ("address", "reader", "wire")

    def __init__(self, address: str, wire: Wire, dialect: Dialect) -> None:
        self.address = address
        self.wire = wire
        self.reader = ResponseReader(dialect)


class Dial(Struct, frozen=True):
    """Connect; the answer is a Wire."""

    address: str
    timeout_s: float


class Say(Struct, frozen=True):
    """Write all of it."""

    link: Any
    data: bytes


class Hear(Struct, frozen=True):
    """Read what comes; nothing if it does not come in time."""

    link: Any
    timeout_s: float


class Hang(Struct, frozen=True):
    """Close."""

    link: Any


class Pause(Struct, frozen=True):
    """Wait."""

    seconds: float


Step: TypeAlias = Dial | Say | Hear | Hang | Pause
Steps: TypeAlias = Generator[Step, Any, T]


def with_port(addresses: str) -> str:
    """Add the usual port to addresses that have none."""
    parts = [part.strip() for part in addresses.split(",")]
    return ",".join(part if ":" in part.rpartition("]")[2] else f"{part}:{PORT}" for part in parts)


class Course:
    """See the head of this file.  Steps of several calls may be taken in turn; none is taken by two at once."""

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
        self._mute_after_s = MUTE_AFTER_S if self._route.has_others else inf
        self._patience_s = self._mute_after_s  # how long a silence is borne now
        self._was_of_use = False
        self._idle: list[Link] = []
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._route.address

    def close(self) -> list[Link]:
        """Let nobody in any more; return what is to be closed."""
        self._is_closed = True
        return self.forget()

    def forget(self) -> list[Link]:
        """Return all connections that nobody uses, and keep none."""
        idle, self._idle = self._idle, []
        return idle

    def _leave(self, address: str) -> Steps[None]:
        """Close the connections to an address that nobody uses."""
        leaving = [link for link in self._idle if link.address == address]
        self._idle = [link for link in self._idle if link.address != address]
        for link in leaving:
            yield Hang(link)

    def call(self, make: Callable[[], Request[T]]) -> Steps[T]:
        """Ask, where the leader is, and return the result."""
        link, result = yield from self.ask(make)
        yield from self.put_back(link)
        return result

    def ask(self, make: Callable[[], Request[T]]) -> Steps[tuple[Link, T]]:
        """The same, and keep the connection: the answer may be a record that it holds."""
        while True:
            link = yield from self._link()
            request = make()
            try:
                yield from self._exchange(link, request)
            except Disconnected as error:
                yield Hang(link)
                yield from self._lost(link, request, error)
                continue
            except BaseException:  # an interrupt: what comes next on this connection belongs to nobody
                yield Hang(link)
                raise
            if request.moved is not None:
                yield from self._move(link, request.moved.leader)
                continue
            self._answered()
            try:
                return link, request.result()
            except WakeqError as error:
                yield from self.put_back(link) if not isinstance(error, Disconnected) else self.hang_up(link)
                raise

    def settle(self, link: Link, request: Request[T]) -> Steps[T]:
        """Say what becomes of a record, on the connection that holds it, and give that back."""
        try:
            yield from self._exchange(link, request)
        except Disconnected as error:
            yield Hang(link)
            yield from self._depart(link, error)
            raise
        except BaseException:
            yield Hang(link)
            raise
        self._answered()
        yield from self.put_back(link)
        if request.moved is not None:
            raise elsewhere(link.address, None)
        return request.result()

    def put_back(self, link: Link) -> Steps[None]:
        """Keep a connection for the next call."""
        if self._is_closed or len(self._idle) >= IDLE_MAX:
            yield Hang(link)
        else:
            self._idle.append(link)

    def hang_up(self, link: Link) -> Steps[None]:
        yield Hang(link)

    # --- connections -----------------------------------------------------------------------------------------------

    def connect(self) -> Steps[None]:
        """Have a connection, or raise what is in the way."""
        link = yield from self._link()
        yield from self.put_back(link)

    def _link(self) -> Steps[Link]:
        """Return a connection that works as far as one can see."""
        while True:
            if self._is_closed:
                raise was_closed()
            if not self._idle:
                return (yield from self._dial())
            link = self._idle.pop()
            fault = link.wire.fault()
            if fault is None and link.address == self._route.address:
                return link
            yield Hang(link)
            if fault is not None:
                yield from self._depart(link, fault)

    def _dial(self) -> Steps[Link]:
        while True:
            address = self._route.address
            try:
                token = self._token()
                link = Link(address, (yield from self._wire_to(address)), self.dialect)
                try:
                    yield from self._exchange(link, Greeting(self.dialect, token))
                except BaseException:
                    yield Hang(link)
                    raise
            except WakeqError as error:
                yield Pause(self._route.failed(ungreeted(error, "TaskFlux"), self._clock()))
                continue
            self._route.found(self._clock())
            return link

    def _wire_to(self, address: str) -> Steps[Wire]:
        timeout_s = self._timeouts.connect_s
        if self._was_of_use:  # the first time nobody is known to be any faster
            timeout_s = min(timeout_s, self._patience_s)
        try:
            wire: Wire = yield Dial(address, timeout_s)
        except WakeqError as error:
            if isinstance(error.__cause__, TimeoutError):
                self._patience_s *= 2  # as with a silence: all nodes may be that slow, or far away
            raise
        return wire

    def _exchange(self, link: Link, request: Request[Any]) -> Steps[None]:
        """Say all of a request and hear all of its answers."""
        is_over = False
        while not is_over:
            while packets := request.next_packets():
                yield Say(link, encode(packets, self.dialect))
            data = yield Hear(link, min(self._timeouts.answer_s, self._patience_s) + request.wait_s)
            if not data:
                raise self._silence_of(link)
            for answer in link.reader.receive(data):
                if isinstance(answer, Bad):
                    raise Unexpected(f"{link.address} speaks another language: {answer.error}; is the dialect right?")
                if is_over:
                    raise Unexpected(f"{link.address} said {type(answer).__name__} without being asked")
                is_over = request.take(answer)
        if isinstance(request, Greeting):
            request.result()

    def _answered(self) -> None:
        """A server was of use."""
        self._route.renew()
        self._was_of_use = True
        self._patience_s = self._mute_after_s

    def _silence_of(self, link: Link) -> Silent:
        """The error for a server that says nothing: where there are others to ask they are asked soon."""
        if self._patience_s >= self._timeouts.answer_s:
            return hung(link.address, self._timeouts)
        self._patience_s *= 2  # it may only be slow: bear with the next one for longer, until somebody answers
        return silent(link.address)

    def _lost(self, link: Link, request: Request[Any], error: Disconnected) -> Steps[None]:
        """Decide whether a request may be said again, and when."""
        if isinstance(error, Unexpected):
            yield from self._leave(link.address)
            raise error
        if not request.may_repeat:
            yield from self._depart(link, error)
            raise OutcomeUnknown(f"{error}; it may have been done or not, so it is not repeated") from error
        yield from self._leave(link.address)
        if link.address == self._route.address:  # else another call has found out, and the route leads elsewhere
            yield Pause(self._route.lost(error, self._clock()))

    def _depart(self, link: Link, error: Disconnected) -> Steps[None]:
        """Let the next call go elsewhere; this one is over."""
        yield from self._leave(link.address)
        if isinstance(error, Silent) and link.address == self._route.address:
            with suppress(WakeqError):  # how long to wait for whom is for the next call to find out
                self._route.lost(error, self._clock())
            self._route.renew()

    def _move(self, link: Link, leader: int) -> Steps[None]:
        """Go to the leader, whose place in the list of addresses the server has named."""
        address: str | None = None
        if leader >= 0:
            metadata = Single(ClusterMetadataRequest(), cluster_in, "", self.dialect)
            try:
                yield from self._exchange(link, metadata)
                address = dict(enumerate(metadata.result().addresses)).get(leader)
            except Disconnected:
                address = None  # the route knows other nodes
        yield Hang(link)
        yield from self._leave(link.address)
        if link.address != self._route.address:
            return  # another call was sent away from there before
        away = elsewhere(link.address, None if address is None else with_port(address))
        yield Pause(self._route.lost(away, self._clock()))
