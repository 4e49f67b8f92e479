"""Session: what a client knows of its conversation with the broker, without a socket.

    commands  -->  ask --> bytes_to_send          receive <-- bytes  -->  Answer, Awoken, Greeted, Moved

Answers find their question by `cmd_id`, so any number of commands may be under way.  It outlives connections:
after a lost one it says HELLO again with the same session, restates its subscriptions, and repeats what may
be repeated; a publish carries its number in the session, so that the broker stores it once.  It never
waits, is told what time it is, and never drops a question: each gets one Answer, or is abandoned by its asker.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import chain, count
from math import inf
from typing import Any, TypeAlias

import msgspec

from wakeq.client.core.question import Question, question_of, renew, repeatable
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
    Awk,
    Command,
    Fet,
    Hello,
    HelloReply,
    Msg,
    Msgs,
    Nack,
    Nok,
    Nomsg,
    Ping,
    Pub,
    PubBlock,
    Reply,
    Stash,
    Sub,
    Uns,
    decode_replies,
    encode_commands,
)

UNDER_WAY_MAX = 1024  # the ledger knows the last 1,024 numbers of a session: so many publishes can be repeated safely
REPLY_BYTES_MAX = 1024 * 1024 * 1024  # a line that is longer is no reply of a broker
MUTE_AFTER_S = 2.0  # of silence of who owes an answer: by then the other nodes have another leader, if it hangs
LOOKS_PER_TIMEOUT = 4  # so a timeout is seen at most a quarter late
PING_AFTER_S = 60.0  # of silence; a broker that hangs is found even if nothing is asked of it
NEWS = (Awk, HelloReply, Nok)  # replies that may say more than an answer does

Ticket: TypeAlias = int


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of the question with this ticket: a reply (which may be a refusal), or how it was lost."""

    ticket: Ticket
    outcome: Reply | WakeqError


@dataclass(frozen=True, slots=True)
class Awoken:
    """The broker says, unasked, that there may be something in this queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Greeted:
    """The broker answered HELLO; what is restated and repeated went out with it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """This broker does not serve, perhaps `leader` does: connect there.  What it refused will be repeated."""

    leader: str | None


Event: TypeAlias = Answer | Awoken | Greeted | Moved


class NotTheProtocol(Disconnected):
    """The peer says what no broker says; the stream is of no use any more."""

    closes = True


class NotReady(BrokerUnreachable):
    """The broker is there, and asks to be tried again shortly."""


class Silent(Disconnected):
    """The peer is connected and says nothing: hung, or no broker."""


class Session:
    """One conversation, over as many connections as it takes."""

    def __init__(self, session_id: str, *, answer_timeout_s: float, mute_after_s: float = inf) -> None:
        """Begin; `mute_after_s` is for who has other nodes to ask."""
        self.session_id = session_id
        self.patience_s = mute_after_s  # how long a silence is borne now
        self.greeting: HelloReply | None = None  # what the broker said of itself on this connection
        self._limits: Mapping[str, Any] = {}  # as it said them last
        self._answer_timeout_s = answer_timeout_s
        self._mute_after_s = mute_after_s
        self._tickets = count(1)
        self._numbers = count(1)
        self._unanswered: dict[Ticket, Question] = {}  # in the order of asking
        self._abandoned: dict[Ticket, Question] = {}  # nobody waits for them; the broker still owes the answers
        self._unsent: list[bytes] = []
        self._subscribed: dict[str, None] = {}
        self._reader = BlockReader(REPLY_BYTES_MAX)
        self._heard_s = 0.0
        self._online = False

    def successor(self, session_id: str) -> "Session":
        """Another conversation with the same subscriptions, and nothing else of this one."""
        session = Session(session_id, answer_timeout_s=self._answer_timeout_s, mute_after_s=self._mute_after_s)
        session._subscribed = dict(self._subscribed)
        return session

    # What we say ------------------------------------------------------------------------------------------

    def ask(self, command: Command, now_s: float) -> Ticket:
        """Take a command; its Answer will carry the ticket.  Sent now, or once there is a connection."""
        if len(self._unanswered) >= UNDER_WAY_MAX:
            raise Busy(f"{UNDER_WAY_MAX} commands are under way; wait for answers first")
        if not self._unanswered and not self._abandoned:
            self._heard_s = now_s  # nobody had to say anything until now
        if isinstance(command, Fet) and command.wait > 0:
            self._subscribe(command.qname)  # only a subscriber's fetch waits for a queue that does not exist yet
            if adopted := self._adopt(command, now_s):
                return adopted
        ticket = next(self._tickets)
        numbered = self._numbered(command, ticket)
        line = _line(numbered)  # now, also if there is no connection: its asker is to hear that it cannot be said
        if len(line) > LINE_ROOM_BYTES and not isinstance(command, PubBlock):  # less always fits, as do frames
            self._check_size(line)
        if self._online:
            self._unsent.append(line)
        self._unanswered[ticket] = question_of(numbered, now_s)
        self._note_subscription(command)
        return ticket

    def _check_size(self, line: bytes) -> None:
        """Refuse what the broker would close the connection for, with all that is under way on it."""
        limit = self._limits.get("message_bytes_max")
        size = len(line) - 1  # its end does not count
        if isinstance(limit, int) and size > (most := line_bytes_max(limit)):
            raise TooLarge(
                f"this takes a line of {size} bytes, and the broker reads up to {most} for messages of up to {limit}; "
                "send less at once, or raise message_bytes_max there"
            )

    def _numbered(self, command: Command, ticket: Ticket) -> Command:
        """The command with its ticket, and a publish with its number, by which the broker knows a repetition."""
        if isinstance(command, Pub | PubBlock) and command.id is None and not isinstance(command, Stash):
            return msgspec.structs.replace(command, cmd_id=ticket, n=next(self._numbers))
        return msgspec.structs.replace(command, cmd_id=ticket)

    def _subscribe(self, queue: str) -> None:
        if queue not in self._subscribed:
            self._subscribed[queue] = None
            if self._online:
                self._unsent.append(_line(Sub(qname=queue)))

    def _note_subscription(self, command: Command) -> None:
        if isinstance(command, Sub):
            self._subscribed[command.qname] = None
        elif isinstance(command, Uns):
            self._subscribed.pop(command.qname, None)

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more, which is owed all the same.  A message in it is given back."""
        question = self._unanswered.pop(ticket, None)
        if question is not None and self._online:
            self._abandoned[ticket] = question

    def _adopt(self, command: Fet, now_s: float) -> Ticket | None:
        """Take over an abandoned wait for the same queue: it stands in line before us and would get our message."""
        until_s, wanted = now_s + command.wait, (command.qname, command.count, command.timeout)
        for ticket, question in self._abandoned.items():
            asked = question.command
            is_like = isinstance(asked, Fet) and (asked.qname, asked.count, asked.timeout) == wanted
            if is_like and question.due_s <= until_s:
                del self._abandoned[ticket]
                question.until_s = until_s
                self._unanswered[ticket] = question
                return ticket
        return None

    def bytes_to_send(self) -> bytes:
        """What the socket is to carry now; empty if nothing."""
        lines, self._unsent = self._unsent, []
        return b"".join(lines)

    # Connections ------------------------------------------------------------------------------------------

    def connected(self, now_s: float, token: str | None = None) -> None:
        """There is a new connection: greet, say who we are, restate, repeat."""
        self._online = True
        self._heard_s = now_s
        self._reader = BlockReader(REPLY_BYTES_MAX)
        self.greeting = None
        for question in self._unanswered.values():
            renew(question, now_s)
        restated = [Sub(qname=queue) for queue in self._subscribed]
        repeated = [question.command for question in self._unanswered.values()]
        repeated.sort(key=lambda command: isinstance(command, Fet))  # a restarted broker must first hear what is done
        self._unsent = [encode_commands([Hello(session=self.session_id, token=token), *restated, *repeated])]

    def disconnected(self) -> list[Answer]:
        """The connection is gone: answer what must not be repeated, keep the rest for the next one."""
        self._online = False
        self._unsent.clear()
        self._abandoned.clear()
        answers = self._end(lambda question: not question.refused and not repeatable(question.command), _in_doubt)
        for question in self._unanswered.values():
            question.refused = False
        return answers

    def give_up(self, error: WakeqError) -> list[Answer]:
        """No broker can be had: that is the answer to everything."""
        return self._end(lambda question: True, lambda _: copy(error))

    def give_up_due(self, error: WakeqError, now_s: float) -> list[Answer]:
        """The broker hangs: that is the answer to what it should have answered by now."""
        return self._end(lambda question: question.due_s + self._answer_timeout_s <= now_s, lambda _: copy(error))

    def _end(self, ends: Callable[[Question], bool], outcome_of: Callable[[Command], WakeqError]) -> list[Answer]:
        ended = [(ticket, question.command) for ticket, question in self._unanswered.items() if ends(question)]
        return [self._answer(ticket, outcome_of(command)) for ticket, command in ended]

    # Signs of life ----------------------------------------------------------------------------------------

    @property
    def look_every_s(self) -> float:
        """How often to call `is_hung` and `is_mute` at least, for others may ask while one waits for an answer."""
        return min(self._answer_timeout_s, PING_AFTER_S, self.patience_s) / LOOKS_PER_TIMEOUT

    def next_look_s(self) -> float:
        """When to call them if nothing comes until then, and nobody asks anything more."""
        look_s = min(self._heard_s + PING_AFTER_S, self._silent_since_s() + self.patience_s)
        return min(look_s, self._due_s() + self._answer_timeout_s)

    def owes(self, now_s: float) -> bool:
        """Whether the broker has something to answer at once, also if nobody waits for it any more."""
        return self._due_s() <= now_s

    def is_hung(self, now_s: float) -> bool:
        """Whether an answer is overdue.  After a long silence, ask for a sign of life."""
        if self._due_s() + self._answer_timeout_s <= now_s:
            return True
        if now_s >= self._heard_s + PING_AFTER_S and len(self._unanswered) < UNDER_WAY_MAX:
            self._heard_s = now_s
            self.ask(Ping(), now_s)
        return False

    def _due_s(self) -> float:
        """When the first answer is due that the broker owes, whoever waits for it; never, if it owes none."""
        owed = chain(self._unanswered.values(), self._abandoned.values())
        return min((question.due_s for question in owed), default=inf)

    def _silent_since_s(self) -> float:
        """Since when the broker owes an answer and says nothing; never, if it owes none."""
        return max(self._heard_s, self._due_s())

    def is_mute(self, now_s: float) -> bool:
        """Whether it is time to see who else answers: slow or dead, this broker says nothing at all."""
        return now_s >= self._silent_since_s() + self.patience_s

    def be_patient(self) -> None:
        """Whoever was left for its silence may only be slow: bear with it for longer, until somebody answers."""
        self.patience_s *= 2

    # What we hear -----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Take what the socket gave.  Raise NotTheProtocol if no broker would say it."""
        self._heard_s = now_s
        is_whole = data.endswith(b"\n") and not self._reader.waiting_bytes and not may_hold_frames(data)
        try:
            lines = data if is_whole else self._reader.receive(data)
            replies = decode_replies(lines) if lines else []
        except (WakeqError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotTheProtocol(str(error)) from error
        events = [event for reply in replies if (event := self._sort(reply, now_s)) is not None]
        if self.patience_s != self._mute_after_s and any(type(event) is Answer for event in events):
            self.patience_s = self._mute_after_s
        return events

    def _sort(self, reply: Reply, now_s: float) -> Event | None:
        """Say whose reply it is; None if nobody waits for it."""
        ticket = reply.cmd_id
        question = self._unanswered.get(ticket) if isinstance(ticket, int) else None
        if isinstance(reply, NEWS) and (event := self._news(reply, question)) is not None:
            return event
        if not isinstance(ticket, int):
            return None
        if question is None:
            if self._abandoned.pop(ticket, None) is not None:
                self.give_back(reply)
            return None
        if isinstance(reply, Nomsg) and self._waits_on(question, now_s):
            return None
        return self._answer(ticket, reply)

    def _news(self, reply: Awk | HelloReply | Nok, question: Question | None) -> Event | None:
        """What a reply says beside being an answer."""
        if isinstance(reply, Awk):
            return Awoken(reply.qname)
        if isinstance(reply, HelloReply):
            self.greeting, self._limits = reply, reply.limits
            return Greeted()
        if self._sends_away(reply, question):
            return Moved(reply.leader)
        return self._unaddressed(reply) if reply.cmd_id is msgspec.UNSET else None

    def _sends_away(self, reply: Nok, question: Question | None) -> bool:
        """Whether the answer is to be had from another broker; the question is kept for it."""
        if reply.err in (NotLeader.code, NoQuorum.code):  # either way nothing was done
            if question is not None:
                question.refused = True
            return True
        return reply.err == OutcomeUnknown.code and question is not None and repeatable(question.command)

    def _waits_on(self, question: Question, now_s: float) -> bool:
        """An adopted wait that ended earlier than its new asker's: wait for the rest of it."""
        if question.until_s <= question.due_s or question.until_s <= now_s:
            return False
        renew(question, now_s)
        self._unsent.append(_line(question.command))
        return True

    def give_back(self, reply: Reply) -> None:
        """Messages that nobody waits for any more go back at once, and not when their timeout is over."""
        if isinstance(reply, Msg):
            self._unsent.append(_line(Nack(qname=reply.qname, uid=reply.uid, lease=reply.lease, delay=0, failed=False)))
        elif isinstance(reply, Msgs):
            uids, leases = [one.uid for one in reply.messages], [one.lease for one in reply.messages]
            self._unsent.append(_line(Nack(qname=reply.qname, uids=uids, leases=leases, delay=0, failed=False)))

    def _unaddressed(self, reply: Nok) -> Event | None:
        """A refusal that names no command: one too large to be read, a restated SUB, or the connection itself."""
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
    """The typed error of a refusal; a code of a newer broker is a plain Refused that names it."""
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
    return Disconnected(f"the connection ended before {verb} was answered; see whether it was done, then repeat it")
