"""Inspect: facts of a data directory, in use or not; an inspection changes nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from tests.helpers.brokers.broker import Broker
from wakeq.data.inspect import inspect

Q = "emails"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running broker with one leased and one ready message, both in the state store."""
    made = Broker(tmp_path)
    client = made.client()
    client.publish(Q, "first")
    client.publish(Q, "second")
    client.fetch(Q)
    made.advance(1)
    made.flush()
    yield made
    made.close()


def files_of(path: Path) -> dict[str, bytes]:
    """Return every file except LMDB's own table of readers."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "lock.mdb")
    return {str(file): file.read_bytes() for file in files}


def output_of(path: Path, *options: str) -> str:
    """Return the output of the command, run in its own process: one process cannot open the state store twice."""
    command = [sys.executable, "-m", "wakeq", "inspect", str(path), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_inspection_beside_a_running_broker_changes_nothing(broker: Broker) -> None:
    before = files_of(broker.path)

    facts = json.loads(output_of(broker.path, "--json"))

    (default, emails) = facts["state"]["queues"]
    assert default["qname"] == ""
    assert {name: emails[name] for name in ("qname", "messages", "bytes", "leased")} == {
        "qname": Q, "messages": 2, "bytes": len("firstsecond"), "leased": 1
    }  # fmt: skip
    assert emails["totals"]["published"] == 2
    assert emails["policies"]["timeout"] == 60
    assert facts["log"]["last_index"] == facts["state"]["applied_index"]
    assert facts["snapshot"] == {"present": False}
    assert files_of(broker.path) == before


def test_damage_is_reported_for_its_file_and_the_rest_is_shown(broker: Broker) -> None:
    broker.crash()
    (broker.path / "consensus" / "raft.metadata").write_bytes(b"rubbish" * 100)

    facts = inspect(broker.path)

    assert facts["metadata"]["code"] == "DAMAGED"
    assert "raft.metadata" in facts["metadata"]["error"]
    assert [queue["qname"] for queue in facts["state"]["queues"]] == ["", Q]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (msgpack.packb({"queue": Q, "reason": "KeyError"}), None),
        (b"\xdf\xff\xff\xff\xff", "truncated"),
        (b"\x91" * 100_000, "cannot be read"),
        (msgpack.packb({"queue": Q, "at": msgpack.Timestamp(1, 5)}), "not a map of texts"),
        (msgpack.packb([1]), "not a map of texts"),
    ],
    ids=["good", "claimed length", "nested", "timestamp", "array"],
)
def test_record_of_a_skipped_entry_is_shown_or_reported_as_damaged(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, record: bytes, reason: str | None
) -> None:
    monkeypatch.setattr("wakeq.data.inspect.load_skipped", lambda view: {12: record})
    broker.crash()

    state = inspect(broker.path)["state"]

    assert state["applied_index"] > 0
    if reason is None:
        assert state["set_aside"] == {12: {"queue": Q, "reason": "KeyError"}}
    else:
        assert state["code"] == "DAMAGED"
        assert "entry 12" in state["error"]
        assert reason in state["error"]


def test_report_for_people_has_a_line_for_each_queue(broker: Broker) -> None:
    lines = [line.split("\t") for line in output_of(broker.path).splitlines()]

    names = [line[0] for line in lines]
    assert ["node", "1"] in lines
    assert names[names.index("qname") + 1 :] == ['""', Q]
