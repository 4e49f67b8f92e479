"""Spark Connect: the session is a client, and a server that is the driver runs on a master and two workers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import eventually
from tests.helpers.spark_cluster.bodies import bodies_of
from tests.helpers.spark_cluster.driver import PROGRAMS, Driver
from tests.helpers.spark_cluster.standalone import StandaloneCluster
from tests.spark.cluster.conftest import Pythons
from wakeq.client.bulk import BulkClient

pytest.importorskip("grpc", reason="what Spark Connect needs is not installed: pip install 'pyspark[connect]'")

pytestmark = [pytest.mark.spark, pytest.mark.long]
DEADLINE_S = 300.0


def run_connected(
    cluster: StandaloneCluster, python: Path, address: str, folder: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Start a server whose executors have this Python, and run the program with it."""
    port = free_port()
    (jar,) = cluster.spark_home.glob("jars/spark-connect_*.jar")
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    settings["spark.pyspark.python"] = str(python)
    main_class = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    with Driver(cluster, python, str(jar), (), folder / "server.log", settings, main_class) as server:
        eventually(lambda: "Spark Connect server started" in server.said, "the server listens", DEADLINE_S)
        environment = {n: v for n, v in cluster.environment().items() if not n.startswith("SPARK")}
        return subprocess.run(
            [sys.executable, str(PROGRAMS / "connected.py"), address, str(folder / "checkpoint"), *arguments],
            env=environment | {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


def check_rows(run: "subprocess.CompletedProcess[str]") -> None:
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert [line.split()[0] for line in run.stdout.splitlines()] == [
        "host",
        "driver",
        "executor",
        "executor",
        "ready",
        "rows",
    ]
    assert run.stdout.endswith("rows 1000\n")


def test_program_of_a_connect_server_reads_writes_and_streams(
    standalone: StandaloneCluster, pythons: Pythons, address: str, tmp_path: Path
) -> None:
    run = run_connected(standalone, pythons.whole / "bin" / "python", address, tmp_path)

    check_rows(run)
    assert bodies_of(BulkClient(address), "out") == Counter(f"m{i}" for i in range(1000))


def test_program_of_a_connect_server_sends_wakeq_to_executors_without_it(
    standalone: StandaloneCluster, pythons: Pythons, address: str, tmp_path: Path
) -> None:
    check_rows(run_connected(standalone, pythons.bare / "bin" / "python", address, tmp_path, "ship"))
