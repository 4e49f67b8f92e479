"""Brokers and clusters by hand for the tests of the processes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.broker import Broker, Client
from tests.helpers.hand_cluster import HandCluster, HandNode

MEMORY = "/dev/shm"  # a sync costs nothing there; what a real disk does is proved elsewhere


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a data directory that syncs fast."""
    made = Path(tempfile.mkdtemp(prefix="wakeq-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def broker(directory: Path) -> Iterator[Broker]:
    made = Broker(directory)
    yield made
    made.close()


@pytest.fixture
def client(broker: Broker) -> Client:
    return broker.client()


@pytest.fixture
def worker(broker: Broker) -> Client:
    return broker.client()


@pytest.fixture
def cluster(directory: Path) -> Iterator[HandCluster]:
    made = HandCluster(directory)
    made.start()
    yield made
    made.close()


@pytest.fixture
def leader(cluster: HandCluster) -> HandNode:
    found = cluster.leader()
    assert found is not None
    return found
