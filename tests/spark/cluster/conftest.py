"""One standalone cluster for all tests of this folder, with a broker that its executors reach."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.ports import free_port
from tests.helpers.spark_cluster.pythons import OF_SPARK, OF_WAKEQ, make_python
from tests.helpers.spark_cluster.standalone import StandaloneCluster


@dataclass
class Pythons:
    """The folders of two environments: one has only what Spark needs, the other one wakeq, too."""

    bare: Path
    whole: Path


@pytest.fixture(scope="session")
def standalone(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Pythons:
    folder = tmp_path_factory.mktemp("pythons")
    make_python(folder / "bare", *OF_SPARK)
    make_python(folder / "whole", *OF_SPARK, *OF_WAKEQ)
    return Pythons(folder / "bare", folder / "whole")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that listens on all interfaces: executors of another host could not reach a loopback address."""
    # The port is the same after a restart: drivers look for the broker there.
    arguments = ("--host", "0.0.0.0", "--insecure", "--worker-port", str(free_port()))
    with BrokerProcess(tmp_path / "data", *arguments) as process:
        yield process


@pytest.fixture
def address(broker: BrokerProcess) -> str:
    return f"{socket.gethostname()}:{broker.worker_address[1]}"
