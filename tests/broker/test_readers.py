"""A batch that is read from one queue and published to another: in each crash both happen, or neither."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, successor
from wakeq.actors.queue.process import QueueProcess
from wakeq.protocol.log.entries import Claim, ClaimAction, Unstash
from wakeq.protocol.queue.ledger.staging import Staging

CLAIM_S = 60
ROWS = ["A", "B", "C"]
SOURCE, TARGET = "source", "target"


def prepare(client: Client) -> None:
    """Read a batch of three messages, and stash what came of them, twice."""
    client.call("PUB", SOURCE, messages=["a", "b", "c"])
    client.call("STAGE", SOURCE, source="s", epoch=1, timeout=CLAIM_S)
    client.call("SLICE", SOURCE, source="s", epoch=1, reader="r", batch=1, run="u")
    for name in ("counts", "does not count"):
        client.call("STASH", TARGET, stash=name, messages=ROWS, writer="w", epoch=1)


def unstash(**fields: Any) -> dict[str, Any]:
    about = {"writer": "w", "epoch": 1, "reader": "r", "run": "u", "id": "i", "stashes": [("counts", 3)]}
    return {"cmd": "UNSTASH", "qname": TARGET, **about, **fields}


def outcome(broker: Broker | HandNode, client: Client, advance: Callable[[float], None]) -> str:
    """Let the claim end, and tell what became of the batch; anything that is neither is a fault."""
    advance(CLAIM_S + 1)
    client.call("PUB", TARGET, message="last")
    published = [message["msg"] for message in client.call("FET", TARGET, count=100)["messages"]]
    source, target = client.figures(SOURCE), client.figures(TARGET)
    found = published[:-1], source["ready"], source["acked"], target["stashed"]
    return {repr((ROWS, 0, 3, 0)): "published", repr(([], 3, 0, 6)): "not published"}.get(repr(found), repr(found))


@pytest.fixture(params=["in one go", "in steps"])
def way(request: pytest.FixtureRequest) -> str:
    """Apply each entry in one go, or in steps of two messages."""
    if request.param == "in steps":
        request.getfixturevalue("small_steps")
    return str(request.param)


# --- one node --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("is_written", [False, True])
def test_kill_before_and_after_the_write_leaves_neither_or_both(
    broker: Broker, client: Client, is_written: bool
) -> None:
    prepare(client)
    broker.log_disk.held = True
    client.send(unstash())
    broker.settle()
    if is_written:
        broker.log_disk.held = False
        broker.log_disk.complete()

    broker.crash_and_restart()

    expected = "published" if is_written else "not published"
    assert outcome(broker, broker.client(), broker.advance) == expected


def test_log_that_is_cut_within_the_entry_has_none_of_it(broker: Broker, client: Client, tmp_path: Path) -> None:
    prepare(client)
    before = tmp_path / "before"
    shutil.copytree(broker.path, before)
    (log,) = (broker.path / "consensus").glob("raft.log")
    old = log.read_bytes()
    client.ask(unstash())
    new = log.read_bytes()
    first = next(place for place, byte in enumerate(new) if place >= len(old) or byte != old[place])
    end = len(new.rstrip(b"\0"))

    found = []
    for cut in (*range(first, end, 17), end - 1, end):
        place = tmp_path / f"cut {cut}"
        shutil.copytree(before, place)
        torn = new[:cut] + bytes(len(new) - cut)
        (place / "consensus" / "raft.log").write_bytes(torn[: max(len(old), cut)])
        other = Broker(place)
        found.append(outcome(other, other.client(), other.advance))
        other.close()

    assert found == ["not published"] * (len(found) - 1) + ["published"]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("where", [SOURCE, TARGET])
def test_queue_that_crashes_over_its_part_applies_it_later_or_nobody_does(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, where: str, times: int
) -> None:
    prepare(client)
    left = [times]
    claim, publish = Staging.claim, Staging.unstash

    def fragile_claim(staging: Staging, entry: Claim, *about: Any) -> Any:
        if where == SOURCE and entry.action is ClaimAction.PUBLISHED and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a bug")
        return claim(staging, entry, *about)

    def fragile_unstash(staging: Staging, entry: Unstash, *about: Any) -> Any:
        if where == TARGET and entry.sources and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a bug")
        return publish(staging, entry, *about)

    monkeypatch.setattr(Staging, "claim", fragile_claim)
    monkeypatch.setattr(Staging, "unstash", fragile_unstash)

    (reply,) = client.ask(unstash())

    assert reply.get("err") == ("SET_ASIDE" if times == 3 else None)
    assert outcome(broker, client, broker.advance) == ("not published" if times == 3 else "published")
    broker.check(SOURCE)
    broker.check(TARGET)


@pytest.mark.parametrize("where", [SOURCE, TARGET])
def test_queue_that_crashes_when_it_is_asked_has_the_entry_skipped(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    prepare(client)
    judge = QueueProcess.judge

    def fragile(queue: QueueProcess, part: Any, at_ms: int) -> int:
        if queue.name == where:
            raise ZeroDivisionError("a bug")
        return judge(queue, part, at_ms)

    monkeypatch.setattr(QueueProcess, "judge", fragile)

    (reply,) = client.ask(unstash())

    assert reply["err"] == "SET_ASIDE"
    assert outcome(broker, client, broker.advance) == "not published"


@pytest.mark.usefixtures("small_steps")
def test_crash_between_the_steps_of_the_target_keeps_both(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(client)
    step, left = QueueProcess.step, [1]

    def fragile(process: QueueProcess) -> None:
        if process.name == TARGET and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("in the middle")
        step(process)

    monkeypatch.setattr(QueueProcess, "step", fragile)

    (reply,) = client.ask(unstash())

    assert left == [0]
    assert reply["rows"] == 3
    assert outcome(broker, client, broker.advance) == "published"


@pytest.mark.usefixtures("small_steps")
def test_flush_that_is_due_between_the_steps_holds_all_of_the_entry(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(client)
    step, flushed = QueueProcess.step, []

    def busy(process: QueueProcess) -> None:
        if process.name == TARGET and not flushed:
            flushed.append(0)
            broker.queues.flush_now(lambda: flushed.append(broker.queues.flushed_index))
        step(process)

    monkeypatch.setattr(QueueProcess, "step", busy)
    client.ask(unstash())
    monkeypatch.undo()
    assert flushed == [0, broker.queues.applied[0]]

    broker.crash_and_restart()

    assert outcome(broker, broker.client(), broker.advance) == "published"


def test_mark_is_in_an_image_and_survives_without_the_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", snapshot_bytes_min=1, segment_bytes_max=1)
    client = broker.client()
    prepare(client)
    client.ask(unstash())
    broker.advance(0.1)
    broker.flush()
    broker.advance(2)
    assert broker.files.snapshot_path.exists()

    broker.crash()
    shutil.rmtree(broker.path / "state")
    broker.restart()

    assert outcome(broker, broker.client(), broker.advance) == "published"
    broker.close()


# --- a cluster -------------------------------------------------------------------------------------------------------


def test_next_leader_has_what_was_published_and_knows_who_reads(cluster: HandCluster, leader: HandNode) -> None:
    prepare(leader.client())
    cluster.advance(0.2)
    cluster.isolate(leader)
    new = successor(cluster, leader)

    (first,) = new.client().ask(unstash())
    (again,) = new.client().ask(unstash())

    assert (first["rows"], again["rows"]) == (3, 0)
    assert outcome(new, new.client(), cluster.advance) == "published"


def test_publish_whose_leader_is_lost_is_done_whole_or_not_at_all(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    prepare(client)
    cluster.advance(0.2)
    cluster.isolate(leader)

    client.send(unstash())
    cluster.settle()
    new = successor(cluster, leader)
    cluster.advance(2 * ELECTION_S)

    assert [reply.get("err") for reply in client.take()] == ["UNKNOWN"]
    assert outcome(new, new.client(), cluster.advance) == "not published"


def test_slice_whose_mark_is_not_committed_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode
) -> None:
    client = leader.client()
    client.call("PUB", SOURCE, messages=["a"])
    client.call("STAGE", SOURCE, source="s", epoch=1, timeout=CLAIM_S)
    cluster.advance(0.2)
    cluster.isolate(leader)

    slice_ = {"cmd": "SLICE", "qname": SOURCE, "source": "s", "epoch": 1, "reader": "r", "batch": 1, "run": "u"}
    before = client.ask(slice_)
    cluster.advance(4 * ELECTION_S)

    assert before == []
    assert [reply["cmd"] for reply in client.take()] == ["nok"]
