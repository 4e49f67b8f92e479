"""Brokers for the end-to-end tests: real processes on directories of their own, ended after each test.

doors, worker, operating    what clients, workers and operators do
newcomer                    README, guide and examples, followed to the letter
cluster                     several nodes
kills, abuse                what must not break a promise, and the harness that judges it
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.helpers.brokers.process import THIS_RELEASE, BrokerProcess
from tests.helpers.clients.honest import Honest
from tests.helpers.clients.lines import LineClient

StartBroker = Callable[..., BrokerProcess]
Connect = Callable[[BrokerProcess], LineClient]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Return a function that starts a broker on a fresh directory, or on the one that it is given."""
    brokers: list[BrokerProcess] = []

    def start(*extra_args: str, data_dir: Path | None = None, command: Sequence[str] = THIS_RELEASE) -> BrokerProcess:
        broker = BrokerProcess(data_dir or tmp_path / f"data-{len(brokers)}", *extra_args, command=command)
        brokers.append(broker)
        return broker.start()

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """Return a broker that no other test has touched."""
    return start_broker()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Return one broker for all tests of a file; each uses queues of its own and leaves it alive."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared") / "data")
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture
def clean_broker(shared_broker: BrokerProcess) -> BrokerProcess:
    """Return the broker of the file without any queue, alive again if the test before this one has ended it."""
    if not shared_broker.running:
        shared_broker.start()
    with LineClient(shared_broker.worker_address) as client:
        client.ask("PURGE", "")
        for row in client.ask("LIST")["queues"]:
            if row["qname"]:
                assert client.ask("DROP", row["qname"])["cmd"] == "okdrop"
    return shared_broker


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that opens connections which are closed after the test."""
    clients: list[LineClient] = []

    def open_one(broker: BrokerProcess) -> LineClient:
        clients.append(LineClient(broker.worker_address))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def honest(shared_broker: BrokerProcess) -> Iterator[Honest]:
    """Return an honest client, which works before the abuse and after it; the broker has not ended meanwhile."""
    client = Honest(shared_broker)
    client.works()
    yield client
    client.works()
    assert shared_broker.running, shared_broker.stderr
    assert "Traceback" not in shared_broker.stderr
