"""A broker that is killed while its disk hangs: which deliveries it has forgotten."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient
from tests.helpers.disks.hanging import HangingDisk, unavailable_reason

Q = "q"
MESSAGES = 20_000  # far more than can be fetched one by one in 100 ms
MUTE_S = 2.0  # an answer that has not come by then waits for the disk

pytestmark = pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason() or "never")


@pytest.fixture
def disk(tmp_path: Path) -> HangingDisk:
    return HangingDisk(tmp_path / "disk")


@pytest.fixture
def broker(tmp_path: Path, disk: HangingDisk) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", prefix=disk.prefix) as made:
        yield made


def fetch_until_mute(client: LineClient) -> list[str]:
    """Fetch one by one until there is no answer."""
    uids: list[str] = []
    while len(uids) < MESSAGES:
        try:
            uids.append(client.ask("FET", Q)["uid"])
        except TimeoutError:
            return uids
    raise AssertionError("all of them were handed out while the disk hung")


def test_fast_queue_stops_delivering_while_the_disk_hangs_and_keeps_earlier_deliveries(
    broker: BrokerProcess, disk: HangingDisk
) -> None:
    with LineClient(broker.worker_address) as client:
        for _ in range(MESSAGES // 1_000):
            assert client.ask("PUB", Q, messages=[{"message": "m"}] * 1_000)["cmd"] == "ok"
        before = [client.ask("FET", Q)["uid"] for _ in range(20)]
        assert client.ask("PUB", "other", message="synced with them")["cmd"] == "ok"

    disk.hang()
    with LineClient(broker.worker_address, timeout_s=MUTE_S) as client:
        meanwhile = fetch_until_mute(client)
    broker.kill()
    disk.answer()
    broker.start()

    with LineClient(broker.worker_address) as client:
        again = {message["uid"] for message in client.ask("FET", Q, count=1_000)["messages"]}
    assert not again & set(before)
    print(f"{len(meanwhile)} were handed out before the queue waited, {len(again & set(meanwhile))} are forgotten")
