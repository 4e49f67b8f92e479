"""The consensus core of one node: the leader, the entries of the log, and the commit index.  Pure.

    tick, step, propose, saved, stable --> Ready: what to save, to send, to apply

Read it beside the Raft paper (Ongaro and Ousterhout, 2014: sections and Figure 2) and the thesis; comments name the
place.  This file holds the state that all roles share: term and vote, the outline of the log, the commit index, and
the input and output of the core.  `follower.py`, `candidate.py` and `leader.py` are the roles.

The core has no file, socket, clock or source of chance of its own.  Moments are monotonic milliseconds of this node and
come in with every call that needs one.  The core itself, not its driver, must hold back every message that rests on
something not yet on disk (docs/internals/raft.md).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from wakeq.protocol.errors import LogDiverged, NotLeader
from wakeq.protocol.raft.acknowledged import Acknowledged
from wakeq.protocol.raft.candidate import Candidate
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, Membership
from wakeq.protocol.raft.messages import (
    AnyMessage,
    Append,
    AppendAnswer,
    Disowned,
    Fetch,
    HardState,
    Heartbeat,
    HeartbeatAnswer,
    OwnEntry,
    Ready,
    RequestVote,
    Restore,
    SnapshotOffer,
    SnapshotRefused,
    TimeoutNow,
    VoteAnswer,
    Write,
)
from wakeq.protocol.raft.settings import Me, Settings

# How far the term of another node may be ahead: two years with an election in every minute, all missed by this node.
TERM_JUMP_MAX: Final = 1 << 20
LIVES_MAX: Final = 1_024  # incarnations of other disks that are remembered
OUTBOX_MESSAGES_MAX: Final = 4_096  # while a save takes long; further messages are lost, as on any network


class Core:
    """Invariants: commit <= last index; stable <= last index; the term never falls."""

    def __init__(
        self,
        me: Me,
        state: HardState,
        log: LogView,
        configs: Sequence[tuple[int, Config]],
        *,
        committed: int,
        settings: Settings,
        chance: Callable[[], float],
        now_ms: int,
        acknowledged: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.me = me
        self.settings = settings
        self.chance = chance  # draws a number from 0 to 1
        self.now_ms = now_ms  # of the last call
        self.state = state  # in memory; no message leaves before it is saved
        self.log = log  # entries in memory, written or not
        self._term_max = state.term + TERM_JUMP_MAX  # higher terms of other nodes are doubted; see `_raise_term_max`
        self._raised_ms = now_ms - settings.election_ms  # when `_term_max` was last raised
        assert configs[0][0] <= log.previous_index, "members that stand in the log are missing: peers would miss them"
        self.members = Membership(me.node_id, configs)
        self.stable_index = log.last_index  # on this node's disk
        self.era = 0  # grows when entries are truncated; tells reports about replaced entries from others
        self.commit = committed  # committed in the cluster, perhaps not yet on this disk
        self.applied_index = log.previous_index  # contained in the state
        self.leader_id: int | None = None
        # When this node last heard a leader, or its start: before that, it may have answered one.
        self.heard_ms = now_ms
        self.removed_by = 0  # the entry that removed this node, as another node says; see `is_removed`
        self.disowned = False  # this disk lacks entries that it acknowledged: no vote, no campaign
        self.acknowledged = Acknowledged(acknowledged)  # by the disks of all members, as leaders say
        self.role: Follower | Candidate | Leader = Follower(self)
        self._saved = state  # on disk
        self._saving = state  # given to the driver to be saved
        self._incarnations: dict[tuple[int, int], int] = {}  # the newest one of each (node, disk)
        self._outbox: list[AnyMessage] = []  # for the next `ready`, as are the three lists below
        self._entries: list[OwnEntry] = []
        self._images: list[int] = []
        self._reads: list[tuple[int, int]] = []
        self._shown_commit = self.committed  # in the last `ready`
        # A lone voter need not wait: no other node can be leading.
        if self.members.is_lone and self.members.index <= committed:
            self.heard_ms -= settings.election_ms
            self.role.hurry()

    # --- the state, for reading -------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def committed(self) -> int:
        """The last entry that is both committed and on this node's disk, so that it may be applied."""
        return min(self.commit, self.stable_index)

    @property
    def leads(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def accepts(self) -> bool:
        """Whether proposals are accepted now; they wait during a transfer of leadership and in a new cluster."""
        return isinstance(self.role, Leader) and self.role.accepts

    @property
    def is_removed(self) -> bool:
        """Whether this node was removed, as far as it knows.  An entry that adds it again comes later in the log."""
        return self.removed_by > max(self.commit, self.members.index)

    def may_serve(self, now_ms: int) -> bool:
        """Whether this leader may answer from memory now; check it in the turn that answers.

        It may once its first entry is applied (section 8) and while a majority has answered a heartbeat that was sent
        less than half an election timeout ago: those voters grant no other vote for twice that time.
        """
        return isinstance(self.role, Leader) and self.role.may_serve(now_ms)

    # --- time and messages ------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Let time pass: elections begin, heartbeats leave, a leader without its quorum steps down.

        Call it at least twice in each heartbeat interval, and first of all after a pause.
        """
        self.now_ms = now_ms
        self.role.tick(now_ms)

    def doubt(self, message: AnyMessage) -> str:
        """Return why no correct node can have sent this message to this one; empty if a correct node can.

        Indexes need no bound but that of the wire: an Append brings all entries that it names, however far behind this
        node is, and an image is checked.  Only claims about this node's own messages can be known to be wrong.
        """
        if message.term > max(self.state.term, self._term_max) and not self._is_blank():
            self._raise_term_max()
            return f"it is in term {message.term}, and this node in term {self.term}; no cluster gets so far ahead"
        role = self.role
        if not isinstance(role, Leader) or message.term != self.term:
            return ""
        last = self.log.last_index
        match message:
            case Append() | Heartbeat() | SnapshotOffer():
                return f"it says that it leads in term {self.term}, in which this node leads"
            case AppendAnswer() if message.match > last or (message.rejected or 0) > last:
                return f"it answers for entries behind {last}, which no node has sent it"
            case HeartbeatAnswer() if message.round > role.round:
                return f"it answers heartbeat {message.round}, of which {role.round} were sent"
        return ""

    def _is_blank(self) -> bool:
        return not self.term and not self.log.last_index

    def _raise_term_max(self) -> None:
        """Accept another jump if it is repeated: otherwise two nodes could doubt each other for ever.

        This happens once in an election timeout at most, so that a node that invents terms needs years to do harm.
        """
        if self.now_ms - self._raised_ms >= self.settings.election_ms:
            self._raised_ms = self.now_ms
            self._term_max = max(self._term_max, self.term) + TERM_JUMP_MAX

    def step(self, message: AnyMessage, now_ms: int) -> Write | Fetch | None:
        """Process one message.  The result concerns the bytes that came with the message."""
        self.now_ms = now_ms
        if not self._is_current(message):
            return None
        # A removal is true in any term: this node may have raised its own by campaigning.
        if isinstance(message, Disowned) and message.removed_by:
            self._learn_removal(message.removed_by)
            return None
        if isinstance(message, RequestVote) and message.pre:
            self.tell_if_removed(message.sender)
        # An acknowledgement is true in any term.
        if isinstance(message, Append | Heartbeat | RequestVote | VoteAnswer) and message.acknowledged:
            self._learn_acknowledged(message.acknowledged)
        if message.term != self.state.term and not self._check_term(message):
            return None
        return self._dispatch(message)

    def tell_if_removed(self, node_id: int) -> None:
        """Tell another node if it is no longer a member: it gets no entries and cannot learn that from them."""
        members = self.members
        if 0 < members.index <= self.commit and members.config.member(node_id) is None:
            self.send(Disowned, node_id, 0, members.index)

    def _learn_removal(self, index: int) -> None:
        """Stop campaigning.  A node that never belonged to the cluster ignores this and waits to be added."""
        member = self.members.config.member(self.me.node_id)
        if member is not None and (member.voter or self.members.index):
            self.removed_by = max(self.removed_by, index)
            if self.is_removed:
                self.become_follower(self.term)

    def _learn_acknowledged(self, told: Sequence[tuple[int, int]]) -> None:
        """Remember the acknowledgements.  If this disk lacks entries that it acknowledged, it is an old copy."""
        self.acknowledged.learn(told)
        self.disowned = self.disowned or self.stable_index < self.acknowledged.of(self.me.disk_id)

    def _is_current(self, message: AnyMessage) -> bool:
        """Return False for a message of an earlier incarnation of its sender; note a new incarnation."""
        key = (message.sender, message.disk_id)
        known = self._incarnations.get(key, 0)
        if message.incarnation > known:
            if not known and len(self._incarnations) >= LIVES_MAX:
                self._forget_strangers()
            self._incarnations[key] = message.incarnation
            # Messages to its earlier incarnation are lost.
            if known and isinstance(self.role, Leader) and self.members.knows(*key):
                self.role.lost(message.sender)
        return message.incarnation >= known

    def _forget_strangers(self) -> None:
        """Keep the incarnations of members only: messages of other nodes change nothing here."""
        self._incarnations = {key: life for key, life in self._incarnations.items() if self.members.knows(*key)}

    def _check_term(self, message: AnyMessage) -> bool:
        """Section 5.1: enter a later term, refuse an earlier one.  Return whether to process the message."""
        if message.term < self.term:
            self._refuse_old(message)
            return False
        match message:
            case RequestVote():
                # Section 6: a node that hears a leader does not let another node depose it (thesis 4.2.3).
                if not message.forced and self.has_leader(self.now_ms):
                    return False
                # A pre-vote changes no term.
                if message.pre:
                    return True
            # Its term is the one that this node asked for.
            case VoteAnswer(pre=True, granted=True):
                return True
            # A node that is no member cannot depose a leader either.
            case AppendAnswer() | HeartbeatAnswer() | SnapshotRefused() | VoteAnswer():
                if not self.members.knows(message.sender, message.disk_id):
                    return False
        if self._is_blank():
            self._term_max = message.term + TERM_JUMP_MAX
        self.become_follower(message.term)
        return not isinstance(message, AppendAnswer | HeartbeatAnswer | SnapshotRefused | VoteAnswer)

    def _refuse_old(self, message: AnyMessage) -> None:
        """Tell a leader or candidate of an earlier term about the later one; it could not learn of it otherwise.

        A refused Append gets no AppendAnswer: if its sender leads again by now, it would read it as an answer about
        the log, and conclude that this disk has lost entries that it acknowledged.
        """
        match message:
            case Append() | Heartbeat():
                self.send(HeartbeatAnswer, message.sender, 0)
            case SnapshotOffer():
                self.send(SnapshotRefused, message.sender, message.stream)
            case RequestVote():
                self.send(VoteAnswer, message.sender, False, message.pre)

    def _dispatch(self, message: AnyMessage) -> Write | Fetch | None:
        match message:
            case Append():
                return self._follow(message.sender).on_append(message)
            case Heartbeat():
                self._follow(message.sender).on_heartbeat(message)
            case SnapshotOffer():
                return self._follow(message.sender).on_offer(message)
            case AppendAnswer() | HeartbeatAnswer() | SnapshotRefused():
                if isinstance(self.role, Leader):
                    self.role.on_answer(message)
            case VoteAnswer():
                if isinstance(self.role, Candidate) and not self.disowned:
                    self.role.on_vote(message)
            case RequestVote():
                self._on_request_vote(message)
            case TimeoutNow():
                self._on_timeout_now()
            case Disowned():
                self.disowned = self.disowned or message.disowned == self.me.disk_id
        return None

    def _follow(self, leader_id: int) -> Follower:
        """Follow the leader of this term (section 5.2: a candidate does so too)."""
        role = self.role
        assert not isinstance(role, Leader), f"nodes {self.me.node_id} and {leader_id} both lead in term {self.term}"
        if not isinstance(role, Follower):
            role = self.role = Follower(self)
        self.leader_id = leader_id
        self.heard_ms = self.now_ms
        role.postpone()
        return role

    def _on_request_vote(self, message: RequestVote) -> None:
        """Sections 5.2 and 5.4.1: grant one vote a term, for a log that is at least as up-to-date as this one."""
        is_free = message.pre or self.state.vote in (None, message.sender)
        is_granted = is_free and not self.disowned and self.log.is_covered_by(message.last_index, message.last_term)
        if message.pre:
            is_granted = is_granted and message.term > self.term
            term = message.term if is_granted else self.term
            self._answer_vote(message, is_granted=is_granted, term=term)
            return
        if is_granted:
            self.state = HardState(self.term, message.sender)
            if isinstance(self.role, Follower):
                self.role.postpone()
        self._answer_vote(message, is_granted=is_granted, term=self.term)

    def _answer_vote(self, message: RequestVote, *, is_granted: bool, term: int) -> None:
        self.send(VoteAnswer, message.sender, is_granted, message.pre, 0, False, self.acknowledged.told(), term=term)

    def _on_timeout_now(self) -> None:
        if isinstance(self.role, Follower) and self.role.may_campaign:
            self.campaign(pre=False, forced=True)

    def has_leader(self, now_ms: int) -> bool:
        """Whether a leader is known to be alive, to a voter (thesis 4.2.3) or to that leader itself."""
        if isinstance(self.role, Leader):
            return self.role.has_quorum(now_ms)
        return now_ms - self.heard_ms < self.settings.election_ms

    # --- roles ------------------------------------------------------------------------------------------------------

    def become_follower(self, term: int) -> None:
        """Follow: enter a later term, or wait for a leader in this one."""
        if term > self.term:
            self.state = HardState(term, None)
        self.leader_id = None
        if not isinstance(self.role, Follower):
            self.role = Follower(self)
            self._images, self._reads = [], []
        else:
            self.role.begin_term()

    def campaign(self, *, pre: bool, forced: bool = False) -> None:
        """Begin an election (section 5.2), or with `pre` ask first whether it could be won (thesis 9.6)."""
        if not pre:
            self.state = HardState(self.term + 1, self.me.node_id)
        self.leader_id = None
        self.role = Candidate(self, pre=pre, forced=forced)
        self.role.begin()

    def become_leader(self, clocks: Sequence[tuple[int, bool]]) -> None:
        """Lead after winning an election (section 5.2); the first entry is a no-op (section 8)."""
        assert self.state == self._saved, "led before its own vote was on disk"
        self.leader_id = self.me.node_id
        self.role = Leader(self, clocks)
        self.put_own_entry(None)

    # --- proposals --------------------------------------------------------------------------------------------------

    def propose(self, count: int, size_bytes: int = 0) -> int:
        """Assign consecutive indexes to entries of this term; return the first.  Only while this node `accepts`."""
        role = self.role
        assert isinstance(role, Leader), "only a leader proposes"
        assert role.accepts, "proposals wait now"
        assert not self._entries, "what the core puts into the log goes before: take `ready` first"
        return self.log.append(count, self.state.term, size_bytes)

    def put_own_entry(self, config: Config | None) -> int:
        index = self.log.append(1, self.term)
        self._entries.append(OwnEntry(index, self.term, config))
        if config is not None:
            self.members.append(index, config)
        return index

    def stable(self, index: int, era: int) -> int:
        """Note that the entries up to `index`, submitted in this era, are on this disk; return `committed`.

        Entries submitted before a truncation may have been replaced: their report is ignored, because the write that
        replaced them reports too.  (Terms could not tell them apart: entries of an earlier term may be submitted in the
        very term that truncates them, and entries of an earlier term may replace them.)
        """
        if index > self.stable_index and era == self.era:
            assert index <= self.log.last_index, f"entry {index} on disk, the log ends with {self.log.last_index}"
            self.stable_index = index
            self.role.on_stable()
        return min(self.commit, self.stable_index)

    def saved(self, state: HardState) -> None:
        """Note that term and vote are on disk.  A report that arrives after a later one is ignored."""
        if (state.term, state.vote is not None) > (self._saved.term, self._saved.vote is not None):
            self._saved = state
        if state == self.state and isinstance(self.role, Candidate):
            self.role.on_saved()

    def applied(self, index: int) -> None:
        """Note that the state contains all entries up to `index`."""
        self.applied_index = max(self.applied_index, index)

    def ready(self) -> Ready | None:
        """Return what the driver has to do, None if there is nothing."""
        if isinstance(self.role, Leader):
            self.role.replicate()
        save = self.state if self.state != self._saving else None
        messages: list[AnyMessage] = []
        if self.state == self._saved:
            messages, self._outbox = self._outbox, messages
        commit = self.committed
        if not (save or messages or self._entries or self._images or self._reads) and commit == self._shown_commit:
            return None
        self._saving = self.state
        self._shown_commit = commit
        ready = Ready(save, self._entries, messages, commit, self._images, self._reads)
        self._entries, self._images, self._reads = [], [], []
        return ready

    # --- for the roles ----------------------------------------------------------------------------------------------

    def send(self, kind: Callable[..., AnyMessage], receiver: int, *fields: object, term: int | None = None) -> None:
        """Queue a message for a node; it leaves once term and vote are on disk."""
        if len(self._outbox) < OUTBOX_MESSAGES_MAX:
            me = self.me
            header = (me.node_id, receiver, me.disk_id, me.incarnation, self.state.term if term is None else term)
            self._outbox.append(kind(*header, *fields))

    def want_image(self, peer: int) -> None:
        self._images.append(peer)

    def pass_barrier(self, barrier: int, index: int) -> None:
        self._reads.append((barrier, index))

    def commit_to(self, index: int) -> None:
        """Section 5.3: raise the commit index; it never falls."""
        assert index <= self.log.last_index, f"commit {index}, the log ends with {self.log.last_index}"
        self.commit = max(self.commit, index)

    def truncate_from(self, index: int) -> None:
        """Remove entries that the leader of this term does not have."""
        if index <= self.commit:
            raise LogDiverged(
                f"entry {index} is committed here, up to {self.commit}, and the leader of term {self.term}, node "
                f"{self.leader_id}, has another one; stop all nodes and compare their logs: one has lost its disk"
            )
        self.log.truncate_from(index)
        self.members.truncate_from(index)
        self.stable_index = min(self.stable_index, index - 1)
        self.era += 1
        # Own entries that no `ready` has shown yet go too.
        self._entries = [entry for entry in self._entries if entry.index < index]

    def reset_log(self, restore: Restore) -> None:
        """Begin again behind an image (section 7)."""
        self.log.reset(restore.index, restore.term)
        self.members.reset(restore.index, restore.config)
        self.stable_index = self.commit = self.applied_index = restore.index
        self.era += 1
        self._entries = []

    # --- images of the state ----------------------------------------------------------------------------------------

    def fetched(self, stream: int) -> Restore | None:
        """Note that an image has arrived and was checked; return how to install it, None if it is no longer needed."""
        return self.role.fetched(stream) if isinstance(self.role, Follower) else None

    def fetch_failed(self, stream: int) -> None:
        """Note that the stream of an image broke off."""
        if isinstance(self.role, Follower):
            self.role.fetch_failed(stream)

    def restored(self) -> None:
        """Note that the image is installed: state and log on disk are those of the image."""
        assert isinstance(self.role, Follower), "only a follower restores"
        self.role.restored()

    def floor(self, index: int) -> int:
        """Return the last entry that may be removed from the log, if the state on disk contains all up to `index`."""
        index = min(index, self.committed)
        return min(index, self.role.floor()) if isinstance(self.role, Leader) else index

    def cut(self, index: int) -> None:
        """Note that the entries up to `index` were removed from the log; they are only in the state now."""
        assert index <= self.committed, f"cut at {index}, committed are {self.committed}"
        self.log.cut(index)
        self.members.cut(index)

    def leader(self) -> Leader:
        """Return the leader's role, for calls that only a leader can serve."""
        if not isinstance(self.role, Leader):
            raise NotLeader(f"node {self.me.node_id} does not lead; ask node {self.leader_id}")
        return self.role
