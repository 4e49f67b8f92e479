"""LogStanding: this node among the others: who leads next, and what if it cannot do its part.

    HandOver, beats --> leadership handed over, learners that vote
    Inquire --> to the queues, once it is certain that this node leads
    Halted, Spoilt, StepAside --> an entry that it cannot apply, must not have applied, or has no room for

The fourth layer of RaftLog.  What an operator asks for is in RaftLog itself.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from wakeq.actors.log.driver import LogDriver
from wakeq.actors.log.entries import answer
from wakeq.actors.log.files import LogServices
from wakeq.actors.log.neighbourhood import Neighbours
from wakeq.actors.log.peer import FromPeer
from wakeq.actors.mail import Halted, HandOver, Inquire, Propose, Spoilt, StepAside
from wakeq.protocol.errors import BadField, NoQuorum, Refused
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Peek, ReplyTo, Stats
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import HeartbeatAnswer, Ready, SnapshotOffer, Transfer
from wakeq.protocol.wire.peer.frames import Entries
from wakeq.storage.state.images import mark_spoilt

HANG_ELECTIONS = 2  # election timeouts for which a leader waits for its disk before it lets another node lead
HAND_OVER_AGAIN_MS = 30_000  # a disk that hangs again so soon is no reason to hand over again
WISH_ELECTIONS = 5  # election timeouts for which a follower waits for another leader before it says that none came
HALTED_MS_MAX = 10_000  # how long a halted node waits for another one that leads to set the entry aside
NEEDS_ROOM = (Entries, SnapshotOffer)

logger = logging.getLogger("wakeq.raft_log")


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """To itself: by now the deliveries that queues proposed before have arrived; several may be under way."""

    go_on: Callable[[], object]


class Wish(NamedTuple):
    """An operator asked this node for another leader, and it has passed that on."""

    asker: ReplyTo
    leader: int  # that it was passed on to
    until_ms: int


class LogStanding(LogDriver):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices, neighbours: Neighbours | None = None) -> None:
        super().__init__(core, services, neighbours)
        self._stands_aside = False
        self._hung_at_ms: int | None = None  # when this node last ceased to lead because its disk did not answer
        self._passed_on: set[int] = set()  # entries that halted a queue here, for which another node was let lead
        self._halted_ms: dict[int, int] = {}  # by such an entry: since when another node leads
        self._wishes: list[Wish] = []
        self._questions: dict[int, list[Peek | Stats]] = {}  # by read barrier

    # --- leadership and members ------------------------------------------------------------------------------------

    def _transfer(self, node_id: int | None) -> int:
        """Begin to hand leadership over to a node, or to the one that is furthest; return which."""
        leader = self.core.leader()
        if node_id is None:
            heirs = self._heirs
            if not heirs:
                raise BadField("no other voter is connected, so nobody could take over")
            node_id = max(heirs, key=lambda other: leader.peers[other].counted_match)
        leader.transfer(node_id)
        return node_id

    def _pass_on_wish(self, asker: ReplyTo, heir: int | None) -> bool:
        """Ask the leader to hand over, for an operator who has asked here; return False if it cannot be asked.

        The operator is answered when this node follows another leader.
        """
        leader, core = self.other_leader, self.core
        if leader is None:
            return False
        if heir is not None and (heir == leader or heir not in core.members.voters):
            raise BadField(f"node {heir} cannot take over: it leads already, or does not vote")
        core.send(Transfer, leader, heir)
        until_ms = self._monotonic_ms() + WISH_ELECTIONS * core.settings.election_ms
        self._wishes.append(Wish(asker, leader, until_ms))
        return True

    def on_wish(self, wish: Transfer) -> None:
        """Hand over because an operator has asked a follower for it."""
        if self._led_term and wish.term == self._led_term and self.core.members.knows(wish.sender, wish.disk_id):
            logger.info("node %d passes on that an operator wants another leader", wish.sender)
            self._close_first(lambda: self._grant(wish))

    def _grant(self, wish: Transfer) -> None:
        try:
            self._transfer(wish.heir)
        except Refused as refusal:
            logger.warning("leadership stays here, though an operator asked node %d: %s", wish.sender, refusal)
        self._attend()

    def _answer_wishes(self) -> None:
        leader, open_wishes = self.core.leader_id, []
        for wish in self._wishes:
            if leader not in (None, wish.leader):
                wish.asker.tell({"transferring_to": leader})
            elif self._monotonic_ms() >= wish.until_ms:
                why = f"node {wish.leader} was asked to hand over, and no other node leads yet; its log may say why"
                answer(wish.asker, Refusal(NoQuorum.code, why))
            else:
                open_wishes.append(wish)
        self._wishes = open_wishes

    @property
    def _heirs(self) -> list[int]:
        """Who could take over."""
        return [voter for voter in self.core.members.voters if voter in self._around.connected]

    def on_hand_over(self, message: HandOver) -> None:
        """This node is about to stop: let another one lead, if there is one."""
        self._close_first(self._resign)

    def _close_first(self, go_on: Callable[[], object]) -> None:
        """Stop handing out, and go on when all deliveries that queues have proposed are in the log."""
        if self._led_term:
            self._closings += 1
            self.tell(CaughtUp(go_on))
        else:
            go_on()

    def on_caught_up(self, message: CaughtUp) -> None:
        if (self._writers or self._collected) and not self._parks:
            self._collect(everything=True)  # all deliveries must be in the log before another node leads
        self._closings -= 1
        message.go_on()

    def _resign(self) -> None:
        """Let another node lead, if there is one."""
        with suppress(Refused):
            self._transfer(None)
        self._attend()

    def on_look(self) -> None:
        """Let another node lead if the disk of this one does not answer; it is heard, so nobody deposes it."""
        super().on_look()
        if self._led_term and not self._closings and self._heir_without_us() is not None:
            self._close_first(self._hand_over_hanging)

    def _heir_without_us(self) -> int | None:
        """Return to whom to hand over because the disk of this leader hangs, if it does and there is anybody."""
        if not self.core.leads or self._hang_ms < HANG_ELECTIONS * self.core.settings.election_ms:
            return None
        if self._hung_at_ms is not None and self._monotonic_ms() - self._hung_at_ms < HAND_OVER_AGAIN_MS:
            return None
        return self.core.leader().heir_without_us()

    def _hand_over_hanging(self) -> None:
        heir = self._heir_without_us()
        if heir is not None:
            logger.warning(
                "this node leads and its disk has not answered for %s: node %d is to lead instead", self._hang, heir
            )
            self._transfer(heir)
        self._attend()

    def _change(self, asker: ReplyTo | None, config: Config) -> None:
        """Put a change of members into the log; whoever asked is told when it is committed."""
        index = self.core.leader().change_members(config)
        if asker is not None:
            self._changes[index] = asker

    def on_beat(self) -> None:
        super().on_beat()
        if self._led_term and self._stands_aside and self._heirs:
            self._close_first(self._resign)
        if self._led_term:
            self._promote()
        if self._wishes:
            self._answer_wishes()

    def _promote(self) -> None:
        """Let a learner vote once it has caught up."""
        core, leader = self.core, self.core.leader()
        config = core.members.config
        for member in config.members:
            is_ready = not member.voter and member.node_id in leader.peers and leader.has_caught_up(member.node_id)
            if is_ready and leader.may_change and leader.peers[member.node_id].disk_id:
                voter = msgspec.structs.replace(member, voter=True)
                members = tuple(voter if other is member else other for other in config.members)
                self._change(None, msgspec.structs.replace(config, members=members))
                self._attend()
                return

    # --- looks ------------------------------------------------------------------------------------------------------

    def on_inquire(self, message: Inquire) -> None:
        """Pass a question on once a majority has confirmed that nobody else led when it was asked.

        Then the queues have applied everything that was ever confirmed to a client: this leader applies before it
        answers, and what earlier leaders did stands before the first entry of its term.
        """
        assert self._queues is not None, "started first"
        question = message.question
        if self._serves_alone:
            self._queues.tell(question)
            return
        barrier = self.core.leader().read_barrier() if self.core.leads else None
        if barrier is None:
            answer(question.asker, self._not_leader())
        else:
            self._questions.setdefault(barrier, []).append(question)
            self._attend()

    def _stand_down(self, term: int) -> None:
        super()._stand_down(term)
        if self._hang_ms >= HANG_ELECTIONS * self.core.settings.election_ms:
            self._hung_at_ms = self._monotonic_ms()
        questions, self._questions = self._questions, {}
        for question in (question for asked in questions.values() for question in asked):
            answer(question.asker, self._not_leader())

    # --- what this node cannot do ----------------------------------------------------------------------------------

    def on_halted(self, message: Halted) -> None:
        """Set an entry aside that a queue cannot apply, unless its asker may have been answered.

        Only the leader of the entry's term could have answered, so if this node is that leader nobody has.  A later
        leader cannot know: it first lets another node lead, once, which may have applied the entry without harm.  If
        another node leads and does not set it aside, only this node has the problem, and it ends.
        """
        now_ms, aside = self._monotonic_ms(), message.aside
        if self.other_leader is None:
            self._halted_ms.pop(aside.index, None)
            if self.core.accepts and (message.term == self._led_term or not self._pass_on(aside.index)):
                self.on_propose(Propose([Proposal(aside)]))
        elif now_ms - self._halted_ms.setdefault(aside.index, now_ms) > HALTED_MS_MAX:
            raise RuntimeError(
                f"queue {aside.queue!r} crashes on entry {aside.index} on this node only: {aside.reason}"
            )

    def _pass_on(self, index: int) -> bool:
        """Let another node lead because of an entry, but only once; return whether one is going to."""
        is_going = index not in self._passed_on and bool(self._heirs)
        self._passed_on.add(index)
        if is_going:
            self._close_first(self._resign)
        return is_going

    def on_spoilt(self, message: Spoilt) -> None:
        """Start again without the state on disk: it is rebuilt from an image and the log, without that entry."""
        if self._neighbours is None:
            return  # a lone node writes no state while a queue is halted, so the state never had the entry
        logger.warning("entry %d is set aside, but this node's state contains it: rebuilding it", message.index)
        consensus, metadata = self._log.directory, self._metadata

        def work() -> None:
            metadata.save(committed=message.said_by)
            mark_spoilt(consensus, message.index)

        self._start_again_behind(work)

    def on_step_aside(self, message: StepAside) -> None:
        """Stop taking entries, and leading, before the disk is full, which would end this node."""
        if self._neighbours is None:
            return
        self._stands_aside = message.on
        what = "steps aside: its disk is full" if message.on else "takes part again: its disk has room"
        logger.warning("this node %s", what)

    def on_from_peer(self, message: FromPeer) -> None:
        if self._stands_aside:  # as if they had been lost: the leader sends them again
            frames = [frame for frame in message.frames if type(frame) not in NEEDS_ROOM]
            message = FromPeer(message.node_id, frames)
        super().on_from_peer(message)

    def _do(self, ready: Ready) -> None:
        if self._stands_aside:  # a leader must not count this node in its majority
            ready.messages = [message for message in ready.messages if type(message) is not HeartbeatAnswer]
        super()._do(ready)
        for barrier, _ in ready.reads:
            assert self._queues is not None, "started first"
            for question in self._questions.pop(barrier):
                self._queues.tell(question)
