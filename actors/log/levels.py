"""LogLevels: what is held back while a node of an older release belongs to the cluster.

    Propose --> without entries that an older node could not read; their askers are told which level they need
    what a leader says of the members --> a level that this release does not know ends the node

The third layer of RaftLog.  The level is recorded in the log with the members, before any entry that needs it.
"""

import msgspec

from wakeq.actors.log.entries import LogEntries, Proposal, answer
from wakeq.actors.log.files import LogServices
from wakeq.actors.mail import Propose, Refusal
from wakeq.protocol.errors import OlderNodes
from wakeq.protocol.log.level import LEVEL, check_level, level_of
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import AnyMessage, Append, SnapshotOffer


class LogLevels(LogEntries):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices, *, is_alone: bool) -> None:
        super().__init__(core, services)
        self._is_alone = is_alone

    @property
    def level(self) -> int:
        """The level at which the cluster works; a broker that is alone asks nobody."""
        return LEVEL if self._is_alone else self.core.members.config.level

    def held_back(self, level: int) -> Refusal | None:
        """Return why nothing of this level may be proposed yet, None if it may."""
        if level <= self.level:
            return None
        return Refusal(
            OlderNodes.code,
            f"this needs level {level} on every node, and the cluster works at level {self.level}; "
            "upgrade the nodes that `wakeq cluster status` shows below it",
        )

    def _append(self, message: Propose) -> None:
        if self.level < LEVEL:
            message = msgspec.structs.replace(message, items=self._without_newer(message.items))
        super()._append(message)

    def _without_newer(self, items: list[Proposal]) -> list[Proposal]:
        """Refuse entries that an older node could not read; return the others."""
        known = []
        for entry, asker in items:
            refusal = self.held_back(level_of(entry))
            if refusal is None:
                known.append((entry, asker))
            else:
                answer(asker, refusal)
        return known

    def _look_at_level(self, said: AnyMessage) -> None:
        """Before taking anything from a leader, check that the cluster's level is one that this release knows."""
        if type(said) is Append and said.configs:
            check_level(said.configs[-1][1].level, f"node {said.sender}, which leads")
        elif type(said) is SnapshotOffer:
            check_level(said.config.level, f"node {said.sender}, which leads")
