"""Conversation: one connection of the worker protocol, without a socket and without an actor.

    commands --> receive: a slot for each, filed into the lane of its queue --> outcomes in the slots
    take_replies: the answers that may leave, in the order of the commands

It files each command at once, in any order of kinds, and keeps the few rules of order that a client can see:

- Answers leave in the order of the commands; only a FET with `wait` and `cmd_id` is answered when it has a message.
- A read (FET, ISLP, PEEK, STATS ...) stands behind the last write of this connection to its queue that has no outcome.
- A write never waits for a read, nor for a write of another queue.  What changes a queue as a whole, and an ACK that
  publishes, holds back later plain writes of this connection to the queues that it names.
- Any further command ends a FET that waits without `cmd_id`.

It must never look into a queue or a file, or wait.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from wakeq.protocol.errors import BadCommand, BadField, BadJson, NotSpoken, Refused, Unauthorized
from wakeq.protocol.log import entries as log
from wakeq.protocol.log.entries import ANY_TOKEN, Draft, Publish, Result, UnstashAction
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.lanes import AckSeveral, Filed
from wakeq.protocol.queue.outcomes import Delivery, Refusal, Seen
from wakeq.protocol.seconds import ms_of
from wakeq.protocol.wire.slots import MISSING, SeveralResults, Slot
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.answers import (
    REPLIES,
    draft_of,
    drafts_of,
    queue_entry_of,
    reason_of,
    refused,
    settled_by,
    token_of,
)
from wakeq.protocol.wire.worker.block_answers import STAGED_REPLIES, drafts_in
from wakeq.protocol.wire.worker.identity import packed
from wakeq.protocol.wire.worker.replies import ReplyBase

BAD_LINES_MAX = 1_000  # lines that are no command, of a client that is known; then its connection ends
GOOD_FOR_BAD = 10  # commands for which one such line is forgiven
QUEUES_MAX = 10_000  # distinct queues that one connection may subscribe to or fetch from
ANYWHERE = frozenset({wire.Ping, wire.Hello, wire.Uns, wire.Cluster, wire.Bad})  # answered even by a follower
DONE = int(Result.DONE)
DELIVERING = frozenset({wire.Fet, wire.FetBlock, wire.Slice})


class Limits(msgspec.Struct, frozen=True):
    """The limits that a client must keep to, which HELLO tells it."""

    message_bytes_max: int = 1 << 20
    version: str = "0"


class Session(Protocol):
    """What a conversation needs of the actor that holds it."""

    is_dirty: bool
    number: int  # of the connection, in the log and in the history
    door_kind: int
    sends_frames: bool  # whether a block may leave raw
    needs_permission: bool  # whether `permit` is to be asked

    def note_dirty(self) -> None:
        """There is something to send at the end of the round."""

    def filed(self, name: str) -> Filed:
        """Return where to file for a queue, which need not exist."""

    def refusal(self) -> Refusal | None:
        """Return why this node may not serve at this moment."""

    def withdrawal(self, term: int) -> Refusal | None:
        """Return why a delivery of a term may not leave any more."""

    def permit(self, command: Any) -> Refused | None:
        """Return why this client may not do this."""

    def denial_of_fetch(self, queue: str) -> Refused | None:
        """Return why this client may not fetch from a queue."""

    def log_in(self, token: str | None) -> None:
        """Check the token of HELLO; raise Unauthorized."""

    def subscribe(self, name: str) -> None:
        """Join the subscribers of a queue."""

    def unsubscribe(self, name: str) -> None:
        """Leave them."""

    def ask_leader(self, question: orders.Peek | orders.Stats) -> None:
        """Have a question answered once a majority has confirmed that this node leads."""

    def administer(self, slot: Slot, command: wire.Cluster) -> None:
        """Do what an operator asks of the cluster."""

    def note_change(self, command: Any) -> None:
        """Log who changes a queue."""

    def return_unsent(self, name: str, deliveries: list[Delivery]) -> None:
        """These deliveries never left, because their node might lead no longer."""


class Conversation:
    """See the head of this file.  Everything that an idle connection does not need is None or empty."""

    __slots__ = (
        "_debt", "_holds", "_is_known", "_limits", "_open_writes", "_parked", "_session", "_standing",
        "_standing_for_all", "_waits", "apart", "closing", "has_ended", "identity", "known_queues", "session_id",
        "slots",
    )  # fmt: skip

    def __init__(self, session: Session, limits: Limits) -> None:
        self.slots: list[Slot] = []  # of commands that are not answered yet, in their order
        self.closing = ""  # why the connection is to be closed once everything is answered
        self.has_ended = False  # the client will send nothing more
        self.session_id = ""  # given in HELLO; the client numbers its publishes within it
        self.identity = b""  # who the client says it is, as identity.py packs it
        self.known_queues: set[str] | None = None  # queues that must hear when this connection ends
        self._session = session
        self._limits = limits
        self._is_known = False  # whether the peer has sent a command of the protocol, obeyed or refused
        self._debt = 0  # GOOD_FOR_BAD for each bad line, less 1 for each command behind it
        self._waits: list[Slot] | None = None  # fetches that wait until the client sends something else
        self.apart: list[Slot] | None = None  # fetches that are answered out of order
        self._open_writes: dict[str, list[Slot]] = {}  # by queue: writes that may have no outcome, for the next read
        self._holds: dict[str, Slot] | None = None  # by queue: what holds back later plain writes
        self._parked: dict[str, list[tuple[Slot, Slot]]] | None = None  # writes that are held back: (by what, it)
        # Reads: each stands behind so many of the first of these writes.  A list is shared: a copy for each read would
        # cost a pipelining client the square of what it has in flight.
        self._standing: dict[str, list[tuple[list[Slot], int, Slot]]] | None = None
        self._standing_for_all: list[Slot] | None = None  # LIST and STATS of the node

    @property
    def in_flight(self) -> int:
        """How many commands have no answer yet."""
        return len(self.slots) + (len(self.apart) if self.apart else 0)

    # --- in ----------------------------------------------------------------------------------------------------------

    def receive(self, commands: Sequence[Any]) -> None:
        """File commands, in their order; every one gets a slot, and in the end an answer."""
        session, slots = self._session, self.slots
        refusal, needs_permission = session.refusal(), session.needs_permission
        for command in commands:
            if self.closing:
                break  # the connection is about to be closed: later commands are ignored
            kind = type(command)
            slot = Slot(session, command)
            if self._waits and not (kind is wire.Fet and command.wait):
                self.end_waits()
            if kind is wire.Fet and command.wait and command.cmd_id is not msgspec.UNSET:
                self._keep_apart(slot)
            else:
                slots.append(slot)
            if kind is wire.Bad:
                self._refuse_bad(slot, command.error)
                continue
            if needs_permission and (denied := session.permit(command)) is not None:
                self._refuse_bad(slot, denied)
                continue
            self._is_known = True
            if self._debt:
                self._debt -= 1
            if refusal is not None and kind not in ANYWHERE:
                self._fill(slot, refused(refusal, command.cmd_id))
            elif kind is wire.Pub and self._holds is None:
                self._publish(command, slot)
            elif kind is wire.Fet:
                self._read(command.qname, slot)
            elif (kind is wire.Ack or kind is wire.Del) and self._holds is None and command.publish is None:
                self._acknowledge(command, slot)
            elif not self._is_held_back(command, slot):
                self._file(command, slot)
        if slots and slots[0].outcome is not MISSING and not session.is_dirty:
            session.note_dirty()

    def _file(self, command: Any, slot: Slot) -> None:
        """File a command of any kind.  This is the table of all commands."""
        session = self._session
        match command:
            case wire.Pub():
                self._publish(command, slot)
            case wire.Ack():
                self._acknowledge(command, slot)
            case wire.Fet() | wire.FetBlock():
                self._read(command.qname, slot)
            case wire.Islp(qname=name):
                self._read(name, slot)
            case wire.Nack() | wire.Touch():
                self._end_or_extend(command, slot)
            case wire.Sub(qname=name):
                if self._knows(name, slot):
                    session.subscribe(name)
                    session.filed(name).reads.append(slot)
                    self._fill(slot, wire.Oksub(qname=name, cmd_id=command.cmd_id))
            case wire.Uns(qname=name):
                session.unsubscribe(name)
                session.filed(name).reads.append(slot)
                self._fill(slot, wire.Okuns(qname=name, cmd_id=command.cmd_id))
            case wire.Ping():
                self._fill(slot, wire.Pong(cmd_id=command.cmd_id))
            case wire.Hello():
                self._greet(command, slot)
            case wire.Create() | wire.Update() | wire.Drop() | wire.Purge():
                self._change_queue(command, slot)
            case wire.PubBlock():  # and Stash
                self._publish_block(command, slot)
            case wire.Unstash(qname=name):
                is_drop = command.drop or command.writer is None
                action = UnstashAction.DROPPED if is_drop else UnstashAction.PUBLISHED
                about = command.writer or "", command.epoch, command.run or "", command.id or ""
                entry = log.Unstash(name, action, command.stashes, *about, command.reader or "")
                if command.reader is None:
                    self._order(name, orders.Propose(entry, slot), slot)
                else:
                    self._order(name, orders.PublishRead(slot, entry, session.denial_of_fetch), slot)
            case wire.Stage() | wire.Renew() | wire.SettleEpochs() | wire.Release():
                self._read(command.qname, slot)
            case wire.Slice() | wire.PeekBlock() | wire.Peek():
                self._read(command.qname, slot)
            case wire.Stats(qname=str(name)):
                self._read(name, slot)
            case wire.Stats() | wire.List():
                self._read_all(slot)
            case _:
                assert isinstance(command, wire.Cluster), "nothing else is left"
                session.administer(slot, command)

    # --- publishing --------------------------------------------------------------------------------------------------

    def _publish(self, pub: wire.Pub, slot: Slot) -> None:
        name, number = pub.qname, pub.n
        try:
            if number is not None and not self.session_id:
                raise BadField("n needs a session: send HELLO with one first")
            if pub.id is not None or pub.messages is not None:
                self._publish_whole(pub, slot)
            else:
                limit = self._limits.message_bytes_max
                text = pub.msg if pub.message is None else pub.message
                body = None if text is None or pub.enc is not None or pub.headers is not None else text.encode()
                if body is None or len(body) > limit:
                    draft = draft_of(wire.contents_of(pub)[0], limit)
                else:
                    # Most publishes have none of these.
                    delay_ms = ms_of(pub.delay) if pub.delay else 0
                    expires_ms = ms_of(pub.expires) if pub.expires else 0
                    timeout_ms = 0 if pub.timeout is None else ms_of(pub.timeout)
                    draft = Draft(body, pub.priority, delay_ms, expires_ms, timeout_ms)
                is_alike = not (draft.priority or draft.delay_ms or draft.expires_ms or draft.timeout_ms)
                self._session.filed(name).publish(
                    slot,
                    draft,
                    "" if number is None else self.session_id,
                    number or 0,
                    is_alike=is_alike and not draft.headers,
                )
        except Refused as error:
            self._fill(slot, wire.nok(error, pub.cmd_id))
            return
        # As `_note_write` does it.
        if not slot.is_held_back:
            if (writes := self._open_writes.get(name)) is not None:
                writes.append(slot)
            else:
                self._open_writes[name] = [slot]

    def _note_write(self, name: str, slot: Slot) -> None:
        """Have later reads of this queue stand behind a write; what was held back has its place already."""
        if slot.is_held_back:
            return
        writes = self._open_writes.get(name)
        if writes is None:
            self._open_writes[name] = [slot]
        else:
            writes.append(slot)

    def _publish_whole(self, pub: wire.Pub, slot: Slot) -> None:
        drafts = drafts_of(pub, self._limits.message_bytes_max)
        session_id = self.session_id if pub.n is not None and pub.id is None else ""
        entry = Publish(
            pub.qname,
            drafts,
            atomic=True,
            id=pub.id or "",
            session=session_id,
            ordinals=(pub.n,) if session_id and pub.n is not None else (),
            door=self._session.door_kind,
            worker=self._session.number,
        )
        self._session.filed(pub.qname).publish_whole(slot, entry)

    def _publish_block(self, command: wire.PubBlock, slot: Slot) -> None:
        name, session = command.qname, self._session
        numbered = command.n if command.id is None else None
        try:
            drafts = drafts_in(command, self._limits.message_bytes_max)
            if numbered is not None and not self.session_id:
                raise BadField("n needs a session: send HELLO with one first")
        except Refused as error:
            self._fill(slot, wire.nok(error, command.cmd_id))
            return
        if isinstance(command, wire.Stash):
            about = command.stash, command.part, ms_of(command.keep), command.writer or "", command.epoch
            stash = log.Stash(name, drafts, *about, session.door_kind, session.number)
            self._order(name, orders.Propose(stash, slot), slot)
            return
        entry = Publish(
            name,
            drafts,
            atomic=True,
            id=command.id or "",
            session=self.session_id if numbered is not None else "",
            ordinals=() if numbered is None else (numbered,),
            door=session.door_kind,
            worker=session.number,
        )
        session.filed(name).publish_whole(slot, entry)
        self._note_write(name, slot)

    # --- what ends or changes a delivery -----------------------------------------------------------------------------

    def _acknowledge(self, command: wire.Ack, slot: Slot) -> None:
        name, session = command.qname, self._session
        try:
            if command.uids is None and command.publish is None:
                token = ANY_TOKEN if command.lease is None else token_of(command.lease)
                filed = self._session.filed(name)
                # A NACK or TOUCH of this connection may be about the same message.
                if filed.enders and session in filed.enders:
                    filed.orders.append(AckSeveral([command.uid or ""], [token], [], slot))
                else:
                    filed.acknowledge(slot, command.uid or "", token)
                return
            uids, tokens = settled_by(command)
            publishes = [self._follow_up(part) for part in command.publish or ()]
        except Refused as error:
            self._fill(slot, wire.nok(error, command.cmd_id))
            return
        filed = self._session.filed(name)
        if publishes or (filed.enders and session in filed.enders):
            filed.orders.append(AckSeveral(uids, tokens, publishes, slot))
        else:
            filed.acks.append(AckSeveral(uids, tokens, publishes, slot))
        if publishes:
            for concerned in (name, *(publish.queue for publish in publishes)):
                self._hold(concerned, slot)

    def _follow_up(self, part: wire.Followup) -> Publish:
        draft = draft_of(wire.followup_content(part), self._limits.message_bytes_max)
        session = self._session
        return Publish(part.qname, [draft], atomic=True, door=session.door_kind, worker=session.number)

    def _end_or_extend(self, command: wire.Nack | wire.Touch, slot: Slot) -> None:
        name = command.qname
        try:
            uids, tokens = settled_by(command)
        except Refused as error:
            self._fill(slot, wire.nok(error, command.cmd_id))
            return
        order: orders.Nack | orders.Touch
        if isinstance(command, wire.Touch):
            order = orders.Touch(slot, name, uids, tokens, ms_of(command.timeout or 0))
        else:
            delay_ms = None if command.delay is None else ms_of(command.delay)
            results = SeveralResults(slot, len(uids))
            order = orders.Nack(results, name, uids, tokens, delay_ms, command.error or "", reason_of(command))
        self._order(name, order, slot)
        filed = self._session.filed(name)
        if not filed.enders:
            filed.enders = set()
        filed.enders.add(self._session)

    def _change_queue(self, command: Any, slot: Slot) -> None:
        try:
            entry = queue_entry_of(command)
        except Refused as error:
            self._fill(slot, wire.nok(error, command.cmd_id))
            return
        self._session.note_change(command)
        self._session.filed(command.qname).orders.append(orders.Propose(entry, slot))
        self._hold(command.qname, slot)

    def _order(self, name: str, order: Any, slot: Slot) -> None:
        """File something that later reads of this connection stand behind."""
        self._session.filed(name).orders.append(order)
        self._note_write(name, slot)

    # --- the order of writes -----------------------------------------------------------------------------------------

    def _hold(self, name: str, slot: Slot) -> None:
        """Hold back later plain writes to this queue, and reads of it, until this one has its outcome."""
        if slot.is_held_back:
            return
        if self._holds is None:
            self._holds = {}
        self._holds[name] = slot
        self._note_write(name, slot)

    def _is_held_back(self, command: Any, slot: Slot) -> bool:
        """Park a write that must stand behind an earlier one of this connection; return whether it is parked."""
        name, kind = getattr(command, "qname", None), type(command)
        if name is None or kind not in _WRITES:
            return False
        names = [name, *(part.qname for part in getattr(command, "publish", None) or ())]
        is_plain = kind not in _CHANGES and len(names) == 1
        for one in names:
            hold = self._hold_of(one, name, is_plain=is_plain)
            if hold is not None:
                if self._parked is None:
                    self._parked = {}
                self._parked.setdefault(one, []).append((hold, slot))
                for each in names:
                    if is_plain:
                        self._note_write(each, slot)
                    else:
                        self._hold(each, slot)
                slot.is_held_back = True
                return True
        return False

    def _hold_of(self, name: str, through: str, *, is_plain: bool) -> Slot | None:
        """Return the write to a queue that one must stand behind which is filed with the queue `through`, if any."""
        hold = None if self._holds is None else self._holds.get(name)
        if hold is not None:
            if self._parked is not None and name in self._parked:
                return hold
            # What goes through one lane keeps its order by itself, but a plain write would stand before a change.
            if hold.outcome is MISSING and (is_plain or not self._is_in_lane(hold, through)):
                return hold
        if name != through:  # a follow-up: the write to its own queue goes through another lane
            writes = (slot for slot in reversed(self._open_writes.get(name, ())) if type(slot.command) in _WRITES)
            newest = next((slot for slot in writes if slot.outcome is MISSING), None)
            # If the newest is in that lane, then the ones before it are too, or it would be held back itself.
            return None if newest is None or self._is_in_lane(newest, through) else newest
        return None

    def _is_in_lane(self, slot: Slot, name: str) -> bool:
        """Whether a write was filed with this queue, and is not held back itself."""
        return slot.command.qname == name and not slot.is_held_back

    def _earlier_elsewhere(self, slot: Slot) -> Slot | None:
        """Return an earlier write without outcome to a queue of its follow-ups, which goes through another lane."""
        found, through = None, slot.command.qname
        for part in getattr(slot.command, "publish", None) or ():
            for write in self._open_writes.get(part.qname, ()):
                if write is slot:
                    break
                is_write = type(write.command) in _WRITES
                if is_write and write.outcome is MISSING and write.command.qname != through:
                    found = write
        return found

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, name: str, slot: Slot) -> None:
        """File a read, behind the last write of this connection to its queue that has no outcome."""
        command, known = slot.command, self.known_queues
        kind = type(command)
        if kind in _WAITING_ROOM and (known is None or name not in known) and not self._knows(name, slot):
            return
        if kind is wire.Fet and command.wait and command.cmd_id is msgspec.UNSET:
            if self.has_ended:
                slot.is_over = True
            else:
                self._begin_wait(slot)
        standing = self._standing
        writes = self._open_writes.get(name)
        if (standing is not None and name in standing) or (writes and _has_open(writes)):
            if standing is None:
                standing = self._standing = {}
            writes = writes or []
            standing.setdefault(name, []).append((writes, len(writes), slot))
        elif kind in _WAITING_ROOM:
            self._session.filed(name).reads.append(slot)
        else:
            self._file_read(name, slot)

    def _file_read(self, name: str, slot: Slot) -> None:
        command, session = slot.command, self._session
        match command:
            case wire.Fet() | wire.Islp() | wire.FetBlock():
                self._session.filed(name).reads.append(slot)
            case wire.Stage():  # a claim takes messages: it stands behind own publishes, and own reads behind it
                keep_ms = ms_of(command.timeout)
                claim = command.source, command.epoch, command.count, command.slices, keep_ms
                order = orders.Stage(slot, name, *claim, session.number, session.door_kind)
                self._order(name, order, slot)
            case wire.Renew():
                self._order(name, orders.Renew(slot, name, command.source, ms_of(command.timeout)), slot)
            case wire.SettleEpochs():
                self._order(name, orders.Settle(slot, name, command.source, command.epoch), slot)
            case wire.Release():
                self._order(name, orders.Release(slot, name, command.source), slot)
            case wire.Slice():
                about = command.source, command.epoch, command.slice, command.offset, command.count
                reader = command.reader or "", command.batch or 0, command.run or ""
                self._session.filed(name).orders.append(orders.ReadSlice(slot, name, *about, *reader))
            case wire.PeekBlock():
                look = orders.PeekBlock(slot, name, command.after, command.last, command.count)
                self._session.filed(name).orders.append(look)
            case wire.Peek():
                self._note_write(name, slot)  # the leader has to be sure first: later reads must not overtake it
                self._session.ask_leader(orders.Peek(slot, name, command.state, command.count))
            case _:
                self._note_write(name, slot)
                self._session.ask_leader(orders.Stats(slot, name))

    def _read_all(self, slot: Slot) -> None:
        """LIST, or STATS of the node: behind all own writes."""
        if self._standing_for_all is not None:
            self._standing_for_all.append(slot)
        elif any(map(_has_open, self._open_writes.values())):
            self._standing_for_all = [slot]
        else:
            self._ask_for_all(slot)

    def _ask_for_all(self, slot: Slot) -> None:
        prefix = slot.command.prefix if type(slot.command) is wire.List else ""
        self._session.ask_leader(orders.Stats(slot, "", all_queues=True, prefix=prefix))

    def _knows(self, name: str, slot: Slot) -> bool:
        """Remember to tell a queue when this connection ends; refuse what would be too many."""
        known = self.known_queues
        if known is None:
            known = self.known_queues = set()
        if len(known) >= QUEUES_MAX and name not in known:
            detail = f"one connection may know {QUEUES_MAX} queues"
            self._fill(slot, wire.Nok(err="BUSY", detail=detail, cmd_id=slot.command.cmd_id))
            return False
        known.add(name)
        return True

    def _begin_wait(self, slot: Slot) -> None:
        """Remember a fetch that any further command ends, and now and then forget those that have their outcome."""
        waits = self._waits
        if waits is None:
            self._waits = [slot]
            return
        if len(waits) > 2 * len(self.slots):
            waits[:] = [before for before in waits if before.outcome is MISSING]
        waits.append(slot)

    def _keep_apart(self, slot: Slot) -> None:
        if self.apart is None:
            self.apart = []
        self.apart.append(slot)

    def end_waits(self) -> None:
        """End the fetches that wait without a cmd_id: they take what is there now, or nothing."""
        waits, self._waits = self._waits, None
        for slot in waits or ():
            slot.is_over = True
            if slot.outcome is MISSING:
                name = slot.command.qname
                self._session.filed(name).orders.append(orders.EndWait(slot, name))

    # --- the connection ----------------------------------------------------------------------------------------------

    def _greet(self, command: wire.Hello, slot: Slot) -> None:
        try:
            self._session.log_in(command.token)
        except Unauthorized as error:
            self._refuse_bad(slot, error)
            return
        if identity := packed(command):
            self.identity = identity
        if command.session is not None:
            self.session_id = command.session
        limits = self._limits
        reply = wire.HelloReply(
            version=limits.version,
            limits={"message_bytes_max": limits.message_bytes_max},
            session=self.session_id or None,
            cmd_id=command.cmd_id,
        )
        self._fill(slot, reply)

    def _refuse_bad(self, slot: Slot, error: Refused) -> None:
        """Refuse a command that is none, or that is not allowed; some refusals end the connection."""
        command = slot.command
        if not isinstance(error, BadJson | BadCommand):
            self._is_known = True
        elif not self._is_known and isinstance(error, BadJson):
            error = NotSpoken(f"{error}; a connection begins with a command, so this one ends")
        else:
            self._debt += GOOD_FOR_BAD
            if self._debt > GOOD_FOR_BAD * BAD_LINES_MAX:
                error = NotSpoken(f"{error}; after {BAD_LINES_MAX} lines that are no command the connection ends")
        cmd_id = command.cmd_id
        self._fill(slot, wire.nok(error, cmd_id))
        if error.closes:
            self.closing = error.code  # once all earlier commands are answered

    def _fill(self, slot: Slot, reply: wire.Reply) -> None:
        """Answer a command at once."""
        slot.tell(reply)

    # --- out ---------------------------------------------------------------------------------------------------------

    def take_replies(self) -> list[Any]:
        """Return the replies that may leave now; file what waited for one of their outcomes."""
        replies: list[Any] = []
        slots = self.slots
        done = 0
        for slot in slots:
            outcome = slot.outcome
            if outcome is MISSING:
                break
            done += 1
            command = slot.command
            kind = type(command)
            if kind is wire.Pub and type(outcome) is str:  # the most frequent by far, as is the next
                replies.append(wire.Ok(qname=command.qname, uid=outcome, cmd_id=command.cmd_id))
            elif kind is wire.Ack and outcome == DONE and type(outcome) is int:
                replies.append(wire.Okack(uid=command.uid, qname=command.qname, cmd_id=command.cmd_id))
            else:
                replies.append(self._reply_of(command, outcome))
                if slot.is_woken and outcome is None:
                    replies.append(wire.Awk(qname=command.qname))
        if done:
            del slots[:done]
        if self.apart:
            self._take_apart(replies)
        if self._standing is not None or self._parked is not None or self._standing_for_all is not None:
            self._forget_done()
            self._release()
        if not slots:
            self._open_writes.clear()
            self._holds = None
        elif self._open_writes:
            self._forget_done()
        return replies

    def _take_apart(self, replies: list[Any]) -> None:
        """Add the replies to fetches that are answered out of order."""
        apart = self.apart or []
        ready = [slot for slot in apart if slot.outcome is not MISSING]
        if ready:
            self.apart = [slot for slot in apart if slot.outcome is MISSING] or None
            replies += [self._reply_of(slot.command, slot.outcome) for slot in ready]

    def _reply_of(self, command: Any, outcome: Any) -> wire.Reply:
        kind = type(command)
        if isinstance(outcome, ReplyBase):
            return outcome  # type: ignore[return-value]
        if type(outcome) is Refusal:
            return refused(outcome, command.cmd_id)
        if kind in DELIVERING and (type(outcome) is list or type(outcome) is Seen):
            # A delivery that came to this node's memory before it was deposed must not leave: nobody has seen it, and
            # the message may be somebody else's by now.
            term = outcome.term if isinstance(outcome, Seen) else outcome[0].token[0]
            withdrawn = self._session.withdrawal(term)
            if withdrawn is not None:
                if type(outcome) is list:  # a slice stays where it is, under its claim
                    self._session.return_unsent(command.qname, outcome)
                return refused(withdrawn, command.cmd_id)
        make = STAGED_REPLIES.get(kind)
        if make is None:
            return REPLIES[kind](command, outcome)
        reply = make(command, outcome)
        is_framed = isinstance(reply, wire.Block) and self._session.sends_frames
        return wire.Framed(reply) if is_framed else reply  # type: ignore[arg-type,return-value]

    def awk(self, name: str) -> list[Any]:
        """Return the awk for a sleeper; nothing if its okslp is still to leave: then awk goes right behind that."""
        for slot in reversed(self.slots):
            if type(slot.command) is wire.Islp and slot.command.qname == name:
                slot.is_woken = True
                return []
        return [wire.Awk(qname=name)]

    def _release(self) -> None:
        """File what stood behind writes that have their outcome by now, each queue's in order."""
        parked, self._parked = self._parked, None
        for name, pairs in (parked or {}).items():
            for place, (hold, slot) in enumerate(pairs):
                waits_for = hold if hold.outcome is MISSING else self._earlier_elsewhere(slot)
                if waits_for is not None:
                    if self._parked is None:
                        self._parked = {}
                    self._parked[name] = [(waits_for, slot), *pairs[place + 1 :]]
                    break
                if type(slot.command) in _CLAIMS:  # own reads may stand behind it, so it stands behind none
                    self._file_read(name, slot)
                else:
                    self._file(slot.command, slot)
                slot.is_held_back = False
        standing, self._standing = self._standing, None
        for name, reads in (standing or {}).items():
            barrier: Slot | None = None  # a claim, or a look that needs a majority, that was filed just now
            done: tuple[list[Slot], int] = ([], 0)  # so many of the first of these writes have their outcome
            for place, (writes, count, slot) in enumerate(reads):
                first = done[1] if writes is done[0] else 0
                behind = [write for write in writes[first:count] if write.outcome is MISSING]
                done = (writes, count)
                if barrier is not None and barrier.outcome is MISSING:
                    behind.append(barrier)
                if behind:
                    if self._standing is None:
                        self._standing = {}
                    self._standing[name] = [(behind, len(behind), slot), *reads[place + 1 :]]
                    break
                self._file_read(name, slot)
                if type(slot.command) in _READ_BARRIERS:
                    barrier = slot
        if self._standing_for_all is not None:
            self._release_for_all(self._standing_for_all)

    def _release_for_all(self, standing: list[Slot]) -> None:
        """Ask for what no own write stands before any more; all of them stand in `slots`, in their order."""
        self._standing_for_all = None
        standing = [slot for slot in standing if slot.outcome is MISSING]
        open_writes = {id(write) for writes in self._open_writes.values() for write in writes}
        done = 0
        for slot in self.slots:
            if done == len(standing):
                return
            if slot is standing[done]:
                done += 1
                self._ask_for_all(slot)
            elif slot.outcome is MISSING and id(slot) in open_writes:
                break
        self._standing_for_all = standing[done:] or None

    def _forget_done(self) -> None:
        """Keep no slot whose command has its outcome: a body may be in it."""
        still_open: dict[str, list[Slot]] = {}
        for name, writes in self._open_writes.items():
            if left := [slot for slot in writes if slot.outcome is MISSING]:
                still_open[name] = left
        self._open_writes = still_open
        if self._holds is not None:  # what is parked for a queue holds back what comes later, whatever its own outcome
            parked = self._parked or ()
            holds = {name: slot for name, slot in self._holds.items() if slot.outcome is MISSING or name in parked}
            self._holds = holds or None


def _has_open(writes: Sequence[Slot]) -> bool:
    """Whether a write has no outcome; the newest is the first to look at."""
    return any(write.outcome is MISSING for write in reversed(writes))


_WRITES = frozenset(
    {wire.Pub, wire.Ack, wire.Del, wire.Nack, wire.Touch, wire.PubBlock, wire.Stash, wire.Unstash, wire.Create}
    | {wire.Update, wire.Drop, wire.Purge, wire.Stage, wire.Renew, wire.SettleEpochs, wire.Release}
)
_CLAIMS = frozenset({wire.Stage, wire.Renew, wire.SettleEpochs, wire.Release})
_READ_BARRIERS = _CLAIMS | {wire.Peek, wire.Stats}  # later reads of the same queue stand behind their outcome
_CHANGES = frozenset({wire.Create, wire.Update, wire.Drop, wire.Purge})
_WAITING_ROOM = frozenset({wire.Fet, wire.FetBlock, wire.Islp})  # their queues hear when the connection ends
