"""Proves wakeq/cli/cluster: of several nodes the one that leads is looked at, for only that one knows the others."""

import json
from typing import Any

import pytest

from wakeq.cli import main
from wakeq.protocol.errors import BrokerUnreachable, Disconnected

NODES: dict[str, dict[str, Any] | None] = {
    "a:1": None,  # nobody is there
    "b:1": {"node": 1, "serves": False, "members": []},
    "d:1": None,  # it hangs up
    "c:1": {"node": 2, "serves": True, "members": []},
}


class Node:
    """A client of one of these nodes."""

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
def test_of_several_nodes_the_one_that_leads_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: str, node: int
) -> None:
    monkeypatch.setattr("wakeq.cli.common.Client", Node)

    assert main(["--broker", broker, "cluster", "status", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["node"] == node


def test_where_no_node_answers_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wakeq.cli.common.Client", Node)

    assert main(["--broker", "a:1", "cluster", "status"]) == 69

    assert "no broker answers at a:1" in capsys.readouterr().err
