"""Brokers and clusters by hand for the tests of the processes, and an entry that crashes a queue."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.monique.place import Place
from tests.helpers.taskflux.by_hand import HandTaskFlux
from wakeq.actors.queue import ending, process, staging
from wakeq.protocol.log.entries import Publish
from wakeq.protocol.queue import steps
from wakeq.protocol.queue.ledger import ledger
from wakeq.protocol.queue.ledger.ledger import Ledger


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a data directory that syncs fast."""
    with memory_folder() as made:
        yield made


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
def flux(broker: Broker) -> HandTaskFlux:
    return HandTaskFlux(broker)


@pytest.fixture
def place(broker: Broker) -> Place:
    return Place(broker)


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


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a ledger fail on a certain body as often as the first number says; -1 is always."""
    times = [0]
    publish = Ledger.publish

    def fragile(self: Ledger, entry: Publish, at_ms: int, **about: Any) -> Any:
        if times[0] and any(draft.body == b"poison" for draft in entry.drafts):
            times[0] -= 1
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms, **about)

    monkeypatch.setattr(Ledger, "publish", fragile)
    return times


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let entries about more than two messages be applied in steps."""
    for module in (steps, process, staging, ledger):
        monkeypatch.setattr(module, "STEP_MESSAGES", 2)
    monkeypatch.setattr(ending, "STEP_ENDINGS", 2)
