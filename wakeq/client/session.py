"""Session: the conversation of a client with the broker, without a socket.

    commands  -->  ask --> bytes_to_send          receive <-- bytes  -->  Answer, Woken, Greeted, Redirected

An answer finds its command by `cmd_id`, so any number of commands may be outstanding. A session outlives connections:
on a new one it says HELLO with the same session id, restates its subscriptions, and repeats the commands that may be
repeated. A publish carries its number in the session, so that the broker stores it once. The session never waits, the
caller passes the time in, and no command is dropped: each gets one Answer or is abandoned by its caller.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import chain, count
from math import inf
from typing import Any, TypeAlias

import msgspec

from wakeq.protocol.errors import (
    BY_CODE,
    BadField,
    BrokerUnreachable,
    Busy,
    Disconnected,
    NoQuorum,
    NotLeader,
    OutcomeUnknown,
    Refused,
    TooLarge,
    WakeqError,
)
from wakeq.protocol.wire.lines import LINE_ROOM_BYTES, line_bytes_max
from wakeq.protocol.wire.worker.blocks import BlockReader, may_hold_frames
from wakeq.protocol.wire.worker.codec import (
    Ack,
    Awk,
    Command,
    Fet,
    FetBlock,
    Hello,
    HelloReply,
    List,
    Msg,
    Msgs,
    Nack,
    Nok,
    Nomsg,
    Peek,
    PeekBlock,
    Ping,
    Pub,
    PubBlock,
    Release,
    Renew,
    Reply,
    SettleEpochs,
    Slice,
    Stage,
    Stash,
    Stats,
    Sub,
    Touch,
    Uns,
    Unstash,
    Update,
    decode_replies,
    encode_commands,
)

REPEATABLE = (
    Pub, Fet, Ack, Touch, Sub, Uns, Ping, Hello, List, Stats, Peek, Update,
    PubBlock, FetBlock, PeekBlock, Stage, Slice, Renew, SettleEpochs, Release, Stash, Unstash,
)  # fmt: skip

# The broker remembers the last 1,024 numbers of a session, so this many publishes can be repeated safely.
UNDER_WAY_MAX = 1024
# A longer line is no reply of a broker.
REPLY_BYTES_MAX = 1024 * 1024 * 1024
# If the leader hangs, the other nodes have elected another one by then.
SILENCE_LIMIT_S = 2.0
# A timeout is noticed at most a quarter late.
CHECKS_PER_TIMEOUT = 4
# A broker that hangs is found after this silence even if no command is outstanding.
PING_AFTER_S = 60.0
# Replies that may say more than the answer to a command.
NEWS = (Awk, HelloReply, Nok)

Ticket: TypeAlias = int


class PendingCommand(msgspec.Struct, gc=False):
    """A command that was sent, or will be sent on the next connection."""

    command: Command
    # The answer timeout counts from this moment. For a fetch it is the end of its wait.
    due_s: float
    # For a fetch: the moment until which its caller wants to wait.
    wait_until_s: float
    # The broker refused it in a way that proves that nothing was done.
    refused: bool = False

    @classmethod
    def sent_at(cls, command: Command, now_s: float) -> "PendingCommand":
        wait_until_s = now_s + command.wait if isinstance(command, Fet) else now_s
        return cls(command, wait_until_s, wait_until_s)

    def restart(self, now_s: float) -> None:
        """Prepare to send the command again: a fetch for the rest of its wait, and with new time to answer."""
        self.due_s = now_s
        if isinstance(self.command, Fet):
            left_s = max(0.0, self.wait_until_s - now_s)
            self.due_s += left_s
            self.command = msgspec.structs.replace(self.command, wait=left_s)


def is_repeatable(command: Command) -> bool:
    """Return whether doing the command twice has the same effect as doing it once."""
    # With a lease, a second NACK is refused as stale or changes nothing.
    if isinstance(command, Nack):
        return command.lease is not None or command.leases is not None
    return isinstance(command, REPEATABLE)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The outcome of the command with this ticket: a reply (perhaps a refusal), or the error by which it was lost."""

    ticket: Ticket
    outcome: Reply | WakeqError


@dataclass(frozen=True, slots=True)
class Woken:
    """The broker says, unasked, that this queue may have a message."""

    queue: str


@dataclass(frozen=True, slots=True)
class Greeted:
    """The broker answered HELLO. Subscriptions and repeated commands were sent together with the HELLO."""


@dataclass(frozen=True, slots=True)
class Redirected:
    """This broker does not serve; connect to `leader`, if it is known. Commands that were refused will be repeated."""

    leader: str | None


Event: TypeAlias = Answer | Woken | Greeted | Redirected


class WrongProtocol(Disconnected):
    """The peer sends bytes that no broker sends; the stream cannot be trusted any more."""

    closes = True


class NotReady(BrokerUnreachable):
    """The broker runs, but does not serve yet; another attempt in a moment may succeed."""


class PeerSilent(Disconnected):
    """The peer is connected and sends nothing: it hangs, or it is no broker."""


class Session:
    """One conversation over any number of connections."""

    def __init__(
        self,
        session_id: str,
        *,
        answer_timeout_s: float,
        silence_limit_s: float = inf,
        introduce: Callable[[], Hello] = Hello,
    ) -> None:
        """`silence_limit_s` is for clients that have other nodes to ask; `introduce` says who the client is."""
        self.session_id = session_id
        # Makes the HELLO of each connection, but for the session and the token.
        self._introduce = introduce
        # How long the broker may be silent now; it doubles with each node that was left for its silence.
        self.silence_limit_s = silence_limit_s
        # The broker's answer to HELLO on this connection.
        self.greeting: HelloReply | None = None
        # Limits of the broker, as it stated them last, perhaps on an earlier connection.
        self._limits: Mapping[str, Any] = {}
        self._answer_timeout_s = answer_timeout_s
        self._initial_silence_limit_s = silence_limit_s
        self._tickets = count(1)
        self._publish_numbers = count(1)
        # In the order of asking.
        self._unanswered: dict[Ticket, PendingCommand] = {}
        # No caller waits for these any more, but the broker still owes the answers.
        self._abandoned: dict[Ticket, PendingCommand] = {}
        self._unsent: list[bytes] = []
        # An ordered set.
        self._subscribed: dict[str, None] = {}
        self._reader = BlockReader(REPLY_BYTES_MAX)
        self._heard_at_s = 0.0
        self._online = False

    def successor(self, session_id: str) -> "Session":
        """Return a new session with the subscriptions of this one and nothing else."""
        session = Session(
            session_id,
            answer_timeout_s=self._answer_timeout_s,
            silence_limit_s=self._initial_silence_limit_s,
            introduce=self._introduce,
        )
        session._subscribed = dict(self._subscribed)
        return session

    # Commands ---------------------------------------------------------------------------------------------

    def ask(self, command: Command, now_s: float) -> Ticket:
        """Send a command now, or as soon as there is a connection. Its Answer will carry the ticket."""
        if len(self._unanswered) >= UNDER_WAY_MAX:
            raise Busy(f"{UNDER_WAY_MAX} commands are in progress; wait for answers first")
        if not self._unanswered and not self._abandoned:
            # The broker owed nothing until now, so its silence counts from here.
            self._heard_at_s = now_s
        if isinstance(command, Fet) and command.wait > 0:
            # Only the fetch of a subscriber waits for a queue that does not exist yet.
            self._subscribe(command.qname)
            if adopted := self._adopt(command, now_s):
                return adopted
        ticket = next(self._tickets)
        numbered = self._numbered(command, ticket)
        # Encoded even without a connection: the caller must hear now that a command cannot be encoded.
        line = _line(numbered)
        # Shorter lines always fit, and frames have a limit of their own.
        if len(line) > LINE_ROOM_BYTES and not isinstance(command, PubBlock):
            self._check_size(line)
        if self._online:
            self._unsent.append(line)
        self._unanswered[ticket] = PendingCommand.sent_at(numbered, now_s)
        if isinstance(command, Sub):
            self._subscribed[command.qname] = None
        elif isinstance(command, Uns):
            self._subscribed.pop(command.qname, None)
        return ticket

    def _check_size(self, line: bytes) -> None:
        """Refuse a line for which the broker would close the connection, and fail all other commands with it."""
        limit = self._limits.get("message_bytes_max")
        # The newline does not count.
        size = len(line) - 1
        if isinstance(limit, int) and size > (size_max := line_bytes_max(limit)):
            raise TooLarge(
                f"this takes a line of {size} bytes, and the broker reads up to {size_max} for messages of up to "
                f"{limit}; send less at once, or raise message_bytes_max there"
            )

    def _numbered(self, command: Command, ticket: Ticket) -> Command:
        """Add the ticket, and to a publish the number by which the broker recognizes a repetition."""
        if isinstance(command, Pub | PubBlock) and command.id is None and not isinstance(command, Stash):
            return msgspec.structs.replace(command, cmd_id=ticket, n=next(self._publish_numbers))
        return msgspec.structs.replace(command, cmd_id=ticket)

    def _subscribe(self, queue: str) -> None:
        if queue not in self._subscribed:
            self._subscribed[queue] = None
            if self._online:
                self._unsent.append(_line(Sub(qname=queue)))

    def abandon(self, ticket: Ticket) -> None:
        """Note that no caller waits for this answer any more. A message in it will be released."""
        pending = self._unanswered.pop(ticket, None)
        if pending is not None and self._online:
            self._abandoned[ticket] = pending

    def _adopt(self, command: Fet, now_s: float) -> Ticket | None:
        """Reuse an abandoned fetch of the same queue that still waits at the broker, instead of sending another.

        The abandoned fetch is ahead of ours at the broker and would get our message.
        """
        wait_until_s, wanted = now_s + command.wait, (command.qname, command.count, command.timeout)
        for ticket, pending in self._abandoned.items():
            asked = pending.command
            is_alike = isinstance(asked, Fet) and (asked.qname, asked.count, asked.timeout) == wanted
            if is_alike and pending.due_s <= wait_until_s:
                del self._abandoned[ticket]
                pending.wait_until_s = wait_until_s
                self._unanswered[ticket] = pending
                return ticket
        return None

    def bytes_to_send(self) -> bytes:
        """Return the bytes to write to the socket now; empty if there are none."""
        lines, self._unsent = self._unsent, []
        return b"".join(lines)

    # Connections ------------------------------------------------------------------------------------------

    def connected(self, now_s: float, token: str | None = None) -> None:
        """Begin on a new connection: say HELLO, restate the subscriptions, repeat the unanswered commands."""
        self._online = True
        self._heard_at_s = now_s
        self._reader = BlockReader(REPLY_BYTES_MAX)
        self.greeting = None
        for pending in self._unanswered.values():
            pending.restart(now_s)
        restated = [Sub(qname=queue) for queue in self._subscribed]
        repeated = [pending.command for pending in self._unanswered.values()]
        # A restarted broker must hear of acknowledgements before a fetch, or it would deliver those messages again.
        repeated.sort(key=lambda command: isinstance(command, Fet))
        hello = msgspec.structs.replace(self._introduce(), session=self.session_id, token=token)
        self._unsent = [encode_commands([hello, *restated, *repeated])]

    def disconnected(self) -> list[Answer]:
        """Fail the commands that must not be repeated; keep the others for the next connection."""
        self._online = False
        self._unsent.clear()
        self._abandoned.clear()
        answers = self._fail(lambda pending: not pending.refused and not is_repeatable(pending.command), _in_doubt)
        for pending in self._unanswered.values():
            pending.refused = False
        return answers

    def fail_all(self, error: WakeqError) -> list[Answer]:
        """Answer all commands with an error: no broker can be reached."""
        return self._fail(lambda pending: True, lambda _: copy(error))

    def fail_overdue(self, error: WakeqError, now_s: float) -> list[Answer]:
        """Answer the overdue commands with an error: the broker hangs."""
        return self._fail(lambda pending: pending.due_s + self._answer_timeout_s <= now_s, lambda _: copy(error))

    def _fail(
        self, is_meant: Callable[[PendingCommand], bool], error_of_command: Callable[[Command], WakeqError]
    ) -> list[Answer]:
        failed = [(ticket, pending.command) for ticket, pending in self._unanswered.items() if is_meant(pending)]
        return [self._answer(ticket, error_of_command(command)) for ticket, command in failed]

    # Signs of life ----------------------------------------------------------------------------------------

    @property
    def check_every_s(self) -> float:
        """How often to call `is_hung` and `is_silent` at least; other threads may ask while one waits."""
        return min(self._answer_timeout_s, PING_AFTER_S, self.silence_limit_s) / CHECKS_PER_TIMEOUT

    def next_check_s(self) -> float:
        """Return when to call them if nothing is received and nothing is asked until then."""
        ping_or_silence_s = min(self._heard_at_s + PING_AFTER_S, self._silent_since_s() + self.silence_limit_s)
        return min(ping_or_silence_s, self._due_s() + self._answer_timeout_s)

    def owes_answer(self, now_s: float) -> bool:
        """Return whether the broker owes an answer by now, also one that no caller waits for."""
        return self._due_s() <= now_s

    def is_hung(self, now_s: float) -> bool:
        """Return whether an answer is overdue. After a long silence, also send a PING."""
        if self._due_s() + self._answer_timeout_s <= now_s:
            return True
        if now_s >= self._heard_at_s + PING_AFTER_S and len(self._unanswered) < UNDER_WAY_MAX:
            self._heard_at_s = now_s
            self.ask(Ping(), now_s)
        return False

    def _due_s(self) -> float:
        """Return when the first answer is due that the broker owes; never, if it owes none."""
        owed = chain(self._unanswered.values(), self._abandoned.values())
        return min((pending.due_s for pending in owed), default=inf)

    def _silent_since_s(self) -> float:
        """Return since when the broker owes an answer and says nothing; never, if it owes none."""
        return max(self._heard_at_s, self._due_s())

    def is_silent(self, now_s: float) -> bool:
        """Return whether the broker has been silent for so long that another node should be asked."""
        return now_s >= self._silent_since_s() + self.silence_limit_s

    def double_silence_limit(self) -> None:
        """Allow the next node twice the silence, until one answers: the node that was left may only be slow."""
        self.silence_limit_s *= 2

    # Replies ----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Read the bytes that the socket brought. Raise WrongProtocol if no broker would send them."""
        self._heard_at_s = now_s
        is_whole = data.endswith(b"\n") and not self._reader.waiting_bytes and not may_hold_frames(data)
        try:
            lines = data if is_whole else self._reader.receive(data)
            replies = decode_replies(lines) if lines else []
        except (WakeqError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WrongProtocol(str(error)) from error
        events = [event for reply in replies if (event := self._event_of(reply, now_s)) is not None]
        if self.silence_limit_s != self._initial_silence_limit_s and any(type(event) is Answer for event in events):
            self.silence_limit_s = self._initial_silence_limit_s
        return events

    def _event_of(self, reply: Reply, now_s: float) -> Event | None:
        """Return what the caller must hear of a reply; None if nothing."""
        ticket = reply.cmd_id
        pending = self._unanswered.get(ticket) if isinstance(ticket, int) else None
        if isinstance(reply, NEWS) and (event := self._news(reply, pending)) is not None:
            return event
        if not isinstance(ticket, int):
            return None
        if pending is None:
            if self._abandoned.pop(ticket, None) is not None:
                self.release_messages(reply)
            return None
        if isinstance(reply, Nomsg) and self._wait_continues(pending, now_s):
            return None
        return self._answer(ticket, reply)

    def _news(self, reply: Awk | HelloReply | Nok, pending: PendingCommand | None) -> Event | None:
        """Return what a reply says besides being an answer; None if it is only an answer."""
        if isinstance(reply, Awk):
            return Woken(reply.qname)
        if isinstance(reply, HelloReply):
            # The answer to a later HELLO, with which the client says that it has changed.
            if pending is not None:
                return None
            self.greeting, self._limits = reply, reply.limits
            return Greeted()
        if self._is_redirect(reply, pending):
            return Redirected(reply.leader)
        return self._unaddressed(reply) if reply.cmd_id is msgspec.UNSET else None

    def _is_redirect(self, reply: Nok, pending: PendingCommand | None) -> bool:
        """Return whether another broker has to answer; the command is kept for that broker."""
        # With both codes nothing was done.
        if reply.err in (NotLeader.code, NoQuorum.code):
            if pending is not None:
                pending.refused = True
            return True
        return reply.err == OutcomeUnknown.code and pending is not None and is_repeatable(pending.command)

    def _wait_continues(self, pending: PendingCommand, now_s: float) -> bool:
        """Send an adopted fetch again if its wait ended before that of its new caller. Return whether it was sent."""
        if pending.wait_until_s <= pending.due_s or pending.wait_until_s <= now_s:
            return False
        pending.restart(now_s)
        self._unsent.append(_line(pending.command))
        return True

    def release_messages(self, reply: Reply) -> None:
        """Release the messages in a reply that no caller waits for, so that they need not wait for their timeout."""
        if isinstance(reply, Msg):
            self._unsent.append(_line(Nack(qname=reply.qname, uid=reply.uid, lease=reply.lease, delay=0, failed=False)))
        elif isinstance(reply, Msgs):
            uids, leases = [one.uid for one in reply.messages], [one.lease for one in reply.messages]
            self._unsent.append(_line(Nack(qname=reply.qname, uids=uids, leases=leases, delay=0, failed=False)))

    def _unaddressed(self, reply: Nok) -> Event | None:
        """Handle a refusal that names no command: of a command too large to be read, of a SUB, or of the connection."""
        under_way = self._unanswered | self._abandoned
        if reply.err == TooLarge.code and under_way:
            largest = max(under_way, key=lambda ticket: len(_line(under_way[ticket].command)))
            return self._answer(largest, reply) if largest in self._unanswered else None
        if self.greeting is not None:
            return None
        raise error_of(reply)

    def _answer(self, ticket: Ticket, outcome: Reply | WakeqError) -> Answer:
        del self._unanswered[ticket]
        return Answer(ticket, outcome)


def error_of(reply: Nok) -> Refused:
    """Return the typed error of a refusal; a code of a newer broker becomes a plain Refused that names it."""
    kind = BY_CODE.get(reply.err)
    if kind is None:
        return Refused(f"{reply.err}: {reply.detail or 'refused by the broker'}")
    return kind(reply.detail or f"refused by the broker: {reply.err}")


def _line(command: Command) -> bytes:
    try:
        return encode_commands([command])
    except UnicodeEncodeError as error:
        raise BadField(f"{type(command).__name__.upper()} has text that is not UTF-8 ({error})") from None
    except TypeError as error:
        raise BadField(f"{type(command).__name__.upper()} has a value of the wrong type ({error})") from None


def _in_doubt(command: Command) -> Disconnected:
    verb = type(command).__name__.upper()
    return Disconnected(
        f"the connection ended before {verb} was answered; check whether it was done before you repeat it"
    )
