"""Leader: copies its log to every peer, and commits entries that a majority has on disk.  Pure.

    answers of peers, its own disk --> appends, heartbeats, the commit index, passed barriers

Sections 5.3 and 5.4 of the paper; contact with the quorum, barriers and leases are thesis 6.4.  This object is the
volatile state of Figure 2 that each new leader creates: it ends with its term.  It never counts entries of earlier
terms, and never counts itself before its own write is on disk.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wakeq.protocol.errors import BadField, Busy
from wakeq.protocol.raft.contact import Contact
from wakeq.protocol.raft.membership import Config, check_change
from wakeq.protocol.raft.messages import (
    Append,
    AppendAnswer,
    Disowned,
    Heartbeat,
    HeartbeatAnswer,
    SnapshotOffer,
    SnapshotRefused,
    TimeoutNow,
)
from wakeq.protocol.raft.pace import Pace
from wakeq.protocol.raft.progress import Mode, Progress
from wakeq.protocol.raft.quorum import agreed

if TYPE_CHECKING:
    from wakeq.protocol.raft.core import Core

ELECTIONS_STUCK_MAX: Final = 10  # election timeouts after which a peer that answers but makes no progress is given up
ROUNDS_OPEN_MAX: Final = 64  # heartbeat rounds without a majority; more barriers wait for the next heartbeat


class Leader:
    """One leadership, from the election to the end of its term."""

    def __init__(self, core: "Core", clocks: Sequence[tuple[int, bool]]) -> None:
        self.core = core
        self.clocks = clocks  # for the driver: the cluster clock of each voter, and whether a leader had told it
        self.first_index = core.log.last_index + 1  # of its own term: the no-op
        self.peers: dict[int, Progress] = {}  # all other members
        self._elected_ms = core.now_ms
        self._contact = Contact(core.now_ms)
        self._pace = Pace(self)
        self._round_is_new = False  # the heartbeats of the newest round have not left yet
        self._barriers: deque[tuple[int, int]] = deque()  # (round, index): reads that wait for a majority
        self.heir: int | None = None  # the node to which leadership is being transferred
        self._transfer_until_ms = 0  # when that transfer is given up
        self._removed: set[int] = set()  # nodes that the last change removes; they are told once it is committed
        self._has_abdicated = False  # the heir may campaign at any moment: no lease of this term holds any more
        self._follow_members()
        self._begin_round()

    @property
    def round(self) -> int:
        """The number of the newest heartbeat round."""
        return self._contact.round

    # --- leadership -------------------------------------------------------------------------------------------------

    @property
    def accepts(self) -> bool:
        """Not before a new cluster is founded, nor during a transfer, nor while this leader is being removed."""
        members = self.core.members
        return self.heir is None and members.votes and (members.config.founded or members.is_lone)

    def has_quorum(self, now_ms: int) -> bool:
        """Whether a majority followed this leader less than an election timeout ago (thesis 6.2)."""
        span_ms = self.core.settings.election_ms
        if self.core.members.is_lone or now_ms - self._elected_ms < span_ms:
            return True
        return self._contact.is_within(span_ms, now_ms)

    def may_serve(self, now_ms: int) -> bool:
        core = self.core
        if core.applied_index < self.first_index or self._has_abdicated:
            return False
        return core.members.is_lone or self._contact.is_within(core.settings.election_ms // 2, now_ms)

    @property
    def round_trip_ms(self) -> int | None:
        """How long a majority took to answer the newest round that it has answered."""
        return self._contact.took_ms

    def tick(self, now_ms: int) -> None:
        core = self.core
        if not self.has_quorum(now_ms):
            core.become_follower(core.term)
            return
        if self.heir is not None and now_ms >= self._transfer_until_ms:
            self._abort_transfer()
        elif now_ms - self._contact.begun_ms >= core.settings.heartbeat_ms and self.peers:
            self._begin_round()
        self._pace.tick(now_ms)

    def _begin_round(self) -> None:
        """Send a heartbeat to every member, learners too, with the commit index within the entries that it has."""
        core = self.core
        number = self._contact.begin(core.now_ms)
        self._round_is_new = True
        core.acknowledged.learn(self._acknowledged())
        told = core.acknowledged.told()
        for node_id, peer in self.peers.items():
            core.send(Heartbeat, node_id, number, min(core.commit, peer.match), 0, told)
        self._count_rounds()

    def _acknowledged(self) -> list[tuple[int, int]]:
        """Return the last committed entry that each disk is known to have."""
        core = self.core
        known = [(peer.disk_id, min(peer.counted_match, core.commit)) for peer in self.peers.values() if peer.disk_id]
        return [pair for pair in (*known, (core.me.disk_id, core.committed)) if pair[1]]

    def _count_rounds(self) -> None:
        me, peers, own = self.core.me.node_id, self.peers, self._contact.round
        number = agreed(own if voter == me else peers[voter].counted_round for voter in self.core.members.voters)
        if self._contact.answered(number, self.core.now_ms):
            while self._barriers and self._barriers[0][0] <= number:
                self.core.pass_barrier(*self._barriers.popleft())

    # --- answers ----------------------------------------------------------------------------------------------------

    def on_answer(self, message: AppendAnswer | HeartbeatAnswer | SnapshotRefused) -> None:
        core, peer = self.core, self.peers.get(message.sender)
        if peer is None:
            return
        if not core.members.knows(message.sender, message.disk_id) or peer.disk_id not in (0, message.disk_id):
            core.send(Disowned, message.sender, message.disk_id)
            return
        if not peer.disk_id and not self._learn_disk(peer, message):
            return
        peer.heard_ms = core.now_ms
        match message:
            case AppendAnswer():
                self._on_append_answer(peer, message)
            case HeartbeatAnswer():
                self._on_heartbeat_answer(peer, message)
            case SnapshotRefused():
                self.image_failed(message.sender, message.stream)

    def _learn_disk(self, peer: Progress, message: AppendAnswer | HeartbeatAnswer | SnapshotRefused) -> bool:
        """Note the disk that answers; return whether the answer counts.

        From an unknown disk only an answer to this very leadership counts: an older answer may come from a disk that
        has since been lost and replaced.
        """
        member = self.core.members.config.member(message.sender)
        is_bound = member is not None and member.disk_id == message.disk_id
        if not is_bound and not (isinstance(message, HeartbeatAnswer) and message.round > peer.since_round):
            return False
        peer.disk_id = message.disk_id
        self._bind_disks()
        return True

    def _on_append_answer(self, peer: Progress, message: AppendAnswer) -> None:
        if message.rejected is not None:
            if peer.rejected(message.rejected, self._next_for(message), message.incarnation):
                self.core.send(Disowned, message.sender, message.disk_id)
            return
        was_found = peer.mode is Mode.REPLICATE
        is_news = peer.accepted(message.match, message.incarnation)
        if not was_found:
            self._pace.update(message.sender, peer)
        if is_news:
            peer.moved_ms = self.core.now_ms
            assert message.match <= self.core.log.last_index, f"node {message.sender} acknowledged {message.match}"
            self.on_stable()
            self._bind_disks()
            self._finish_transfer_if_ready()

    def _next_for(self, message: AppendAnswer) -> int:
        """End of section 5.3: skip the peer's term, to its end if this log has it, else to its beginning."""
        last = self.core.log.last_of_term(message.hint_term) if message.hint_term else None
        return message.hint_index if last is None else last + 1

    def _on_heartbeat_answer(self, peer: Progress, message: HeartbeatAnswer) -> None:
        if peer.match == self.core.log.last_index:
            peer.moved_ms = self.core.now_ms
        if peer.answered_heartbeat(message.round):
            self._probe_for_loss(message.sender, peer)
        self._count_rounds()

    def _probe_for_loss(self, node_id: int, peer: Progress) -> None:
        """Send an empty Append behind the messages under way: the peer rejects it if one of them was lost."""
        if peer.next > self.core.log.previous_index:
            self._send_append(node_id, peer.next, peer.next - 1)
        else:
            self.lost(node_id)

    def on_stable(self) -> None:
        """Sections 5.3 and 5.4.2: commit the entries that a majority has, if the last one is of this term."""
        core, me, peers = self.core, self.core.me.node_id, self.peers
        # Without peers, present or removed, a commit concerns nobody else.
        if core.members.is_lone and not (peers or self._removed):
            if core.stable_index >= self.first_index:
                core.commit = max(core.commit, core.stable_index)
            return
        index = agreed(
            core.stable_index if voter == me else peers[voter].counted_match for voter in core.members.voters
        )
        if index > core.commit and index >= self.first_index:
            core.commit_to(index)
            self._on_committed()

    def _on_committed(self) -> None:
        members = self.core.members
        if members.index > self.core.commit:
            return
        removed, self._removed = self._removed, set()
        for node_id in removed:
            self.core.tell_if_removed(node_id)
        if not members.votes:
            self._resign()
        else:
            self._bind_disks()

    # --- replication ------------------------------------------------------------------------------------------------

    def replicate(self) -> None:
        """Send every peer the entries that it lacks, as far as its window allows; new proposals go together."""
        self._round_is_new = False
        for node_id, peer in self.peers.items():
            while peer.may_send():
                if not self._send_next(node_id, peer):
                    break

    def _send_next(self, node_id: int, peer: Progress) -> bool:
        """Send one message if there are entries to send; a probe may be empty.  Return whether one was sent."""
        core, log = self.core, self.core.log
        if peer.next <= log.previous_index:
            peer.await_image(log.previous_index)
            core.want_image(node_id)
            return False
        if peer.next > log.last_index and peer.mode is Mode.REPLICATE:
            return False
        last = max(peer.next - 1, log.last_within(peer.next, core.settings.window.append_bytes))
        peer.sent(last, self._send_append(node_id, peer.next, last), self._contact.round)
        return True

    def _send_append(self, node_id: int, first: int, last: int) -> int:
        """Send AppendEntries with the entries first .. last; return their size in bytes."""
        core, log = self.core, self.core.log
        term = log.term_at(first - 1)
        assert term is not None, f"entry {first - 1} is gone"
        size_bytes = log.size_between(first - 1, last)
        runs, configs = log.runs_between(first, last), core.members.between(first, last)
        told = core.acknowledged.told() if self.peers[node_id].mode is Mode.PROBE else ()
        core.send(Append, node_id, first - 1, term, last, runs, core.commit, size_bytes, configs, told)
        return size_bytes

    def lost(self, node_id: int) -> None:
        """Note that the connection to a peer or its incarnation ended: messages under way may be lost."""
        log = self.core.log
        if node_id in self.peers:
            self.peers[node_id].probe(log.previous_index, log.last_index)

    def behind_bytes(self) -> int:
        """Return how many bytes the slowest voter that answers lacks; the driver slows proposals down by it."""
        log, voters = self.core.log, self.core.members.voters
        living = (peer for node_id, peer in self.peers.items() if node_id in voters and self._is_living(peer))
        return max((log.size_between(peer.match, log.last_index) for peer in living), default=0)

    def _is_living(self, peer: Progress) -> bool:
        """Whether a peer answers and makes progress; the leader does not wait for ever for a disk that hangs."""
        core, span_ms = self.core, self.core.settings.election_ms
        if peer.forgot or core.now_ms - peer.heard_ms >= span_ms:
            return False
        makes_progress = core.now_ms - peer.moved_ms < ELECTIONS_STUCK_MAX * span_ms
        return makes_progress or peer.mode is Mode.SNAPSHOT

    # --- images of the state ----------------------------------------------------------------------------------------

    def offer_image(self, node_id: int, index: int, stream: int) -> None:
        """Offer a peer an image of the state behind entry `index`, to be streamed under this number (not 0)."""
        core, peer = self.core, self.peers.get(node_id)
        if peer is None or peer.mode is not Mode.SNAPSHOT:
            return
        term = core.log.term_at(index)
        assert term is not None, f"entry {index}, of which there is an image, was cut off"
        assert index <= core.committed, f"an image of entry {index}, committed are {core.committed}"
        peer.offered(stream, index)
        core.send(SnapshotOffer, node_id, index, term, core.members.at(index), stream)

    def image_failed(self, node_id: int, stream: int) -> None:
        """Note that a stream broke off; probe again for the entries that the peer needs now."""
        peer = self.peers.get(node_id)
        if peer is not None and peer.mode is Mode.SNAPSHOT and peer.stream == stream:
            self.lost(node_id)

    def floor(self) -> int:
        """Return the last entry that no living peer needs; removing later ones would cost a peer an image."""
        living = (peer for peer in self.peers.values() if self._is_living(peer))
        return min((max(peer.match, peer.snapshot_index) for peer in living), default=self.core.commit)

    # --- reads ------------------------------------------------------------------------------------------------------

    def read_barrier(self) -> int | None:
        """Ask the voters whether this node still leads (section 8); None before the first commit of this term.

        `Ready.reads` returns the number, with the index that must be applied first.  A barrier that is still open when
        leadership ends is never passed.
        """
        core, contact = self.core, self._contact
        if core.commit < self.first_index:
            return None
        number = contact.round
        if contact.open_rounds >= ROUNDS_OPEN_MAX:
            number += 1
        elif not self._round_is_new:
            number += 1
            self._barriers.append((number, core.commit))
            self._begin_round()
            return number
        if self._barriers and self._barriers[-1][0] == number:
            self._barriers.pop()
        self._barriers.append((number, core.commit))
        return number

    # --- membership and transfer ------------------------------------------------------------------------------------

    def change_members(self, config: Config) -> int:
        """Put a new configuration into the log (thesis 4.1); return its index."""
        core = self.core
        if not self.may_change:
            raise Busy("another change of the members is in progress, or this leader is new; try again shortly")
        if not core.members.config.founded and not core.members.is_lone:
            raise Busy("the cluster is not founded yet; start every node of it once")
        config = config.with_disks(self._disks())
        config = msgspec.structs.replace(config, founded=core.members.config.founded or core.members.is_lone)
        check_change(core.members.config, config)
        for member in config.members:
            is_new = member.voter and member.node_id not in core.members.voters
            if is_new and not self.has_caught_up(member.node_id):
                raise Busy(f"node {member.node_id} has not caught up with the log; try again when it has")
        return self._put_config(config)

    @property
    def may_change(self) -> bool:
        """Thesis 4.1 and its erratum: once the last change and an entry of this term are committed."""
        core = self.core
        return core.commit >= max(core.members.index, self.first_index) and self.heir is None

    def has_caught_up(self, node_id: int) -> bool:
        core, peer = self.core, self.peers.get(node_id)
        if peer is None or peer.mode is not Mode.REPLICATE:
            return False
        return core.log.size_between(peer.match, core.log.last_index) <= core.settings.window.flying_bytes

    def _put_config(self, config: Config) -> int:
        index = self.core.put_own_entry(config)
        self._follow_members()
        self.on_stable()
        return index

    def _disks(self) -> dict[int, int]:
        """Return the known disks: those of the peers that have answered, and this node's own."""
        disks = {node_id: peer.disk_id for node_id, peer in self.peers.items()}
        return disks | {self.core.me.node_id: self.core.me.disk_id}

    def _bind_disks(self) -> None:
        """Log the disk with which each member joined; found the cluster once every voter has that entry."""
        members = self.core.members
        if not self.peers or not (members.is_unbound or not members.config.founded) or not self.may_change:
            return
        config = members.config.with_disks(self._disks())
        voters = [member for member in config.members if member.voter]
        if config.founded or all(voter.disk_id for voter in voters):
            if config != members.config:
                self._put_config(config)
            elif not config.founded and self._all_have(members.index):
                self._put_config(msgspec.structs.replace(config, founded=True))

    def _all_have(self, index: int) -> bool:
        return all(
            self.peers[voter].counted_match >= index for voter in self.core.members.voters if voter in self.peers
        )

    def _follow_members(self) -> None:
        """Track the peers of the configuration in force; a node with another disk is a new peer."""
        core = self.core
        known, self.peers = self.peers, {}
        self._removed |= known.keys()
        for member in core.members.config.members:
            if member.node_id == core.me.node_id:
                continue
            peer = known.get(member.node_id)
            if peer is None or (peer.disk_id and member.disk_id not in (0, peer.disk_id)):
                peer = Progress(core.log.last_index + 1, core.settings.window, core.now_ms, self._contact.round)
            self.peers[member.node_id] = peer
        self._removed -= self.peers.keys()

    def transfer(self, node_id: int) -> None:
        """Transfer leadership (thesis 3.10): proposals wait until the heir leads, or until the transfer is given up."""
        core = self.core
        if node_id not in core.members.voters or node_id == core.me.node_id:
            raise BadField(f"node {node_id} cannot take over: it leads already, or does not vote")
        if self.heir is not None:
            raise Busy(f"leadership is being transferred to node {self.heir}; wait for the outcome")
        self.heir = node_id
        self._transfer_until_ms = core.now_ms + core.settings.election_ms
        self._finish_transfer_if_ready()

    def heir_without_us(self) -> int | None:
        """Return the node that could lead while this node's disk hangs; None if the other nodes cannot elect one.

        That node has the entries that this disk lacks, and the others are a majority without this node, which cannot
        save a vote.
        """
        core, members = self.core, self.core.members
        span_ms, voters = core.settings.election_ms, members.voters
        alive = [
            voter
            for voter, peer in self.peers.items()
            if voter in voters and not peer.forgot and core.now_ms - peer.heard_ms < span_ms
        ]
        if self.heir is not None or 2 * len(alive) <= len(voters):
            return None
        heir = max(alive, key=lambda voter: self.peers[voter].match)
        match = self.peers[heir].match
        return heir if match > core.stable_index or match == core.log.last_index else None

    def _finish_transfer_if_ready(self) -> None:
        """Let the heir campaign once it has the whole log, even if voters have heard this leader lately."""
        core = self.core
        if self.heir is not None and not self._has_abdicated:
            peer = self.peers.get(self.heir)
            if peer is not None and peer.counted_match == core.log.last_index:
                self._has_abdicated = True
                core.send(TimeoutNow, self.heir)

    def _abort_transfer(self) -> None:
        """Go on leading, or step down if the heir may campaign at any moment: then no lease holds."""
        self.heir = None
        if self._has_abdicated:
            self.core.become_follower(self.core.term)

    def _resign(self) -> None:
        """Step down after being removed as a voter (thesis 4.2.2); let the voter with the most entries campaign."""
        core = self.core
        voters = [voter for voter in core.members.voters if voter in self.peers]
        core.send(TimeoutNow, max(voters, key=lambda voter: self.peers[voter].counted_match))
        core.become_follower(core.term)
