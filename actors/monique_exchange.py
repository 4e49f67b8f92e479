"""MoniqueExchange: the one place through which MoniQue's messages pass; who hears which of them.

    Do (WebSocket), Relayed, Technical (ZeroMQ) --> Exchange --> Pushed to each subscriber that wants it, then Done

What comes together is shared out together: one telling for each subscriber.  It forgets a message as soon as it has
told it.  A subscriber that is slow is the affair of its own door.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from wakeq.actors.monique_messages import Do, Done, Leave, Parcel, Pushed, Relayed
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.exchange import Exchange, TooManySubscriptions
from wakeq.protocol.wire.monique.commands import Subscribe, Unsubscribe
from wakeq.protocol.wire.monique.conversation import Intent, Push
from wakeq.protocol.wire.monique.transfers import Transfer

Outcomes = list[tuple[Intent, WakeqError | None]]


class Rules(NamedTuple):
    """What passes: with `allowed`, messages of these specs only."""

    allowed: frozenset[str] = frozenset()


class MoniqueExchange(Process):
    """See the head of this file."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules
        self._exchange: Exchange[Process] = Exchange()
        self._shares: dict[Process, list[Parcel]] = {}  # what each is to be told at the end of this turn

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_do(self, message: Do) -> None:
        """Do what a connection wants, in its order; what it is pushed by that comes before the answers."""
        outcomes: Outcomes = []
        for intent in message.intents:
            work = intent.work
            if type(work) is Push:
                self._take(Transfer(work.tag, work.message))
                outcomes.append((intent, None))
            elif type(work) is Subscribe:
                outcomes.append((intent, self._subscribe(message.subscriber, work)))
            else:
                assert type(work) is Unsubscribe, "nothing else is intended"
                self._exchange.unsubscribe(message.subscriber, work.data)
                outcomes.append((intent, None))
        self._tell_shares()
        message.subscriber.tell(Done(outcomes))

    def on_relayed(self, message: Relayed) -> None:
        for transfer in message.transfers:
            self._take(transfer)
        self._tell_shares()

    def on_leave(self, message: Leave) -> None:
        self._exchange.leave(message.subscriber)

    def _subscribe(self, subscriber: Process, wanted: Subscribe) -> WakeqError | None:
        try:
            self._exchange.subscribe(subscriber, wanted.data)
        except TooManySubscriptions as error:
            return error
        return None

    def _take(self, transfer: Transfer) -> None:
        """Pass a message on, unless its spec is not allowed (section 6: it is dropped in silence)."""
        if not self._rules.allowed or transfer.tag.spec in self._rules.allowed:
            self._share(Parcel(transfer))

    def _share(self, parcel: Parcel) -> None:
        tag = parcel.transfer.tag
        for subscriber in self._exchange.subscribers(tag.spec, tag.type):
            self._shares.setdefault(subscriber, []).append(parcel)

    def _tell_shares(self) -> None:
        shares, self._shares = self._shares, {}
        for subscriber, parcels in shares.items():
            subscriber.tell(Pushed(parcels))


_HANDLERS: dict[type, Callable[[MoniqueExchange, Any], None]] = {
    Do: MoniqueExchange.on_do,
    Relayed: MoniqueExchange.on_relayed,
    Leave: MoniqueExchange.on_leave,
}
