"""LeaderWatch: who leads and who belongs to the cluster, as the log of every node tells it, and why if nobody serves.

    leadership won and lost, each beat, each change of the members --> lines of the log

It decides nothing.  An election passes by itself and is worth no warning; that nobody has served for ten of them is,
also if somebody leads meanwhile.  A leader knows whether it serves; the others take one that stays for one that does.
"""

import logging
from collections.abc import Iterable

from wakeq.actors.log.members import PeerTable
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import Config, Member

ELECTIONS_WITHOUT = 10  # election timeouts for which nobody has served
ELECTIONS_STAYED = 3  # after which another leader is taken to serve: without its majority it would have stepped down
ELECTIONS_ADVISED = 3  # round trips that an election timeout should last

logger = logging.getLogger("wakeq.raft_log")


class LeaderWatch:
    """What was told of leaders and members.  A node that is alone tells nothing of that."""

    def __init__(self, core: Core, table: PeerTable) -> None:
        self._core = core  # knows the term and the members
        self._table = table  # knows who is connected
        self._told: tuple[int, int] | None = None  # who leads, in which term, as the log says
        self._served_ms: int | None = None  # when somebody served last; at first, at the first tick
        self._ticked_ms = 0  # the last beat
        self._heard: tuple[int, int] | None = None  # which leader, in which term
        self._heard_since_ms = 0
        self._has_warned = False  # that nobody does
        self._is_stopping = False  # this node shuts down, and the others may have been stopped before
        self._told_removal = False
        self._members: list[str] = []  # as they were told last

    def wins(self, term: int) -> None:
        """This node leads from now on; after an outage it is told when it serves."""
        if not self._has_warned:
            self._tell(self._core.me.node_id, term)

    def stops(self) -> None:
        """This node shuts down: that it leads no longer is no outage."""
        self._is_stopping = True

    def loses(self, term: int) -> None:
        """This node leads no longer."""
        away, voters = self._away(), self._core.members.voters
        if self._is_stopping or 2 * len(away) < len(voters):
            logger.info("this node no longer leads; it led in term %d", term)
            return
        logger.warning(
            "%s unreachable: without a majority this node, which led in term %d, cannot serve", _are(away), term
        )
        self._has_warned = True

    def tick(self, now_ms: int, *, serves: bool) -> None:
        """See, at a beat, whether another node leads, or for too long nobody has served."""
        core = self._core
        leader = core.leader_id
        self._leave_out_pause(now_ms)
        if core.is_removed:
            self._tell_removal()
            return
        self._told_removal = False
        if leader is None or not (serves if core.leads else self._stays(leader, now_ms)):
            self._miss(now_ms)
        else:
            self._served_ms = now_ms
        if leader is None or (self._has_warned and self._served_ms != now_ms):
            return
        if self._has_warned or self._told != (leader, core.term):
            self._tell(leader, core.term)

    def _leave_out_pause(self, now_ms: int) -> None:
        """A node that stood still knows nothing of that time: the others may have had a leader."""
        pause_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        if self._served_ms is not None and pause_ms >= self._core.settings.election_ms:
            self._served_ms += pause_ms

    def _tell_removal(self) -> None:
        if not self._told_removal:
            self._told_removal = True
            logger.warning(
                "this node was removed from the cluster by entry %d: it no longer serves clients or votes; "
                "stop it, or add it again (`wakeq cluster add`)",
                self._core.removed_by,
            )

    def _stays(self, leader: int, now_ms: int) -> bool:
        """Whether another leader has committed something in its term, or has led for so long that it must have."""
        core = self._core
        if self._heard != (leader, core.term):
            self._heard, self._heard_since_ms = (leader, core.term), now_ms
        if core.log.term_at(core.commit) == core.term:
            return True
        return now_ms - self._heard_since_ms >= ELECTIONS_STAYED * core.settings.election_ms

    def meet(self, config: Config, index: int) -> None:
        """Others belong to the cluster from this entry on, committed or not."""
        members = [
            f"{_named(member)}{'' if member.voter else ', which does not vote yet'}" for member in config.members
        ]
        if members != self._members:
            self._members = members
            logger.info("members of the cluster from entry %d on: %s", index, "; ".join(members))

    def _tell(self, leader: int, term: int) -> None:
        """Say who leads; as loudly as that nobody did.  One broker alone has nobody to lead."""
        who = "this node" if leader == self._core.me.node_id else f"node {leader}"
        level = logging.DEBUG if self._core.members.is_lone else logging.INFO
        logger.log(logging.WARNING if self._has_warned else level, "%s leads in term %d", who, term)
        self._told, self._has_warned = (leader, term), False

    def _miss(self, now_ms: int) -> None:
        span_ms = ELECTIONS_WITHOUT * self._core.settings.election_ms
        if self._served_ms is None:
            self._served_ms = now_ms
        elif not self._has_warned and not self._is_stopping and now_ms - self._served_ms >= span_ms:
            self._has_warned = True
            logger.warning("no node has served for %.3g s: %s", span_ms / 1000, self._why())

    def _why(self) -> str:
        core = self._core
        config, away = core.members.config, self._away()
        if core.leads and not config.founded:
            begins = "a new cluster begins once every node has been up"
            return f"{begins}, and {_are(away)} unreachable" if away else begins
        if config.member(core.me.node_id) is None:
            return "this node does not belong to the cluster; stop it, or add it (`wakeq cluster add`)"
        if 2 * len(away) >= len(core.members.voters):
            return f"{_are(away)} unreachable, and without a majority no node can lead"
        if core.leads:
            return self._why_not_here()
        return (
            "a majority is connected, but no node stays leader; a node may hang, or the network may be slow: a "
            f"round trip between the nodes must take less than {self._round_trip_ms_max} ms, half of "
            "cluster.election_ms; if `wakeq cluster status` at another node does not list this one, "
            "`wakeq cluster add` lets it join, and if it was removed, stop it"
        )

    @property
    def _round_trip_ms_max(self) -> int:
        return self._core.settings.election_ms // 2

    def _why_not_here(self) -> str:
        """Say why this node leads and does not serve."""
        took_ms, most = self._core.leader().round_trip_ms, f"{self._round_trip_ms_max} ms, half of cluster.election_ms"
        if took_ms is None:
            return f"this node leads, and no majority has answered it yet; that must take less than {most}"
        if took_ms < self._round_trip_ms_max:
            return "this node leads, but has not come to serve; its disk may be slow, or a queue be halted"
        return (
            f"this node leads, but a majority answers it only after {took_ms} ms, and that must take less than {most}; "
            "find out what slows the network or the nodes, or set cluster.election_ms to at least "
            f"{ELECTIONS_ADVISED * took_ms} on every node"
        )

    def _away(self) -> list[Member]:
        """Who votes and is not connected."""
        here = {self._core.me.node_id, *self._table.connected}
        return [member for member in self._core.members.config.members if member.voter and member.node_id not in here]


def _named(member: Member) -> str:
    return f"node {member.node_id} ({member.address})" if member.address else f"node {member.node_id}"


def _are(members: Iterable[Member]) -> str:
    """Name the subject of a sentence, with its verb."""
    names = [_named(member) for member in members]
    return " and ".join(names) + (" is" if len(names) == 1 else " are")
