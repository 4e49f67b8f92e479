"""RaftLog: the one actor through which every change passes.

    what queues have, Propose --> stamp, log, one sync for each batch --> Committed --> queues
    FromPeer --> core --> what to write, to send, to commit --> log, peers, queues
    Administer --> who belongs to the cluster, and who leads it

It owns the order of changes and nothing else, and answers whoever asked itself only if the entry cannot be committed,
or nobody can know.  The consensus core makes the decisions; this actor decides when to ask it, and does what it wants.

Its parts: LogWriter (what happens to the files), Pending (what is not committed yet, and who asked for it), Admission
(what is refused for want of room), Leadership (who leads next), PeerTable (the other nodes), LeaderWatch (what the log
of the node says of all that).

A node that is alone differs from one of a cluster in this:
- It has no `Neighbours`: no peers, no images, no clock to share; it cannot rebuild its state.
- It may sync on its event loop, and writes at once if nobody else could propose in this turn (`on_collect`).  A leader
  with peers first sends them the entries, so that all nodes write at the same time (`on_flush`).
- It has no beat: its core has nothing to wait for (`on_started`), and a pause of the process cannot cost it the lead.
- It serves as long as it leads, and is BUSY only while its disk hangs (`refusal`).
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from wakeq.actors.log.admission import Admission
from wakeq.actors.log.images import (
    DropImage,
    FetchImage,
    ImageBroken,
    ImageFailed,
    ImageFetched,
    ImageOffer,
    TakeImage,
    WantImage,
)
from wakeq.actors.log.leader_watch import LeaderWatch
from wakeq.actors.log.leadership import Leadership
from wakeq.actors.log.members import (
    Facts,
    Introduced,
    Neighbours,
    PeerTable,
    describe,
    role_of,
    with_member,
    with_next_voter,
    without_member,
)
from wakeq.actors.log.peer import FromPeer, PeerLost, Refuse
from wakeq.actors.log.pending import TAKEN_BACK, Pending, refuse
from wakeq.actors.log.writer import Cut, Freed, Kept, LogServices, LogWriter, Roll, Saved, Written
from wakeq.actors.mail import (
    Applied,
    Committed,
    Crowded,
    EntryCrashesQueue,
    Follow,
    HandOver,
    Inquire,
    LogItem,
    NoopTicket,
    OutOfRoom,
    Pressure,
    Propose,
    Started,
    StateHasSkippedEntry,
    Throttle,
    Tick,
)
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.errors import BadField, Busy, DiskDisowned, NoQuorum, NotLeader, Refused
from wakeq.protocol.log.entries import Members, Noop, Publish, SetAside, lengthened
from wakeq.protocol.log.format import PAYLOAD_BYTES_MAX
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.log.records import ENCODERS, encode_entry
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.ledger.uniform import UniformBatch
from wakeq.protocol.queue.orders import ReplyTo, Ticket
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import Append, Fetch, Heartbeat, OwnEntry, Ready, Transfer, Write
from wakeq.protocol.raft.pace import BEHIND_BYTES_MAX
from wakeq.protocol.wire.peer.frames import Entries
from wakeq.storage.state.images import mark_for_install, mark_for_rebuild

BEATS_A_HEARTBEAT = 2
UNCOMMITTED_BYTES_MAX = 32 << 20  # then proposals wait; also when a voter that answers is BEHIND_BYTES_MAX behind
WRITE_MESSAGES_MAX = 8_192  # in one write of the log, and what is applied before anybody else has a turn ...
WRITE_BYTES_MAX = 4 << 20  # ... and of their bodies; one entry is always written
LAZY_AFTER_S = 0.020  # entries that nobody waits for are written with the next others, or by themselves after this time
BUSY_AFTER_MS = 3_000  # that a write of a lone node has been under way
UNKNOWN_AFTER_S = 2.0  # how long askers wait after this node lost leadership, before they hear UNKNOWN
SYNC = Tick("sync")
BEAT = Tick("beat")
LAZY = Tick("lazy")

logger = logging.getLogger("wakeq.raft_log")


class Enlisted(Protocol):
    """A queue that has something for the log, as the log sees it."""

    def put_entries(self, items: list[Proposal], behind: list[Proposal], /) -> None:
        """Add what it has for this write, and what must stand behind the entries of all queues."""

    def refuse_filed(self, refusal: Refusal, /) -> None:
        """Refuse everything that is not in the log yet."""


class Collect(msgspec.Struct, frozen=True, gc=False):
    """To itself: ask the queues that have something for the log."""


COLLECT = Collect()


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """To itself: askers of entries of this term have waited long enough."""

    term: int


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """To itself: by now the deliveries that queues proposed before have arrived; several may be under way."""

    go_on: Callable[[], object]


class Ahead(NamedTuple):
    """Deliveries that had left before they came into the log."""

    last_index: int  # they are committed with this entry
    since_ms: int  # since when the first of them has left


class RaftLog(Process):
    """The log of one node, from its start to its end."""

    def __init__(self, core: Core, services: LogServices, neighbours: Neighbours | None = None) -> None:
        super().__init__()

        # Parts, and what they are made of
        self.core = core  # the rules of consensus: who leads, what is committed
        self.writer = LogWriter(  # the buffer, and what is done to the files
            core,
            services,
            may_block=neighbours is None,  # in a cluster the others must go on hearing of this node
            tell=self.tell,
            before_sync=self.runtime.flush,
            on_synced=self.on_synced,
        )
        self.pending = Pending()  # what is not committed yet, and who asked for it
        self.admission = Admission()  # what is refused for want of room
        self.table = PeerTable(core.me.node_id, neighbours)  # the other nodes
        self.leadership = Leadership(core, self.table)  # who leads next
        self._watch = LeaderWatch(core, self.table)  # what the log of this node says of all that
        self._neighbours = neighbours  # None in a node that is alone
        self._peers = self.table.peers  # the same dictionary; empty in a node that is alone
        self._queues: Process | None = None  # hears what is committed
        self._images: Process | None = None  # transfers images of the state
        self._stamp_ms = services.stamp_ms  # the moment, for an entry of the log
        self._behind_ms = services.behind_ms  # how far that is behind the wall clock
        self._monotonic_ms = services.monotonic_ms  # the moment, for the core
        self._call_later = services.call_later

        # Proposals
        self._enlisted: dict[Enlisted, None] = {}  # queues with something for the next write, as they enlisted
        self._collected: deque[Proposal] = deque()  # entries that were more than one write may hold, in their order
        self._is_collect_queued = False  # COLLECT is in the mailbox
        self._is_lazy_queued = False  # LAZY will be
        self._ahead_since_ms = NEVER  # since when a delivery has left that is in no entry yet
        self._ahead: deque[Ahead] = deque()  # the same of deliveries that are in entries
        self._is_throttled = False  # the state store is far behind
        self._parks = True  # proposals wait: for this node to lead, for the state store, or for a successor
        self._parked: deque[Propose] = deque()  # that wait
        self._collect_parked = False  # queues have something for the log, and it may take nothing at this moment
        self._parked_ms = NEVER  # since when proposals have been parked, or were that are not committed yet
        self._parked_to = 0  # the last entry that was parked before it came into the log

        # Standing
        self._led_term = 0  # the term in which this node leads, 0 while it does not
        self._serves_alone = False  # it leads and is the only voter: it may always serve
        self._closings = 0  # while not 0, nothing is handed out: leadership is about to be given away
        self._is_replaced = False  # an image is about to replace log and state
        self._ticked_ms = 0  # when the core was last told the time
        self._members_index = -1  # of the configuration whose members this node knows as peers
        self._changes: dict[int, ReplyTo] = {}  # by index of the entry: who asked for a change of members

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def restore(self, item: LogItem) -> None:
        """Take an entry of the log that is not known to be committed; only before any mail."""
        self.pending.items.append(item)

    def on_started(self, message: Started) -> None:
        self._queues, self._images = message.queues, message.images
        if self._neighbours is None:
            self._tick(self._monotonic_ms())
        else:
            self.on_beat()

    # --- who may be served -----------------------------------------------------------------------------------------

    def refusal(self) -> Refusal | None:
        """Return why this node may not answer from its memory at this moment, None if it may."""
        if self._serves_alone:
            return None if self.writer.hang_ms < BUSY_AFTER_MS else self._disk_hangs(Busy.code)
        core = self.core
        is_open = core.accepts and not self._closings
        if is_open and core.may_serve(self._monotonic_ms()):
            if self.writer.hang_ms >= core.settings.election_ms:
                return self._disk_hangs(NoQuorum.code)
            return None  # not while a successor gets ready: the log would not take the deliveries
        if is_open and core.applied_index >= core.leader().first_index:
            return Refusal(NoQuorum.code, "too few of the other nodes answer in time; try again, or try another node")
        return self._not_leader()

    def withdrawal(self, term: int) -> Refusal | None:
        """Return why a delivery that was made in a term may no longer be sent, None if it may.

        To be asked in the turn that sends: the message may be another worker's by now, or done.
        """
        if term != self._led_term:
            return TAKEN_BACK if self._led_term else self._not_leader()
        if self._serves_alone or self.core.may_serve(self._monotonic_ms()):
            return None  # also while a successor gets ready: what was handed out before is in the log
        return self.refusal()

    def _disk_hangs(self, code: str) -> Refusal:
        return Refusal(code, f"the disk of this node has not answered for {self.writer.hang}; try again shortly")

    def _not_leader(self) -> Refusal:
        leader = self.other_leader
        if self.core.is_removed:
            return Refusal(NotLeader.code, "this node was removed from the cluster; connect to another one")
        if leader is None and self.is_forming:
            return Refusal(NotLeader.code, "a new cluster begins once every node of it has been up; start the others")
        if leader is None:
            return Refusal(NotLeader.code, "no node leads at this moment; try again, or try another node")
        addresses = self.address_of(leader, "worker"), self.address_of(leader, "http")
        return Refusal(NotLeader.code, f"node {leader} leads; connect to it", *addresses)

    @property
    def is_forming(self) -> bool:
        """Whether this node votes in a new cluster of several nodes, of which some have never been up."""
        members = self.core.members
        return members.votes and not members.is_lone and not members.config.founded

    @property
    def is_catching_up(self) -> bool:
        """Whether this node does not vote yet, or still copies what it has missed since it was last up."""
        role = self.core.role
        return not self.core.members.votes or (isinstance(role, Follower) and not role.has_caught_up)

    @property
    def other_leader(self) -> int | None:
        """The node that leads, as far as this one knows; None if it is this one, or is not connected."""
        leader = self.core.leader_id
        return leader if leader in self.table.connected else None

    def address_of(self, node_id: int, door: str) -> str:
        """Return the address of another node's port for clients ("worker", "http"); empty if it is not known."""
        return self.table.address(node_id, door)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was proposed has its outcome and is on disk."""
        waits = self._parked or self._enlisted or self._collected or self.pending.is_awaited
        return not (self.writer.is_writing or waits or self.writer.log.buffered_bytes)

    def waits_since_ms(self) -> int:
        """Return since when the oldest thing has waited that is not committed or written; NEVER if nothing waits."""
        pending, ahead = self.pending.items, self._ahead
        since_ms = min(self.writer.writing_since_ms, self._ahead_since_ms)
        # What is not pending any more is committed.
        while ahead and (not pending or ahead[0].last_index < pending[0].index):
            ahead.popleft()
        if ahead and ahead[0].since_ms < since_ms:
            since_ms = ahead[0].since_ms
        if pending and pending[0].at_ms < since_ms:
            since_ms = pending[0].at_ms
        if self._parked_ms < since_ms and self._has_parked:
            since_ms = self._parked_ms
        return since_ms

    @property
    def _has_parked(self) -> bool:
        """Whether anything waits that is parked, or was before it came into the log."""
        waits, pending = self._parked or self._collect_parked, self.pending.items
        return bool(waits or (pending and pending[0].index <= self._parked_to))

    # --- collecting ------------------------------------------------------------------------------------------------

    def enlist(self, queue: Enlisted, *, lazy: bool = False) -> None:
        """A queue has something for the next write; what is lazy starts none by itself, but rides with any."""
        self._enlisted[queue] = None
        if lazy:
            if self._ahead_since_ms == NEVER:
                self._ahead_since_ms = self._stamp_ms()
            if not self._is_lazy_queued:
                self._is_lazy_queued = True
                self._call_later(LAZY_AFTER_S, lambda: self.tell(LAZY))
        elif not self._is_collect_queued and not self.writer.is_writing:
            self._is_collect_queued = True
            self.tell(COLLECT)

    def enter(self, items: list[Proposal]) -> None:
        """Take what a queue that has crashed still had for the log, as it is."""
        self.tell(Propose(items))

    def _collect_soon(self) -> None:
        """Collect behind the turns of the queues that were woken in this round, so that all share one write."""
        if not self._is_collect_queued and not self.writer.is_writing:
            self._is_collect_queued = True
            self.tell(COLLECT)

    def on_collect(self, message: Collect) -> None:
        """Ask every queue for its entries, put them into the log together, and write."""
        self._is_collect_queued = False
        if self._peers:
            self._look_at_clock()
        writer = self.writer
        if (
            not (self._enlisted or self._collected)
            or writer.is_writing
            or (writer.roll is not None and writer.waits_to_roll)
        ):
            return  # what is under way collects when it is done
        if self._parks:
            if not self._has_parked:
                self._parked_ms = self._stamp_ms()
            self._collect_parked = True
            return
        self._collect()
        if not self._peers and self.runtime.is_last(self) and not writer.is_flush_queued:
            writer.write()  # at once: no other process has mail, so nobody else can propose in this turn
        else:
            writer.flush_soon()
        if self._collected:
            self._collect_soon()

    def _collect(self, *, everything: bool = False) -> None:
        """Put into the log what queues have for it, as much as one write may hold, or everything.

        Entries that name several queues stand behind all others.  What is more than a write stays collected, in its
        order; nothing else is collected before that.
        """
        if not self._led_term:
            self._refuse_enlisted(self._not_leader())
            return
        if everything or not self._collected:
            enlisted, self._enlisted = self._enlisted, {}
            items: list[Proposal] = []
            behind: list[Proposal] = []
            for queue in enlisted:
                count, count_behind = len(items), len(behind)
                try:
                    queue.put_entries(items, behind)
                except Exception as error:
                    # What fails is the queue: its last words bring whatever an entry can be made of.
                    del items[count:], behind[count_behind:]
                    self.runtime.end(queue, error)  # type: ignore[arg-type]  # every queue is a process
            items += behind
            if self._collected:
                items = [*self._collected, *items]
                self._collected.clear()
            if len(items) > 1 and not everything:
                self._collected.extend(items)
                items = take_one_write(self._collected)
        else:
            items = take_one_write(self._collected)
        if items:
            self._append(items)
        if self._ahead_since_ms != NEVER and not self._collected:
            self._ahead.append(Ahead(self.core.log.last_index, self._ahead_since_ms))
            self._ahead_since_ms = NEVER

    def _refuse_enlisted(self, refusal: Refusal) -> None:
        """This node does not lead: nothing that queues have for the log was ever in it."""
        enlisted, self._enlisted = self._enlisted, {}
        for queue in enlisted:
            self.runtime.run_in(queue, queue.refuse_filed, refusal)  # type: ignore[arg-type]  # as above
        self._refuse_collected(refusal)

    def _refuse_collected(self, refusal: Refusal) -> None:
        collected, self._collected = self._collected, deque()
        for proposal in collected:
            refuse(proposal.reply_to, refusal)

    # --- proposing -------------------------------------------------------------------------------------------------

    def on_propose(self, message: Propose) -> None:
        """Take entries of whoever is no queue; deliveries that queues have made stand before them."""
        if self._peers:
            self._look_at_clock()
        if (self._parks and not self._is_urgent(message)) or not self._led_term:
            self._put_off(message)
            return
        if (self._enlisted or self._collected) and not self._parks:
            self._collect(everything=True)
        self._append(message.items)
        writer = self.writer
        if not self._peers and self.runtime.is_last(self) and not writer.is_flush_queued and not writer.is_writing:
            writer.write()
        else:
            writer.flush_soon()

    def _is_urgent(self, message: Propose) -> bool:
        """Whether the state store may be waiting for this: no cut is made while a queue is halted."""
        return self.core.accepts and all(type(proposal.entry) is SetAside for proposal in message.items)

    def _put_off(self, message: Propose) -> None:
        if self._parks:
            if not self._has_parked:
                self._parked_ms = self._stamp_ms()
            self._parked.append(message)
            return
        refusal = self._not_leader()
        for proposal in message.items:
            refuse(proposal.reply_to, refusal)

    def _append(self, proposals: Sequence[Proposal]) -> None:
        """Stamp entries, give them their indexes, and put them into the log's buffer."""
        if not self.admission.takes_all:
            proposals = self.admission.admitted(proposals)
        at_ms = self._stamp_ms()
        behind_ms = self._behind_ms()
        if behind_ms:
            proposals = [Proposal(lengthened(each.entry, behind_ms), each.reply_to) for each in proposals]
        payloads: list[bytes] = []
        try:
            size_bytes = largest = 0
            for proposal in proposals:
                entry = proposal.entry
                payload = ENCODERS[type(entry)](entry, at_ms)
                payloads.append(payload)
                size_bytes += len(payload)
                if len(payload) > largest:
                    largest = len(payload)
            is_encoded = largest <= PAYLOAD_BYTES_MAX
        except (struct.error, OverflowError):
            is_encoded = False
        if not is_encoded:
            proposals, payloads = encode_each(proposals, at_ms)
            size_bytes = sum(map(len, payloads))
        if payloads:
            core = self.core
            first_index, term = core.propose(len(payloads), size_bytes), core.state.term
            self.writer.put(first_index, term, payloads)
            self.pending.enter(first_index, term, at_ms, proposals)

    def on_throttle(self, message: Throttle) -> None:
        self._is_throttled = message.on
        self._note_standing()
        self._release_parked()

    def on_pressure(self, message: Pressure) -> None:
        self.admission.on_pressure(message)

    def on_crowded(self, message: Crowded) -> None:
        self.admission.on_crowded(message)

    # --- writing ---------------------------------------------------------------------------------------------------

    def on_flush(self) -> None:
        """Write what is buffered; a leader first sends it to its peers, so that all nodes write at the same time."""
        self.writer.is_flush_queued = False
        if self._peers and self._led_term:
            self._attend()
            self.tell(SYNC)  # after the peers' connections have sent them
        else:
            self._write()

    def _write(self) -> None:
        if not self.writer.is_writing and not self.writer.waits_to_roll:
            self.writer.write()

    def on_synced(self, last_index: int, era: int) -> None:
        """Everything up to here is on disk; it was put into the buffer in this era of the core."""
        if self._is_replaced:
            return  # this log is about to be replaced
        items = self.pending.take(self.core.stable(last_index, era))
        if items:
            assert self._queues is not None, "started first"
            self._queues.tell(Committed(items))
        if self._peers:
            self._attend()

    def _go_on_writing(self) -> None:
        """The files may be free: do what waits for that, then write what has come meanwhile."""
        # COLLECT stands before FLUSH in the mailbox, so that what queues have shares the write of what is buffered.
        if self._enlisted or self._collected:
            self._collect_soon()
        self.writer.go_on()

    def on_written(self, message: Written) -> None:
        self.writer.on_written(message)
        self._go_on_writing()

    def on_freed(self, message: Freed) -> None:
        self.writer.on_freed(message)
        self._go_on_writing()

    def on_roll(self, message: Roll) -> None:
        self.writer.on_roll(message)
        self._go_on_writing()

    def on_cut(self, message: Cut) -> None:
        self.writer.on_cut(message)
        self._go_on_writing()

    def on_saved(self, message: Saved) -> None:
        if message.error is not None:
            raise message.error
        self.core.saved(message.state)
        self._attend()

    def on_kept(self, message: Kept) -> None:
        if message.error is not None:
            raise message.error

    # --- standing --------------------------------------------------------------------------------------------------

    def _note_standing(self) -> None:
        """Find out whether this node still leads, and whether proposals may go on."""
        core = self.core
        leads = core.leads
        led, self._led_term = self._led_term, core.state.term if leads else 0
        if led and led != self._led_term:
            if self._neighbours is not None:
                self._neighbours.clock.step_down()
            self._watch.loses(led)
            self._stand_down(led)
        if self._led_term and led != self._led_term:
            if self._neighbours is not None:
                self._neighbours.clock.lead(core.leader().clocks)
            self._watch.wins(self._led_term)
        if leads:
            self._parks = self._is_throttled or not core.accepts or self._is_ahead()
            self._serves_alone = core.members.is_lone and core.may_serve(self._monotonic_ms())
        else:
            self._serves_alone = False
            self._parks = self._is_throttled or self._neighbours is None

    def _is_ahead(self) -> bool:
        """Whether the peers are too far behind for more to be taken."""
        if not self._peers:
            return False
        core = self.core
        uncommitted_bytes = core.log.size_between(core.committed, core.log.last_index)  # also while its own disk hangs
        return uncommitted_bytes > UNCOMMITTED_BYTES_MAX or core.leader().behind_bytes() > BEHIND_BYTES_MAX

    def _release_parked(self) -> None:
        if self._parks or not (self._parked or self._collect_parked):
            return
        if self._collect_parked:
            self._collect_parked = False
            self._collect()
        parked, self._parked = self._parked, deque()
        for propose in parked:
            if self._led_term:
                self._append(propose.items)
            else:
                self._put_off(propose)
        self._parked_to = self.core.log.last_index
        self.writer.flush_soon()

    def _stand_down(self, term: int) -> None:
        """This node leads no longer: the queues forget what only a leader knows."""
        assert self._queues is not None, "started first"
        self.pending.forget_no_ops()
        self._ahead_since_ms = NEVER
        self._refuse_collected(self._not_leader())
        self._ahead.clear()  # some of these entries may be dropped, and then nothing waits for them
        self._enlisted, self._collect_parked = {}, False  # they refuse what they have when they hear of this
        self._queues.tell(Follow(term, self._not_leader()))
        if self.writer.hang_ms >= self.core.settings.election_ms:
            self.tell(GiveUp(term))  # what its own disk does not have, it cannot know as committed
        else:
            self._call_later(UNKNOWN_AFTER_S, lambda: self.tell(GiveUp(term)))
        self.leadership.lose(self.writer.hang_ms, self._monotonic_ms(), self._not_leader())

    def on_give_up(self, message: GiveUp) -> None:
        self.pending.give_up(message.term)

    # --- time ------------------------------------------------------------------------------------------------------

    def on_tick(self, message: Tick) -> None:
        match message.what:
            case "beat":
                self.on_beat()
            case "sync":
                self._write()
            case "check":
                self.on_check()
            case "lazy":
                self._is_lazy_queued = False
                self._collect_soon()
            case what:
                assert what == "flush", what
                self.on_flush()

    def on_beat(self) -> None:
        """Let time pass for the core, and do what is done now and then; only in a cluster."""
        self._tick(self._monotonic_ms())
        self.writer.keep_acknowledged()
        self._watch.tick(self._ticked_ms, serves=self.refusal() is None)
        heartbeat_ms = self.core.settings.heartbeat_ms
        self._call_later(heartbeat_ms / BEATS_A_HEARTBEAT / 1000, lambda: self.tell(BEAT))
        if self._led_term and self.leadership.is_out_of_room and self.leadership.heirs:
            self._close_first(self._resign)
        if self._led_term and (config := with_next_voter(self.core)) is not None:
            self._change(None, config)
            self._attend()
        self.leadership.answer_wishes(self._monotonic_ms())

    def on_check(self) -> None:
        """Let another node lead if the disk of this one does not answer; it is heard, so nobody deposes it."""
        self.writer.on_check()
        if self._led_term and not self._closings and self._heir_while_disk_hangs() is not None:
            self._close_first(self._hand_over_hanging)

    def _heir_while_disk_hangs(self) -> int | None:
        return self.leadership.heir_while_disk_hangs(self.writer.hang_ms, self._monotonic_ms())

    def _tick(self, now_ms: int) -> None:
        self._ticked_ms = now_ms
        self.core.tick(now_ms)
        self._attend()

    def _look_at_clock(self) -> int:
        """Return the moment; after a pause of this process the core first finds out whether it still leads."""
        now_ms = self._monotonic_ms()
        if now_ms - self._ticked_ms > self.core.settings.heartbeat_ms:
            self._tick(now_ms)
        return now_ms

    # --- what the core wants ---------------------------------------------------------------------------------------

    def on_applied(self, message: Applied) -> None:
        self.core.applied(message.index)
        self._note_standing()
        # A cut of the log may have ended the parking: what peers lack of the cut part, they get with an image.
        self._release_parked()

    def _attend(self) -> None:
        """Do what the core asks for, until it asks for nothing more."""
        self._note_standing()
        while (ready := self.core.ready()) is not None:
            self._do(ready)
            self._note_standing()
        self._release_parked()
        if self._members_index != self.core.members.index:
            self._meet_members()

    def _do(self, ready: Ready) -> None:
        if ready.save is not None:
            self.writer.save(ready.save)
        for own in ready.entries:
            self._enter_own(own)
        messages = self.leadership.said(ready.messages) if self.leadership.is_out_of_room else ready.messages
        if messages:
            self.table.send(messages, self.writer.payloads)
        items = self.pending.take(ready.commit)
        if items:
            assert self._queues is not None, "started first"
            self._queues.tell(Committed(items))
        for node_id in ready.images:
            assert self._images is not None, "started first"
            self._images.tell(WantImage(node_id, self.core.log.previous_index))
        if self.writer.roll is not None:
            self._go_on_writing()
        for barrier, _ in ready.reads:
            assert self._queues is not None, "started first"
            for question in self.leadership.take_questions(barrier):
                self._queues.tell(question)

    def _enter_own(self, own: OwnEntry) -> None:
        """Put an entry of the core's own into the log: the no-op of a new leader, or a change of members."""
        at_ms, term = self._stamp_ms(), self.core.state.term
        reply_to: Ticket | None = self._changes.pop(own.index, None)
        if own.config is None:
            reply_to = NoopTicket()
        entry = Noop() if own.config is None else Members(own.config)
        self.writer.put(own.index, term, [encode_entry(entry, at_ms)])
        self.pending.enter(own.index, term, at_ms, [Proposal(entry, reply_to)])
        self.writer.flush_soon()

    # --- peers -----------------------------------------------------------------------------------------------------

    def _meet_members(self) -> None:
        """Make every member of the current configuration a peer."""
        members = self.core.members
        self._members_index = members.index
        self.table.meet(members.config)
        if self._neighbours is not None:
            self._watch.meet(members.config, members.index)
        self.writer.keeps_payloads = bool(self._peers)

    def on_introduced(self, message: Introduced) -> None:
        self.table.introduce(message)
        self.writer.keeps_payloads = True
        self._begin_anew(message.hello.node_id)
        self.core.tell_if_removed(message.hello.node_id)
        self._attend()

    def on_peer_lost(self, message: PeerLost) -> None:
        self.table.lose(message.node_id, message.door)
        self._begin_anew(message.node_id)

    def _begin_anew(self, node_id: int) -> None:
        """A peer's connection is new, or gone: tell the core that what was on its way there is lost."""
        if self.core.leads:
            self.core.leader().lost(node_id)
            self._attend()

    def on_from_peer(self, message: FromPeer) -> None:
        now_ms = self._look_at_clock()
        frames = self.leadership.heard(message.frames) if self.leadership.is_out_of_room else message.frames
        for frame in frames:
            said, payloads = (frame.append, frame.payloads) if type(frame) is Entries else (frame, [])
            if type(said) is Append and self._is_throttled:
                continue  # as if it had been lost: the leader will send it again
            if doubt := self.core.doubt(said):  # type: ignore[arg-type]
                self._peers[message.node_id].tell(Refuse(doubt))
                break
            wanted = self.core.step(said, now_ms)  # type: ignore[arg-type]
            if type(wanted) is Write:
                assert type(said) is Append, "nothing else brings entries"
                self._follow(said, payloads, wanted)
            elif type(wanted) is Fetch:
                assert self._images is not None, "started first"
                self._images.tell(FetchImage(self._peers[message.node_id], wanted.stream))
            elif type(said) is Heartbeat:
                self._follow_clock(said)
            elif type(said) is Transfer:
                self.on_wish(said)
        if self.core.disowned:
            node = self.core.me.node_id
            raise DiskDisowned(
                f"this data directory of node {node} is not the one that joined the cluster, or has lost what it "
                f"acknowledged, so it may not vote; empty it, run `wakeq cluster remove {node}` and `wakeq cluster add "
                f"{node} HOST:PORT` on another node, and start this one again with --join"
            )
        self._attend()

    def _follow(self, append: Append, payloads: list[bytes], write: Write) -> None:
        """Take a leader's entries into the log."""
        if write.truncate_from:
            self._truncate(write.truncate_from)
        base = append.prev_index + 1
        at_ms = 0
        for place, (start, term) in enumerate(append.runs):
            end = append.runs[place + 1][0] if place + 1 < len(append.runs) else append.last_index + 1
            first = max(start, write.first_index)
            part = payloads[first - base : end - base]
            if first >= end:
                continue
            self.writer.put(first, term, part)
            for index, payload in enumerate(part, first):
                entry, at_ms = decode_entry(payload)
                self.pending.follow(index, term, at_ms, entry)
        assert self._neighbours is not None, "only in a cluster"
        self._neighbours.clock.reach(at_ms)
        self.writer.flush_soon()

    def _follow_clock(self, heartbeat: Heartbeat) -> None:
        """Take the time from the leader, unless the core has refused what it said."""
        core = self.core
        is_leaders = heartbeat.sender == core.leader_id and heartbeat.term == core.term
        if is_leaders and heartbeat.clock_ms and self._neighbours is not None:
            self._neighbours.clock.follow(heartbeat.clock_ms)

    def _truncate(self, index: int) -> None:
        """Drop entries that the leader does not have."""
        logger.info(
            "truncating the log from entry %d on: the leader of term %d has other entries", index, self.core.term
        )
        self.pending.drop_from(index)
        self.writer.truncate_from(index)

    # --- leadership ------------------------------------------------------------------------------------------------

    def on_hand_over(self, message: HandOver) -> None:
        """This node is about to stop: let another one lead, if there is one."""
        self._watch.stops()
        self._close_first(self._resign)

    def _close_first(self, go_on: Callable[[], object]) -> None:
        """Stop handing out, and go on when all deliveries that queues have proposed are in the log."""
        if self._led_term:
            self._closings += 1
            self.tell(CaughtUp(go_on))
        else:
            go_on()

    def on_caught_up(self, message: CaughtUp) -> None:
        if (self._enlisted or self._collected) and not self._parks:
            self._collect(everything=True)  # all deliveries must be in the log before another node leads
        self._closings -= 1
        message.go_on()

    def _resign(self) -> None:
        """Let another node lead, if there is one."""
        with suppress(Refused):
            self.leadership.transfer(None)
        self._attend()

    def _hand_over_hanging(self) -> None:
        heir = self._heir_while_disk_hangs()
        if heir is not None:
            logger.warning(
                "the disk of this leader has not answered for %s: transferring leadership to node %d",
                self.writer.hang,
                heir,
            )
            self.leadership.transfer(heir)
        self._attend()

    def on_wish(self, wish: Transfer) -> None:
        """Transfer leadership because an operator has asked a follower for it."""
        if self._led_term and wish.term == self._led_term and self.core.members.knows(wish.sender, wish.disk_id):
            logger.info("node %d passed on an operator's request to transfer leadership", wish.sender)
            self._close_first(lambda: self._grant(wish))

    def _grant(self, wish: Transfer) -> None:
        try:
            self.leadership.transfer(wish.heir)
        except Refused as refusal:
            logger.warning(
                "an operator asked node %d to transfer leadership, but it stays here: %s", wish.sender, refusal
            )
        self._attend()

    def on_inquire(self, message: Inquire) -> None:
        """Pass a question on once a majority has confirmed that nobody else led when it was asked."""
        assert self._queues is not None, "started first"
        question = message.question
        if self._serves_alone:
            self._queues.tell(question)
        elif self.leadership.ask(question):
            self._attend()
        else:
            refuse(question.asker, self._not_leader())

    # --- what this node cannot do ----------------------------------------------------------------------------------

    def on_entry_crashes_queue(self, message: EntryCrashesQueue) -> None:
        """Have all nodes skip an entry that a queue cannot apply, unless its asker may have been answered.

        Only the leader of the entry's term could have answered, so if this node is that leader nobody has.  A later
        leader cannot know: it first lets another node lead, once, which may have applied the entry without harm.  If
        another node leads and does not have it skipped, only this node has the problem, and it ends.
        """
        skip, leadership = message.skip, self.leadership
        if self.other_leader is None:
            leadership.no_other_leads(skip.index)
            if not self.core.accepts:
                return
            if message.term != self._led_term and leadership.yields_because_of(skip.index):
                self._close_first(self._resign)
            else:
                self.on_propose(Propose([Proposal(skip)]))
        elif not leadership.waits_for_skip(skip.index, self._monotonic_ms()):
            raise RuntimeError(f"queue {skip.queue!r} crashes on entry {skip.index} on this node only: {skip.reason}")

    def on_state_has_skipped_entry(self, message: StateHasSkippedEntry) -> None:
        """Start again without the state on disk: it is rebuilt from an image and the log, without that entry."""
        if self._neighbours is None:
            return  # a lone node writes no state while a queue is halted, so the state never had the entry
        logger.warning(
            "all nodes skip entry %d, but the state of this node contains it: rebuilding the state", message.index
        )
        consensus, metadata = self.writer.log.directory, self.writer.metadata

        def work() -> None:
            metadata.save(committed=message.said_by)
            mark_for_rebuild(consensus, message.index)

        self._start_again_behind(work)

    def _start_again_behind(self, mark: Callable[[], None]) -> None:
        """Mark what the next start has to replace, once everything put in before is written; then start again."""
        assert self._neighbours is not None, "only in a cluster"
        self._is_replaced = True
        self.writer.do_behind(mark, self._neighbours.start_again)

    def on_out_of_room(self, message: OutOfRoom) -> None:
        """Stop taking entries, and leading, before the disk is full, which would end this node."""
        if self._neighbours is None:
            return
        self.leadership.is_out_of_room = message.on
        what = "steps aside: its disk is full" if message.on else "takes part again: its disk has room"
        logger.warning("this node %s", what)

    # --- images ----------------------------------------------------------------------------------------------------

    def on_image_offer(self, message: ImageOffer) -> None:
        """Offer a peer the image that is at hand for it."""
        core = self.core
        if core.leads:
            if core.log.previous_index <= message.index <= core.committed:
                core.leader().offer_image(message.node_id, message.index, message.stream)
            else:  # the log was cut meanwhile
                core.leader().image_failed(message.node_id, 0)
            self._attend()

    def on_image_failed(self, message: ImageFailed) -> None:
        if self.core.leads:
            self.core.leader().image_failed(message.node_id, message.stream)
            self._attend()

    def on_image_fetched(self, message: ImageFetched) -> None:
        """Start the node again, with the image in place of its log and state."""
        assert self._images is not None, "started first"
        if self.core.fetched(message.stream) is None:
            self._images.tell(DropImage())
            return
        logger.info("received the state from the leader; restarting from it")
        consensus = self.writer.log.directory
        self._start_again_behind(lambda: mark_for_install(consensus))

    def on_image_broken(self, message: ImageBroken) -> None:
        self.core.fetch_failed(message.stream)
        self._attend()

    # --- operators -------------------------------------------------------------------------------------------------

    def on_administer(self, message: Administer) -> None:
        """Do what an operator asks for, or say why not."""
        is_leaving = message.what == "remove" and message.node_id == self.core.me.node_id
        if is_leaving or message.what == "transfer":
            self._close_first(lambda: self._obey(message))
        else:
            self._obey(message)

    def _obey(self, message: Administer) -> None:
        try:
            facts = self._administer(message)
        except Refused as error:
            refusal = self._not_leader() if isinstance(error, NotLeader) else Refusal(error.code, str(error))
            refuse(message.asker, refusal)
        else:
            if facts is not None:
                asker = message.asker
                asker.tell(facts)
        self._attend()

    def _administer(self, message: Administer) -> Facts | None:
        """Return the answer, or None if it comes when what was asked for is committed."""
        core, leader = self.core, self.other_leader
        match message.what:
            case "status":
                return {
                    "node": core.me.node_id,
                    "cluster": self.writer.metadata.identity.cluster_id.hex(),
                    "role": role_of(core),
                    "term": core.term,
                    "leader": core.leader_id,
                    "serves": self.refusal() is None,
                    "last_index": core.log.last_index,
                    "committed": core.committed,
                    "members": [describe(member, core, self.table) for member in core.members.config.members],
                }
            case "transfer" if not core.leads and leader is not None:
                self.leadership.pass_on_wish(message.asker, message.node_id, leader, self._monotonic_ms())
            case "transfer":
                return {"transferring_to": self.leadership.transfer(message.node_id)}
            case "add" if self._neighbours is None:
                raise BadField(
                    "this broker listens for no other node, because it runs without --peers; "
                    'docs/operations/cluster.md, "Let it grow", says how it becomes a cluster'
                )
            case "add":
                self._change(message.asker, with_member(core.members.config, message.node_id, message.address))
            case "snapshot":
                assert self._images is not None, "started first"
                self._images.tell(TakeImage(message.asker))
            case "remove":
                self._change(message.asker, without_member(core.members.config, message.node_id))
        return None

    def _change(self, asker: ReplyTo | None, config: Config) -> None:
        """Put a change of members into the log; whoever asked is told when it is committed."""
        index = self.core.leader().change_members(config)
        if asker is not None:
            self._changes[index] = asker


def take_one_write(collected: deque[Proposal]) -> list[Proposal]:
    """Take the entries that one write may hold, one at least; the others stay."""
    messages = size_bytes = 0
    taken: list[Proposal] = []
    while collected and messages < WRITE_MESSAGES_MAX and size_bytes < WRITE_BYTES_MAX:
        proposal = collected.popleft()
        entry = proposal.entry
        taken.append(proposal)
        if type(entry) is Publish:
            drafts = entry.drafts
            messages += len(drafts)
            size_bytes += len(drafts.bodies) if type(drafts) is UniformBatch else sum([len(d.body) for d in drafts])
        else:
            messages += len(getattr(entry, "numbers", ())) or 1
    return taken


def encode_each(proposals: Sequence[Proposal], at_ms: int) -> tuple[list[Proposal], list[bytes]]:
    """Encode entries one by one, after one of them has failed; refuse what the log cannot take."""
    taken, payloads = [], []
    for proposal in proposals:
        entry = proposal.entry
        try:
            payload = encode_entry(entry, at_ms)
            if len(payload) > PAYLOAD_BYTES_MAX:
                raise OverflowError(f"an entry of {len(payload)} bytes, the log takes {PAYLOAD_BYTES_MAX}")
        except (struct.error, OverflowError) as error:
            # A codec let it through.
            logger.error("an entry for queue %r cannot be written: %s", entry.queue, error)
            refuse(proposal.reply_to, Refusal(BadField.code, f"a number is out of range: {error}"))
            continue
        payloads.append(payload)
        taken.append(proposal)
    return taken, payloads


_HANDLERS: dict[type, Callable[[RaftLog, Any], None]] = {
    Propose: RaftLog.on_propose,
    Collect: RaftLog.on_collect,
    Tick: RaftLog.on_tick,
    Written: RaftLog.on_written,
    Started: RaftLog.on_started,
    Pressure: RaftLog.on_pressure,
    Crowded: RaftLog.on_crowded,
    Throttle: RaftLog.on_throttle,
    OutOfRoom: RaftLog.on_out_of_room,
    StateHasSkippedEntry: RaftLog.on_state_has_skipped_entry,
    EntryCrashesQueue: RaftLog.on_entry_crashes_queue,
    Roll: RaftLog.on_roll,
    Cut: RaftLog.on_cut,
    Freed: RaftLog.on_freed,
    Saved: RaftLog.on_saved,
    Kept: RaftLog.on_kept,
    Applied: RaftLog.on_applied,
    Introduced: RaftLog.on_introduced,
    PeerLost: RaftLog.on_peer_lost,
    FromPeer: RaftLog.on_from_peer,
    GiveUp: RaftLog.on_give_up,
    Administer: RaftLog.on_administer,
    HandOver: RaftLog.on_hand_over,
    CaughtUp: RaftLog.on_caught_up,
    Inquire: RaftLog.on_inquire,
    ImageOffer: RaftLog.on_image_offer,
    ImageFailed: RaftLog.on_image_failed,
    ImageFetched: RaftLog.on_image_fetched,
    ImageBroken: RaftLog.on_image_broken,
}
