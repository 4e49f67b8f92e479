"""QueueStaging: who looks at what is staged, and who leads after another."""

from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.brokers.staging import fetched, publish, read, stage, stash, unstash
from tests.helpers.clusters.by_hand import HandCluster


def test_peek_and_stats_show_staged_and_stashed_messages(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=2, timeout=30)
    stash(client, "t", "d")

    figures = client.figures("q")
    states = [row["state"] for row in client.call("PEEK", "q", state="any")["messages"]]

    assert [figures[name] for name in ("ready", "delayed", "leased", "staged", "stashed", "size")] == [1, 0, 2, 2, 1, 2]
    assert states == ["staged", "staged", "ready", "stashed"]
    (row,) = client.call("PEEK", "q", state="leased", count=1)["messages"]
    assert (row["until_ms"], row["source"]) == (client.broker.now_ms() + 30_000, "s")


def test_staging_commands_for_a_missing_queue_are_refused(client: Client) -> None:
    refused = [
        stage(client, 1),
        client.call("SLICE", "q", source="s", epoch=1),
        client.call("RENEW", "q", source="s"),
        client.call("SETTLE", "q", source="s", epoch=1),
        client.call("PEEKB", "q"),
        client.call("RELEASE", "q", source="s"),
        unstash(client, 1, ("t", 1)),
    ]
    assert [reply["err"] for reply in refused] == ["Q_NOT_FOUND"] * 7


@pytest.mark.parametrize("command", [{"cmd": "PEEK"}, {"cmd": "PEEKB"}, {"cmd": "FET"}])
def test_read_is_answered_once_when_its_queue_is_deleted_meanwhile(
    client: Client, broker: Broker, command: Json
) -> None:
    publish(client, "a")
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    broker.reader_disk.held = True
    client.send({**command, "qname": "q"})
    broker.settle()

    broker.client().call("DROP", "q")
    broker.flush()

    assert client.words() in (["nok"], ["nomsg"])
    broker.reader_disk.held = False
    broker.reader_disk.complete()
    assert client.words() == []


def test_peek_returns_all_messages_although_memory_is_cleared_during_its_read(client: Client, broker: Broker) -> None:
    publish(client, *"abc")
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    publish(client, "d")
    broker.reader_disk.held = True
    client.send({"cmd": "PEEKB", "qname": "q"})
    broker.settle()
    broker.queue("q").bodies.clear()

    broker.reader_disk.held = False
    broker.reader_disk.complete()

    assert [reply["rows"] for reply in client.take()] == [4]


def test_staged_claim_survives_leader_change(directory: Path) -> None:
    cluster = HandCluster(directory)
    cluster.start()
    leader = cluster.leader()
    assert leader is not None
    client = leader.client()
    publish(client, *"abc")
    stage(client, 1, count=2, timeout=60)
    stash(client, "t", "d")
    cluster.advance(0.2)
    others = cluster.others(leader)

    leader.kill()
    cluster.until(lambda: cluster.leader(others) is not None, "another node serves")
    found = cluster.leader(others)
    assert found is not None
    client = found.client()

    assert [read(client, 1), fetched(client)] == [["a", "b"], ["c"]]
    assert stage(client, 1)["sizes"] == [2]
    assert unstash(client, 1, ("t", 1))["rows"] == 1
    cluster.advance(70)
    assert sorted(fetched(client)) == ["a", "b", "c", "d"]
    cluster.close()


def test_stashes_leave_nothing_behind_in_memory(client: Client, broker: Broker) -> None:
    stash(client, "t", "a", "b")
    broker.flush()
    broker.crash_and_restart()
    process = broker.queue("q")
    assert process.leases is not None
    assert process.leases.due is None

    unstash(broker.client(), 1, ("t", 2))

    assert process.ledger.columns.chunks[0].only_sizes
