"""ClusterPlan: which node of which cluster the settings mean."""

import asyncio
from pathlib import Path

import pytest

from tests.helpers.hand_cluster import HandCluster
from wakeq.config.settings import Cluster, Settings
from wakeq.node.cluster_plan import plan_of
from wakeq.node.node import Node
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.peer.frames import split_address

PEERS = "a:2603, b:2603,[::1]:2603"


def settings(**cluster: object) -> Settings:
    return Settings(cluster=Cluster(**cluster))  # type: ignore[arg-type]


def test_a_node_without_peers_is_alone() -> None:
    assert plan_of(Settings()) is None


def test_all_nodes_of_a_new_cluster_agree_on_which_it_is() -> None:
    plans = [plan_of(settings(node=node, peers=PEERS)) for node in range(3)]

    identities = [plan.identity() for plan in plans if plan is not None]

    assert len({identity.cluster_id for identity in identities}) == 1
    assert [identity.node_id for identity in identities] == [0, 1, 2]


def test_other_addresses_are_another_cluster() -> None:
    one, two = plan_of(settings(node=0, peers="a:1,b:1,c:1")), plan_of(settings(node=0, peers="a:1,b:1,d:1"))

    assert one is not None
    assert two is not None
    assert one.identity() != two.identity()


def test_who_joins_only_listens_at_first() -> None:
    plan = plan_of(settings(node=2, peers=PEERS, join=True))

    assert plan is not None
    assert [(member.node_id, member.voter, member.address) for member in plan.initial().members] == [
        (0, True, "a:2603"),
        (1, True, "b:2603"),
        (2, False, "[::1]:2603"),
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
        ({"node": 0, "peers": "a:2603, b:2603,a:2603"}, "--peers has a:2603 twice"),
    ],
)
def test_what_does_not_fit_is_explained(cluster: dict[str, object], match: str) -> None:
    with pytest.raises(BadSettings, match=match):
        plan_of(settings(**cluster))


def test_an_ipv6_address_loses_its_brackets() -> None:
    assert split_address("[::1]:2603") == ("::1", 2603)


def test_node_of_a_cluster_that_is_started_without_peers_is_refused(tmp_path: Path) -> None:
    cluster = HandCluster(tmp_path)
    cluster.start()
    cluster.close()

    async def start() -> None:
        settings = Settings(data_dir=tmp_path / "node-1", worker_port=0, http_port=0, taskflux_port=0)
        await asyncio.wait_for(Node(settings).start(), 10)  # it would wait for ever

    advice = "belongs to a cluster of the nodes 0, 1, 2; start it with --node 1 and --peers"
    with pytest.raises(BadSettings, match=advice):
        asyncio.run(start())
