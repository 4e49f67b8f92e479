"""MoniqueExchange: the one place through which MoniQue's messages pass; who hears which of them.

    Do (WebSocket), Relayed, Technical (ZeroMQ) --> Exchange --> Pushed to each that wants it, then outcomes into slots
    a task with a route --> Keep (tasks) --> Kept --> Pushed, then its outcome

What comes together is shared out together: one telling for each subscriber.  It forgets a message as soon as it has
told it.  A subscriber that is slow is the affair of its own door; it knows no queue.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import (
    Cancel,
    Do,
    Introduce,
    Join,
    JoinTechnical,
    Keep,
    Kept,
    Leave,
    Parcel,
    Pushed,
    Relayed,
    Task,
    Technical,
    say_done,
)
from wakeq.actors.runtime import Down, Process
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.wire.monique.commands import Subscribe, Unsubscribe
from wakeq.protocol.wire.monique.conversation import Push
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.exchange import Exchange, TooManySubscriptions
from wakeq.protocol.wire.monique.kills import KILL, killed
from wakeq.protocol.wire.monique.messages import make_id
from wakeq.protocol.wire.monique.transfers import Transfer
from wakeq.protocol.wire.slots import Slot

TASK = "config"  # the type of a task


class Rules(NamedTuple):
    """What passes, and what is kept: with `allowed`, messages of these specs only; tasks of a spec on its queue."""

    allowed: frozenset[str] = frozenset()
    routes: Mapping[str, str] = {}
    checks: bool = True  # kills, which every component reads: one that it cannot unpack would make it start again


class FamilyEnded(RuntimeError):
    """A process that works for the exchange has failed."""


class MoniqueExchange(Process):
    """See the head of this file."""

    def __init__(
        self,
        rules: Rules,
        tasks: Process | None,
        now_ms: Callable[[], int],
        counters: MoniqueCounters,
        randbelow: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        """`tasks` keeps those that have a route."""
        super().__init__()
        self._rules = rules
        self._tasks = tasks
        self._now_ms = now_ms
        self._randbelow = randbelow
        self._exchange: Exchange[Process] = Exchange()
        self._technical: list[Process] = []
        self._checking: set[Process] = set()  # the subscribers that drop what components could not read
        self._shares: dict[Process, list[Parcel]] = {}  # what each is to be told at the end of this turn
        self._to_keep: list[Task] = []
        self._counters = counters
        self._dropped = counters.dropper("kill", "on the technical layer")

    def on_start(self) -> None:
        if self._tasks is not None:
            self.runtime.monitor(self, self._tasks, "the process that keeps tasks")

    def on_stop(self) -> None:
        if self._tasks is not None:
            self._tasks.stop()

    def on_failure(self, *_: Any) -> None:
        self.on_stop()

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_down(self, message: Down) -> None:
        """Without one of those who work for it the exchange would only seem to work: all of them begin again."""
        if message.reason is not None:
            raise FamilyEnded(f"{message.tag} has failed") from message.reason

    def on_do(self, message: Do) -> None:
        """Do what a connection wants, in its order; what it is pushed by that comes before the answers."""
        done: list[tuple[Slot, WakeqError | None]] = []
        for slot in message.slots:
            command = slot.command
            if type(command) is Push:
                self._push(Transfer(command.tag, command.message), slot, done)
            elif type(command) is Subscribe:
                done.append((slot, self._subscribe(message.subscriber, command)))
            else:
                assert type(command) is Unsubscribe, "nothing else is done"
                self._exchange.unsubscribe(message.subscriber, command.data)
                done.append((slot, None))
        self._tell()
        for slot, error in done:
            slot.tell(error)

    def on_join(self, message: Join) -> None:
        self._exchange.subscribe(message.subscriber, message.subscriptions)
        if message.checks:
            self._checking.add(message.subscriber)

    def on_relayed(self, message: Relayed) -> None:
        for transfer in message.transfers:
            self._take(Parcel(transfer))
        self._tell(message.asker)

    def on_kept(self, message: Kept) -> None:
        for task in message.tasks:
            self._share(task.parcel)
        self._tell()
        for task in message.tasks:
            if task.slot is not None:
                task.slot.tell(None)

    def on_technical(self, message: Technical) -> None:
        """Relay; before a kill goes what tells everybody about it."""
        relayed: list[Transfer] = []
        for transfer in message.transfers:
            if transfer.tag.spec == KILL:
                try:
                    self._kill(transfer)
                except MoniqueError as error:
                    self._dropped(error)
                    continue
            relayed.append(transfer)
        self._tell()
        self._relay(relayed)
        say_done(message.asker)

    def on_join_technical(self, message: JoinTechnical) -> None:
        self._technical.append(message.process)

    def on_leave(self, message: Leave) -> None:
        self._exchange.leave(message.subscriber)

    def on_introduce(self, message: Introduce) -> None:
        facts = {**message.facts, "subscriptions": self._exchange.count_of(message.subscriber)}
        asker = message.asker
        asker.tell(facts)

    @property
    def subscriptions(self) -> int:
        """How many there are, of all subscribers."""
        return self._exchange.size

    def _subscribe(self, subscriber: Process, wanted: Subscribe) -> WakeqError | None:
        try:
            self._exchange.subscribe(subscriber, wanted.data)
        except TooManySubscriptions as error:
            return error
        return None

    def _push(self, transfer: Transfer, slot: Slot, done: list[tuple[Slot, WakeqError | None]]) -> None:
        """Take what came by WebSocket, and note what became of it; a task is kept on its queue first."""
        self._counters.taken["websocket"] += 1
        parcel = Parcel(transfer)
        flaw = self._flaw_for_readers(parcel)
        if flaw is not None:  # a message that would be dropped on its way must not be confirmed
            done.append((slot, flaw))
            return
        if transfer.tag.spec == KILL:
            self._tell()  # a task that was pushed before it is looked for where it is by now
            try:
                self._kill(transfer)
            except MoniqueError as error:
                done.append((slot, error))
                return
            self._tell()
            self._relay([transfer])
        if self._take(parcel, slot):
            done.append((slot, None))

    def _flaw_for_readers(self, parcel: Parcel) -> MoniqueError | None:
        """Return why a subscriber of the message would drop it, if one would."""
        tag = parcel.transfer.tag
        if not self._checking or self._checking.isdisjoint(self._exchange.subscribers(tag.spec, tag.type)):
            return None
        return parcel.flaw

    def _take(self, parcel: Parcel, slot: Slot | None = None) -> bool:
        """Pass a message on, unless its spec is not allowed (section 6: it is dropped in silence).

        False for a task that has to be kept first.
        """
        tag = parcel.transfer.tag
        if self._rules.allowed and tag.spec not in self._rules.allowed:
            return True
        queue = self._rules.routes.get(tag.spec) if tag.type == TASK else None
        if queue is None:
            self._share(parcel)
            return True
        self._to_keep.append(Task(parcel, queue, slot))
        return False

    def _kill(self, kill: Transfer) -> None:
        """Tell everybody that a task is killed, and have it taken off its queue; or raise."""
        flaw = Parcel(kill).flaw if self._rules.checks else None
        if flaw is not None:
            raise flaw
        notice = killed(kill, id=make_id(self._randbelow), now_ms=self._now_ms())
        self._share(Parcel(notice))
        if self._tasks is not None:
            self._tasks.tell(Cancel(notice.tag.pid))

    def _relay(self, transfers: list[Transfer]) -> None:
        if transfers:
            for process in self._technical:
                process.tell(Technical(transfers))

    def _share(self, parcel: Parcel) -> None:
        tag = parcel.transfer.tag
        for subscriber in self._exchange.subscribers(tag.spec, tag.type):
            self._shares.setdefault(subscriber, []).append(parcel)

    def _tell(self, asker: ReplyTo | None = None) -> None:
        """Tell everybody what this turn brought; the asker, that it has been passed on."""
        shares, self._shares = self._shares, {}
        for subscriber, parcels in shares.items():
            subscriber.tell(Pushed(parcels))
        to_keep, self._to_keep = self._to_keep, []
        if to_keep:
            assert self._tasks is not None, "there are routes"
            self._tasks.tell(Keep(to_keep, self, asker))
        else:
            say_done(asker)


_HANDLERS: dict[type, Callable[[MoniqueExchange, Any], None]] = {
    Down: MoniqueExchange.on_down,
    Do: MoniqueExchange.on_do,
    Join: MoniqueExchange.on_join,
    Relayed: MoniqueExchange.on_relayed,
    Technical: MoniqueExchange.on_technical,
    JoinTechnical: MoniqueExchange.on_join_technical,
    Kept: MoniqueExchange.on_kept,
    Leave: MoniqueExchange.on_leave,
    Introduce: MoniqueExchange.on_introduce,
}
