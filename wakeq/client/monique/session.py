"""Session: what a client of MoniQue knows of its conversation with the server, without a socket.

    ask(command) --> bytes_to_send          receive <-- bytes --> Answer (in the order of asking), posts in the inbox

It outlives connections: on a new one it states its subscriptions again and repeats what does no harm twice.  What was
pushed by others meanwhile is lost, as the protocol has it.  It never waits.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import count

from msgspec import Struct

from wakeq.client.core.session import NotTheProtocol
from wakeq.client.monique.posts import Post
from wakeq.protocol.errors import BadField, BadSettings, OutcomeUnknown, Refused, TooLarge, WakeqError
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
from wakeq.protocol.wire.monique.frames import decode_replies, encode
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX
from wakeq.protocol.wire.monique.tags import read_tag

DEFAULT_PORT = 8080
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_PATH = "/monique"
INBOX_MAX = 10_000  # messages that wait for the program
ANSWERS = ("result", "error")
IN_DOUBT = "the connection ended before the message was acknowledged; it may have been passed on"

Pair = tuple[str, str]  # spec and type, either may be "*"


class Answer(Struct, frozen=True, gc=False):
    """What became of the command with this ticket."""

    ticket: int
    outcome: Reply | WakeqError


class Asked(Struct, gc=False):
    """A command under way; without a ticket nobody waits for its answer."""

    ticket: int | None
    command: Command
    is_said: bool = False
    added: tuple[Subscription, ...] = ()  # if it is refused they are wanted no longer, where they were noted
    noted: dict[Subscription, None] | None = None


class Session:
    """One conversation, over as many connections as it takes."""

    def __init__(self, path: str, *, cookies: Mapping[str, str]) -> None:
        """Begin without a connection.  Raises NotInstalled if the package for WebSocket is missing."""
        from wakeq.client.monique.websocket import WebSocket  # only clients need it

        self.inbox: deque[Post] = deque()
        self.awaited: dict[str, Post | None] = {}  # the answer to each task that somebody waits for, by its id
        self._path = path
        self._new_socket = WebSocket
        self._headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        self._wanted: dict[Subscription, None] = {}  # by the program
        self._for_answers: dict[Subscription, None] = {}  # what comes by these alone is not for the inbox
        self._asked: deque[Asked] = deque()
        self._tickets = count(1)
        self._socket: WebSocket | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server has agreed to this connection."""
        return self._socket is not None and self._socket.is_open

    @property
    def is_full(self) -> bool:
        """Whether the program should first take what has come."""
        return len(self.inbox) >= INBOX_MAX

    # --- connections ---

    def connected(self, host: str, token: str | None = None) -> None:
        """There is a new connection: begin the handshake.  Once it is over, what is under way is said."""
        headers = self._headers if token is None else self._headers | {"Authorization": f"Bearer {token}"}
        self._socket = self._new_socket(host, self._path, headers)

    def disconnected(self) -> list[Answer]:
        """The connection is gone: answer what must not be said twice, keep the rest for the next one."""
        self._socket = None
        asked, self._asked = self._asked, deque()
        answers: list[Answer] = []
        for one in asked:
            if one.ticket is None:
                continue
            if one.is_said and isinstance(one.command, PushToMq):
                answers.append(Answer(one.ticket, OutcomeUnknown(IN_DOUBT)))
            else:
                self._asked.append(one)
        return answers

    def give_up(self, error: WakeqError) -> list[Answer]:
        """No server can be had: that is the answer to everything."""
        asked, self._asked = self._asked, deque()
        return [Answer(one.ticket, error) for one in asked if one.ticket is not None]

    def goodbye(self) -> bytes:
        """Return what ends the connection in order."""
        return self._socket.close() if self._socket is not None and self._socket.is_open else b""

    # --- what we say ---

    def subscribe(self, pairs: Iterable[Pair]) -> int:
        """Want messages of these specs and types; the ticket of its Answer.  Raises BadField."""
        return self._want(_subscriptions(pairs), self._wanted)

    def unsubscribe(self, pairs: Iterable[Pair]) -> int:
        """Want just these no longer.  Raises BadField."""
        unwanted = _subscriptions(pairs)
        for subscription in unwanted:
            self._wanted.pop(subscription, None)
        return self._ask(Unsubscribe(tuple(one for one in unwanted if one not in self._for_answers)))

    def push(self, post: Post) -> int:
        """Have a message passed on.  Raises TooLarge for one that would end the connection."""
        if len(post.packed) > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message of {len(post.packed)} bytes, the limit is {MESSAGE_BYTES_MAX}; split it")
        return self._ask(PushToMq(Tagged[str | bytes](post.packed, post.tag.text)))

    def ping(self, now_ns: int) -> int:
        """Have the server answer."""
        return self._ask(Ping(now_ns))

    def await_answer(self, task: Post) -> int | None:
        """Keep the answer to a task for `awaited`; the ticket of what has to be done before, if anything has."""
        self.awaited[task.id] = None
        pairs = ((task.spec, "result"), (task.spec, "error"), ("error", "error"))  # the last one: that it was killed
        missing = [one for one in (Subscription(*pair) for pair in pairs) if one not in self._for_answers]
        return self._want(tuple(missing), self._for_answers) if missing else None

    def abandon(self, ticket: int) -> None:
        """Nobody waits for this answer any more."""
        for asked in self._asked:
            if asked.ticket == ticket:
                asked.ticket = None

    def bytes_to_send(self) -> bytes:
        """Return what the socket is to carry now."""
        return b"" if self._socket is None else self._socket.bytes_to_send()

    def _want(self, wanted: tuple[Subscription, ...], noted: dict[Subscription, None]) -> int:
        """Ask for subscriptions, and note them."""
        added = tuple(one for one in wanted if one not in noted)
        noted.update(dict.fromkeys(added))
        return self._ask(Subscribe(wanted), added, noted)

    def _ask(
        self,
        command: Command,
        added: tuple[Subscription, ...] = (),
        noted: dict[Subscription, None] | None = None,
    ) -> int:
        ticket = next(self._tickets)
        self._say(Asked(ticket, command, added=added, noted=noted))
        return ticket

    def _say(self, asked: Asked) -> None:
        self._asked.append(asked)
        if self._socket is not None and self._socket.is_open:
            asked.is_said = True
            for message in encode([asked.command]):
                self._socket.send(message)

    def _say_again(self) -> None:
        """The handshake is over: subscriptions first, then what is under way."""
        again, self._asked = self._asked, deque()
        pending = {one for asked in again for one in asked.added}  # too much of it would be refused with all others
        subscriptions = tuple(one for one in self._wanted | self._for_answers if one not in pending)
        if subscriptions:
            self._say(Asked(None, Subscribe(subscriptions)))
        for asked in again:
            self._say(asked)

    # --- what we hear ---

    def receive(self, data: bytes) -> list[Answer]:
        """Take what the socket gave.  Raises Disconnected if the server closes, or is none of MoniQue's."""
        assert self._socket is not None, "connected before"
        was_open = self._socket.is_open
        messages = self._socket.receive(data)
        if self._socket.is_open and not was_open:
            self._say_again()
        try:
            replies = decode_replies(messages)
            return [answer for reply in replies if (answer := self._sort(reply)) is not None]
        except MoniqueError as error:
            raise NotTheProtocol(str(error)) from error

    def _sort(self, reply: Reply) -> Answer | None:
        if isinstance(reply, PushedFromMq):
            self._arrived(Post(read_tag(reply.data.tag), reply.data.message))
            return None
        if not self._asked:
            raise NotTheProtocol("it answers what was not asked")
        asked = self._asked.popleft()
        if isinstance(reply, Error) and asked.noted is not None:
            self._no_longer(asked.added, asked.noted)
        if asked.ticket is None:
            return None
        return Answer(asked.ticket, Refused(reply.error) if isinstance(reply, Error) else reply)

    def _no_longer(self, refused: tuple[Subscription, ...], noted: dict[Subscription, None]) -> None:
        """Note them no longer; one that is asked for again meanwhile depends on what is answered to that."""
        for subscription in refused:
            for later in self._asked:
                if later.noted is noted and isinstance(later.command, Subscribe) and subscription in later.command.data:
                    later.added += (subscription,)
                    break
            else:
                noted.pop(subscription, None)

    def _arrived(self, post: Post) -> None:
        if post.pid in self.awaited and post.type in ANSWERS:
            self.awaited[post.pid] = post
        if any(Subscription(spec, type) in self._wanted for spec in (post.spec, ANY) for type in (post.type, ANY)):
            self.inbox.append(post)


def _subscriptions(pairs: Iterable[Pair]) -> tuple[Subscription, ...]:
    """Return what is subscribed to, or raise BadField."""
    subscriptions = tuple(Subscription(*pair) for pair in pairs)
    try:
        encode([Subscribe(subscriptions)])
    except UnicodeEncodeError as error:
        raise BadField(f"a subscription cannot be written as UTF-8 ({error}); correct it") from None
    return subscriptions


def split_url(address: str) -> tuple[str, str, bool]:
    """Return addresses, path and whether TLS is asked for: `HOST:PORT`, several of them with commas, or a URL."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "ws", address + DEFAULT_PATH
    if scheme not in ("ws", "wss"):
        raise BadSettings(f"{address} is not the address of a MoniQue server; write HOST:PORT, or ws://HOST:PORT/PATH")
    hosts, slash, path = rest.partition("/")
    return ",".join(_with_port(host.strip()) for host in hosts.split(",")), slash + path or "/", scheme == "wss"


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"
