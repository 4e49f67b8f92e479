"""NodeAddresses: where clients reach each node of a cluster, for each protocol.

    addresses of this node --> sent to the other nodes
    addresses that the other nodes sent --> the list of nodes that a TaskFlux client receives

A single node knows only itself.  It never waits, and never reports more about another node than that node has sent.
"""

from wakeq.actors.log.raft_log import RaftLog
from wakeq.protocol.wire.taskflux.commands import UNKNOWN_NODE, ClusterMetadataResponse


class NodeAddresses:
    """Addresses of this node by door; `own` is empty until the node listens."""

    def __init__(self, me: int | None) -> None:
        # The number of this node in its cluster, None for a single node.
        self._me = me
        self.own: dict[str, str] = {}

    def open(self, addresses: dict[str, str], host: str, worker_address: str | None) -> None:
        """Set the ports of this node; clients reach it at `host`, or at the worker address from the settings."""
        self.own = {door: f"{host}:{address.rpartition(':')[2]}" for door, address in addresses.items()}
        self.own["worker"] = worker_address or self.own["worker"]

    def taskflux_nodes(self, log: RaftLog, door: str, own_address: str) -> ClusterMetadataResponse:
        """Return the address of that door on each node, by node number, and the number of the leader.

        A number without a node, or of a node that has not sent its addresses yet, gets our own address: somebody
        answers there.
        """
        serves = log.refusal() is None
        if self._me is None:
            return ClusterMetadataResponse((own_address,), 0 if serves else UNKNOWN_NODE, 0)
        here = self.own.get(door, own_address)
        nodes = max(self._me, *(member.node_id for member in log.core.members.config.members)) + 1
        addresses = (here if node == self._me else log.address_of(node, door) or here for node in range(nodes))
        leader = self._me if serves else log.other_leader
        return ClusterMetadataResponse(tuple(addresses), UNKNOWN_NODE if leader is None else leader, self._me)
