"""Leadership: who leads next, who has asked for that, and what waits until it is certain who leads.

    transfer, heir_while_disk_hangs --> leadership begins to move to another node
    pass_on_wish --> Transfer to the leader; answer_wishes --> the operator hears of it
    ask --> answers_of: questions that a majority has allowed this leader to answer

A part of RaftLog.  It asks the core; when that is done, and what must be in the log before, RaftLog decides.
"""

from collections.abc import Iterable
from typing import NamedTuple

from wakeq.actors.log.members import PeerTable
from wakeq.actors.log.pending import refuse
from wakeq.protocol.errors import BadField, NoQuorum
from wakeq.protocol.queue.orders import Peek, ReplyTo, Stats
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import AnyMessage, HeartbeatAnswer, SnapshotOffer, Transfer
from wakeq.protocol.wire.peer.frames import Entries

HANG_ELECTIONS = 2  # election timeouts for which a leader waits for its disk before it lets another node lead
HAND_OVER_AGAIN_MS = 30_000  # a disk that hangs again so soon is no reason to transfer leadership again
WISH_ELECTIONS = 5  # election timeouts for which a follower waits for another leader before it says that none came
SKIP_AWAITED_MS_MAX = 10_000  # how long a halted node waits for another one that leads to have the entry skipped
NEEDS_ROOM = (Entries, SnapshotOffer)


class Wish(NamedTuple):
    """An operator asked this node for another leader, and it has passed that on."""

    asker: ReplyTo
    leader: int  # that it was passed on to
    until_ms: int


class Leadership:
    """This node among those that may lead.  Moments are monotonic milliseconds."""

    def __init__(self, core: Core, table: PeerTable) -> None:
        self.is_out_of_room = False  # its disk is full: it neither leads nor takes entries
        self.yielded: set[int] = set()  # entries that crash a queue here, for which another node was let lead
        self._core = core
        self._table = table
        self._hung_at_ms: int | None = None  # when this node last ceased to lead because its disk did not answer
        self._halted_ms: dict[int, int] = {}  # by such an entry: since when another node leads
        self._wishes: list[Wish] = []  # of operators who asked here while another node led
        self._questions: dict[int, list[Peek | Stats]] = {}  # by read barrier

    # --- transfer --------------------------------------------------------------------------------------------------

    @property
    def heirs(self) -> list[int]:
        """Who could take over."""
        return [voter for voter in self._core.members.voters if voter in self._table.connected]

    def transfer(self, node_id: int | None) -> int:
        """Begin to transfer leadership to a node, or to the one that has most of the log; return which."""
        leader = self._core.leader()
        if node_id is None:
            heirs = self.heirs
            if not heirs:
                raise BadField("no other voter is connected, so none could take over")
            node_id = max(heirs, key=lambda other: leader.peers[other].counted_match)
        leader.transfer(node_id)
        return node_id

    def heir_while_disk_hangs(self, hang_ms: int, now_ms: int) -> int | None:
        """Return who is to lead because the disk of this leader has hung for so long; None if that is no reason."""
        if not self._core.leads or hang_ms < HANG_ELECTIONS * self._core.settings.election_ms:
            return None
        if self._hung_at_ms is not None and now_ms - self._hung_at_ms < HAND_OVER_AGAIN_MS:
            return None
        return self._core.leader().heir_without_us()

    def yields_because_of(self, index: int) -> bool:
        """Whether to let another node lead because of an entry that crashes its queue here: only once for each."""
        is_first = index not in self.yielded and bool(self.heirs)
        self.yielded.add(index)
        return is_first

    def waits_for_skip(self, index: int, now_ms: int) -> bool:
        """Whether the other node that leads may still have the entry skipped, which crashes its queue here."""
        return now_ms - self._halted_ms.setdefault(index, now_ms) <= SKIP_AWAITED_MS_MAX

    def no_other_leads(self, index: int) -> None:
        """Wait anew for an entry to be skipped once another node leads."""
        self._halted_ms.pop(index, None)

    def lose(self, hang_ms: int, now_ms: int, refusal: Refusal) -> None:
        """This node leads no longer, perhaps because its disk hangs; nobody confirms that it may answer questions."""
        if hang_ms >= HANG_ELECTIONS * self._core.settings.election_ms:
            self._hung_at_ms = now_ms
        questions, self._questions = self._questions, {}
        for asked in questions.values():
            for question in asked:
                refuse(question.asker, refusal)

    # --- wishes of operators ---------------------------------------------------------------------------------------

    def pass_on_wish(self, asker: ReplyTo, heir: int | None, leader: int, now_ms: int) -> None:
        """Ask the leader to transfer leadership, for an operator who has asked here.

        The operator is answered when this node follows another leader.
        """
        core = self._core
        if heir is not None and (heir == leader or heir not in core.members.voters):
            raise BadField(f"node {heir} cannot take over: it leads already, or does not vote")
        core.send(Transfer, leader, heir)
        self._wishes.append(Wish(asker, leader, now_ms + WISH_ELECTIONS * core.settings.election_ms))

    def answer_wishes(self, now_ms: int) -> None:
        """Answer those whose wish has come true, or will not any more."""
        if not self._wishes:
            return
        leader, open_wishes = self._core.leader_id, []
        for wish in self._wishes:
            if leader not in (None, wish.leader):
                wish.asker.tell({"transferring_to": leader})
            elif now_ms >= wish.until_ms:
                why = f"node {wish.leader} was asked to hand over, and no other node leads yet; its log may say why"
                refuse(wish.asker, Refusal(NoQuorum.code, why))
            else:
                open_wishes.append(wish)
        self._wishes = open_wishes

    # --- read barriers ---------------------------------------------------------------------------------------------

    def ask(self, question: Peek | Stats) -> bool:
        """Keep a question until a majority has confirmed that this node leads; return False if it does not.

        Then the queues have applied everything that was ever confirmed to a client: this leader applies before it
        answers, and what earlier leaders did stands before the first entry of its term.
        """
        barrier = self._core.leader().read_barrier() if self._core.leads else None
        if barrier is not None:
            self._questions.setdefault(barrier, []).append(question)
        return barrier is not None

    def take_questions(self, barrier: int) -> list[Peek | Stats]:
        """Return what may be answered, now that this barrier is passed."""
        return self._questions.pop(barrier)

    # --- a full disk -----------------------------------------------------------------------------------------------

    def heard(self, frames: list[AnyMessage | Entries]) -> list[AnyMessage | Entries]:
        """Return what this node takes of what a peer said; what is left out the leader sends again."""
        return [frame for frame in frames if type(frame) not in NEEDS_ROOM] if self.is_out_of_room else frames

    def said(self, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        """Return what this node says; a leader must not count a node without room in its majority."""
        return [message for message in messages if not (self.is_out_of_room and type(message) is HeartbeatAnswer)]
