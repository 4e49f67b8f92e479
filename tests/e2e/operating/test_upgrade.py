"""A data directory of version 1 is refused, or imported as a whole and once, with the old files kept."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect
from tests.helpers.brokers.process import BrokerProcess

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "files.json").read_text())["vectors"]
GOLDEN = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in VECTORS}
FILES = {
    "raft.log": "log_three_entries",
    "raft.metadata": "metadata_voted_for_0",
    "raft.snapshot": "snapshot_three_queues",
}


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    consensus = tmp_path / "data" / "consensus"
    consensus.mkdir(parents=True)
    for name, vector in FILES.items():
        (consensus / name).write_bytes(GOLDEN[vector])
    return tmp_path / "data"


def test_version_1_directory_is_refused_unchanged_without_permission(version_1: Path) -> None:
    broker = BrokerProcess(version_1, "--no-upgrade")

    status = broker.run_to_end()

    assert status == 66
    assert "--no-upgrade" in broker.stderr
    assert {name: (version_1 / "consensus" / name).read_bytes() for name in FILES} == {
        name: GOLDEN[vector] for name, vector in FILES.items()
    }


def test_version_1_directory_is_imported_once_and_its_files_are_kept(version_1: Path, connect: Connect) -> None:
    broker = BrokerProcess(version_1)
    try:
        client = connect(broker.start())
        first = client.ask("FET", "")
        orders = [client.ask("FET", "orders") for _ in range(3)]
        for message in orders:
            client.ask("ACK", "orders", uid=message["uid"])
        broker.kill()
        client = connect(broker.start())
        queues = {row["qname"]: row["size"] + row["leased"] for row in client.ask("LIST")["queues"]}
    finally:
        broker.close()

    assert first["priority"] == -10
    assert [message.get("priority", 0) for message in orders] == [-(2**63), 5, 2**63 - 1]
    assert queues == {"": 4, "empty": 0, "orders": 0}
    assert {path.name for path in (version_1 / "consensus").glob("*.v1")} == {f"{name}.v1" for name in FILES}
