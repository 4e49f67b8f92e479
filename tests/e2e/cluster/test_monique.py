"""MoniQue on a cluster: only the leader's exchange is active; clients, components and tasks follow the leader."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clusters.processes import Cluster
from tests.helpers.monique.component import component, packed
from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import eventually
from wakeq import Client
from wakeq.monique import MoniqueClient
from wakeq.protocol.errors import BrokerUnreachable

TASKS = "sum_it"
LAYERS = ("scheduler-in", "scheduler-out")


@pytest.fixture
def scheduler() -> dict[str, str]:
    """Return the addresses of one scheduler, wherever it is: the nodes of these tests share a machine."""
    names = ("scheduler-in", "scheduler-out", "technical-in", "technical-out", "controller")
    return {name: f"127.0.0.1:{free_port()}" for name in names}


@pytest.fixture
def cluster(tmp_path: Path, scheduler: dict[str, str]) -> Iterator[Cluster]:
    def port(name: str) -> int:
        return int(scheduler[name].rpartition(":")[2])

    ends = {
        end: {"host": "127.0.0.1", "comport": port(end), "techport": port(end.replace("scheduler", "technical"))}
        for end in LAYERS
    }
    params = {"mq_controller": {"connections": {TASKS: port("controller")}}}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"deploy": {"monique": ends}, "params": params}))
    with Cluster(tmp_path, 3, "-f", str(config), "--set", f"monique.routes={TASKS}=sums") as made:
        yield made


def http_of(nodes: list[BrokerProcess]) -> str:
    return ",".join("{}:{}".format(*node.http_address) for node in nodes)


def test_clients_components_and_tasks_continue_at_the_next_leader(cluster: Cluster, scheduler: dict[str, str]) -> None:
    leader, followers = cluster.leader(), cluster.followers()
    with pytest.raises(BrokerUnreachable, match="leads"):
        MoniqueClient(http_of(followers[:1]), connect_timeout_s=2)

    with (
        MoniqueClient(http_of([*followers, leader]), reconnect_for_s=30) as client,
        component(scheduler, controller=scheduler["controller"]) as adder,
        component(scheduler) as watcher,
    ):
        client.subscribe((TASKS, "result"), ("a_b", "*"))
        begun = client.push(TASKS, [1, 2])
        assert watcher.hear()[0].decode() == begun.tag.text
        assert id_of(adder.task()) == begun.id
        waiting = client.push(TASKS, [3, 4])  # the adder has another one

        leader.kill()
        cluster.leader(followers)

        client.ping()  # on the new leader, and subscribed there
        eventually(lambda: goes_through(client, watcher), "the component has found the new leader's ports by itself")
        assert id_of(adder.task()) == waiting.id
        for task, sum_ in ((begun, 3), (waiting, 7)):
            adder.send(packed(spec=TASKS, type="result", pid=task.id, data=b"%d" % sum_, id="r"))
            result = client.receive(20)
            assert result is not None
            assert (result.answers(task), result.value()) == (True, sum_)
        with Client(cluster.addresses) as worker:
            eventually(lambda: worker.stats("sums")["leased"] == 0, "whoever gave them out, both are done with")
            assert worker.stats("sums")["ready"] == 0


def id_of(frames: list[bytes]) -> str:
    task_id: str = msgpack.unpackb(frames[1])["id"]
    return task_id


def goes_through(client: MoniqueClient, watcher: object) -> bool:
    """Whether a message that is pushed now is heard over ZeroMQ."""
    sub = watcher.sub  # type: ignore[attr-defined]
    client.push("other_spec", 1, type="data")
    if not sub.poll(200):
        return False
    while sub.poll(0):
        sub.recv_multipart()
    return True


def test_leader_that_transfers_leadership_sends_its_clients_to_the_next_one(cluster: Cluster) -> None:
    before = cluster.leader()
    with MoniqueClient(http_of(cluster.nodes), reconnect_for_s=30) as client:
        client.subscribe(("a_b", "data"))
        heir = cluster.followers()[0]
        with Client(cluster.addresses) as operator:
            operator.cluster("transfer", node=cluster.nodes.index(heir))
        eventually(lambda: cluster.leader() is not before, "another node leads")

        after = http_of([cluster.leader()])
        with MoniqueClient(after) as other:  # which waits for the ports that were the other's until now
            eventually(lambda: bool(client.ping()) and client.address == after, "the client was sent there")
            sent = other.push("a_b", 1, type="data")

        assert client.receive(20) == sent
        assert before.running
