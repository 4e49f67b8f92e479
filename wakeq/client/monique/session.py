"""Session: the conversation of a MoniQue client with the server, without a socket.

    subscribe, push, ping --> bytes_to_send          receive <-- bytes --> Answer (in order), posts in the inbox

A session outlives connections: on a new one it restates its subscriptions and repeats the commands that may be
repeated. Messages that others push meanwhile are lost; the protocol has it so. The session never waits.
"""

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import count

from msgspec import Struct

from wakeq.client.connection import Tls, tls_context, token_source
from wakeq.client.monique.posts import Post
from wakeq.client.route import Route, Timeouts, ended_before_greeting, no_greeting
from wakeq.client.session import WrongProtocol
from wakeq.protocol.errors import (
    BadField,
    BadSettings,
    BrokerUnreachable,
    Disconnected,
    OutcomeUnknown,
    Refused,
    TooLarge,
    WakeqError,
)
from wakeq.protocol.wire.monique.codec import decode_replies, encode
from wakeq.protocol.wire.monique.commands import (
    Command,
    Error,
    Ping,
    PushedFromMq,
    PushToMq,
    Reply,
    Subscribe,
    Tagged,
    Unsubscribe,
)
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.exchange import ANY, Subscription
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX
from wakeq.protocol.wire.monique.tags import read_tag

DEFAULT_PORT = 8080
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_PATH = "/monique"
# The schemes of a URL, and whether they mean TLS; WAKEQ_HTTP has the last two.
SCHEMES = {"ws": False, "wss": True, "http": False, "https": True}
# The number of received messages that wait for the program.
INBOX_MAX = 10_000
ANSWERS = ("result", "error")
IN_DOUBT = "the connection ended before the message was acknowledged; it may have been passed on"

# Spec and type; either may be "*".
Pair = tuple[str, str]


class Answer(Struct, frozen=True, gc=False):
    """The outcome of the command with this ticket."""

    ticket: int
    outcome: Reply | WakeqError


class PendingCommand(Struct, gc=False):
    """A command whose answer is outstanding; without a ticket no caller waits for the answer."""

    ticket: int | None
    command: Command
    is_sent: bool = False
    # If the command is refused, these subscriptions are removed from `registry` again.
    added: tuple[Subscription, ...] = ()
    registry: dict[Subscription, None] | None = None


class Session:
    """One conversation over any number of connections."""

    def __init__(self, path: str, *, cookies: Mapping[str, str]) -> None:
        """Begin without a connection. Raise NotInstalled if the package `websockets` is missing."""
        # Programs that only make messages import `wakeq.monique` without the package.
        from wakeq.client.monique.websocket import WebSocket

        self.inbox: deque[Post] = deque()
        # The answer to each task for which a caller waits, by the id of the task.
        self.awaited: dict[str, Post | None] = {}
        self._path = path
        self._new_socket = WebSocket
        self._headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        # The subscriptions of the program, as an ordered set.
        self._subscribed: dict[Subscription, None] = {}
        # Subscriptions for the answers to tasks. A message that matches only these does not go to the inbox.
        self._for_answers: dict[Subscription, None] = {}
        self._pending: deque[PendingCommand] = deque()
        self._tickets = count(1)
        self._socket: WebSocket | None = None
        # The address of the newest connection, for errors.
        self._host = ""

    @property
    def is_open(self) -> bool:
        """Whether the server has accepted the handshake on this connection."""
        return self._socket is not None and self._socket.is_open

    @property
    def is_full(self) -> bool:
        """Whether the program has to receive messages before any more are read."""
        return len(self.inbox) >= INBOX_MAX

    # --- connections ---

    def connected(self, host: str, token: str | None = None) -> None:
        """Begin the handshake on a new connection. After it, the pending commands are sent."""
        headers = self._headers if token is None else self._headers | {"Authorization": f"Bearer {token}"}
        self._host = host
        self._socket = self._new_socket(host, self._path, headers)

    def disconnected(self) -> list[Answer]:
        """Fail the commands that must not be repeated; keep the others for the next connection."""
        self._socket = None
        pending, self._pending = self._pending, deque()
        answers: list[Answer] = []
        for one in pending:
            if one.ticket is None:
                continue
            if one.is_sent and isinstance(one.command, PushToMq):
                answers.append(Answer(one.ticket, OutcomeUnknown(IN_DOUBT)))
            else:
                self._pending.append(one)
        return answers

    def fail_all(self, error: WakeqError) -> list[Answer]:
        """Answer all commands with an error: no server can be reached."""
        pending, self._pending = self._pending, deque()
        return [Answer(one.ticket, error) for one in pending if one.ticket is not None]

    def goodbye(self) -> bytes:
        """Return the frame that closes the connection in order."""
        return self._socket.close() if self._socket is not None and self._socket.is_open else b""

    # --- sending ---

    def subscribe(self, pairs: Iterable[Pair]) -> int:
        """Subscribe to messages of these specs and types; return the ticket of the Answer. Raise BadField."""
        return self._subscribe(_subscriptions(pairs), self._subscribed)

    def unsubscribe(self, pairs: Iterable[Pair]) -> int:
        """End just these subscriptions; return the ticket of the Answer. Raise BadField."""
        unwanted = _subscriptions(pairs)
        for subscription in unwanted:
            self._subscribed.pop(subscription, None)
        return self._ask(Unsubscribe(tuple(one for one in unwanted if one not in self._for_answers)))

    def push(self, post: Post) -> int:
        """Send a message to its subscribers. Raise TooLarge for one for which the server would close the connection."""
        if len(post.packed) > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message of {len(post.packed)} bytes, the limit is {MESSAGE_BYTES_MAX}; split it")
        return self._ask(PushToMq(Tagged[str | bytes](post.packed, post.tag.text)))

    def ping(self, now_ns: int) -> int:
        """Ask for a sign of life."""
        return self._ask(Ping(now_ns))

    def expect_answer(self, task: Post) -> int | None:
        """Keep the answer to a task in `awaited`. Return the ticket of the subscription that this needs, if it does."""
        self.awaited[task.id] = None
        # The last pair brings the news that a task was killed.
        pairs = ((task.spec, "result"), (task.spec, "error"), ("error", "error"))
        missing = [one for one in (Subscription(*pair) for pair in pairs) if one not in self._for_answers]
        return self._subscribe(tuple(missing), self._for_answers) if missing else None

    def abandon(self, ticket: int) -> None:
        """Note that no caller waits for this answer any more."""
        for pending in self._pending:
            if pending.ticket == ticket:
                pending.ticket = None

    def bytes_to_send(self) -> bytes:
        """Return the bytes to write to the socket now."""
        return b"" if self._socket is None else self._socket.bytes_to_send()

    def _subscribe(self, subscriptions: tuple[Subscription, ...], registry: dict[Subscription, None]) -> int:
        """Ask for subscriptions and add them to a registry."""
        added = tuple(one for one in subscriptions if one not in registry)
        registry.update(dict.fromkeys(added))
        return self._ask(Subscribe(subscriptions), added, registry)

    def _ask(
        self,
        command: Command,
        added: tuple[Subscription, ...] = (),
        registry: dict[Subscription, None] | None = None,
    ) -> int:
        ticket = next(self._tickets)
        self._send(PendingCommand(ticket, command, added=added, registry=registry))
        return ticket

    def _send(self, pending: PendingCommand) -> None:
        self._pending.append(pending)
        if self._socket is not None and self._socket.is_open:
            pending.is_sent = True
            for message in encode([pending.command]):
                self._socket.send(message)

    def _send_all_again(self) -> None:
        """After the handshake, send the subscriptions and then the pending commands."""
        again, self._pending = self._pending, deque()
        # A subscription that the server has not accepted yet is asked for apart: if there are too many, the server
        # would refuse all the others with it.
        not_accepted = {one for pending in again for one in pending.added}
        subscriptions = tuple(one for one in self._subscribed | self._for_answers if one not in not_accepted)
        if subscriptions:
            self._send(PendingCommand(None, Subscribe(subscriptions)))
        for pending in again:
            self._send(pending)

    # --- receiving ---

    def receive(self, data: bytes) -> list[Answer]:
        """Read the bytes that the socket brought. Raise Disconnected if the server closes, or is no MoniQue server."""
        assert self._socket is not None, "`connected` was called"
        was_open = self._socket.is_open
        messages = self._socket.receive(data)
        if self._socket.is_open and not was_open:
            self._send_all_again()
        try:
            replies = decode_replies(messages)
            return [answer for reply in replies if (answer := self._answer_in(reply)) is not None]
        except MoniqueError as error:
            raise WrongProtocol(f"{self._host} is not a MoniQue server: {error}") from error

    def _answer_in(self, reply: Reply) -> Answer | None:
        if isinstance(reply, PushedFromMq):
            self._keep(Post(read_tag(reply.data.tag), reply.data.message))
            return None
        if not self._pending:
            raise WrongProtocol(f"{self._host} sent an answer to no command")
        pending = self._pending.popleft()
        if isinstance(reply, Error) and pending.registry is not None:
            self._remove_refused(pending.added, pending.registry)
        if pending.ticket is None:
            return None
        return Answer(pending.ticket, Refused(reply.error) if isinstance(reply, Error) else reply)

    def _remove_refused(self, refused: tuple[Subscription, ...], registry: dict[Subscription, None]) -> None:
        """Remove refused subscriptions, except where a later command asks again: then that answer decides."""
        for subscription in refused:
            for later in self._pending:
                if (
                    later.registry is registry
                    and isinstance(later.command, Subscribe)
                    and subscription in later.command.data
                ):
                    later.added += (subscription,)
                    break
            else:
                registry.pop(subscription, None)

    def _keep(self, post: Post) -> None:
        if post.pid in self.awaited and post.type in ANSWERS:
            self.awaited[post.pid] = post
        if any(Subscription(spec, type) in self._subscribed for spec in (post.spec, ANY) for type in (post.type, ANY)):
            self.inbox.append(post)


def _subscriptions(pairs: Iterable[Pair]) -> tuple[Subscription, ...]:
    """Return the pairs as subscriptions, or raise BadField."""
    subscriptions = tuple(Subscription(*pair) for pair in pairs)
    try:
        encode([Subscribe(subscriptions)])
    except UnicodeEncodeError as error:
        raise BadField(f"a subscription cannot be written as UTF-8 ({error}); correct it") from None
    return subscriptions


def default_address() -> str:
    """Return the address for a client that was given none: WAKEQ_HTTP, or the usual port of this machine."""
    return os.environ.get("WAKEQ_HTTP") or DEFAULT_ADDRESS


def split_url(address: str) -> tuple[str, str, bool]:
    """Return addresses, path and whether TLS is wanted, for `HOST:PORT`, several of these with commas, or a URL."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "ws", address + DEFAULT_PATH
    if scheme not in SCHEMES:
        raise BadSettings(f"{address} is not the address of a MoniQue server; write HOST:PORT, or ws://HOST:PORT/PATH")
    if scheme.startswith("http"):
        # The URL of a broker's HTTP port says nothing of MoniQue; of several, each has the scheme.
        rest = ",".join(one.strip().rstrip("/") for one in rest.replace(f"{scheme}://", "").split(",")) + DEFAULT_PATH
    hosts, slash, path = rest.partition("/")
    return ",".join(_with_port(host.strip()) for host in hosts.split(",")), slash + path or "/", SCHEMES[scheme]


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"


class Connector:
    """One session with one server, at any of its addresses."""

    def __init__(
        self, address: str, timeouts: Timeouts, *, token: str | None, tls: Tls, cookies: Mapping[str, str] | None
    ) -> None:
        addresses, path, is_secure = split_url(address)
        self._token = token_source(token)
        self.context = tls_context(True if tls is None and is_secure else tls)
        self.timeouts = timeouts
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self.session = Session(path, cookies=cookies or {})

    @property
    def address(self) -> str:
        """The address of the server, or the one to try next."""
        return self._route.address

    def begin(self) -> None:
        """Begin on a new connection; `session.bytes_to_send` then has the handshake."""
        self.session.connected(self.address, self._token())

    def connected(self) -> None:
        """Note that the server has accepted the handshake."""
        self._route.connected(time.monotonic())

    def failed(self, error: WakeqError | TimeoutError) -> float:
        """Note a failed attempt. Return the seconds until the next one, or raise an error that lists all of them."""
        if isinstance(error, TimeoutError):
            error = no_greeting(self.address, "MoniQue server")
        if not isinstance(error, BrokerUnreachable | Disconnected):
            raise error
        return self._route.failed(ended_before_greeting(error, "MoniQue"), time.monotonic())

    def lost(self, error: Disconnected) -> float:
        """Note that the connection ended. Return and raise as `failed` does."""
        return self._route.lost(error, time.monotonic())
