"""ClusterPlan: the cluster of a node as the settings describe it.

    cluster.node, cluster.peers --> first members, address of each node, identity of the cluster

A node that joins asks the others for the identity of their cluster, until one of them answers.  The first nodes of a
new cluster derive the same identity from the list of addresses that all of them were given.
"""

import asyncio
import hashlib
import logging
import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from wakeq.config.rules import EVERYWHERE
from wakeq.config.settings import Settings
from wakeq.net.tls import PeerTls
from wakeq.protocol.access import is_address, is_this_machine
from wakeq.protocol.errors import BadField, BadSettings, BrokerUnreachable, PeerRefused, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.raft.membership import LEVEL, Config, Member, Membership
from wakeq.protocol.wire.peer.frames import CLUSTER_ID_BYTES, MARK, NO_CLUSTER, Hello, split_address
from wakeq.protocol.wire.peer.session import NONCE_BYTES, PeerSession

ASK_S_MAX = 2.0
ASK_AGAIN_S = 1.0
READ_BYTES = 65_536

logger = logging.getLogger("wakeq.node")


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Settings of a cluster, checked.  Invariant: `node_id` is an index of `addresses`."""

    node_id: int
    addresses: tuple[str, ...]
    joins: bool
    tls: PeerTls | None = None
    secret: bytes | None = None

    @property
    def own_host(self) -> str:
        return split_address(self.addresses[self.node_id])[0]

    def listens_at(self, host: str) -> tuple[str, int]:
        """Return where this node listens for the others, if it listens at `host` for clients.

        A node that listens on all addresses need not look its own name up: the name of a pod may have no address yet,
        and that of a machine behind a translation of addresses has one that is not the machine's.  Who gives an address
        instead of a name means that one: it may be of a network that only the nodes can reach.
        """
        own_host, port = split_address(self.addresses[self.node_id])
        looks_up = not (is_this_machine(own_host) or is_address(own_host))
        return (host if host in EVERYWHERE and looks_up else own_host), port

    def address_of(self, node_id: int) -> str:
        """Return the address of a node in the settings, empty if they have none."""
        return self.addresses[node_id] if node_id < len(self.addresses) else ""

    async def identity(self) -> Identity:
        """Return the identity for a new data directory; a node that joins waits until another one has told it."""
        if not self.joins:
            return Identity(self._new_cluster_id(), self.node_id)
        logged = ""
        while True:
            try:
                return Identity(await asyncio.to_thread(self._ask_for_cluster_id), self.node_id)
            except BrokerUnreachable as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.warning("no node of the cluster to join answers yet; trying again: %s", logged)
                await asyncio.sleep(ASK_AGAIN_S)

    def check_data(self, path: Path, identity: Identity, config: Config, last_index: int) -> None:
        """Refuse the data of a single broker: the other nodes could never get it, and this one would wait forever."""
        if self.joins or config.founded or not last_index or identity.cluster_id == self._new_cluster_id():
            return
        raise StorageError(
            f"{path}: contains the data of a broker that ran alone or was restored, and its log names no other node; "
            f"`wakeq cluster recover --from-this-node --data-dir {path}` turns it into a cluster of one node, to which "
            "you can add the others (docs/operations/cluster.md)"
        )

    def initial(self) -> Config:
        """Return the members of the cluster until the log names them."""
        return Config(
            tuple(
                Member(node, voter=not (self.joins and node == self.node_id), address=address)
                for node, address in enumerate(self.addresses)
            )
        )

    def _new_cluster_id(self) -> bytes:
        text = "wakeq cluster " + ",".join(self.addresses)
        return hashlib.sha256(text.encode()).digest()[:CLUSTER_ID_BYTES]

    def _ask_for_cluster_id(self) -> bytes:
        tried = []
        for node, address in enumerate(self.addresses):
            if node != self.node_id:
                try:
                    return _cluster_id_at(address, self.node_id, self.secret, self.tls)
                except (OSError, PeerRefused) as error:
                    tried.append(f"{address}: {error}")
        raise BrokerUnreachable("; ".join(tried))


def plan_of(settings: Settings, tls: PeerTls | None = None, secret: bytes | None = None) -> ClusterPlan | None:
    """Return the plan, or None for a single node."""
    cluster = settings.cluster
    if cluster.peers is None and cluster.node is None:
        return None
    if cluster.peers is None or cluster.node is None:
        raise BadSettings("a node of a cluster needs both --node and --peers; pass the missing one")
    addresses = tuple(address.strip() for address in cluster.peers.split(","))
    try:
        for address in addresses:
            split_address(address)
    except BadField as error:
        raise BadSettings(f"--peers: {error}") from error
    for address in addresses:
        if addresses.count(address) > 1:
            raise BadSettings(f"--peers contains {address} twice; give every node an address of its own")
    if cluster.node >= len(addresses):
        raise BadSettings(f"--node {cluster.node} has no address in --peers {cluster.peers}; nodes count from 0")
    return ClusterPlan(cluster.node, addresses, cluster.join, tls, secret)


def check_single(path: Path, members: Membership) -> None:
    """Refuse the data of a node of a cluster: without the others it would wait forever to become leader."""
    if members.is_lone:
        return
    node, nodes = members.node_id, ", ".join(str(voter) for voter in members.voters)
    raise BadSettings(
        f"{path}: belongs to a cluster of nodes {nodes}; start it with --node {node} and --peers.  If the other nodes "
        f"are lost for good, run `wakeq cluster recover --from-this-node --data-dir {path}` first"
    )


def _cluster_id_at(address: str, node_id: int, secret: bytes | None, tls: PeerTls | None) -> bytes:
    """Ask the node at an address for its cluster; if there is a secret, trust only a node that knows it."""
    host, port = split_address(address)
    introduction = Hello(MARK, LEVEL, LEVEL, NO_CLUSTER, node_id, 0, 0, {})
    session = PeerSession(introduction, secret, secrets.token_bytes(NONCE_BYTES), dials=True, seals=tls is None)
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
    raise PeerRefused("it closed the connection without proving its identity; its log says why")
