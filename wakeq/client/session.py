"""Session: what a client knows of its conversation with the broker, without a socket.

    commands  -->  ask --> bytes_to_send          receive <-- bytes  -->  Answer, Awoken

Answers find their question by `cmd_id`, so any number of commands may be under way.  It outlives connections:
after a lost one it says HELLO again with the same session, restates its subscriptions, and repeats what may
be repeated; a publish carries its number in the session, so that the broker stores it once.  It never
waits, never reads a clock, and never drops a question: each gets one Answer, or is forgotten by its asker.
"""

from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import msgspec

from wakeq.protocol.errors import BY_CODE, Busy, Disconnected, NotLeader, Refused, TooLarge, WakeqError
from wakeq.protocol.wire.worker import (
    Ack,
    Awk,
    Command,
    Fet,
    Hello,
    HelloReply,
    List,
    Nack,
    Nok,
    Peek,
    Ping,
    Pub,
    Reply,
    Stats,
    Sub,
    Touch,
    Uns,
    Update,
    decode_replies,
    encode_commands,
)

UNDER_WAY_MAX = 1024  # the ledger knows the last 1,024 uids of a session: so many publishes can be repeated safely
REPLY_BYTES_MAX = 1024 * 1024 * 1024  # a line that is longer is no reply of a broker
REPEATABLE = (Pub, Fet, Ack, Touch, Sub, Uns, Ping, Hello, List, Stats, Peek, Update)

Ticket: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the question with this ticket: a reply, or an error."""

    ticket: Ticket
    outcome: Reply | WakeqError


@dataclass(frozen=True, slots=True)
class Awoken:
    """The broker says, unasked, that there may be something in this queue."""

    queue: str


Event: TypeAlias = Answer | Awoken


class NotTheProtocol(Disconnected):
    """The peer says what no broker says; the stream is of no use any more."""

    closes = True


class Session:
    """One conversation, over as many connections as it takes."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.greeting: HelloReply | None = None  # what the broker said of itself on this connection
        self._tickets = count(1)
        self._numbers = count(1)
        self._unanswered: dict[Ticket, Command] = {}  # in the order of asking
        self._unsent: list[Command] = []
        self._subscribed: dict[str, None] = {}
        self._buffer = bytearray()
        self._online = False

    def ask(self, command: Command) -> Ticket:
        """Take a command; its Answer will carry the ticket.  Sent now, or once there is a connection."""
        if len(self._unanswered) >= UNDER_WAY_MAX:
            raise Busy(f"{UNDER_WAY_MAX} commands are under way; wait for answers first")
        if isinstance(command, Pub) and command.n is None and command.id is None:
            command = msgspec.structs.replace(command, n=next(self._numbers))
        ticket = next(self._tickets)
        numbered: Command = msgspec.structs.replace(command, cmd_id=ticket)
        self._unanswered[ticket] = numbered
        if self._online:
            self._unsent.append(numbered)
        return ticket

    def subscribe(self, queue: str) -> None:
        """Be a subscriber of the queue, on this connection and on each that follows."""
        if queue not in self._subscribed:
            self._subscribed[queue] = None
            if self._online:
                self._unsent.append(Sub(qname=queue))

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._unanswered.pop(ticket, None)

    def amend(self, ticket: Ticket, command: Command) -> None:
        """If the command has to be repeated, repeat it so; a wait that is partly over is shorter the next time."""
        if ticket in self._unanswered:
            self._unanswered[ticket] = msgspec.structs.replace(command, cmd_id=ticket)

    def connected(self) -> None:
        """There is a new connection: greet, restate, repeat."""
        self._online = True
        self._buffer.clear()
        self.greeting = None
        restated = [Sub(qname=queue) for queue in self._subscribed]
        self._unsent = [Hello(session=self.session_id), *restated, *self._unanswered.values()]

    def disconnected(self) -> list[Answer]:
        """The connection is gone: answer what must not be repeated, keep the rest for the next one."""
        self._online = False
        self._unsent.clear()
        lost = [ticket for ticket, command in self._unanswered.items() if not repeatable(command)]
        return [self._answer(ticket, _in_doubt(self._unanswered[ticket])) for ticket in lost]

    def bytes_to_send(self) -> bytes:
        """What the socket is to carry now; empty if nothing."""
        commands, self._unsent = self._unsent, []
        return encode_commands(commands) if commands else b""

    def receive(self, data: bytes) -> list[Event]:
        """Take what the socket gave.  Raise NotTheProtocol if no broker would say it."""
        seen = len(self._buffer)
        self._buffer += data
        end = self._buffer.rfind(b"\n", seen) + 1
        if not end:
            if len(self._buffer) > REPLY_BYTES_MAX:
                raise NotTheProtocol(f"a reply of more than {REPLY_BYTES_MAX} bytes; is this the worker port?")
            return []
        lines = bytes(self._buffer[:end])
        del self._buffer[:end]
        try:
            replies = decode_replies(lines)
        except (WakeqError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotTheProtocol(f"the peer does not speak the worker protocol ({error})") from error
        return [event for reply in replies if (event := self._sort(reply)) is not None]

    def _sort(self, reply: Reply) -> Event | None:
        """Say whose reply it is; None if nobody waits for it."""
        if isinstance(reply, Awk):
            return Awoken(reply.qname)
        if isinstance(reply, HelloReply):
            self.greeting = reply
            return None
        ticket = reply.cmd_id
        if isinstance(reply, Nok) and ticket is msgspec.UNSET:
            return self._unaddressed(reply)
        if not isinstance(ticket, int) or ticket not in self._unanswered:
            return None
        return self._answer(ticket, error_of(reply) if isinstance(reply, Nok) else reply)

    def _unaddressed(self, reply: Nok) -> Event | None:
        """A refusal that names no command: one too large to be read, a restated SUB, or the connection itself."""
        if reply.err == TooLarge.code and self._unanswered:
            largest = max(self._unanswered, key=lambda ticket: len(encode_commands([self._unanswered[ticket]])))
            return self._answer(largest, error_of(reply))
        if self.greeting is not None:
            return None
        raise error_of(reply)

    def _answer(self, ticket: Ticket, outcome: Reply | WakeqError) -> Answer:
        del self._unanswered[ticket]
        return Answer(ticket, outcome)


def error_of(reply: Nok) -> Refused:
    """The typed error of a refusal; a code of a newer broker is a plain Refused that names it."""
    kind = BY_CODE.get(reply.err)
    if kind is None:
        return Refused(f"{reply.err}: {reply.detail or 'refused by the broker'}")
    error = kind(reply.detail or f"refused by the broker: {reply.err}")
    if isinstance(error, NotLeader):
        error.leader = reply.leader  # type: ignore[attr-defined]
    return error


def repeatable(command: Command) -> bool:
    """Whether doing it twice is the same as doing it once."""
    if isinstance(command, Nack):  # with its lease the second one is stale, or changes nothing
        return command.lease is not None or command.leases is not None
    return isinstance(command, REPEATABLE)


def _in_doubt(command: Command) -> Disconnected:
    verb = type(command).__name__.upper()
    return Disconnected(f"the connection ended before {verb} was answered; see whether it was done, then repeat it")
