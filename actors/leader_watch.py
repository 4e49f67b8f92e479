"""LeaderWatch: who leads and who belongs to the cluster, as the log of every node tells it, and why if nobody serves.

    leadership won and lost, each beat, each change of the members --> lines of the log

It decides nothing.  An election passes by itself and is worth no warning; that nobody has led for ten of them is.
"""

import logging
from collections.abc import Iterable

from wakeq.actors.neighbourhood import Neighbourhood
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import Config, Member

ELECTIONS_WITHOUT = 10  # election timeouts for which nobody has served

logger = logging.getLogger("wakeq.raft_log")


class LeaderWatch:
    """See the head of this file.  A node that is alone tells only that it leads."""

    def __init__(self, core: Core, around: Neighbourhood) -> None:
        self._core = core
        self._around = around
        self._told: tuple[int, int] | None = None  # who leads, in which term
        self._since_ms: int | None = None  # since when nobody serves
        self._has_warned = False  # that nobody does
        self._members: list[str] = []  # as they were told last

    def wins(self, term: int) -> None:
        """This node leads from now on."""
        self._tell(self._core.me.node_id, term)

    def loses(self, term: int) -> None:
        """This node leads no longer."""
        away, voters = self._away(), self._core.members.voters
        if 2 * len(away) < len(voters):
            logger.info("this node leads no longer, as it did in term %d", term)
            return
        logger.warning("%s away: without a majority this node, which led in term %d, cannot serve", _are(away), term)
        self._has_warned = True

    def look(self, now_ms: int) -> None:
        """See, at a beat, whether another node leads, or for too long nobody."""
        core = self._core
        leader = core.leader_id
        if leader is None or (core.leads and not core.members.config.founded):
            self._miss(now_ms)
            return
        self._since_ms = None
        if self._has_warned or self._told != (leader, core.term):
            self._tell(leader, core.term)

    def meet(self, config: Config, index: int) -> None:
        """Others belong to the cluster from this entry on, committed or not."""
        members = [
            f"{_named(member)}{'' if member.voter else ', which does not vote yet'}" for member in config.members
        ]
        if members != self._members:
            self._members = members
            logger.info("from entry %d on the cluster is %s", index, "; ".join(members))

    def _tell(self, leader: int, term: int) -> None:
        """Say who leads; as loudly as that nobody did."""
        who = "this node" if leader == self._core.me.node_id else f"node {leader}"
        logger.log(logging.WARNING if self._has_warned else logging.INFO, "%s leads in term %d", who, term)
        self._told, self._has_warned = (leader, term), False

    def _miss(self, now_ms: int) -> None:
        span_ms = ELECTIONS_WITHOUT * self._core.settings.election_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        elif not self._has_warned and now_ms - self._since_ms >= span_ms:
            self._has_warned = True
            logger.warning("for %.3g s nobody has served: %s", span_ms / 1000, self._why())

    def _why(self) -> str:
        config, away = self._core.members.config, self._away()
        if self._core.leads:
            begins = "a new cluster begins when every node was there once"
            return f"{begins}, and {_are(away)} away" if away else begins
        if config.member(self._core.me.node_id) is None:
            return "this node does not belong to the cluster; stop it, or add it (`wakeq cluster add`)"
        if 2 * len(away) >= len(self._core.members.voters):
            return f"{_are(away)} away, and without a majority nobody can lead"
        return (
            "a majority is connected, and no leader is heard; if `wakeq cluster status` there does not list this node, "
            "`wakeq cluster add` lets it join, and if it was removed, stop it"
        )

    def _away(self) -> list[Member]:
        """Who votes and is not connected."""
        here = {self._core.me.node_id, *self._around.connected}
        return [member for member in self._core.members.config.members if member.voter and member.node_id not in here]


def _named(member: Member) -> str:
    return f"node {member.node_id} ({member.address})" if member.address else f"node {member.node_id}"


def _are(members: Iterable[Member]) -> str:
    """Name the subject of a sentence, with its verb."""
    names = [_named(member) for member in members]
    return " and ".join(names) + (" is" if len(names) == 1 else " are")
