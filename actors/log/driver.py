"""LogDriver: drives the consensus core: tells it what happens, and does what it wants.

    time, FromPeer, syncs --> core --> what to write, to send, to commit --> log, peers, queues
    leadership won and lost --> who may be served, what becomes of proposals

The third layer of RaftLog.  The core makes the decisions; this only decides when to ask it.
"""

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from wakeq.actors.log.entries import TAKEN_BACK, LogEntries, answer
from wakeq.actors.log.files import LogServices, Saved
from wakeq.actors.log.leader_watch import LeaderWatch
from wakeq.actors.log.neighbourhood import Introduced, Neighbourhood, Neighbours
from wakeq.actors.log.peer import FromPeer, PeerLost, Refuse
from wakeq.actors.log.transfer import (
    DropImage,
    FetchImage,
    ImageBroken,
    ImageFailed,
    ImageFetched,
    ImageOffer,
    WantImage,
)
from wakeq.actors.mail import Applied, Follow, Item, NoopTicket, Propose, Started, Throttle, Tick
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import Busy, DiskDisowned, NoQuorum, NotLeader
from wakeq.protocol.log.entries import Members, Noop, Publish, SetAside
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.queue.columns.alike import Alike
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import Append, Fetch, Heartbeat, OwnEntry, Ready, Transfer, Write
from wakeq.protocol.raft.pace import BEHIND_BYTES_MAX
from wakeq.protocol.wire.peer.frames import Entries
from wakeq.storage.state.images import mark_for_install

BEATS_A_HEARTBEAT = 2
UNCOMMITTED_BYTES_MAX = 32 << 20  # then proposals wait; also when a voter that answers is BEHIND_BYTES_MAX behind
WRITE_MESSAGES_MAX = 8_192  # in one write of the log, and what is applied before anybody else has a turn ...
WRITE_BYTES_MAX = 4 << 20  # ... and of their bodies; one entry is always written
BUSY_AFTER_MS = 3_000  # that a write of a lone node has been under way
UNKNOWN_AFTER_S = 2.0  # how long askers wait after this node lost leadership, before they hear UNKNOWN
SYNC = Tick("sync")
BEAT = Tick("beat")

logger = logging.getLogger("wakeq.raft_log")


class Writer(Protocol):
    """A queue, as the log sees it."""

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


class LogDriver(LogEntries):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices, neighbours: Neighbours | None = None) -> None:
        super().__init__(core, services)
        self._neighbours = neighbours
        self._may_block = neighbours is None
        self._around = Neighbourhood(core.me.node_id, neighbours)
        self._peers = self._around.peers
        self._watch = LeaderWatch(core, self._around)
        self._images: Process | None = None
        self._changes: dict[int, ReplyTo] = {}  # by index of the entry: who asked for a change of members
        self._led_term = 0  # the term in which this node leads, 0 while it does not
        self._ticked_ms = 0
        self._members_index = -1  # of the configuration whose members this node knows as peers
        self._is_throttled = False
        self._serves_alone = False  # it leads and is the only voter: it may always serve
        self._is_replaced = False  # an image is about to replace log and state
        self._closings = 0  # while not 0, nothing is handed out: leadership is about to be given away
        self._parks = True  # proposals wait: for this node to lead, for the state store, or for a successor
        self._parked: deque[Propose] = deque()
        self._writers: dict[Writer, None] = {}  # queues with something for the next write, in the order of enlisting
        self._ahead_since_ms = NEVER  # since when a delivery has left that is in no entry yet
        self._ahead: deque[tuple[int, int]] = deque()  # the same of what was collected: (last index, since when)
        self._collected: deque[Proposal] = deque()  # entries that were more than one write may hold, in their order
        self._collect_queued = False
        self._collect_parked = False  # queues have something for the log, and it may take nothing at this moment
        self._parked_ms = NEVER  # since when proposals have been parked, or were that are not committed yet
        self._parked_to = 0  # the last entry that was parked before it came into the log

    def restore(self, item: Item) -> None:
        """Take an entry of the log that is not known to be committed; only before any mail."""
        self._uncommitted.append(item)

    def on_started(self, message: Started) -> None:
        self._queues, self._images = message.queues, message.images
        if self._neighbours is None:
            self._tick()
        else:
            self.on_beat()

    # --- who may be served -----------------------------------------------------------------------------------------

    def refusal(self) -> Refusal | None:
        """Return why this node may not answer from its memory at this moment, None if it may."""
        if self._serves_alone:
            return None if self._hang_ms < BUSY_AFTER_MS else self._disk_hangs(Busy.code)
        core = self.core
        is_open = core.accepts and not self._closings
        if is_open and core.may_serve(self._monotonic_ms()):
            if self._hang_ms >= core.settings.election_ms:
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
        return Refusal(code, f"the disk of this node has not answered for {self._hang}; try again shortly")

    def _not_leader(self) -> Refusal:
        leader = self.other_leader
        if self.core.is_removed:
            return Refusal(NotLeader.code, "this node was removed from the cluster; connect to another one")
        if leader is None:
            return Refusal(NotLeader.code, "no node leads at this moment; try again, or try another node")
        addresses = self.address_of(leader, "worker"), self.address_of(leader, "http")
        return Refusal(NotLeader.code, f"node {leader} leads; connect to it", *addresses)

    @property
    def other_leader(self) -> int | None:
        """The node that leads, as far as this one knows; None if it is this one, or is not connected."""
        leader = self.core.leader_id
        return leader if leader in self._around.connected else None

    def address_of(self, node_id: int, door: str) -> str:
        """Return the address of another node's port for clients ("worker", "http"); empty if it is not known."""
        return self._around.address(node_id, door)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was proposed has its outcome and is on disk."""
        asked = any(asker is not None for *_, asker in self._uncommitted)
        waits = self._parked or self._writers or self._collected
        return not (self._writing or asked or waits or self._log.buffered_bytes)

    def waits_since_ms(self) -> int:
        """Return since when the oldest thing has waited that is not committed or written; NEVER if nothing waits."""
        since_ms, uncommitted, ahead = min(self._writing_ms, self._ahead_since_ms), self._uncommitted, self._ahead
        while ahead and ahead[0][0] <= self.core.committed:
            ahead.popleft()
        if ahead and ahead[0][1] < since_ms:
            since_ms = ahead[0][1]
        if uncommitted and uncommitted[0][2] < since_ms:
            since_ms = uncommitted[0][2]
        if self._parked_ms < since_ms and self._has_parked:
            since_ms = self._parked_ms
        return since_ms

    @property
    def _has_parked(self) -> bool:
        """Whether anything waits that is parked, or was before it came into the log."""
        waits = self._parked or self._collect_parked
        return bool(waits or (self._uncommitted and self._uncommitted[0][0] <= self._parked_to))

    # --- proposals -------------------------------------------------------------------------------------------------

    def enlist(self, queue: Writer, *, lazy: bool = False) -> None:
        """A queue has something for the next write; what is lazy starts none by itself, but rides with any."""
        self._writers[queue] = None
        if lazy:
            if self._ahead_since_ms == NEVER:
                self._ahead_since_ms = self._stamp_ms()
            self._flush_later()
        elif not self._collect_queued and not self._writing:
            self._collect_queued = True
            self.tell(COLLECT)

    def enter(self, items: list[Proposal]) -> None:
        """Take what a queue that has crashed still had for the log, as it is."""
        self.tell(Propose(items))

    def _collect_soon(self) -> None:
        """Collect behind the turns of the queues that were woken in this round, so that all share one write."""
        if not self._collect_queued and not self._writing:
            self._collect_queued = True
            self.tell(COLLECT)

    def on_collect(self, message: Collect) -> None:
        """Ask every queue for its entries, put them into the log together, and write."""
        self._collect_queued = False
        if self._peers:
            self._look_at_clock()
        if not (self._writers or self._collected) or self._writing or (self._roll is not None and self._waits_to_roll):
            return  # what is under way collects when it is done
        if self._parks:
            if not self._has_parked:
                self._parked_ms = self._stamp_ms()
            self._collect_parked = True
            return
        self._collect()
        if not self._peers and self.runtime.is_last(self) and not self._flush_queued:
            self._flush()  # at once: no other process has mail, so nobody else can propose in this turn
        else:
            self._flush_soon()
        if self._collected:
            self._collect_soon()

    def _collect(self, *, everything: bool = False) -> None:
        """Put into the log what queues have for it, as much as one write may hold, or everything.

        Entries that name several queues stand behind all others.  What is more than a write stays collected, in its
        order; nothing else is collected before that.
        """
        if not self._led_term:
            self._refuse_writers(self._not_leader())
            return
        if everything or not self._collected:
            writers, self._writers = self._writers, {}
            items: list[Proposal] = []
            behind: list[Proposal] = []
            for queue in writers:
                queue.put_entries(items, behind)
            items += behind
            if self._collected:
                items = [*self._collected, *items]
                self._collected.clear()
            if len(items) > 1 and not everything:
                items = self._first_write_of(items)
        else:
            items = self._first_write_of([])
        if items:
            self._append(items)
        if self._ahead_since_ms != NEVER and not self._collected:
            self._ahead.append((self.core.log.last_index, self._ahead_since_ms))
            self._ahead_since_ms = NEVER

    def _first_write_of(self, items: list[Proposal]) -> list[Proposal]:
        """Return the entries that one write may hold, one at least, and keep the others."""
        collected = self._collected
        collected.extend(items)
        messages = size_bytes = 0
        taken: list[Proposal] = []
        while collected and messages < WRITE_MESSAGES_MAX and size_bytes < WRITE_BYTES_MAX:
            entry, _ticket = proposal = collected.popleft()
            taken.append(proposal)
            if type(entry) is Publish:
                drafts = entry.drafts
                messages += len(drafts)
                size_bytes += len(drafts.bodies) if type(drafts) is Alike else sum([len(d.body) for d in drafts])
            else:
                messages += len(getattr(entry, "numbers", ())) or 1
        return taken

    def _refuse_writers(self, refusal: Refusal) -> None:
        """This node does not lead: nothing that queues have for the log was ever in it."""
        writers, self._writers = self._writers, {}
        for queue in writers:
            queue.refuse_filed(refusal)
        self._refuse_collected(refusal)

    def _refuse_collected(self, refusal: Refusal) -> None:
        collected, self._collected = self._collected, deque()
        for _entry, ticket in collected:
            answer(ticket, refusal)

    def _go_on_writing(self) -> None:
        super()._go_on_writing()
        if self._writers or self._collected:
            self._collect_soon()

    def on_propose(self, message: Propose) -> None:
        """Take entries of whoever is no queue; deliveries that queues have made stand before them."""
        if self._peers:
            self._look_at_clock()
        if (self._parks and not self._is_urgent(message)) or not self._led_term:
            self._put_off(message)
            return
        if (self._writers or self._collected) and not self._parks:
            self._collect(everything=True)
        self._append(message.items)
        if not self._peers and self.runtime.is_last(self) and not self._flush_queued and not self._writing:
            self._flush()
        else:
            self._flush_soon()

    def _is_urgent(self, message: Propose) -> bool:
        """Whether the state store may be waiting for this: no cut is made while a queue is halted."""
        return self.core.accepts and all(type(entry) is SetAside for entry, _ in message.items)

    def _put_off(self, message: Propose) -> None:
        if self._parks:
            if not self._has_parked:
                self._parked_ms = self._stamp_ms()
            self._parked.append(message)
            return
        refusal = self._not_leader()
        for _entry, asker in message.items:
            answer(asker, refusal)

    def on_throttle(self, message: Throttle) -> None:
        self._is_throttled = message.on
        self._note_standing()
        self._release_parked()

    def _note_standing(self) -> None:
        """Find out whether this node still leads, and whether proposals may go on."""
        core = self.core
        led, self._led_term = self._led_term, core.term if core.leads else 0
        if led and led != self._led_term:
            if self._neighbours is not None:
                self._neighbours.clock.step_down()
            self._watch.loses(led)
            self._stand_down(led)
        if self._led_term and led != self._led_term:
            if self._neighbours is not None:
                self._neighbours.clock.lead(core.leader().clocks)
            self._watch.wins(self._led_term)
        if core.leads:
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
        self._flush_soon()

    def _stand_down(self, term: int) -> None:
        """This node leads no longer: the queues forget what only a leader knows."""
        assert self._queues is not None, "started first"
        self._drop_promises()
        self._ahead_since_ms = NEVER
        self._refuse_collected(self._not_leader())
        self._ahead.clear()  # some of these entries may be dropped, and then nothing waits for them
        self._writers, self._collect_parked = {}, False  # they refuse what they have when they hear of this
        self._queues.tell(Follow(term, self._not_leader()))
        if self._hang_ms >= self.core.settings.election_ms:
            self.tell(GiveUp(term))  # what its own disk does not have, it cannot know as committed
        else:
            self._call_later(UNKNOWN_AFTER_S, lambda: self.tell(GiveUp(term)))

    def on_give_up(self, message: GiveUp) -> None:
        self._give_up(message.term)

    # --- time ------------------------------------------------------------------------------------------------------

    def on_tick(self, message: Tick) -> None:
        match message.what:
            case "beat":
                self.on_beat()
            case "sync":
                self._flush_now()
            case "look":
                self.on_look()
            case "lazy":
                self._lazy_queued = False
                self._collect_soon()
            case _:
                self._flush_queued = False
                self._send_and_flush()

    def on_beat(self) -> None:
        self._tick()
        self._keep_acknowledged()
        self._watch.look(self._ticked_ms, serves=self.refusal() is None)
        heartbeat_ms = self.core.settings.heartbeat_ms
        self._call_later(heartbeat_ms / BEATS_A_HEARTBEAT / 1000, lambda: self.tell(BEAT))

    def _tick(self) -> None:
        self._ticked_ms = self._monotonic_ms()
        self.core.tick(self._ticked_ms)
        self._attend()

    def _look_at_clock(self) -> None:
        """After a pause of this process, let the core find out whether it still leads before anything else is done."""
        if self._monotonic_ms() - self._ticked_ms > self.core.settings.heartbeat_ms:
            self._tick()

    def _send_and_flush(self) -> None:
        """Send the gathered entries to the peers before they are written here, so that all nodes write at once."""
        if self._peers:
            self._attend()
            self.tell(SYNC)  # after the peers' connections have sent them
        else:
            self._flush_now()

    def _flush_now(self) -> None:
        if not self._writing and not self._waits_to_roll:
            self._flush()

    # --- what the core wants ---------------------------------------------------------------------------------------

    def on_synced(self, last_index: int, era: int) -> None:
        if self._is_replaced:
            return  # this log is about to be replaced
        self._hand_over(self.core.stable(last_index, era))
        if self._peers:
            self._attend()

    def on_saved(self, message: Saved) -> None:
        if message.error is not None:
            raise message.error
        self.core.saved(message.state)
        self._attend()

    def on_applied(self, message: Applied) -> None:
        self.core.applied(message.index)
        self._note_standing()

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
            self._save(ready.save)
        for own in ready.entries:
            self._enter_own(own)
        if ready.messages:
            self._around.send(ready.messages, self._payloads)
        self._hand_over(ready.commit)
        for node_id in ready.images:
            assert self._images is not None, "started first"
            self._images.tell(WantImage(node_id, self.core.log.previous_index))
        if self._roll is not None:
            self._go_on_writing()

    def _enter_own(self, own: OwnEntry) -> None:
        """Put an entry of the core's own into the log: the no-op of a new leader, or a change of members."""
        at_ms = self._stamp_ms()
        ticket: ReplyTo | NoopTicket | None = self._changes.pop(own.index, None)
        if own.config is None:
            ticket = NoopTicket()
        entry = Noop() if own.config is None else Members(own.config)
        self._enter(own.index, at_ms, *self._encode([(entry, ticket)], at_ms))
        self._flush_soon()

    # --- peers -----------------------------------------------------------------------------------------------------

    def _meet_members(self) -> None:
        """Make every member of the current configuration a peer."""
        members = self.core.members
        self._members_index = members.index
        self._around.meet(members.config)
        if self._neighbours is not None:
            self._watch.meet(members.config, members.index)
        self._keeps_payloads = bool(self._peers)

    def on_introduced(self, message: Introduced) -> None:
        self._around.introduce(message)
        self._keeps_payloads = True
        self._begin_anew(message.hello.node_id)
        self.core.tell_if_removed(message.hello.node_id)
        self._attend()

    def on_peer_lost(self, message: PeerLost) -> None:
        self._around.lose(message.node_id, message.door)
        self._begin_anew(message.node_id)

    def _begin_anew(self, node_id: int) -> None:
        """A peer's connection is new, or gone: tell the core that what was on its way there is lost."""
        if self.core.leads:
            self.core.leader().lost(node_id)
            self._attend()

    def on_from_peer(self, message: FromPeer) -> None:
        self._look_at_clock()
        now_ms = self._monotonic_ms()
        for frame in message.frames:
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

    @abstractmethod
    def on_wish(self, wish: Transfer) -> None:
        """Another node passes on that an operator wants another leader."""

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
            self._put(first, term, part)
            for index, payload in enumerate(part, first):
                entry, at_ms = decode_entry(payload)
                asker = self._orphans.pop((index, term), None) if self._orphans else None
                self._uncommitted.append((index, term, at_ms, entry, asker))
        assert self._neighbours is not None, "only in a cluster"
        self._neighbours.clock.reach(at_ms)
        self._flush_soon()

    def _follow_clock(self, heartbeat: Heartbeat) -> None:
        """Take the time from the leader, unless the core has refused what it said."""
        core = self.core
        is_leaders = heartbeat.sender == core.leader_id and heartbeat.term == core.term
        if is_leaders and heartbeat.clock_ms and self._neighbours is not None:
            self._neighbours.clock.follow(heartbeat.clock_ms)

    def _truncate(self, index: int) -> None:
        """Drop entries that the leader does not have."""
        logger.info("entries from %d on are dropped: the leader of term %d has others", index, self.core.term)
        self._take_back(index)
        self._payloads.truncate_from(index)
        self._do_behind(lambda: self._log.truncate_from(index))

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
        logger.info("the state of the leader has come: starting again from it")
        consensus = self._log.directory
        self._start_again_behind(lambda: mark_for_install(consensus))

    def _start_again_behind(self, mark: Callable[[], None]) -> None:
        """Mark what the next start has to replace, once everything put in before is written; then start again."""
        assert self._neighbours is not None, "only in a cluster"
        self._is_replaced = True
        self._do_behind(mark, self._neighbours.start_again)

    def on_image_broken(self, message: ImageBroken) -> None:
        self.core.fetch_failed(message.stream)
        self._attend()
