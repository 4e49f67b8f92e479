"""Requests: the commands that are under way on one connection, and the order of their replies.

    runs of like commands --> begun, or parked --> Answered --> replies, in the order of the requests --> Door

To a pipelining client it looks as if its commands were done one after the other: a run is parked while an earlier one
may still change the same queue.  What a command does is not known here: the layers above begin a run, and
`worker_replies.py` makes the replies.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.actors.mail import Delivery, Leaving, Outcome, Refusal, Unsent
from wakeq.actors.queue.staging_mail import Seen
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.access import STRANGER, Gate
from wakeq.actors.sessions.door import Door
from wakeq.actors.sessions.in_flight import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_LOW, IN_FLIGHT_MAX, Batches
from wakeq.actors.sessions.worker_replies import (
    REPLIES,
    acked,
    concerns,
    published,
    refused,
    reply_publish,
    runs_of,
    settled_reply,
)
from wakeq.protocol.catalog import Policies
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.worker import codec as wire

JOINED_MAX = 1_024  # parked commands that may be joined into one run
_DELIVERING = frozenset({wire.Fet, wire.FetBlock, wire.Slice})


class Limits(msgspec.Struct, frozen=True):
    """The limits that a client must keep to, which HELLO tells it."""

    message_bytes_max: int = 1 << 20
    version: str = "0"


class SessionServices(msgspec.Struct, frozen=True):
    """Everything from outside that a subscriber uses."""

    raft_log: Process
    queues: Process
    limits: Limits
    exists: Callable[[str], bool] = lambda name: True  # whether a queue is in the catalog
    defaults: Policies | None = None  # of a queue that a publish creates; None: the built-in ones
    refusal: Callable[[], Refusal | None] = lambda: None  # why this node may not serve at this moment
    withdrawal: Callable[[int], Refusal | None] = lambda term: None  # why a delivery of a term may not leave any more
    gate: Gate | None = None  # None: whoever can connect may do everything


class Pending(msgspec.Struct, gc=False, eq=False):
    """A run of commands under way: the ticket of its answers."""

    commands: Sequence[Any]
    replies: list[Any]  # one for each command, None while it is missing
    missing: int
    busy: tuple[str, ...] = ()  # queues that it may still change
    waits: tuple[str, ...] = ()  # queues in which a FET without cmd_id waits
    unsent: list[tuple[int, list[Delivery] | Seen]] | None = None  # what its replies deliver, by place


class Part(msgspec.Struct, gc=False):
    """The ticket of a NACK or TOUCH, whose uids may be answered separately."""

    pending: Pending
    place: int
    uids: list[str]
    results: list[Any] = []

    def __post_init__(self) -> None:
        self.results = [None] * len(self.uids)


class Requests(Process):
    """See the head of this file.  Everything that an idle connection does not need is None."""

    _batches: Batches | None = None  # what is under way, while it is much
    _closing = ""  # why the connection is to be closed as soon as everything is answered

    def __init__(self, door: Door[wire.Reply], worker: int, services: SessionServices) -> None:
        super().__init__()
        self._door = door
        self._worker = worker
        self._services = services
        self._access = None if services.gate is None else door.access or STRANGER
        self._pendings: deque[Pending] | None = None  # in the order of the requests
        self._parked: deque[Sequence[Any]] | None = None  # runs that wait for an earlier one
        self._busy: dict[str, int] | None = None  # by queue, how many runs under way may still change it
        self._in_flight = self._in_flight_bytes = 0
        self._paused = False  # nothing more is read from the connection
        self._ended = False  # the client will send nothing more

    @abstractmethod
    def _begin_run(self, run: Sequence[Any]) -> None:
        """Do what a run of like commands asks for; in the end each of them has a reply."""

    @property
    def _who(self) -> str:
        """Who is connected, for the log."""
        access = self._access
        return self._door.peer if access is None else f"{access.name} at {self._door.peer}"

    def _queue(self, name: str) -> Process:
        """Return whom to tell about a queue: its process, or the supervisor if it has none."""
        return self.runtime.whereis(("queue", name)) or self._services.queues

    # --- in -----------------------------------------------------------------------------------------------------------

    def _count_bytes(self, commands: int, size_bytes: int) -> None:
        """Count what came among all that is held; read no more while that is too much."""
        if self._batches is None:
            self._batches = Batches()
        self._batches.add(commands, size_bytes)
        if not self._door.keep(self._batches.size_bytes) and not self._paused:
            self._paused = True
            self._door.pause()

    def _leave_batches(self, batches: Batches) -> bool:
        """Count no more what is done; return whether more may be read."""
        left_bytes = batches.leave(self._in_flight)
        has_room = self._door.keep(left_bytes)
        if not left_bytes:
            self._batches = None
        return has_room or not left_bytes

    def _receive(self, commands: Sequence[Any]) -> None:
        self._in_flight += len(commands)
        much = self._in_flight > IN_FLIGHT_MAX or self._in_flight_bytes > IN_FLIGHT_BYTES_MAX
        if much and not self._paused:
            self._paused = True
            self._door.pause()
        if self._parked:
            self._park(commands)
            return
        for run in runs_of(commands):
            if self._parked or not self._start(run):
                if self._parked is None:
                    self._parked = deque()
                self._parked.append(run)
        self._send()

    def _park(self, commands: Sequence[Any]) -> None:
        """Let commands wait behind parked ones; those like the last parked run join it, to become one entry with it."""
        assert self._parked, "something waits"
        last, runs = self._parked[-1], runs_of(commands)
        if len(last) < JOINED_MAX and len(runs_of([last[-1], commands[0]])) == 1:
            self._parked[-1] = [*last, *runs.pop(0)]
        self._parked.extend(runs)

    def _start(self, run: Sequence[Any]) -> bool:
        """Begin a run; return False if it has to wait for an earlier one."""
        if self._busy and any(concerns(command, self._busy) for command in run):
            return False
        self._begin_run(run)
        return True

    def _start_parked(self) -> bool:
        """Begin parked runs as far as possible; return whether any was begun."""
        started = False
        while self._parked:
            if not self._start(self._parked[0]):
                return started
            self._parked.popleft()
            started = True
        self._parked = None
        return started

    def _begin(self, run: Sequence[Any], busy: tuple[str, ...] = ()) -> Pending:
        """Note a run as under way, with all its replies missing."""
        pending = Pending(run, [None] * len(run), len(run))
        if self._pendings is None:
            self._pendings = deque()
        self._pendings.append(pending)
        if busy:
            self._make_busy(pending, busy)
        return pending

    def _make_busy(self, pending: Pending, names: tuple[str, ...]) -> None:
        pending.busy += names
        busy = self._busy
        if busy is None:
            busy = self._busy = {}
        for name in names:
            busy[name] = busy.get(name, 0) + 1

    def _free(self, names: tuple[str, ...]) -> None:
        busy = self._busy
        assert busy is not None, "made busy before"
        for name in names:
            if busy[name] > 1:
                busy[name] -= 1
            else:
                del busy[name]
        self._busy = busy or None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _reply(self, pending: Pending, place: int, reply: wire.Reply) -> None:
        if pending.missing and pending.replies[place] is None:
            pending.replies[place] = reply
            pending.missing -= 1

    def _answered(self, answers: Sequence[tuple[Any, Any, Any]]) -> None:
        for ticket, place, answer in answers:
            if type(ticket) is Part:
                self._answer_part(ticket, place, answer)
            elif type(place) is list:
                self._answer_many(ticket, place, answer)
            else:
                if not ticket.missing or ticket.replies[place] is not None:
                    continue  # answered already: the queue was rebuilt meanwhile, and answered again
                command = ticket.commands[place]
                ticket.missing -= 1
                if type(command) is wire.Pub and type(answer) is Outcome:  # the most frequent by far
                    ticket.replies[place] = reply_publish(command, answer)
                    continue
                ticket.replies[place] = self._reply_to(command, answer)
                if type(command) in _DELIVERING and type(answer) in (list, Seen):
                    if ticket.unsent is None:
                        ticket.unsent = []
                    ticket.unsent.append((place, answer))
                if len(ticket.commands) == 1 and self._is_apart(ticket):
                    self._in_flight -= 1
                    self._door.send(self._replies_of(ticket.unsent or (), ticket))
        self._send()

    def _is_apart(self, pending: Pending) -> bool:
        command = pending.commands[0]
        return type(command) is wire.Fet and bool(command.wait) and command.cmd_id is not msgspec.UNSET

    def _answer_many(self, pending: Pending, places: list[int], answer: Outcome | Refusal) -> None:
        """Reply to many commands, PUBs or ACKs of one queue, that were one entry."""
        commands, replies = pending.commands, pending.replies
        if not pending.missing or replies[places[0]] is not None:
            return  # answered already: the queue was rebuilt meanwhile, and answered again
        if type(answer) is Refusal:
            for place in places:
                self._reply(pending, place, refused(answer, commands[place].cmd_id))
            self._stay(commands, places)
            return
        assert type(answer) is Outcome, "outcomes only"
        name, results = answer.queue, answer.results
        if type(commands[places[0]]) is wire.Pub:
            made = published(name, answer, results, [commands[place].cmd_id for place in places])
        else:
            made = [acked(commands[place], code) for place, code in zip(places, results, strict=True)]
        for place, reply in zip(places, made, strict=True):
            replies[place] = reply
        pending.missing -= len(places)

    def _stay(self, commands: Sequence[Any], places: Sequence[int]) -> None:
        """The log has refused acknowledgements: tell their queues that the messages stay."""
        for place in places:
            command = commands[place]
            if isinstance(command, wire.Ack):
                uids = command.uids or [command.uid or ""]
                for queue_id, number in filter(None, map(parse, uids)):
                    self._queue(command.qname).tell(Leaving(command.qname, queue_id, [number], undone=True))

    def _answer_part(self, part: Part, places: Any, answer: Outcome | Refusal) -> None:
        """Note the results of some uids of one NACK or TOUCH; reply when all are there."""
        pending, place = part.pending, part.place
        if not pending.missing:
            return  # answered already: the queue was rebuilt meanwhile, and answered again
        command = pending.commands[place]
        if isinstance(answer, Refusal):
            self._reply(pending, place, refused(answer, command.cmd_id))
            return
        for at, code in zip(places, answer.results, strict=True):
            part.results[at] = code
        if None not in part.results:
            self._reply(pending, place, settled_reply(command, part.uids, part.results))

    def _reply_to(self, command: Any, answer: Any) -> wire.Reply:
        if type(answer) is Refusal:
            self._stay([command], [0])
            return refused(answer, command.cmd_id)
        return REPLIES[type(command)](command, answer)

    # --- out ----------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send the replies up to the first that is missing; begin parked runs that waited for them."""
        while True:
            out: list[Any] = []
            pendings = self._pendings
            while pendings and not pendings[0].missing:
                pending = pendings.popleft()
                out += pending.replies if pending.unsent is None else self._replies_of(pending.unsent, pending)
                self._in_flight -= len(pending.commands)
                if pending.busy:
                    self._free(pending.busy)
                # Free them now: askers are kept until the next cut.
                pending.commands, pending.replies, pending.unsent = (), [], None
            if out:
                self._door.send(out)
            if not self._start_parked():
                break
        if not self._pendings:
            self._pendings = None
            self._in_flight_bytes = 0
            self._finish_if_answered()
        has_room = self._batches is None or self._leave_batches(self._batches)
        if (
            self._paused
            and has_room
            and self._in_flight <= IN_FLIGHT_LOW
            and self._in_flight_bytes <= IN_FLIGHT_BYTES_MAX
        ):
            self._paused = False
            self._door.resume()

    def _replies_of(self, unsent: Sequence[tuple[int, list[Delivery] | Seen]], pending: Pending) -> list[Any]:
        """Return the replies that leave now, without deliveries that came to this node's memory before it was deposed.

        They waited for what stands before them, or in the mail.  Nobody has seen them.
        """
        for place, found in unsent:
            refusal = self._services.withdrawal(found.term if isinstance(found, Seen) else found[0].token[0])
            if refusal is not None:
                command = pending.commands[place]
                pending.replies[place] = refused(refusal, command.cmd_id)
                if not isinstance(found, Seen):  # a slice stays where it is, under its claim
                    self._queue(command.qname).tell(Unsent(command.qname, found))
        return pending.replies

    def _finish_if_answered(self) -> None:
        if self._pendings or self._parked:
            return
        if self._closing:  # it stays: more may have been read before the connection was closed
            self._door.close(self._closing)
        elif self._ended:
            self._door.hang_up()
