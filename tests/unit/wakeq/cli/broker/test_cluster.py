"""`wakeq cluster`: status asks the leader among several nodes, because only the leader knows the others."""

import json
from typing import Any

import pytest

from wakeq.cli import main
from wakeq.protocol.errors import BrokerUnreachable, Disconnected

NODES: dict[str, dict[str, Any] | None] = {
    "a:1": None,
    "b:1": {"node": 1, "serves": False, "members": []},
    "d:1": None,
    "c:1": {"node": 2, "serves": True, "members": []},
}


class Node:
    """Stands for a client of one of these nodes."""

    def __init__(self, address: str) -> None:
        facts = NODES[address]
        if address == "d:1":
            raise Disconnected("d:1 closed the connection")
        if facts is None:
            raise BrokerUnreachable(f"no broker answers at {address}")
        self._facts = facts

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cluster(self) -> dict[str, Any]:
        return self._facts


@pytest.mark.parametrize(
    ("broker", "node"),
    [("a:1,b:1,c:1", 2), ("c:1,b:1", 2), ("d:1,c:1", 2), ("b:1, a:1", 1), ("b:1", 1)],
    ids=lambda value: str(value),
)
def test_cluster_status_shows_the_leader_of_several_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: str, node: int
) -> None:
    monkeypatch.setattr("wakeq.cli.common.Client", Node)

    assert main(["--broker", broker, "cluster", "status", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["node"] == node


def test_cluster_status_without_an_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wakeq.cli.common.Client", Node)

    assert main(["--broker", "a:1", "cluster", "status"]) == 69

    assert "no broker answers at a:1" in capsys.readouterr().err
