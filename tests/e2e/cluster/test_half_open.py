"""A node whose machine loses its power does not even close its connections; the other nodes notice that it is gone.

Followers hardly send anything to each other, so no failed write would tell them.  A network that is cut while the
node is killed does what a power cut does.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.network.namespaces import Network, missing
from tests.helpers.programs.started import eventually
from wakeq import TaskFluxClient
from wakeq.protocol.errors import OutcomeUnknown

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(missing()), reason=missing() or "never")]


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@pytest.fixture
def cluster(network: Network, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 3, network=network) as made:
        yield made


def knows(node: BrokerProcess, other: int) -> bool:
    """Whether a node is connected to another one."""
    with LineClient(node.worker_address) as client:
        members = client.ask("CLUSTER")["cluster"]["members"]
    return any(member["node"] == other and member["is_connected"] for member in members)


def test_follower_that_lost_its_power_is_reconnected_to_the_other_follower(cluster: Cluster, network: Network) -> None:
    first, second = sorted(cluster.followers(), key=cluster.nodes.index)  # the second one has to dial the first
    one, two = cluster.nodes.index(first), cluster.nodes.index(second)
    eventually(lambda: knows(first, two), "the followers are connected")

    network.isolate(one)
    first.kill()
    eventually(lambda: network.connections(one) == 0, "the kernel has given up telling anybody")
    network.heal()
    first.start()

    eventually(lambda: knows(first, two) and knows(second, one), "the followers are connected again")


def test_taskflux_client_leaves_a_vanished_leader_long_before_the_system_would(
    cluster: Cluster, network: Network
) -> None:
    with TaskFluxClient(cluster.taskflux_addresses) as looking, TaskFluxClient(cluster.taskflux_addresses) as storing:
        looking.create("q")
        storing.enqueue("q", b"before")
        network.vanish(cluster.nodes.index(cluster.leader()))

        with pytest.raises(OutcomeUnknown, match="has fallen silent; the request may or may not have been done"):
            storing.enqueue("q", b"perhaps")
        assert looking.count("q") >= 1
        storing.enqueue("q", b"after")
        with looking.dequeue("q") as record:
            assert record is not None
            assert record.payload == b"before"
