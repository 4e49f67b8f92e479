"""ClusterPlan: the cluster, the node and the first members that the settings describe."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.helpers.clusters.by_hand import HandCluster
from wakeq.config.settings import Cluster, Settings
from wakeq.node import cluster_plan
from wakeq.node.cluster_plan import plan_of
from wakeq.node.node import Node
from wakeq.protocol.errors import BadSettings, PeerRefused
from wakeq.protocol.log.format import Identity
from wakeq.protocol.wire.peer.frames import split_address

PEERS = "a:2603, b:2603,[::1]:2603"
GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def settings(**cluster: object) -> Settings:
    return Settings(cluster=Cluster(**cluster))  # type: ignore[arg-type]


def test_node_without_peers_has_no_cluster_plan() -> None:
    assert plan_of(Settings()) is None


def test_nodes_of_a_new_cluster_derive_the_same_identity() -> None:
    plans = [plan_of(settings(node=node, peers=PEERS)) for node in range(3)]

    identities = [asyncio.run(plan.identity()) for plan in plans if plan is not None]

    assert len({identity.cluster_id for identity in identities}) == 1
    assert [identity.node_id for identity in identities] == [0, 1, 2]


def test_cluster_with_other_addresses_has_another_identity() -> None:
    one, two = plan_of(settings(node=0, peers="a:1,b:1,c:1")), plan_of(settings(node=0, peers="a:1,b:1,d:1"))

    assert one is not None
    assert two is not None
    assert asyncio.run(one.identity()) != asyncio.run(two.identity())


def test_joining_node_is_no_voter_at_first() -> None:
    plan = plan_of(settings(node=2, peers=PEERS, join=True))

    assert plan is not None
    assert [(member.node_id, member.voter, member.address) for member in plan.initial().members] == [
        (0, True, "a:2603"),
        (1, True, "b:2603"),
        (2, False, "[::1]:2603"),
    ]


@pytest.mark.parametrize(
    ("host", "peers", "listens_at"),
    [
        # The name of a pod may have no address yet.
        ("0.0.0.0", "wakeq-0.wakeq-nodes:2603", ("0.0.0.0", 2603)),
        ("::", "wakeq-0.wakeq-nodes:2603", ("::", 2603)),
        # Nodes on one machine need no secret, so other machines must not reach them.
        ("0.0.0.0", "127.0.0.1:2603", ("127.0.0.1", 2603)),
        ("10.0.0.1", "10.1.0.1:2603", ("10.1.0.1", 2603)),
        # Clients may come from everywhere, the nodes have a network of their own.
        ("0.0.0.0", "10.1.0.1:2603", ("10.1.0.1", 2603)),
        ("0.0.0.0", "[fd00::1]:2603", ("fd00::1", 2603)),
    ],
)
def test_node_on_all_addresses_listens_for_the_others_on_all_if_it_has_a_name(
    host: str, peers: str, listens_at: tuple[str, int]
) -> None:
    plan = plan_of(settings(node=0, peers=peers))

    assert plan is not None
    assert plan.listens_at(host) == listens_at


def test_joining_node_waits_for_the_others_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_plan, "ASK_AGAIN_S", 0)
    answers: list[bytes | Exception] = [b"0123456789abcdef", PeerRefused("it closed the connection"), GONE, GONE]

    def ask(address: str, *_: object) -> bytes:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cluster_plan, "_cluster_id_at", ask)
    plan = plan_of(settings(node=1, peers="wakeq-0.wakeq-nodes:2603,wakeq-1.wakeq-nodes:2603", join=True))

    assert plan is not None
    assert asyncio.run(plan.identity()) == Identity(b"0123456789abcdef", 1)
    waits = "no node of the cluster to join answers yet; trying again: wakeq-0.wakeq-nodes:2603: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{waits}[Errno -2] Name or service not known",
        f"{waits}it closed the connection",
    ]


@pytest.mark.parametrize(
    ("cluster", "match"),
    [
        ({"node": 0}, "both --node and --peers"),
        ({"peers": PEERS}, "both --node and --peers"),
        ({"node": 3, "peers": PEERS}, "nodes count from 0"),
        ({"node": 0, "peers": "a"}, "write HOST:PORT"),
        ({"node": 0, "peers": "a:2603,"}, "write HOST:PORT"),
        ({"node": 0, "peers": "a:99999"}, "write HOST:PORT"),
        ({"node": 0, "peers": "a:2603, b:2603,a:2603"}, "--peers contains a:2603 twice"),
    ],
)
def test_invalid_cluster_settings_are_explained(cluster: dict[str, object], match: str) -> None:
    with pytest.raises(BadSettings, match=match):
        plan_of(settings(**cluster))


def test_ipv6_address_is_split_without_its_brackets() -> None:
    assert split_address("[::1]:2603") == ("::1", 2603)


def test_cluster_node_started_without_peers_is_refused(tmp_path: Path) -> None:
    cluster = HandCluster(tmp_path)
    cluster.start()
    cluster.close()

    async def start() -> None:
        settings = Settings(data_dir=tmp_path / "node-1", worker_port=0, http_port=0, taskflux_port=0)
        # Without the check the start would wait forever.
        await asyncio.wait_for(Node(settings).start(), 10)

    advice = "belongs to a cluster of nodes 0, 1, 2; start it with --node 1 and --peers"
    with pytest.raises(BadSettings, match=advice):
        asyncio.run(start())
