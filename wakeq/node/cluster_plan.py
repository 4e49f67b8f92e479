"""ClusterPlan: what the settings say of the cluster that a node belongs to.

    cluster.node, cluster.peers --> who begins the cluster, where each node is, which cluster that is

A node that joins asks the others which cluster they are; the first nodes of a new one agree on it by the addresses
that all of them were given.
"""

import hashlib
import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from wakeq.config.settings import Settings
from wakeq.net.tls import PeerTls
from wakeq.protocol.errors import BadField, BadSettings, BrokerUnreachable, PeerRefused, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.raft.membership import LEVEL, Config, Member, Membership
from wakeq.protocol.wire.peer.frames import CLUSTER_ID_BYTES, MARK, NO_CLUSTER, Hello, split_address
from wakeq.protocol.wire.peer.session import NONCE_BYTES, PeerSession

ASK_S_MAX = 2.0
READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Invariant: `node_id` is a place in `addresses`."""

    node_id: int
    addresses: tuple[str, ...]
    joins: bool
    tls: PeerTls | None = None
    secret: bytes | None = None

    @property
    def own_host(self) -> str:
        return split_address(self.addresses[self.node_id])[0]

    def address_of(self, node_id: int) -> str:
        """Return where the settings say that a node is, empty if they do not."""
        return self.addresses[node_id] if node_id < len(self.addresses) else ""

    def identity(self) -> Identity:
        """Return what a new data directory becomes; a node that joins asks for it."""
        if self.joins:
            return Identity(self._cluster_of_others(), self.node_id)
        return Identity(self._cluster_that_begins(), self.node_id)

    def check_data(self, path: Path, identity: Identity, config: Config, last_index: int) -> None:
        """Refuse what a broker that was alone has kept: the others could never have it, and it would wait for ever."""
        if self.joins or config.founded or not last_index or identity.cluster_id == self._cluster_that_begins():
            return
        raise StorageError(
            f"{path}: holds what a broker has kept that began alone, or was restored, and whose log knows of no other "
            f"node; `wakeq cluster recover --from-this-node --data-dir {path}` makes a cluster of one node of it, to "
            "which the others are added (docs/operations/cluster.md)"
        )

    def initial(self) -> Config:
        """Return who belongs to the cluster as long as the log does not say it."""
        return Config(
            tuple(
                Member(node, voter=not (self.joins and node == self.node_id), address=address)
                for node, address in enumerate(self.addresses)
            )
        )

    def _cluster_that_begins(self) -> bytes:
        text = "wakeq cluster " + ",".join(self.addresses)
        return hashlib.sha256(text.encode()).digest()[:CLUSTER_ID_BYTES]

    def _cluster_of_others(self) -> bytes:
        tried = []
        for node, address in enumerate(self.addresses):
            if node != self.node_id:
                try:
                    return _cluster_at(address, self.node_id, self.secret, self.tls)
                except (OSError, PeerRefused) as error:
                    tried.append(f"{address}: {error}")
        raise BrokerUnreachable(f"no node of the cluster to join answers; tried {'; '.join(tried)}")


def plan_of(settings: Settings, tls: PeerTls | None = None, secret: bytes | None = None) -> ClusterPlan | None:
    """Return the plan, None for a node that is alone."""
    cluster = settings.cluster
    if cluster.peers is None and cluster.node is None:
        return None
    if cluster.peers is None or cluster.node is None:
        raise BadSettings("a node of a cluster needs both --node and --peers; give the other one too")
    addresses = tuple(address.strip() for address in cluster.peers.split(","))
    try:
        for address in addresses:
            split_address(address)
    except BadField as error:
        raise BadSettings(f"--peers: {error}") from error
    for address in addresses:
        if addresses.count(address) > 1:
            raise BadSettings(f"--peers has {address} twice; every node has an address of its own")
    if cluster.node >= len(addresses):
        raise BadSettings(f"--node {cluster.node} has no address in --peers {cluster.peers}; nodes count from 0")
    return ClusterPlan(cluster.node, addresses, cluster.join, tls, secret)


def check_alone(path: Path, members: Membership) -> None:
    """Refuse what a node of a cluster has kept: without the others it would wait for ever to lead."""
    if members.is_lone:
        return
    node, nodes = members.node_id, ", ".join(str(voter) for voter in members.voters)
    raise BadSettings(
        f"{path}: belongs to a cluster of the nodes {nodes}; start it with --node {node} and --peers, or, if the "
        f"others will never come back, run `wakeq cluster recover --from-this-node --data-dir {path}` first"
    )


def _cluster_at(address: str, node_id: int, secret: bytes | None, tls: PeerTls | None) -> bytes:
    """Ask the node at an address which cluster it belongs to; with a secret, believe only one that knows it."""
    host, port = split_address(address)
    nobody = Hello(MARK, LEVEL, LEVEL, NO_CLUSTER, node_id, 0, 0, {})
    session = PeerSession(nobody, secret, secrets.token_bytes(NONCE_BYTES), dials=True, seals=tls is None)
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), ASK_S_MAX))
        if tls is not None:
            connection = stack.enter_context(tls.dialing.wrap_socket(connection, server_hostname=host))
        connection.settimeout(ASK_S_MAX)
        connection.sendall(session.take_unsent())
        while data := connection.recv(READ_BYTES):
            session.receive(data)
            if session.peer is not None:
                return session.peer.cluster_id
            connection.sendall(session.take_unsent())
    raise PeerRefused("it ended the connection without proving who it is; its log says why")
