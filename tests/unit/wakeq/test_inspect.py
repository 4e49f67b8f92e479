"""Proves `wakeq inspect`: what it says of a data directory, running or not, and that it changes nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.broker import Broker
from wakeq.inspect import inspect

Q = "emails"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that runs, with one message out, one in line, and all of it in the state store."""
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
    """Every file but LMDB's own table of readers."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "lock.mdb")
    return {str(file): file.read_bytes() for file in files}


def said_of(path: Path, *options: str) -> str:
    """What the command prints, in a process of its own: one process cannot open the state store twice."""
    command = [sys.executable, "-m", "wakeq", "inspect", str(path), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_directory_is_looked_into_beside_the_broker_that_runs_on_it_and_stays_as_it_is(broker: Broker) -> None:
    before = files_of(broker.path)

    facts = json.loads(said_of(broker.path, "--json"))

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


def test_what_is_damaged_is_said_of_its_file_and_the_rest_is_shown(broker: Broker) -> None:
    broker.crash()
    (broker.path / "consensus" / "raft.metadata").write_bytes(b"rubbish" * 100)

    facts = inspect(broker.path)

    assert facts["metadata"]["code"] == "DAMAGED"
    assert "raft.metadata" in facts["metadata"]["error"]
    assert [queue["qname"] for queue in facts["state"]["queues"]] == ["", Q]


def test_people_get_the_facts_and_a_line_for_each_queue(broker: Broker) -> None:
    lines = [line.split("\t") for line in said_of(broker.path).splitlines()]

    names = [line[0] for line in lines]
    assert ["node", "1"] in lines
    assert names[names.index("qname") + 1 :] == ['""', Q]
