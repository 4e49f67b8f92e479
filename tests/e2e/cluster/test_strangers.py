"""Strangers at the peer port change nothing, keep no node out, and fill neither log nor memory."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.programs.started import eventually
from wakeq.protocol.errors import PeerRefused
from wakeq.protocol.raft.core import TERM_JUMP_MAX
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.raft.messages import AnyMessage, Heartbeat, RequestVote
from wakeq.protocol.wire.peer.frames import (
    BODY_BYTES_MAX,
    MARK,
    BodyReader,
    Frame,
    Hello,
    decode_body,
    encode_body,
    framed,
)
from wakeq.protocol.wire.peer.session import PeerSession
from wakeq.storage.credentials import write_secret

REFUSALS = 500
HALF_OPEN = 300  # more than the port has places for
LINES_A_SECOND = 3
TERM = 1_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        yield made


def place_of(cluster: Cluster, node: BrokerProcess) -> tuple[str, int]:
    host, _, port = cluster.peer_addresses[cluster.nodes.index(node)].rpartition(":")
    return host, int(port)


def standing(node: BrokerProcess) -> tuple[str, int]:
    with LineClient(node.worker_address) as client:
        facts = client.ask("CLUSTER")["cluster"]
        return str(facts["role"]), int(facts["term"])


def hello_of(place: tuple[str, int]) -> Hello:
    """Return what a node tells anybody who connects."""
    with socket.create_connection(place, timeout=5) as connection:
        reader, body = BodyReader(BODY_BYTES_MAX), None
        while body is None:
            reader.receive(connection.recv(4096))
            body = reader.next_body()
    hello = decode_body(body)
    assert isinstance(hello, Hello)
    return hello


def say(place: tuple[str, int], *frames: Frame) -> None:
    """Send something and wait until the node closes the connection or sends nothing more."""
    with suppress(OSError), socket.create_connection(place, timeout=0.5) as connection:
        connection.sendall(b"".join(framed(encode_body(frame)) for frame in frames))
        while connection.recv(4096):
            pass


def test_stranger_at_the_peer_port_deposes_no_leader_and_raises_no_term(cluster: Cluster) -> None:
    leader = cluster.leader()
    before = standing(leader)

    for node in cluster.nodes:
        known = hello_of(place_of(cluster, node))
        as_peer = (known.node_id + 1) % 3
        hello = Hello(MARK, LEVEL, LEVEL, known.cluster_id, as_peer, 5, 1, {"worker": "127.0.0.1:1"})
        header = (as_peer, known.node_id, 5, 1, before[1] + TERM)
        words: list[AnyMessage] = [RequestVote(*header, TERM, TERM, False, True), Heartbeat(*header, 1, 0)]
        for word in words:
            say(place_of(cluster, node), hello, word)
        say(place_of(cluster, node), word)

    assert standing(leader) == before
    with LineClient(cluster.followers()[0].worker_address) as client:
        sent_to = client.ask("PUB", "q", message="m")["leader"]
    assert sent_to == "{}:{}".format(*leader.worker_address)


def test_flood_of_half_open_handshakes_takes_few_log_lines_and_keeps_no_node_out(cluster: Cluster) -> None:
    leader, follower = cluster.leader(), cluster.nodes[2]
    target = cluster.nodes[0]  # whom the others dial
    place = place_of(cluster, target)
    known = hello_of(place)
    lines, began_s = target.stderr.count("\n"), time.monotonic()

    for number in range(REFUSALS):
        with socket.create_connection(place, timeout=5) as connection:
            other = encode_body(Hello(MARK, LEVEL, LEVEL, number.to_bytes(16, "big"), 1 + number % 2, 5, 1, {}))
            unreadable = other.replace(MARK.encode(), b"\xff" * len(MARK))
            connection.sendall(framed(unreadable if number % 2 else other))
    crowd = [socket.create_connection(place, timeout=5) for _ in range(HALF_OPEN)]
    follower.terminate()
    follower.start()
    eventually(lambda: _is_connected(leader if leader is not follower else target, 2), "the node is back")
    took_s = time.monotonic() - began_s

    assert target.stderr.count("\n") - lines < LINES_A_SECOND * took_s + 20
    assert known.node_id == 0
    for connection in crowd:
        connection.close()


def _is_connected(node: BrokerProcess, number: int) -> bool:
    with LineClient(node.worker_address) as client:
        members = client.ask("CLUSTER")["cluster"]["members"]
    return bool(next(member for member in members if member["node"] == number)["is_connected"])


def test_node_with_another_secret_is_refused_and_told_so(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.nodes[2]
    node.terminate()
    other = tmp_path / "other.secret"
    write_secret(other)
    stranger = BrokerProcess(node.data_dir, *node.extra_args, "--set", f"cluster.secret_file={other}")

    try:
        stranger.start()
        eventually(lambda: "is refused" in stranger.stderr, "it says why")
        eventually(lambda: "node 2 does not know the secret" in cluster.nodes[0].stderr, "the others say why")
    finally:
        stranger.close()


def test_stranger_without_the_secret_learns_and_changes_nothing(cluster: Cluster) -> None:
    place = place_of(cluster, cluster.nodes[0])
    known = hello_of(place)
    own = Hello(MARK, LEVEL, LEVEL, known.cluster_id, 1, 5, 1, {})
    session = PeerSession(own, b"x" * 32, b"n" * 32, dials=True, seals=True)

    with socket.create_connection(place, timeout=5) as connection:
        connection.sendall(session.take_unsent())
        session.receive(connection.recv(4096))
        connection.sendall(session.take_unsent())
        assert connection.recv(4096) == b""

    with pytest.raises(PeerRefused, match="does not know the secret"):
        session.receive(framed(encode_body(Heartbeat(0, 1, 5, 1, 1, 1, 0))))


# --- what a node needs to start ---


def test_nodes_with_tokens_and_no_secret_do_not_start(tmp_path: Path) -> None:
    node = BrokerProcess(tmp_path / "data", "--node", "0", "--peers", "127.0.0.1:1,127.0.0.1:2", "--auth")

    assert node.run_to_end() == 78
    assert "`wakeq cluster secret --out FILE` makes one" in node.stderr


def test_nodes_of_one_machine_without_tokens_need_no_secret_but_are_warned(tmp_path: Path) -> None:
    with Cluster(tmp_path, has_secret=False) as cluster:
        assert cluster.leader().running
        assert all("do not authenticate each other" in node.stderr for node in cluster.nodes)


def test_high_terms_of_a_stranger_cut_no_node_off(tmp_path: Path) -> None:
    """Each term is within the bound, all of them together are not; no node could take part with such a term again."""
    with Cluster(tmp_path, has_secret=False) as cluster:
        cluster.leader()
        place = place_of(cluster, cluster.nodes[0])
        known, (_, term) = hello_of(place), standing(cluster.nodes[0])
        words = [
            RequestVote(1, known.node_id, 5, 1, term + jumps * (TERM_JUMP_MAX - 8), 0, 0, False, True)
            for jumps in range(1, 5)
        ]

        say(place, Hello(MARK, LEVEL, LEVEL, known.cluster_id, 1, 5, 1, {}), *words)

        assert standing(cluster.nodes[0])[1] > term
        eventually(lambda: len({standing(node)[1] for node in cluster.nodes}) == 1, "all are in one term")
