"""Whatever is killed on a cluster, from queue to queue no row is lost and none comes twice."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clusters.processes import Cluster
from tests.helpers.programs.started import eventually
from tests.helpers.spark_cluster.bodies import bodies_of
from tests.helpers.spark_cluster.driver import Driver
from tests.helpers.spark_cluster.standalone import StandaloneCluster
from tests.spark.cluster.conftest import Pythons
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.checkpoint import Checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.long]
# The query takes 500 in a batch.
MESSAGES = 2000
KILLED = -9
DEADLINE_S = 300.0


class Query:
    """The runs of one query, with one checkpoint."""

    def __init__(self, cluster: StandaloneCluster, pythons: Pythons, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        self._cluster, self._python = cluster, pythons.whole / "bin" / "python"
        self.checkpoint = folder / "checkpoint"
        self._runs = 0

    def run(self, *, dies_when: str = "", work: str = "") -> Driver:
        self._runs += 1
        told = {"broker": self.address, "folder": str(self.folder), "checkpoint": str(self.checkpoint)}
        arguments = [json.dumps(told | {"point": dies_when, "work": work})]
        log = self.folder / f"driver-{self._runs}.log"
        return Driver(self._cluster, self._python, "faulty_query.py", arguments, log)

    def run_to_end(self) -> None:
        with self.run() as driver:
            assert driver.end() == 0, driver.said

    def run_until(self, point: str) -> None:
        with self.run(dies_when=point) as driver:
            assert driver.end() == KILLED, driver.said


@pytest.fixture
def query(standalone: StandaloneCluster, pythons: Pythons, address: str, tmp_path: Path) -> Query:
    return new_query(standalone, pythons, address, tmp_path)


def new_query(cluster: StandaloneCluster, pythons: Pythons, address: str, folder: Path) -> Query:
    """Publish the messages that the query reads."""
    BulkClient(address).publish_many("in", [f"m{i}" for i in range(MESSAGES)])
    return Query(cluster, pythons, address, folder)


def check_each_arrived_once(query: Query) -> None:
    assert bodies_of(BulkClient(query.address), "out") == Counter(f"m{i}" for i in range(MESSAGES))


def test_rows_arrive_once_although_python_executor_and_broker_are_killed(query: Query, broker: BrokerProcess) -> None:
    with query.run(work="kills") as driver:
        eventually((query.folder / "kill-broker").exists, "the query is in its third batch", DEADLINE_S)
        broker.kill()
        broker.start()
        (query.folder / "killed-broker").touch()
        assert driver.end() == 0, driver.said

    assert {"python-is-killed", "executor-is-killed"} <= {path.name for path in query.folder.iterdir()}
    check_each_arrived_once(query)


def test_rows_arrive_once_although_driver_is_killed_at_each_point_and_starts_at_once(query: Query) -> None:
    for point in ("stashed", "published"):
        query.run_until(point)
    query.run_to_end()

    check_each_arrived_once(query)


def test_rows_arrive_once_although_driver_is_away_for_longer_than_its_claim(query: Query) -> None:
    for point in ("staged", "planned", "stashed", "published", "logged"):
        query.run_until(point)
        # As the timeout of the claim does, which is a day.
        for offset in Checkpoint(str(query.checkpoint)).planned():
            BulkClient(query.address).release(offset["queue"], offset["source"])
    query.run_to_end()

    check_each_arrived_once(query)


def test_rows_arrive_once_although_two_drivers_use_one_checkpoint(query: Query) -> None:
    with query.run(work="holds") as first:
        eventually(lambda: workers(query) > 0, "the first driver works", DEADLINE_S)
        with query.run(work="holds") as second:
            eventually(lambda: workers(query) > 2, "the second driver works, too", DEADLINE_S)
            (query.folder / "go").touch()
            ended = [first.end(), second.end()]
    assert any(ended), "none of them has noticed the other one"
    query.run_to_end()

    check_each_arrived_once(query)


def workers(query: Query) -> int:
    return len(list(query.folder.glob("working-*")))


def test_rows_arrive_once_although_the_leader_of_three_brokers_is_killed_in_each_batch(
    standalone: StandaloneCluster, pythons: Pythons, tmp_path: Path
) -> None:
    with Cluster(tmp_path, host=socket.gethostname()) as brokers:
        query = new_query(standalone, pythons, brokers.addresses, tmp_path)
        with query.run(work="leads") as driver:
            for body in ("m300", "m800", "m1300"):
                eventually((tmp_path / f"kill-{body}").exists, f"the query has come to {body}", DEADLINE_S)
                leader = brokers.leader()
                leader.kill()
                # The tasks go on while nobody leads.
                (tmp_path / f"killed-{body}").touch()
                leader.start()
            assert driver.end() == 0, driver.said

        check_each_arrived_once(query)


@pytest.fixture(scope="module")
def speculated(
    standalone: StandaloneCluster, pythons: Pythons, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """Run the jobs and the query with tasks that fail and straggle; yield the address of their broker."""
    folder = tmp_path_factory.mktemp("speculated")
    with BrokerProcess(folder / "data", "--host", "0.0.0.0", "--insecure") as broker:
        address = f"{socket.gethostname()}:{broker.worker_address[1]}"
        BulkClient(address).publish_many("in", [f"m{i}" for i in range(MESSAGES)])
        settings = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
            # A task that fails has passed on the rows before.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
            "spark.buffer.size": "512",
        }
        python, log = pythons.whole / "bin" / "python", folder / "driver.log"
        with Driver(standalone, python, "faulty_jobs.py", [address, str(folder)], log, settings) as driver:
            assert driver.end() == 0, driver.said
        yield address, folder


def test_job_with_failing_and_straggling_tasks_publishes_each_row_once(speculated: tuple[str, Path]) -> None:
    address, folder = speculated

    assert (folder / "good-copy").exists()
    assert bodies_of(BulkClient(address), "good") == Counter(f"r{i}" for i in range(2000))
    # Rows of attempts that did not count are dropped.
    assert BulkClient(address).stats("good")["size"] == 2000


def test_job_of_which_a_task_fails_for_good_publishes_nothing_and_leaves_nothing(speculated: tuple[str, Path]) -> None:
    address, folder = speculated

    assert "this attempt fails on purpose" in (folder / "bad-error").read_text()
    assert not bodies_of(BulkClient(address), "bad")
    assert BulkClient(address).stats("bad")["size"] == 0


def test_query_with_speculation_publishes_each_row_once(speculated: tuple[str, Path]) -> None:
    address, folder = speculated

    assert (folder / "stream-copy").exists()
    assert bodies_of(BulkClient(address), "stream") == Counter(f"m{i}" for i in range(MESSAGES))
    assert BulkClient(address).stats("stream")["size"] == MESSAGES
