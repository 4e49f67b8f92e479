"""Pods of deploy/kubernetes in network namespaces: started in any order, moved, emptied, added, as the page says.

docs/operations/kubernetes.md has the same steps with kubectl.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.clusters.pods import ENTER, Pods
from tests.helpers.disks.power_cut import LoopDisk
from tests.helpers.network.name_server import NameServer
from tests.helpers.network.namespaces import Network, missing
from tests.helpers.programs.started import eventually
from wakeq.protocol.errors import DiskDisowned

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(missing()), reason=missing() or "never")]

# Much longer than it takes, on a machine that does much else.
PATIENCE_S = 120.0


@pytest.fixture
def components() -> tuple[str, ...]:
    """With the secret of the cluster; some tests choose TLS as well."""
    return ()


@pytest.fixture
def pods(tmp_path: Path, network: Network, names: NameServer, components: tuple[str, ...]) -> Iterator[Pods]:
    made = Pods(tmp_path, network, names, *components)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(5) as made:
        yield made


@pytest.fixture
def names(network: Network) -> Iterator[NameServer]:
    with NameServer(network.host) as made:
        yield made


def test_pod_holds_no_disk_that_another_test_takes_away(tmp_path: Path) -> None:
    for name in ("wakeq", "wakeq-tls"):
        (tmp_path / name).mkdir()
    for name in ("hosts", "resolv.conf"):
        (tmp_path / name).touch()
    with LoopDisk(tmp_path, size_bytes=16 << 20) as disk:
        entered = ["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", "wakeq-0", str(tmp_path), "sh", "-c"]
        pod = subprocess.Popen(
            [*entered, "echo entered; read gate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert pod.stdout is not None
        assert pod.stdout.readline() == "entered\n"

        disk.power_on()

        assert disk.mounted
        pod.communicate("go\n", timeout=PATIENCE_S)
    assert pod.returncode == 0


def status(pods: Pods, ordinal: int = 0) -> dict[str, Any]:
    """Return the cluster as its leader sees it; empty while there is none."""
    try:
        return dict(json.loads(pods.exec(ordinal, "wakeq", "cluster", "status", "--json")))
    except AssertionError:
        return {}


def is_whole(pods: Pods, count: int = 3, ordinal: int = 0) -> bool:
    """Whether so many nodes vote, are connected and up to date."""
    found = status(pods, ordinal)
    voters = [one for one in found.get("members", []) if one["votes"] and one["is_connected"]]
    return bool(found.get("serves")) and len(voters) == count and all(one["behind_bytes"] < 100_000 for one in voters)


def wait(condition: Callable[[], bool], what: str) -> None:
    eventually(condition, what, PATIENCE_S)


def start(pods: Pods, order: tuple[int, ...] = (0, 1, 2)) -> None:
    """Start pods one after another, and wait until they are one broker."""
    for ordinal in order:
        pods.create(ordinal)
        pods.wait_up(ordinal)
        assert pods.probe(ordinal, "liveness"), "a pod that waits for the others is alive"
    wait(lambda: is_whole(pods), "all three nodes are one broker")
    wait(lambda: all(pods.probe(ordinal, "readiness") for ordinal in order), "all pods are ready")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=str)
def test_pods_that_start_in_any_order_are_one_broker(pods: Pods, order: tuple[int, ...]) -> None:
    start(pods, order)

    pods.exec(order[0], "wakeq", "pub", "q", "hello")

    assert "hello" in pods.exec(order[-1], "wakeq", "fetch", "q", "--ack")


@pytest.mark.parametrize("components", [(), ("tls",)], ids=["secret", "tls"])
def test_pods_that_come_back_under_other_addresses_are_found_and_lose_nothing(pods: Pods) -> None:
    start(pods)
    for ordinal in (2, 1, 0):
        pods.exec(ordinal, "wakeq", "pub", "q", f"before {ordinal}")

        assert pods.delete(ordinal) == 0
        pods.create(ordinal)
        pods.wait_up(ordinal)
        wait(lambda: pods.probe(ordinal, "readiness"), f"wakeq-{ordinal} is ready")  # noqa: B023
        # So the next one may go.
        assert is_whole(pods, ordinal=ordinal)

    for ordinal in (2, 1, 0):
        assert f"before {ordinal}" in pods.exec(ordinal, "wakeq", "fetch", "q", "--ack")


def test_pods_that_all_return_under_other_addresses_are_one_broker(pods: Pods) -> None:
    start(pods)
    pods.exec(0, "wakeq", "pub", "q", "kept")
    for ordinal in range(3):
        pods.delete(ordinal)

    start(pods, (1, 2, 0))

    assert "kept" in pods.exec(1, "wakeq", "fetch", "q", "--ack")


def test_pod_with_a_lost_volume_says_what_to_do_and_rejoins(pods: Pods) -> None:
    start(pods)
    pods.exec(0, "wakeq", "pub", "q", "kept")
    pods.delete(2)
    lost = pods.nodes[2]
    shutil.rmtree(lost.data_dir)

    pods.create(2)
    assert lost.wait(PATIENCE_S) == DiskDisowned.exit_status
    assert "run `wakeq cluster remove 2` and `wakeq cluster add 2 HOST:PORT`" in lost.stderr

    pods.exec(0, "wakeq", "cluster", "remove", "2", "--yes")
    pods.exec(0, "wakeq", "cluster", "add", "2", pods.peer_address(2))
    shutil.rmtree(lost.data_dir)
    pods.create(2)
    pods.wait_up(2)
    wait(lambda: is_whole(pods), "wakeq-2 votes again")
    # The majority needs the new disk now.
    pods.delete(1)
    wait(lambda: bool(status(pods).get("serves")), "two of three serve")
    assert "kept" in pods.exec(2, "wakeq", "fetch", "q", "--ack")


def test_restored_pod_is_joined_by_the_others(pods: Pods, components: tuple[str, ...], tmp_path: Path) -> None:
    start(pods)
    pods.exec(0, "wakeq", "pub", "q", "kept")
    wait(lambda: is_whole(pods), "all have it")
    pods.exec(0, "wakeq", "backup", str(tmp_path / "backup"))
    for ordinal in range(3):
        pods.delete(ordinal)
        shutil.rmtree(pods.nodes[ordinal].data_dir)

    pods.exec(0, "wakeq", "restore", str(tmp_path / "backup"), "--data-dir", str(pods.nodes[0].data_dir), "--node", "0")
    pods.apply(*components, "join")
    for ordinal in range(3):
        pods.create(ordinal)
    for ordinal in range(3):
        pods.wait_up(ordinal)
    for ordinal in (1, 2):
        assert not pods.probe(ordinal, "readiness"), "a pod that does not belong to the cluster yet is ready"
        pods.exec(0, "wakeq", "cluster", "add", str(ordinal), pods.peer_address(ordinal))
        wait(lambda: pods.probe(ordinal, "readiness"), f"wakeq-{ordinal} is ready")  # noqa: B023
        assert is_whole(pods, ordinal + 1)

    assert "kept" in pods.exec(2, "wakeq", "fetch", "q", "--ack")


@pytest.mark.parametrize("components", [(), ("tls",)], ids=["secret", "tls"])
def test_pods_grow_from_three_to_five(pods: Pods, components: tuple[str, ...]) -> None:
    start(pods)
    pods.exec(0, "wakeq", "pub", "q", "kept")
    for ordinal in (3, 4):
        pods.exec(0, "wakeq", "cluster", "add", str(ordinal), pods.peer_address(ordinal))
    pods.apply(*components, "five-nodes")

    for ordinal in (3, 4):
        pods.create(ordinal)
    for ordinal in (3, 4):
        pods.wait_up(ordinal)
    wait(lambda: is_whole(pods, 5), "all five vote")
    for ordinal in (2, 1, 0):
        pods.delete(ordinal)
        pods.create(ordinal)
        pods.wait_up(ordinal)
        wait(lambda: pods.probe(ordinal, "readiness"), f"wakeq-{ordinal} is ready")  # noqa: B023

    assert "kept" in pods.exec(4, "wakeq", "fetch", "q", "--ack")


def test_nodes_find_each_other_again_while_no_name_server_answers(
    pods: Pods, network: Network, names: NameServer
) -> None:
    start(pods)
    follower = (status(pods)["leader"] + 1) % 3
    names.is_silent = True
    network.isolate(follower)
    wait(lambda: "is lost" in pods.nodes[follower].stderr, "the connections of a follower are lost")
    network.heal()

    def is_back() -> bool:
        lines = pods.nodes[follower].stderr
        return lines.rindex("connected") > lines.rindex("is lost")

    wait(is_back, "the follower is connected again")
