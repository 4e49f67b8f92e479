"""StraightCommands: the commands of a subscriber that go straight to a queue, not through the log.

    FET, NACK, TOUCH, SUB, UNS, ISLP, PEEK, STATS, LIST --> the queue's process --> Answered

The queue decides which messages are handed out.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Answered,
    Asker,
    EndWaits,
    Fetch,
    Gone,
    Inquire,
    Nack,
    Peek,
    Refusal,
    Sleep,
    Stats,
    Subscribe,
    Touch,
    Want,
)
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.actors.sessions.requests import Part, Pending, Requests
from wakeq.actors.sessions.worker_replies import reason_of, refused, settled_by, want_of
from wakeq.protocol.errors import Refused
from wakeq.protocol.log.entries import Token
from wakeq.protocol.wire.worker import codec as wire

EVERY_QUEUE = "\0"  # no queue has this name: what looks at all queues makes it busy, so that these come one at a time
QUEUES_MAX = 10_000  # distinct queues that one connection may subscribe to or fetch from

logger = logging.getLogger("wakeq.admin")  # as of what is asked for over HTTP


class StraightCommands(Requests):
    """See the head of this file."""

    _waits: list[Pending] | None = None  # runs with a FET that waits until the client sends something else
    _known: set[str] | None = None  # queues that must be told when this connection ends

    def _know(self, name: str) -> bool:
        """Remember to tell a queue when this connection ends; return False if there are too many already."""
        if self._known is None:
            self._known = set()
        if len(self._known) >= QUEUES_MAX and name not in self._known:
            return False
        self._known.add(name)
        return True

    def _end_waits(self, run: Sequence[Any]) -> None:
        """End the FETs that wait without a cmd_id, unless the client goes on with just more of them."""
        if run and type(run[0]) is wire.Fet and all(command.wait for command in run):
            return
        waits, self._waits = self._waits, None
        for pending in waits or ():
            for name in pending.waits:
                self._queue(name).tell(EndWaits(self, pending, name))

    # --- fetching and sleeping -------------------------------------------------------------------------------------

    def _fetch(self, run: Sequence[Any]) -> None:
        """Tell each queue which messages are wanted from it."""
        if any([command.wait for command in run]):
            self._fetch_waiting(run)
            return
        pending = self._begin(run)
        wants: dict[str, list[Want]] = {}
        for place, command in enumerate(run):
            wants.setdefault(command.qname, []).append(want_of(place, command))
        for name, mine in wants.items():
            self._ask_queue(name, pending, mine)

    def _fetch_waiting(self, run: Sequence[Any]) -> None:
        """The same if some of them wait; one with wait and cmd_id is answered out of order, when it has a message."""
        apart: list[wire.Fet] = []
        rest: list[wire.Fet] = []
        for command in run:
            (apart if command.wait and command.cmd_id is not msgspec.UNSET else rest).append(command)
        for command in apart:
            alone = Pending([command], [None], 1)
            self._ask_queue(command.qname, alone, [want_of(0, command)])
        if not rest:
            return
        pending = self._begin(rest)
        last_plain = max((place for place, command in enumerate(rest) if not command.wait), default=-1)
        wants: dict[str, list[Want]] = {}
        for place, command in enumerate(rest):
            want = want_of(place, command)
            if want.wait_ms and (place < last_plain or self._ended):  # the client went on: the wait is over already
                want = Want(want.place, want.count, 0, want.timeout_ms)
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
        message = Fetch(name, self, pending, wants, self._worker, self._door.kind, self._is_awaited(name))
        self._queue(name).tell(message)

    def _sleep(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run)
        if not self._know(command.qname):
            refusal = Refusal("BUSY", f"one connection may know {QUEUES_MAX} queues")
            self._reply(pending, 0, refused(refusal, command.cmd_id))
            return
        asker, subscribed = Asker(self, pending, 0), self._is_awaited(command.qname)
        self._queue(command.qname).tell(Sleep(asker, command.qname, subscribed, command.wake == "ready"))

    def _is_awaited(self, name: str) -> bool:
        """Whether anybody is subscribed to a queue: then it counts as empty even if it does not exist."""
        return self.runtime.groups.count(("subscribers", name)) > 0

    def _subscribe(self, run: Sequence[Any]) -> None:
        (command,) = run
        name = command.qname
        pending = self._begin(run)
        if not self._know(name):
            refusal = wire.Nok(err="BUSY", detail=f"one connection may know {QUEUES_MAX} queues", cmd_id=command.cmd_id)
            self._reply(pending, 0, refusal)
            return
        self.runtime.groups.join(("subscribers", name), self)
        self._queue(name).tell(Subscribe(name))
        self._reply(pending, 0, wire.Oksub(qname=name, cmd_id=command.cmd_id))

    def _unsubscribe(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run)
        self.runtime.groups.leave(("subscribers", command.qname), self)
        self._queue(command.qname).tell(Gone(self, command.qname, asleep_only=True))
        self._reply(pending, 0, wire.Okuns(qname=command.qname, cmd_id=command.cmd_id))

    # --- deliveries ---------------------------------------------------------------------------------------------------

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
        """Tell a queue which deliveries a NACK or TOUCH is about; its answers for all uids become one reply."""
        (command,) = run
        pending = self._begin(run)
        try:
            uids, tokens = settled_by(command)
        except Refused as error:
            self._reply(pending, 0, wire.nok(error, command.cmd_id))
            return
        self._make_busy(pending, (command.qname,))
        begin(command, pending, uids, tokens)

    def _look(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run)
        asker = Asker(self, pending, 0)
        match command:
            case wire.Peek(qname=name):
                self._inquire(pending, name, Peek(asker, name, command.state, command.count))
            case wire.List():
                self._inquire(pending, EVERY_QUEUE, Stats(asker, "", all_queues=True, prefix=command.prefix))
            case wire.Cluster():
                self._note_change(command)
                administer = Administer(asker, command.do, command.node, command.address)
                self._services.raft_log.tell(administer)
            case wire.Stats(qname=str(name)):
                self._inquire(pending, name, Stats(asker, name))
            case _:
                self._inquire(pending, EVERY_QUEUE, Stats(asker, "", all_queues=True))

    def _note_change(self, command: wire.Cluster) -> None:
        """Log who asks for something to be done, as of what changes queues."""
        if command.do != "status":
            node = "" if command.node is None else f" {command.node}"
            logger.info("%s CLUSTER %s%s%s", self._who, command.do, node, command.address and f" {command.address}")

    def _inquire(self, pending: Pending, name: str, question: Peek | Stats) -> None:
        """Ask what this node holds as leader; later commands about the same queue wait for the answer."""
        self._make_busy(pending, (name,))
        self._services.raft_log.tell(Inquire(question))
