"""Subscriber: one connection of the worker protocol.

    Received (listener) --> runs of like commands --> the log or the queue --> answers, in the order of the requests

It checks what belongs to the connection and knows no queue rule.  A pipelining client sees its commands as if done
one after the other: a command waits while one before it on the same connection may still change the same queue.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.actors.door import Closed, Door, Ended, Received
from wakeq.actors.messages import (
    Answered,
    Asker,
    EndWaits,
    Fetch,
    Gone,
    Leaving,
    Nack,
    Outcome,
    Peek,
    Propose,
    Refusal,
    Sleep,
    Stats,
    Subscribe,
    Touch,
    Want,
    Woken,
)
from wakeq.actors.runtime import Process
from wakeq.actors.worker_replies import (
    REPLIES,
    acked,
    concerns,
    draft_of,
    drafts_of,
    plain_draft_of,
    plain_drafts_of,
    published,
    queue_entry_of,
    reason_of,
    refused,
    runs_of,
    settled_by,
    settled_reply,
    token_of,
    want_of,
)
from wakeq.protocol import commands as log
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import ANY_TOKEN, Draft, Publish, Token
from wakeq.protocol.errors import BadField, Refused
from wakeq.protocol.uid import numbers as numbers_of
from wakeq.protocol.uid import parse
from wakeq.protocol.uid import prefix as prefix_of
from wakeq.protocol.wire import worker as wire

IN_FLIGHT_MAX = 16_384  # commands without an answer; then reading pauses
IN_FLIGHT_LOW = 4_096
IN_FLIGHT_BYTES_MAX = 16 << 20  # of commands, since the last moment without any; then reading pauses until the next
EVERY_QUEUE = "\0"  # no queue's name: a look at all of them, one at a time on each connection
QUEUES_MAX = 10_000  # distinct queues that one connection may subscribe to or fetch from

BUILT_IN = Policies()


class Limits(msgspec.Struct, frozen=True):
    """What a subscriber holds its client to, and tells it in HELLO."""

    message_bytes_max: int = 1 << 20
    version: str = "0"


class Services(msgspec.Struct, frozen=True):
    """What every subscriber works with."""

    raft_log: Process
    queues: Process
    limits: Limits
    exists: Callable[[str], bool] = lambda name: True  # whether a queue is in the catalog by now
    defaults: Policies = Policies()  # of a queue that a publish creates


class Pending(msgspec.Struct, gc=False, eq=False):
    """A run of commands on its way: its replies by place, and how many are missing."""

    commands: Sequence[Any]
    replies: list[Any]
    missing: int
    busy: tuple[str, ...] = ()  # queues that it may still change
    waits: tuple[str, ...] = ()  # queues in which a FET without cmd_id waits


class Subscriber(Process):
    """See the head of this file.  Idle, it is little more than its door."""

    def __init__(self, door: Door, worker: int, services: Services) -> None:
        super().__init__()
        self._door = door
        self._worker = worker
        self._services = services
        self._pendings: deque[Pending] | None = None  # in the order of the requests
        self._parked: deque[Sequence[Any]] | None = None  # runs that wait for what stands before them
        self._busy: dict[str, int] | None = None  # queues that something before may still change
        self._waits: list[Pending] | None = None  # those in which a FET waits until the client goes on
        self._known: set[str] | None = None  # queues that know of this subscriber
        self._session = ""
        self._in_flight = self._in_flight_bytes = 0
        self._paused = False
        self._ended = False

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Received:
            self._in_flight_bytes += message.size_bytes
            self._receive(message.commands)
        elif kind is Answered:
            self._answered(message.answers)
        elif kind is Woken:
            self._wake(message.queue)
        elif kind is Ended:
            self._ended = True
            self._end_waits(())
            self._finish_if_answered()
        elif kind is Closed:
            self.stop()

    def _wake(self, name: str) -> None:
        """Send awk at once; behind its okslp, if that one has not been sent yet."""
        awk = wire.Awk(qname=name)
        for pending in reversed(self._pendings or ()):
            if type(pending.commands[0]) is wire.Islp and pending.commands[0].qname == name:
                pending.replies.append(awk)
                return
        self._door.send([awk])

    def on_stop(self) -> None:
        self._say_gone()

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error")
        self._say_gone()

    def _say_gone(self) -> None:
        gone = Gone(self)
        for name in self._known or ():
            self._queue(name).tell(msgspec.structs.replace(gone, queue=name))

    # --- in --------------------------------------------------------------------------------------------------------

    def _receive(self, commands: Sequence[Any]) -> None:
        self._in_flight += len(commands)
        much = self._in_flight > IN_FLIGHT_MAX or self._in_flight_bytes > IN_FLIGHT_BYTES_MAX
        if much and not self._paused:
            self._paused = True
            self._door.pause()
        if self._parked:
            self._parked.extend(runs_of(commands))
            return
        for run in runs_of(commands):
            if self._parked or not self._start(run):
                if self._parked is None:
                    self._parked = deque()
                self._parked.append(run)
        self._send()

    def _end_waits(self, run: Sequence[Any]) -> None:
        """A FET that waits without a cmd_id ends when the client goes on with anything but another such FET."""
        if run and type(run[0]) is wire.Fet and all(command.wait for command in run):
            return
        waits, self._waits = self._waits, None
        for pending in waits or ():
            for name in pending.waits:
                self._queue(name).tell(EndWaits(self, pending, name))

    def _start(self, run: Sequence[Any]) -> bool:
        """Begin a run; False if it has to wait for what stands before it."""
        if self._busy and any(concerns(command, self._busy) for command in run):
            return False
        if self._waits:
            self._end_waits(run)
        _START[type(run[0])](self, run)
        return True

    def _begin(self, run: Sequence[Any], missing: int, busy: tuple[str, ...] = ()) -> Pending:
        pending = Pending(run, [None] * len(run), missing, busy)
        if self._pendings is None:
            self._pendings = deque()
        self._pendings.append(pending)
        if busy:
            if self._busy is None:
                self._busy = {}
            for name in busy:
                self._busy[name] = self._busy.get(name, 0) + 1
        return pending

    def _queue(self, name: str) -> Process:
        """Return whom to tell about a queue: its process, or the supervisor if it has none."""
        return self.runtime.whereis(("queue", name)) or self._services.queues

    def _know(self, name: str) -> bool:
        """Remember a queue that hears of this subscriber's end; False if there are too many already."""
        if self._known is None:
            self._known = set()
        if len(self._known) >= QUEUES_MAX and name not in self._known:
            return False
        self._known.add(name)
        return True

    # --- publishing ------------------------------------------------------------------------------------------------

    def _publish(self, run: Sequence[Any]) -> None:
        """Make one entry of all plain publishes to a queue; one that is a whole of its own has its own entry."""
        pending = self._begin(run, len(run))
        gathered: dict[str, tuple[list[Draft], list[int], list[int]]] = {}
        items: list[tuple[log.Entry, Asker | None]] = []
        limit = self._services.limits.message_bytes_max
        drafts_of_all = plain_drafts_of(run, limit)
        if drafts_of_all is not None:
            gathered[run[0].qname] = (drafts_of_all, list(range(len(run))), [])
            run = ()
        for place, pub in enumerate(run):
            try:
                if pub.id is not None or pub.messages is not None:
                    drafts = drafts_of(pub, limit)
                    self._close_gathered(gathered, pub.qname, items, pending)
                    items.append(self._whole(pub, drafts, pending, place))
                    continue
                draft = plain_draft_of(pub, limit)
            except Refused as error:
                self._reply(pending, place, wire.nok(error, pub.cmd_id))
                continue
            if pub.n is not None and not self._session:
                self._reply(
                    pending, place, wire.nok(BadField("n needs a session: send HELLO with one first"), pub.cmd_id)
                )
                continue
            numbered = pub.n is not None
            found = gathered.get(pub.qname)
            if found is not None and bool(found[2]) != numbered:
                self._close_gathered(gathered, pub.qname, items, pending)
                found = None
            if found is None:
                found = gathered[pub.qname] = ([], [], [])
            found[0].append(draft)
            found[1].append(place)
            if numbered:
                found[2].append(pub.n)
        for name in list(gathered):
            self._close_gathered(gathered, name, items, pending)
        if items:
            names = tuple({entry.queue for entry, _ in items})
            self._make_busy(pending, names)
            self._propose(items, names)

    def _propose(self, items: list[tuple[log.Entry, Asker | None]], names: Sequence[str]) -> None:
        """Propose; queues that would be created get the policies that this node's settings give them."""
        services = self._services
        if services.defaults != BUILT_IN:
            missing = [name for name in names if not services.exists(name)]
            items[:0] = [(log.CreateQueue(name, services.defaults), None) for name in missing]
        services.raft_log.tell(Propose(items))

    def _close_gathered(
        self,
        gathered: dict[str, tuple[list[Draft], list[int], list[int]]],
        name: str,
        items: list[tuple[log.Entry, Asker | None]],
        pending: Pending,
    ) -> None:
        found = gathered.pop(name, None)
        if found is not None:
            drafts, places, ordinals = found
            session = self._session if ordinals else ""
            entry = Publish(name, drafts, session=session, ordinals=ordinals, door=self._door.kind, worker=self._worker)
            items.append((entry, Asker(self, pending, places)))

    def _whole(
        self, pub: wire.Pub, drafts: list[Draft], pending: Pending, place: int
    ) -> tuple[log.Entry, Asker | None]:
        if pub.n is not None and not self._session:
            raise BadField("n needs a session: send HELLO with one first")
        numbered = pub.n is not None and pub.id is None
        entry = Publish(
            pub.qname,
            drafts,
            atomic=True,
            id=pub.id or "",
            session=self._session if numbered else "",
            ordinals=[pub.n] if numbered and pub.n is not None else [],
            door=self._door.kind,
            worker=self._worker,
        )
        return entry, Asker(self, pending, place)

    def _make_busy(self, pending: Pending, names: tuple[str, ...]) -> None:
        pending.busy += names
        if self._busy is None:
            self._busy = {}
        for name in names:
            self._busy[name] = self._busy.get(name, 0) + 1

    # --- acknowledging ---------------------------------------------------------------------------------------------

    def _ack(self, run: Sequence[Any]) -> None:
        """Make one entry of all plain acknowledgements of a queue."""
        pending = self._begin(run, len(run))
        gathered: dict[str, list[int]] = {}
        items: list[tuple[log.Entry, Asker | None]] = []
        for place, command in enumerate(run):
            if command.uids is not None or command.publish is not None:
                self._ack_whole(command, pending, place, items)
            else:
                gathered.setdefault(command.qname, []).append(place)
        for name, places in gathered.items():
            self._ack_plain(name, places, run, pending, items)
        if items:
            follow_ups = {publish.queue for entry, _ in items if type(entry) is log.Ack for publish in entry.publishes}
            self._propose(items, tuple(follow_ups))

    def _ack_plain(
        self,
        name: str,
        places: list[int],
        run: Sequence[Any],
        pending: Pending,
        items: list[tuple[log.Entry, Asker | None]],
    ) -> None:
        uids, tokens, good = [], [], []
        for place in places:
            command = run[place]
            try:
                tokens.append(ANY_TOKEN if command.lease is None else token_of(command.lease))
            except BadField as error:
                self._reply(pending, place, wire.nok(error, command.cmd_id))
                continue
            uids.append(command.uid)
            good.append(place)
        if uids:
            entry = self._ack_entry(name, uids, tokens)
            items.append((entry, Asker(self, pending, good)))

    def _ack_entry(self, name: str, uids: list[str], tokens: list[Token], publishes: Sequence[Publish] = ()) -> log.Ack:
        first = next((found for found in map(parse, uids) if found is not None), None)
        queue_id = 0 if first is None else first[0]
        numbers = numbers_of(uids, prefix_of(queue_id))
        foreign = {i: uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
        self._queue(name).tell(Leaving(name, queue_id, [number for number in numbers if number > 0]))
        return log.Ack(
            name, queue_id, numbers, tokens, list(publishes), foreign, worker=self._worker, door=self._door.kind
        )

    def _ack_whole(
        self, command: wire.Ack, pending: Pending, place: int, items: list[tuple[log.Entry, Asker | None]]
    ) -> None:
        """An acknowledgement of several, or one with follow-ups."""
        limit = self._services.limits.message_bytes_max
        try:
            uids, tokens = settled_by(command)
            publishes = [
                Publish(
                    part.qname,
                    [draft_of(wire.followup_content(part), limit)],
                    atomic=True,
                    door=self._door.kind,
                    worker=self._worker,
                )
                for part in command.publish or ()
            ]
        except Refused as error:
            self._reply(pending, place, wire.nok(error, command.cmd_id))
            return
        if publishes:
            self._make_busy(pending, (command.qname, *{publish.queue for publish in publishes}))
        items.append((self._ack_entry(command.qname, uids, tokens, publishes), Asker(self, pending, place)))

    def _nack(self, run: Sequence[Any]) -> None:
        self._settle_straight(run, self._nack_one)

    def _nack_one(self, command: wire.Nack, pending: Pending, uids: list[str], tokens: list[Token]) -> None:
        delay_ms = None if command.delay is None else command.delay * 1000
        places = list(range(len(uids)))
        asker = Asker(self, Part(pending, 0, uids), places)
        nack = Nack(asker, command.qname, uids, tokens, delay_ms, command.error or "", reason_of(command))
        self._queue(command.qname).tell(nack)

    def _touch(self, run: Sequence[Any]) -> None:
        self._settle_straight(run, self._touch_one)

    def _touch_one(self, command: wire.Touch, pending: Pending, uids: list[str], tokens: list[Token]) -> None:
        timeout_ms = 0 if command.timeout is None else command.timeout * 1000
        asker = Asker(self, Part(pending, 0, uids), list(range(len(uids))))
        self._queue(command.qname).tell(Touch(asker, command.qname, uids, tokens, timeout_ms))

    def _settle_straight(
        self, run: Sequence[Any], begin: Callable[[Any, Pending, list[str], list[Token]], None]
    ) -> None:
        """Tell a queue about deliveries; what it answers uid by uid becomes one reply for each command."""
        (command,) = run
        pending = self._begin(run, 1)
        try:
            uids, tokens = settled_by(command)
        except Refused as error:
            self._reply(pending, 0, wire.nok(error, command.cmd_id))
            return
        self._make_busy(pending, (command.qname,))
        begin(command, pending, uids, tokens)

    # --- fetching and sleeping -------------------------------------------------------------------------------------

    def _fetch(self, run: Sequence[Any]) -> None:
        """Tell each queue what is wanted of it; a FET with wait and cmd_id is answered whenever it is."""
        apart: list[wire.Fet] = []
        rest: list[wire.Fet] = []
        for command in run:
            (apart if command.wait and command.cmd_id is not msgspec.UNSET else rest).append(command)
        for command in apart:
            alone = Pending([command], [None], 1)
            self._ask_queue(command.qname, alone, [want_of(0, command)])
        if not rest:
            return
        pending = self._begin(rest, len(rest))
        last_plain = max((place for place, command in enumerate(rest) if not command.wait), default=-1)
        wants: dict[str, list[Want]] = {}
        for place, command in enumerate(rest):
            want = want_of(place, command)
            if want.wait_ms and (place < last_plain or self._ended):  # the client went on: it is over before it began
                want = Want(want.place, want.count)
            wants.setdefault(command.qname, []).append(want)
        if any(command.wait for command in rest):
            pending.waits = tuple({command.qname for command in rest if command.wait})
            self._waits = [*(before for before in self._waits or () if before.missing), pending]
        for name, mine in wants.items():
            self._ask_queue(name, pending, mine)

    def _ask_queue(self, name: str, pending: Pending, wants: list[Want]) -> None:
        if not self._know(name):
            refusal = Refusal("BUSY", f"one connection may know {QUEUES_MAX} queues")
            self.tell(Answered([(pending, want.place, refusal) for want in wants]))
            return
        subscribed = self.runtime.groups.has(("subscribers", name), self)
        message = Fetch(name, self, pending, wants, self._worker, self._door.kind, subscribed)
        self._queue(name).tell(message)

    def _sleep(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run, 1)
        if not self._know(command.qname):
            refusal = Refusal("BUSY", f"one connection may know {QUEUES_MAX} queues")
            self._reply(pending, 0, refused(refusal, command.cmd_id))
            return
        subscribed = self.runtime.groups.has(("subscribers", command.qname), self)
        self._queue(command.qname).tell(Sleep(Asker(self, pending, 0), command.qname, subscribed))

    def _subscribe(self, run: Sequence[Any]) -> None:
        (command,) = run
        name = command.qname
        pending = self._begin(run, 1)
        if not self._know(name):
            refusal = wire.Nok(err="BUSY", detail=f"one connection may know {QUEUES_MAX} queues", cmd_id=command.cmd_id)
            self._reply(pending, 0, refusal)
            return
        self.runtime.groups.join(("subscribers", name), self)
        self._queue(name).tell(Subscribe(name))
        self._reply(pending, 0, wire.Oksub(qname=name, cmd_id=command.cmd_id))

    def _unsubscribe(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run, 1)
        self.runtime.groups.leave(("subscribers", command.qname), self)
        self._queue(command.qname).tell(Gone(self, command.qname, asleep_only=True))
        self._reply(pending, 0, wire.Okuns(qname=command.qname, cmd_id=command.cmd_id))

    # --- queues, and the rest --------------------------------------------------------------------------------------

    def _change_queue(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run, 1)
        try:
            entry = queue_entry_of(command)
        except Refused as error:
            self._reply(pending, 0, wire.nok(error, command.cmd_id))
            return
        self._make_busy(pending, (command.qname,))
        self._services.raft_log.tell(Propose([(entry, Asker(self, pending, 0))]))

    def _look(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run, 1)
        asker = Asker(self, pending, 0)
        match command:
            case wire.Peek():
                self._queue(command.qname).tell(Peek(asker, command.qname, command.state, command.count))
            case wire.List():
                self._make_busy(pending, (EVERY_QUEUE,))
                self._services.queues.tell(Stats(asker, "", all_queues=True, prefix=command.prefix))
            case wire.Stats(qname=str(name)):
                self._queue(name).tell(Stats(asker, name))
            case _:
                self._make_busy(pending, (EVERY_QUEUE,))
                self._services.queues.tell(Stats(asker, "", all_queues=True))

    def _ping(self, run: Sequence[Any]) -> None:
        (command,) = run
        self._reply(self._begin(run, 1), 0, wire.Pong(cmd_id=command.cmd_id))

    def _hello(self, run: Sequence[Any]) -> None:
        (command,) = run
        if command.session is not None:
            self._session = command.session
        limits = self._services.limits
        reply = wire.HelloReply(
            version=limits.version,
            limits={"message_bytes_max": limits.message_bytes_max},
            session=self._session or None,
            cmd_id=command.cmd_id,
        )
        self._reply(self._begin(run, 1), 0, reply)

    def _bad(self, run: Sequence[Any]) -> None:
        pending = self._begin(run, len(run))
        for place, bad in enumerate(run):
            self._reply(pending, place, wire.nok(bad.error, bad.cmd_id))
        if run[-1].error.closes:
            self._send()
            self._door.close(run[-1].error.code)

    # --- out -------------------------------------------------------------------------------------------------------

    def _reply(self, pending: Pending, place: int, reply: wire.Reply) -> None:
        if pending.replies[place] is None:
            pending.replies[place] = reply
            pending.missing -= 1

    def _answered(self, answers: Sequence[tuple[Any, Any, Any]]) -> None:
        for ticket, place, answer in answers:
            if type(ticket) is Part:
                self._answer_part(ticket, place, answer)
            elif type(place) is list:
                self._answer_many(ticket, place, answer)
            else:
                if ticket.replies[place] is not None:
                    continue  # told twice: the queue was rebuilt meanwhile
                self._reply(ticket, place, self._reply_to(ticket.commands[place], answer))
                if len(ticket.commands) == 1 and self._is_apart(ticket):
                    self._in_flight -= 1
                    self._door.send(ticket.replies)
        self._send()

    def _is_apart(self, pending: Pending) -> bool:
        command = pending.commands[0]
        return type(command) is wire.Fet and bool(command.wait) and command.cmd_id is not msgspec.UNSET

    def _answer_many(self, pending: Pending, places: list[int], answer: Outcome | Refusal) -> None:
        """One entry answered many commands: PUBs or ACKs of one queue."""
        commands, replies = pending.commands, pending.replies
        if type(answer) is Refusal:
            for place in places:
                self._reply(pending, place, refused(answer, commands[place].cmd_id))
            self._stay(commands, places)
            return
        assert type(answer) is Outcome, "outcomes only"
        name, results = answer.queue, answer.results
        if replies[places[0]] is not None:
            return  # told twice: the queue was rebuilt meanwhile
        if type(commands[places[0]]) is wire.Pub:
            made = published(name, answer, results, [commands[place].cmd_id for place in places])
        else:
            made = [acked(commands[place], code) for place, code in zip(places, results, strict=True)]
        for place, reply in zip(places, made, strict=True):
            replies[place] = reply
        pending.missing -= len(places)

    def _stay(self, commands: Sequence[Any], places: Sequence[int]) -> None:
        """The log did not take acknowledgements: tell their queues that nothing is leaving."""
        for place in places:
            command = commands[place]
            if isinstance(command, wire.Ack):
                uids = command.uids or [command.uid or ""]
                for queue_id, number in filter(None, map(parse, uids)):
                    self._queue(command.qname).tell(Leaving(command.qname, queue_id, [number], undone=True))

    def _answer_part(self, part: "Part", places: Any, answer: Outcome | Refusal) -> None:
        """Some uids of one NACK or TOUCH were answered."""
        pending, place = part.pending, part.place
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

    def _send(self) -> None:
        """Write what is answered, up to the first that is not; begin what waited for it."""
        while True:
            out: list[Any] = []
            pendings = self._pendings
            while pendings and not pendings[0].missing:
                pending = pendings.popleft()
                out += pending.replies
                self._in_flight -= len(pending.commands)
                for name in pending.busy:
                    self._free(name)
            if out:
                self._door.send(out)
            if not self._start_parked():
                break
        if not self._pendings:
            self._pendings = None
            self._in_flight_bytes = 0
            self._finish_if_answered()
        if self._paused and self._in_flight <= IN_FLIGHT_LOW and self._in_flight_bytes <= IN_FLIGHT_BYTES_MAX:
            self._paused = False
            self._door.resume()

    def _finish_if_answered(self) -> None:
        if self._ended and not self._pendings and not self._parked:
            self._door.hang_up()

    def _free(self, name: str) -> None:
        assert self._busy is not None, "made busy before"
        left = self._busy[name] - 1
        if left:
            self._busy[name] = left
        else:
            del self._busy[name]
            self._busy = self._busy or None

    def _start_parked(self) -> bool:
        """Begin what was parked as far as possible; True if anything was begun."""
        started = False
        while self._parked:
            if not self._start(self._parked[0]):
                return started
            self._parked.popleft()
            started = True
        self._parked = None
        return started


class Part(msgspec.Struct, gc=False):
    """A NACK or TOUCH whose uids are answered one by one."""

    pending: Pending
    place: int
    uids: list[str]
    results: list[Any] = []

    def __post_init__(self) -> None:
        self.results = [None] * len(self.uids)


_START: dict[type, Callable[[Subscriber, Sequence[Any]], None]] = {
    wire.Pub: Subscriber._publish,
    wire.Ack: Subscriber._ack,
    wire.Del: Subscriber._ack,
    wire.Fet: Subscriber._fetch,
    wire.Nack: Subscriber._nack,
    wire.Touch: Subscriber._touch,
    wire.Sub: Subscriber._subscribe,
    wire.Uns: Subscriber._unsubscribe,
    wire.Islp: Subscriber._sleep,
    wire.Ping: Subscriber._ping,
    wire.Hello: Subscriber._hello,
    wire.Create: Subscriber._change_queue,
    wire.Update: Subscriber._change_queue,
    wire.Drop: Subscriber._change_queue,
    wire.Purge: Subscriber._change_queue,
    wire.List: Subscriber._look,
    wire.Stats: Subscriber._look,
    wire.Peek: Subscriber._look,
    wire.Bad: Subscriber._bad,
}
