"""The consensus core of one node: who leads, what stands at which index, and what is committed.  Pure.

    tick, step, propose, saved, stable --> Ready: what to save, to send, to apply

It reads beside the Raft paper (Ongaro and Ousterhout, 2014: sections and Figure 2) and the thesis; comments name the
place.  This file is what every role shares: term and vote, the log's outline, the commit index, and what goes in and
out.  `follower.py`, `candidate.py` and `leader.py` are the roles.

It knows no file, socket, clock or chance: moments are monotonic milliseconds of this node and come in with every
call that needs one, a source of chance is given to it.  It must never let out what rests on something not yet on
disk: that is its own doing, not its driver's (docs/internals/raft.md).
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

# That another node is ahead: an election a minute, each of which this one missed, for 2 years.
TERM_JUMP_MAX: Final = 1 << 20
LIVES_MAX: Final = 1_024  # of other disks that are remembered
OUTBOX_MESSAGES_MAX: Final = 4_096  # while a save takes long; what is beyond is lost, as on any network


class Core:
    """See the head of this file.  Invariants: commit <= last index; stable <= last index; the term never falls."""

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
        self.chance = chance
        self.now_ms = now_ms
        self.state = state  # as it is in memory; nothing leaves before it is saved
        self.log = log  # what stands in it, written or not
        self._term_max = state.term + TERM_JUMP_MAX  # of another node; beyond it see `_believe_more`
        self._raised_ms = now_ms - settings.election_ms
        assert configs[0][0] <= log.previous_index, "members that stand in the log are missing: peers would miss them"
        self.members = Membership(me.node_id, configs)
        self.stable_index = log.last_index  # on this node's disk
        self.era = 0  # counts how often entries were taken back in this life
        self.commit = committed
        self.applied_index = log.previous_index
        self.leader_id: int | None = None
        self.heard_ms = now_ms  # a leader, at last; as if at the start, for the life before may have answered one
        self.removed_by = 0  # the entry that removed this node, as another one has told it; see `is_removed`
        self.disowned = False  # this disk lacks what it promised: no vote, no candidacy
        self.acknowledged = Acknowledged(acknowledged)  # by disks of all members, as leaders have told
        self.role: Follower | Candidate | Leader = Follower(self)
        self._saved = self._saving = state
        self._incarnations: dict[tuple[int, int], int] = {}
        self._outbox: list[AnyMessage] = []  # these four are what `ready` will hand out
        self._entries: list[OwnEntry] = []
        self._images: list[int] = []
        self._reads: list[tuple[int, int]] = []
        self._shown_commit = self.committed
        if self.members.is_lone and self.members.index <= committed:  # no leader can live anywhere else
            self.heard_ms -= settings.election_ms
            self.role.hurry()

    # --- what others may ask ----------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def committed(self) -> int:
        """Up to here entries are committed, and on this node's disk, so that they may be applied."""
        return min(self.commit, self.stable_index)

    @property
    def leads(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def accepts(self) -> bool:
        """Whether proposals may come now; while leadership is handed over, and in a new cluster, they wait."""
        return isinstance(self.role, Leader) and self.role.accepts

    @property
    def is_removed(self) -> bool:
        """Whether this node was removed, as far as it knows; the entries that come when it is added again are later."""
        return self.removed_by > max(self.commit, self.members.index)

    def may_serve(self, now_ms: int) -> bool:
        """Whether this leader's memory may answer at this moment, checked in the turn that answers.

        Its first entry is applied (section 8), and a majority answered a heartbeat that was sent less than half an
        election timeout ago; those who answered vote for nobody else during twice that time.
        """
        return isinstance(self.role, Leader) and self.role.may_serve(now_ms)

    # --- time and messages ------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Let time pass: elections begin, heartbeats leave, a leader without its quorum steps down.

        It is called at least twice for each heartbeat, and before anything else after a pause.
        """
        self.now_ms = now_ms
        self.role.tick(now_ms)

    def doubt(self, message: AnyMessage) -> str:
        """Say why no node that works as it should can have sent this to this one; empty if one can.

        Indexes need no bound but that of the wire: an Append brings all the entries that it names, however far behind
        this node is, and an image is checked.  Only a claim about what this node has said itself is known to be wrong.
        """
        if message.term > max(self.term, self._term_max) and not self._knows_nothing():
            self._believe_more()
            return f"it is in term {message.term}, and this node in term {self.term}; no cluster gets so far ahead"
        role = self.role
        if not isinstance(role, Leader) or message.term != self.term:
            return ""
        last = self.log.last_index
        match message:
            case Append() | Heartbeat() | SnapshotOffer():
                return f"it says that it leads in term {self.term}, in which this node leads"
            case AppendAnswer() if message.match > last or (message.rejected or 0) > last:
                return f"it answers for entries behind {last}, which nobody has sent it"
            case HeartbeatAnswer() if message.round > role.round:
                return f"it answers heartbeat {message.round}, of which {role.round} were sent"
        return ""

    def _knows_nothing(self) -> bool:
        return not self.term and not self.log.last_index

    def _believe_more(self) -> None:
        """Believe another jump when it is said again: two nodes that doubt each other for ever would never meet.

        Once in an election timeout, so that whoever says terms that are not so needs years for a harmful one.
        """
        if self.now_ms - self._raised_ms >= self.settings.election_ms:
            self._raised_ms = self.now_ms
            self._term_max = max(self._term_max, self.term) + TERM_JUMP_MAX

    def step(self, message: AnyMessage, now_ms: int) -> Write | Fetch | None:
        """Take one message.  What is returned concerns the bytes that came along with it."""
        self.now_ms = now_ms
        if not self._comes_from_this_life(message):
            return None
        if isinstance(message, Disowned) and message.removed_by:
            self._learn_removal(message.removed_by)  # whatever term this node has got to by itself
            return None
        if isinstance(message, RequestVote) and message.pre:
            self.tell_if_removed(message.sender)
        if isinstance(message, Append | Heartbeat | RequestVote | VoteAnswer) and message.acknowledged:
            self._learn_acknowledged(message.acknowledged)  # of whichever term the message is, it stays true
        if message.term != self.term and not self._settle_term(message):
            return None
        return self._take(message)

    def tell_if_removed(self, node_id: int) -> None:
        """Tell another node if it does not belong to the cluster any more; nobody else does, for it gets no entries."""
        members = self.members
        if 0 < members.index <= self.commit and members.config.member(node_id) is None:
            self.send(Disowned, node_id, 0, members.index)

    def _learn_removal(self, index: int) -> None:
        """Stand for no election any more; a node that has never belonged to the cluster waits to be added."""
        member = self.members.config.member(self.me.node_id)
        if member is not None and (member.voter or self.members.index):
            self.removed_by = max(self.removed_by, index)
            if self.is_removed:
                self.become_follower(self.term)

    def _learn_acknowledged(self, told: Sequence[tuple[int, int]]) -> None:
        """Remember which disk has acknowledged what; if this one lacks what it has, it is an old copy of itself."""
        self.acknowledged.learn(told)
        self.disowned = self.disowned or self.stable_index < self.acknowledged.of(self.me.disk_id)

    def _comes_from_this_life(self, message: AnyMessage) -> bool:
        """Drop what a former life of its sender said; learn of a new one."""
        key = (message.sender, message.disk_id)
        known = self._incarnations.get(key, 0)
        if message.incarnation > known:
            if not known and len(self._incarnations) >= LIVES_MAX:
                self._forget_strangers()
            self._incarnations[key] = message.incarnation
            if known and isinstance(self.role, Leader) and self.members.knows(*key):
                self.role.lost(message.sender)  # with its former life
        return message.incarnation >= known

    def _forget_strangers(self) -> None:
        """Keep the lives of members only: whoever else speaks has no say here."""
        self._incarnations = {key: life for key, life in self._incarnations.items() if self.members.knows(*key)}

    def _settle_term(self, message: AnyMessage) -> bool:
        """Section 5.1: follow a later term, refuse an earlier one.  Return whether the message is to be taken."""
        if message.term < self.term:
            self._refuse_old(message)
            return False
        match message:
            case RequestVote():
                if not message.forced and self.has_leader(self.now_ms):
                    return False  # section 6: who hears a leader lets nobody depose it (thesis 4.2.3)
                if message.pre:
                    return True  # a pre-vote changes nobody's term
            case VoteAnswer(pre=True, granted=True):
                return True  # the term that was asked for
            case AppendAnswer() | HeartbeatAnswer() | SnapshotRefused() | VoteAnswer():
                if not self.members.knows(message.sender, message.disk_id):
                    return False  # who does not belong here cannot depose anybody either
        if self._knows_nothing():
            self._term_max = message.term + TERM_JUMP_MAX
        self.become_follower(message.term)
        return not isinstance(message, AppendAnswer | HeartbeatAnswer | SnapshotRefused | VoteAnswer)

    def _refuse_old(self, message: AnyMessage) -> None:
        """Tell a leader or candidate of an earlier term that time has gone on; it could not learn it otherwise.

        A refused Append gets no AppendAnswer: if its sender leads again by now, it would take that for a word about
        the log, and this disk for one that has lost what it acknowledged.
        """
        match message:
            case Append() | Heartbeat():
                self.send(HeartbeatAnswer, message.sender, 0)
            case SnapshotOffer():
                self.send(SnapshotRefused, message.sender, message.stream)
            case RequestVote():
                self.send(VoteAnswer, message.sender, False, message.pre)

    def _take(self, message: AnyMessage) -> Write | Fetch | None:
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
        """A leader of this term has spoken (section 5.2: a candidate gives in)."""
        assert not self.leads, f"nodes {self.me.node_id} and {leader_id} both lead in term {self.term}"
        if not isinstance(self.role, Follower):
            self.role = Follower(self)
        self.leader_id = leader_id
        self.heard_ms = self.now_ms
        self.role.postpone()
        return self.role

    def _on_request_vote(self, message: RequestVote) -> None:
        """Sections 5.2 and 5.4.1: one vote a term, for a log that is at least as up-to-date as ours."""
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
        """Whether a leader is known to live, as a voter (thesis 4.2.3) or as that leader."""
        if isinstance(self.role, Leader):
            return self.role.has_quorum(now_ms)
        return now_ms - self.heard_ms < self.settings.election_ms

    # --- roles ------------------------------------------------------------------------------------------------------

    def become_follower(self, term: int) -> None:
        """Enter a term in which somebody else may lead, or wait for another chance in this one."""
        if term > self.term:
            self.state = HardState(term, None)
        self.leader_id = None
        if not isinstance(self.role, Follower):
            self.role = Follower(self)
            self._images, self._reads = [], []
        else:
            self.role.begin_term()

    def campaign(self, *, pre: bool, forced: bool = False) -> None:
        """Stand for election (section 5.2), or ask first whether that would be any use (thesis 9.6)."""
        if not pre:
            self.state = HardState(self.term + 1, self.me.node_id)
        self.leader_id = None
        self.role = Candidate(self, pre=pre, forced=forced)
        self.role.begin()

    def become_leader(self, clocks: Sequence[tuple[int, bool]]) -> None:
        """A majority wants this node (section 5.2); its first entry is a no-op (section 8)."""
        assert self.state == self._saved, "led before its own vote was on disk"
        self.leader_id = self.me.node_id
        self.role = Leader(self, clocks)
        self.put_own_entry(None)

    # --- proposals --------------------------------------------------------------------------------------------------

    def propose(self, count: int, size_bytes: int = 0) -> int:
        """Give consecutive indexes to entries of this term; return the first.  Only while this node `accepts`."""
        assert self.accepts, "only a leader proposes"
        assert not self._entries, "what the core puts into the log goes before: take `ready` first"
        return self.log.append(count, self.state.term, size_bytes)

    def put_own_entry(self, config: Config | None) -> int:
        index = self.log.append(1, self.term)
        self._entries.append(OwnEntry(index, self.term, config))
        if config is not None:
            self.members.append(index, config)
        return index

    def stable(self, index: int, era: int) -> int:
        """Everything up to index is on this disk, handed to it in this era; return `committed`.

        What was handed over before entries were taken back may since have been replaced: it is ignored, for the
        write that replaced it reports as well.  (Terms cannot tell: entries of an earlier term may be handed over in
        the very term that takes them back, and entries of an earlier term may replace them.)
        """
        if index > self.stable_index and era == self.era:
            assert index <= self.log.last_index, f"entry {index} on disk, the log ends with {self.log.last_index}"
            self.stable_index = index
            self.role.on_stable()
        return self.committed

    def saved(self, state: HardState) -> None:
        """Term and vote are on disk.  A report that comes behind a later one says nothing."""
        if (state.term, state.vote is not None) > (self._saved.term, self._saved.vote is not None):
            self._saved = state
        if state == self.state and isinstance(self.role, Candidate):
            self.role.on_saved()

    def applied(self, index: int) -> None:
        """The state contains everything up to index."""
        self.applied_index = max(self.applied_index, index)

    def ready(self) -> Ready | None:
        """Return what is to be done, None if there is nothing."""
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

    # --- what the roles do through it -------------------------------------------------------------------------------

    def send(self, kind: Callable[..., AnyMessage], receiver: int, *fields: object, term: int | None = None) -> None:
        """Address a message; it leaves once term and vote are on disk."""
        if len(self._outbox) < OUTBOX_MESSAGES_MAX:
            me = self.me
            header = (me.node_id, receiver, me.disk_id, me.incarnation, self.term if term is None else term)
            self._outbox.append(kind(*header, *fields))

    def want_image(self, peer: int) -> None:
        self._images.append(peer)

    def pass_barrier(self, barrier: int, index: int) -> None:
        self._reads.append((barrier, index))

    def commit_to(self, index: int) -> None:
        """Section 5.3: what is committed stays so."""
        assert index <= self.log.last_index, f"commit {index}, the log ends with {self.log.last_index}"
        self.commit = max(self.commit, index)

    def truncate_from(self, index: int) -> None:
        """Take back entries that the leader of this term does not have."""
        if index <= self.commit:
            raise LogDiverged(
                f"entry {index} is committed here, up to {self.commit}, and the leader of term {self.term}, node "
                f"{self.leader_id}, has another one; stop all nodes and compare their logs: one has lost its disk"
            )
        self.log.truncate_from(index)
        self.members.truncate_from(index)
        self.stable_index = min(self.stable_index, index - 1)
        self.era += 1
        self._entries = [entry for entry in self._entries if entry.index < index]  # never left, hence not matched

    def reset_log(self, restore: Restore) -> None:
        """Begin anew behind an image (section 7)."""
        self.log.reset(restore.index, restore.term)
        self.members.reset(restore.index, restore.config)
        self.stable_index = self.commit = self.applied_index = restore.index
        self.era += 1
        self._entries = []

    # --- images of the state ----------------------------------------------------------------------------------------

    def fetched(self, stream: int) -> Restore | None:
        """The image is here, whole and checked; return what to do with it, None if it is no longer wanted."""
        return self.role.fetched(stream) if isinstance(self.role, Follower) else None

    def fetch_failed(self, stream: int) -> None:
        """The stream broke off."""
        if isinstance(self.role, Follower):
            self.role.fetch_failed(stream)

    def restored(self) -> None:
        """What was to be restored is: state and log are those of the image, on disk."""
        assert isinstance(self.role, Follower), "nobody else restores"
        self.role.restored()

    def floor(self, index: int) -> int:
        """Return up to where the log may be cut, if the state on disk contains everything up to index."""
        index = min(index, self.committed)
        return min(index, self.role.floor()) if isinstance(self.role, Leader) else index

    def cut(self, index: int) -> None:
        """The log was cut: entries up to index are only in the state now."""
        assert index <= self.committed, f"cut at {index}, committed are {self.committed}"
        self.log.cut(index)
        self.members.cut(index)

    def leader(self) -> Leader:
        """Return the leader's role, for what only a leader can do."""
        if not isinstance(self.role, Leader):
            raise NotLeader(f"node {self.me.node_id} does not lead; ask node {self.leader_id}")
        return self.role
