"""The recipes of docs/guide/pipeline-cluster.md, as they stand, on a master and two workers of their own."""

import socket
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.certificates import Authority
from tests.helpers.spark_cluster.bodies import bodies_of
from tests.helpers.spark_cluster.pythons import OF_JOURNAL, make_python
from tests.helpers.spark_cluster.recipes import run_recipe
from tests.helpers.spark_cluster.standalone import KEEPS_HOME, StandaloneCluster
from tests.spark.cluster.conftest import Pythons
from wakeq.client.bulk import BulkClient

pytestmark = [pytest.mark.spark, pytest.mark.long]
MESSAGES = 1000
# The name of the master, the address of the broker and the checkpoint on the page.
MASTER, BROKER, CHECKPOINT = "spark://master:7077", "broker.example:2601", "s3a://lake/upper"


@pytest.fixture
def client(address: str) -> BulkClient:
    """A client of a broker that has the messages."""
    return published(BulkClient(address))


def published(client: BulkClient) -> BulkClient:
    client.publish_many("in", [f"m{i}" for i in range(MESSAGES)])
    return client


@pytest.fixture
def names(
    standalone: StandaloneCluster, pythons: Pythons, client: BulkClient, address: str, tmp_path: Path
) -> dict[str, str]:
    whole = {"/opt/wakeq": str(pythons.whole)}
    return whole | {MASTER: standalone.url, BROKER: address, CHECKPOINT: str(tmp_path / "checkpoint")}


def check_all_arrived(run: "subprocess.CompletedProcess[str]", client: BulkClient) -> None:
    said = run.stdout + run.stderr[-3000:]
    assert run.returncode == 0, said
    lines = [line.split()[0] for line in run.stdout.splitlines()]
    assert lines == ["host", "driver", "executor", "executor", "ready"], said
    assert bodies_of(client, "out") == Counter(f"M{i}" for i in range(MESSAGES))


def test_recipe_for_executors_with_wakeq_runs(
    standalone: StandaloneCluster, client: BulkClient, names: Mapping[str, str], tmp_path: Path
) -> None:
    run = run_recipe("Executors that have wakeq", tmp_path, names, standalone.environment())

    check_all_arrived(run, client)


def test_recipe_for_executors_without_wakeq_runs(
    standalone: StandaloneCluster, pythons: Pythons, client: BulkClient, names: Mapping[str, str], tmp_path: Path
) -> None:
    names = {**names, "/usr/bin/python3": str(pythons.bare / "bin" / "python")}

    run = run_recipe("Executors without wakeq", tmp_path, names, standalone.environment())

    check_all_arrived(run, client)


def test_recipe_with_an_archive_runs(
    standalone: StandaloneCluster, pythons: Pythons, client: BulkClient, names: Mapping[str, str], tmp_path: Path
) -> None:
    # As venv-pack does, and without a copy of 200 MB: the links in it are packed as links.
    make_python(tmp_path / "job-env", *OF_JOURNAL)
    with tarfile.open(tmp_path / "job-env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "job-env", "")
    # The environment has no PySpark, so its Python imports that of SPARK_HOME.
    keeps = {"--archives": f"--conf spark.executorEnv.{KEEPS_HOME}=yes --archives"}

    run = run_recipe(
        "An archive for the executors", tmp_path, {**names, **keeps}, standalone.environment() | {KEEPS_HOME: "yes"}
    )

    check_all_arrived(run, client)


def test_recipe_with_token_and_tls_runs(standalone: StandaloneCluster, pythons: Pythons, tmp_path: Path) -> None:
    authority, host = Authority(tmp_path / "authority"), socket.gethostname()
    pair, token, data_dir = authority.issue("broker", f"DNS:{host}"), tmp_path / "token", tmp_path / "data"
    wakeq = [sys.executable, "-m", "wakeq", "token", "create", "spark", "--data-dir", str(data_dir)]
    subprocess.run([*wakeq, "--rights", "publish,fetch", "--out", str(token)], check=True, capture_output=True)
    tls = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    with BrokerProcess(data_dir, "--host", "0.0.0.0", "--auth", *tls) as broker:
        address = f"{host}:{broker.worker_address[1]}"
        client = published(BulkClient(address, token=token, tls=str(authority.ca.cert)))
        names = {MASTER: standalone.url, BROKER: address, CHECKPOINT: str(tmp_path / "checkpoint")}
        names |= {"/opt/wakeq": str(pythons.whole)}
        secured = {BROKER: address, "/etc/wakeq/token": str(token), "/etc/wakeq/ca.pem": str(authority.ca.cert)}

        run = run_recipe("Executors that have wakeq", tmp_path, names, standalone.environment(), secured=secured)

        check_all_arrived(run, client)
    assert token.read_text().strip() not in run.stdout + run.stderr


def test_check_says_that_executors_have_no_wakeq(
    standalone: StandaloneCluster, pythons: Pythons, names: Mapping[str, str], tmp_path: Path
) -> None:
    bare = pythons.bare / "bin" / "python"
    names = {**names, "/usr/bin/python3": str(bare), " ship": ""}

    run = run_recipe("Executors without wakeq", tmp_path, names, standalone.environment())

    assert run.returncode == 1
    lines = run.stdout.splitlines()
    assert len([line for line in lines if line.endswith(f"has no wakeq and no msgspec: install it in {bare}, or send "
                                                        "it with register(spark, ship=True)")]) == 2  # fmt: skip
    assert lines[-1].startswith("Spark cannot plan format wakeq on the driver: ")
    assert "No module named 'wakeq'" in lines[-1]
