"""All doors of a cluster: each names the leader in the terms of its protocol, and all of them lead to the same queues.

WAKEQ_SEED sets the moments of the kills.
"""

import asyncio
import http.client
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import FrameConversation, LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.journal.files import rows_of
from tests.helpers.loads.crash_loop import Outcome, crash_loop
from tests.helpers.programs.started import eventually
from tests.helpers.taskflux.load import FluxLoad
from wakeq import Client
from wakeq.cli import main
from wakeq.cli.broker.top.command import readings_of
from wakeq.client.admin import AdminClient
from wakeq.client.taskflux.blocking import TaskFluxClient

LOOK = "/api/v1/queues?limit=10"
HOLD_S = 5  # the shortest lease that a queue may have
KILLS = 5 if "SOAK" not in os.environ else 500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        eventually(lambda: all(knows_the_leader(node) for node in made.followers()), "every node knows who leads")
        yield made


def knows_the_leader(node: BrokerProcess) -> bool:
    with LineClient(node.worker_address) as client:
        return bool(client.ask("LIST").get("leader"))


def text(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


def test_each_node_shows_its_history_at_its_http_port(cluster: Cluster) -> None:
    with Client(text(cluster.leader().worker_address)) as client:
        client.publish_many("jobs", ["m"] * 10)
    urls = [f"http://{text(node.http_address)}" for node in cluster.nodes]
    directories = [node.data_dir for node in cluster.nodes]

    def is_settled(path: Path) -> bool:
        return [row["outcome"] for row in rows_of(path) if row["event"] == "published"] == ["done"] * 10

    for directory in directories:
        eventually(lambda directory=directory: is_settled(directory), "the publish is flushed")  # type: ignore[misc]

    rows = [row for row in rows_of(*urls) if row["event"] == "published"]
    assert rows == [row for row in rows_of(*directories) if row["event"] == "published"]
    for url in urls:
        assert [row for row in rows_of(url) if row["event"] == "published"] == rows


def test_follower_names_the_leaders_address_at_each_door(cluster: Cluster) -> None:
    leader, follower = cluster.leader(), cluster.followers()[0]

    async def by_frame() -> dict[str, object]:
        frames = await FrameConversation.connect(follower.http_address)
        await frames.send({"cmd": "PUB", "qname": "q", "message": "m"})
        try:
            return await frames.receive()
        finally:
            await frames.close()

    in_frame = asyncio.run(by_frame())
    with LineClient(follower.worker_address) as client:
        in_line = client.ask("PUB", "q", message="m")
    with TaskFluxClient(text(follower.taskflux_address)) as flux:
        nodes = flux.metadata()
    by_http = http.client.HTTPConnection(*follower.http_address)
    by_http.request("GET", LOOK)
    answer = by_http.getresponse()
    by_http.close()
    with AdminClient(text(follower.http_address)) as operator:
        shown = operator.call("GET", "/queues")["queues"]

    assert (in_line["err"], in_line["leader"]) == ("NOT_LEADER", text(leader.worker_address))
    assert (in_frame["err"], in_frame["leader_http"]) == ("NOT_LEADER", text(leader.http_address))
    assert nodes.addresses == [text(node.taskflux_address) for node in cluster.nodes]
    assert (answer.status, answer.headers["Location"]) == (421, f"http://{text(leader.http_address)}{LOOK}")
    assert [queue["qname"] for queue in shown] == [""]
    assert (nodes.leader, nodes.answered) == (cluster.nodes.index(leader), cluster.nodes.index(follower))


def test_client_that_knows_one_node_finds_the_leader(cluster: Cluster) -> None:
    first, second = cluster.followers()

    with TaskFluxClient(text(first.taskflux_address)) as flux:
        flux.create("q")
        flux.enqueue("q", "by TaskFlux")
    with Client(text(second.worker_address)) as client:
        message = client.fetch("q")

    assert message is not None
    assert message.body == b"by TaskFlux"


def test_operator_commands_find_the_leader_from_any_node(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    follower = cluster.followers()[0]
    where = ["--broker", text(follower.worker_address), "--http", text(follower.http_address)]

    def ran(*arguments: str) -> str:
        capsys.readouterr()
        assert main([*where, *arguments]) == 0, arguments
        return capsys.readouterr().out

    uid = ran("pub", "q", "m").strip()
    ran("queue", "pause", "q")

    assert "q\t" in ran("queue", "list")
    assert ran("why", "q", uid).startswith("paused")
    assert json.loads(ran("queue", "move", "q", "r", "--yes", "--json"))["done"] == 1
    seen = json.loads(ran("top", "--json"))
    assert (seen["node"]["role"], {row["queue"]: row["ready"] for row in seen["queues"]}["r"]) == ("leader", 1)


def test_top_continues_at_the_next_leader(cluster: Cluster) -> None:
    everywhere = ",".join(text(node.http_address) for node in cluster.nodes)
    with AdminClient(everywhere) as operator:
        looks = readings_of(operator, "")
        first = next(looks)

        cluster.leader().kill()

        later = next(look for look in looks if look["cluster"]["term"] > first["cluster"]["term"])
        assert later["error"] == ""
        assert later["cluster"]["role"] == "leader"


def test_leases_of_a_batch_and_of_a_taskflux_client_survive_the_leader(cluster: Cluster) -> None:
    """A claim holds the same messages on the next leader; a record is delivered again when its lease has timed out."""
    leader, followers = cluster.leader(), cluster.followers()
    with Client(cluster.addresses) as client, TaskFluxClient(cluster.taskflux_addresses) as flux:
        client.create_queue("held", timeout=HOLD_S)
        client.publish_many("batch", ["a", "b", "c"])
        client.publish("held", "record")
        staged = stage(leader)
        taking = flux.dequeue("held")
        record = taking.__enter__()
        assert record is not None

        leader.kill()

        heir = cluster.leader(followers)
        assert (stage(heir), read(heir)) == (staged, ["a", "b"])
        assert [message.body for message in client.fetch_many("batch", 10)] == [b"c"]
        again = client.fetch("held", wait=2 * HOLD_S)
        assert again is not None
        assert again.body == b"record"


def stage(node: BrokerProcess) -> object:
    with LineClient(node.worker_address) as client:
        return client.ask("STAGE", "batch", source="s", epoch=1, count=2)["sizes"]


def read(node: BrokerProcess) -> list[str]:
    with LineClient(node.worker_address) as client:
        return [message["msg"] for message in client.ask("SLICE", "batch", source="s", epoch=1, slice=0)["messages"]]


@pytest.mark.long
def test_queue_shared_by_all_doors_loses_nothing_when_nodes_are_killed(cluster: Cluster) -> None:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")  # shown with a failure: WAKEQ_SEED repeats its moments
    draw = random.Random(seed)

    async def kill() -> None:
        victim = cluster.leading if draw.random() < 0.7 else draw.choice(cluster.nodes)
        victim.kill()
        await asyncio.to_thread(cluster.leader)
        await asyncio.to_thread(victim.start)

    async def open_frames() -> FrameConversation:
        return await FrameConversation.connect(cluster.leading.http_address)

    async def both() -> tuple[Outcome, FluxLoad]:
        flux = FluxLoad(cluster.connect, cluster.taskflux_addresses, seed, open_frames)
        await flux.start()
        outcome = await crash_loop(cluster, crashes=KILLS, seed=seed, crash=kill, up_s=(0.5, 1.5))
        await flux.stop()
        return outcome, flux

    outcome, flux = asyncio.run(both())

    print(outcome.explain(), dict(flux.done))
    outcome.demand_nothing_broken()
    assert not flux.wrong, flux.wrong[:10]
    roles = ("enqueue", "dequeue", "nack", "publish", "fetch", "publish in a frame", "fetch in a frame")
    assert all(flux.done[role] for role in roles), f"invalid run, somebody did nothing: {dict(flux.done)}"
