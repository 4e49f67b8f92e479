"""Settling what a query has finished, from the reports of Spark: beside Spark, which waits for nobody's broker."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.pipeline.stream import settling
from wakeq.pipeline.stream.checkpoint import Checkpoint
from wakeq.pipeline.stream.settling import Released, Settled, release_checkpoint, release_source, settle_checkpoint
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, EpochExpired

WAIT_S = 10.0


class Broker:
    """Takes its time for everything until it is back."""

    def __init__(self) -> None:
        self.is_back = threading.Event()
        self.asked: Queue[tuple[str, str, int]] = Queue()
        self.failures: list[Exception] = []

    def settle(self, queue: str, source: str, epoch: int) -> int:
        assert self.is_back.wait(WAIT_S)
        self.asked.put((queue, source, epoch))
        if self.failures:
            raise self.failures.pop()
        return 1


class Streams:
    """As much of a session's streams as a listener sees."""

    def addListener(self, listener: Any) -> None:  # noqa: N802
        self.listener = listener


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker()
    monkeypatch.setattr(settling.Broker, "client", lambda _self: made)
    yield made
    made.is_back.set()


@pytest.fixture
def listener() -> Any:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    return settling.autoack(SimpleNamespace(streams=Streams()))  # type: ignore[arg-type]


def progress(*epochs: int, source: str = "s") -> Any:
    """Return a report of these offsets, one a source of the query."""
    offset = {"wakeq": 1, "broker": "b:1", "queue": "q", "source": source, "slices": 1}
    sources = [SimpleNamespace(endOffset=json.dumps(offset | {"epoch": epoch})) for epoch in epochs]
    return SimpleNamespace(progress=SimpleNamespace(sources=sources))


@pytest.mark.spark
def test_spark_does_not_wait_for_a_broker_that_is_away(broker: Broker, listener: Any) -> None:
    for epoch in range(1, 100):
        listener.onQueryProgress(progress(epoch))
    is_asked_before = not broker.asked.empty()

    broker.is_back.set()
    asked = [broker.asked.get(timeout=WAIT_S)]
    if asked[-1][2] < 99:  # the first one was on its way already
        asked.append(broker.asked.get(timeout=WAIT_S))

    assert not is_asked_before
    assert asked[-1] == ("q", "s", 99), "what was finished later settles what was before"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("failure", "says"),
    [(BrokerUnreachable("it is away"), "not settled: it is away"), (ZeroDivisionError("a bug"), "ZeroDivisionError")],
    ids=["away", "bug"],
)
def test_failed_settling_is_logged_and_the_next_source_is_settled(
    broker: Broker, listener: Any, caplog: pytest.LogCaptureFixture, failure: Exception, says: str
) -> None:
    broker.is_back.set()
    broker.failures.append(failure)

    for source in ("s", "other"):
        listener.onQueryProgress(progress(1, source=source))
    asked = [broker.asked.get(timeout=WAIT_S) for _ in range(2)]

    assert asked == [("q", "s", 1), ("q", "other", 1)]
    assert "queue q: a finished batch was not settled" in caplog.text
    assert says in caplog.text


@pytest.mark.spark
def test_offsets_of_other_sources_are_ignored(broker: Broker, listener: Any) -> None:
    broker.is_back.set()

    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(sources=[SimpleNamespace(endOffset='{"a": 1}')])))
    listener.onQueryProgress(progress(1))

    assert broker.asked.get(timeout=WAIT_S) == ("q", "s", 1)
    assert broker.asked.empty()


@pytest.fixture
def checkpoint(client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """A query that has finished its first batch and is dead in its second, of two messages each."""
    monkeypatch.setattr(settling.Broker, "client", lambda _self: client)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for epoch in (1, 2):
        client.publish_many("q", ["a", "b"])
        client.stage("q", "s", epoch, count=2)
        offset = {"wakeq": 1, "broker": "b:1", "queue": "q", "source": "s", "epoch": epoch, "slices": 1, "messages": 2}
        (tmp_path / "offsets" / str(epoch - 1)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    return Checkpoint(str(tmp_path))


def test_finished_batch_of_a_checkpoint_is_settled(client: MemoryClient, checkpoint: Checkpoint) -> None:
    settled = [settle_checkpoint(checkpoint, broker) for broker in (None, "here:1")]

    assert settled == [[Settled("q", "b:1", 2, held=2)], [Settled("q", "here:1", 0, held=2)]]
    assert (client.stats("q")["acked"], client.stats("q")["staged"]) == (2, 2)


def test_batch_of_a_query_that_has_finished_none_is_told(
    client: MemoryClient, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "offsets" / "1").unlink()

    assert settle_checkpoint(checkpoint) == [Settled("q", "b:1", 0, held=2)]
    client.release("q", "s")
    assert settle_checkpoint(checkpoint) == [Settled("q", "b:1", 0)]


def test_unfinished_batch_of_a_checkpoint_is_released_and_the_finished_one_settled(
    client: MemoryClient, checkpoint: Checkpoint
) -> None:
    released = [release_checkpoint(checkpoint) for _ in range(2)]

    assert released == [[Released("q", "b:1", 2, 2)], [Released("q", "b:1", 0, 0)]]
    assert (client.stats("q")["acked"], client.stats("q")["ready"]) == (2, 2)
    assert [message.failures for message in client.fetch_many("q", 9)] == [0, 0], "that was no failure"


def test_finished_batch_of_one_queue_is_settled_whatever_becomes_of_the_other(
    client: MemoryClient, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A query of three queues: the first one's claim has lapsed, the second one was deleted."""
    offsets = [{"wakeq": 1, "broker": "b:1", "queue": name, "source": "s", "epoch": 1} for name in ("a", "b", "c")]
    for batch in (0, 1):
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *map(json.dumps, offsets)]))
    for name in ("a", "c"):
        client.publish(name, "m")
    client.stage("a", "s", 1, count=1)
    client.release("a", "s")
    client.stage("c", "s", 1, count=1)

    released = release_checkpoint(checkpoint)

    assert released == [Released(name, "b:1", int(name == "c"), 0) for name in ("a", "b", "c")]
    assert (client.stats("c")["acked"], client.stats("c")["ready"]) == (1, 0)


def test_claim_of_a_finished_batch_that_has_lapsed_is_told(client: MemoryClient, checkpoint: Checkpoint) -> None:
    client.machine.advance(61)

    with pytest.raises(EpochExpired):
        settle_checkpoint(checkpoint)
    assert release_checkpoint(checkpoint) == [Released("q", "b:1", 0, 0)], "there is nothing left to be released"


def test_published_batch_that_is_released_counts_as_acknowledged(client: MemoryClient, checkpoint: Checkpoint) -> None:
    client.read_slice("q", "s", 2, 0, offset=0, count=9, reader="query-a", batch=2, run="run-1")
    client.publish_stashes("out", [], writer="query-a", epoch=2, reader="query-a", run="run-1")

    assert release_checkpoint(checkpoint) == [Released("q", "b:1", 4, 0)]
    assert (client.stats("q")["acked"], client.stats("q")["ready"]) == (4, 0)


def test_release_of_a_source_that_the_queue_does_not_know_is_an_error(client: MemoryClient) -> None:
    client.publish("q", "m")
    client.stage("q", "s", 1, count=1)

    with pytest.raises(BadSettings, match="queue q knows no source t; `wakeq pipeline claims q` lists"):
        release_source(client, "q", "t")
    assert [release_source(client, "q", "s") for _ in range(2)] == [(0, 1), (0, 0)]
