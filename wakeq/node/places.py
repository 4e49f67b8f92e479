"""Places: where clients find each node of a cluster, by what they speak.

    addresses of this node --> what the others are told of it
    what the others have said of themselves --> the list of nodes that a TaskFlux client is given

A node that is alone knows only itself.  It never waits, and never says more of another node than that one has said.
"""

from wakeq.actors.log.raft_log import RaftLog
from wakeq.protocol.wire.taskflux.packets import UNKNOWN_NODE, ClusterMetadataResponse


class Places:
    """See the head of this file.  `own` is empty until the node listens."""

    def __init__(self, me: int | None) -> None:
        self._me = me  # the number of this node in its cluster, None if it is alone
        self.own: dict[str, str] = {}

    def open(self, addresses: dict[str, str], host: str, worker_address: str | None) -> None:
        """Take the ports on which this node listens; clients reach it at this host, or where the settings say."""
        self.own = {door: f"{host}:{address.rpartition(':')[2]}" for door, address in addresses.items()}
        self.own["worker"] = worker_address or self.own["worker"]

    def taskflux_nodes(self, log: RaftLog, door: str, own_address: str) -> ClusterMetadataResponse:
        """Return where that door of each node is, by the node's number, and which of them leads.

        A place without a node, or of one that was not heard of yet, holds our own address: somebody answers there.
        """
        serves = log.refusal() is None
        if self._me is None:
            return ClusterMetadataResponse((own_address,), 0 if serves else UNKNOWN_NODE, 0)
        here = self.own.get(door, own_address)
        places = max(self._me, *(member.node_id for member in log.core.members.config.members)) + 1
        addresses = (here if node == self._me else log.address_of(node, door) or here for node in range(places))
        leader = self._me if serves else log.other_leader
        return ClusterMetadataResponse(tuple(addresses), UNKNOWN_NODE if leader is None else leader, self._me)
