"""`wakeq pipeline load` and `settle` as a user runs them; a killed load continues and publishes nothing twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.started import eventually
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.lake import archive
from wakeq.protocol.errors import QueueNotFound

ROWS = 3_000
ROOT = Path(__file__).parents[3]


def wakeq(
    broker: BrokerProcess | str, *arguments: str, options: tuple[str, ...] = (), cwd: Path = ROOT
) -> subprocess.Popen[str]:
    environment = os.environ | {"WAKEQ_BROKER": broker if isinstance(broker, str) else broker.address}
    command = [sys.executable, "-m", "wakeq", *options, "pipeline", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=cwd)


def published(client: BulkClient) -> int:
    try:
        return int(client.stats("q")["published"])
    except QueueNotFound:
        return 0


def test_killed_load_continues_where_it_was(broker: BrokerProcess, tmp_path: Path) -> None:
    client = BulkClient(broker.address)
    file = tmp_path / "orders.jsonl"
    file.write_text("".join(f'{{"id": {i}}}\n' for i in range(ROWS)))
    command = ("load", str(file), "--to", "q", "--rate", "500")

    with wakeq(broker, *command) as first:
        eventually(lambda: published(client) >= 500, "the first batch is published")
        assert first.poll() is None, "it ended before it could be killed"
        first.kill()
    before = published(client)
    with wakeq(broker, *command[:-1], "5000") as second:
        _, said = second.communicate(timeout=60)

    bodies = [json.loads(message.body)["id"] for _ in range(4) for message in client.fetch_many("q", 1000)]
    assert sorted(bodies) == list(range(ROWS))
    assert said == f"wakeq: {ROWS - before:,} messages published to queue q; another run published the ones before\n"


def test_load_error_is_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")

    with wakeq(broker, "load", str(tmp_path / "a.csv"), "--to", "q", "--body", "text") as process:
        _, said = process.communicate(timeout=60)

    assert process.returncode == 78
    assert said == f"wakeq: {tmp_path / 'a.csv'} has no column text; it has id\n"


def test_archive_is_loaded_again(broker: BrokerProcess, tmp_path: Path) -> None:
    lake, bare = tmp_path / "lake", tmp_path / "bare"
    client = BulkClient(broker.address)
    for i in range(4):
        client.publish("q", f"m{i}", priority=i)
    client.publish("other", "x")
    assert client.fetch_many("q", 10)
    archived = {lake: 0, bare: 0}

    def all_is_archived() -> bool:
        """What is not yet in the state store is archived by a later run."""
        for folder in archived:
            archived[folder] += archive([broker.data_dir], folder, bodies=folder == lake).events
        return min(archived.values()) >= 9

    eventually(all_is_archived, "the archives have what was published and fetched")

    def load(where: str, folder: Path = lake, *more: str, address: str = broker.address) -> tuple[int, str]:
        with wakeq(address, "load", str(folder), "--queue", "q", "--where", where, "--to", "again", *more) as process:
            _, said = process.communicate(timeout=60)
        return process.returncode, said

    assert load("priority >= 2", lake, "--dry-run") == (0, "wakeq: 2 messages would be published to queue again\n")
    assert client.queues("again") == []
    assert load("priority >= 2") == (0, "wakeq: 2 messages published to queue again\n")
    continued = "; another run published the ones before"
    assert load("priority >= 2") == (0, f"wakeq: 0 messages published to queue again{continued}\n")
    assert sorted(message.body for message in client.fetch_many("again", 10)) == [b"m2", b"m3"]
    for (status, said), complaint in (
        (load("colour = 1"), "--where 'colour = 1': Binder Error: Referenced column \"colour\" not found"),
        (load("queue::INT = 1"), "--where 'queue::INT = 1': Conversion Error"),
        (load("at > '2026-11-01'"), "the moment is called published"),
        (load("true", tmp_path), f"{tmp_path}: is not a lake"),
        (load("true", bare), "has no bodies"),
        (load("true", address="127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
    ):
        assert status != 0
        assert complaint in said
        assert said.count("\n") == 1, said
    assert client.stats("again")["published"] == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("a.csv", "--queue", "q"), "--queue is for a lake"),
        (("nothing.csv",), "'nothing.csv' does not exist"),
    ],
)
def test_wrong_use_of_load_is_one_line(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")

    with wakeq("127.0.0.1:1", "load", *arguments, "--to", "again", cwd=tmp_path) as process:
        _, said = process.communicate(timeout=60)

    assert process.returncode == 2
    assert complaint in said
    assert said.count("\n") == 1, said


def test_folder_that_is_no_checkpoint_is_refused_in_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    with wakeq(broker, "settle", str(tmp_path)) as process:
        _, said = process.communicate(timeout=60)

    assert said == f"wakeq: {tmp_path} is not the checkpoint of a streaming query: it has no directory offsets\n"


def checkpoint(folder: Path, **offset: Any) -> Path:
    """What Spark leaves behind of a query whose first batch has run, and whose second one has not."""
    later = offset | {"epoch": 2}
    for name, lines in (
        ("offsets/0", ["v1", "{}", json.dumps(offset)]),
        ("offsets/1", ["v1", "{}", json.dumps(later)]),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    (folder / "commits").mkdir()
    (folder / "commits" / "0").write_text("v1\n{}")
    return folder


def test_settle_asks_the_broker_of_the_checkpoint_or_the_given_one(broker: BrokerProcess, tmp_path: Path) -> None:
    offset = {"wakeq": 1, "queue": "q", "source": "s", "epoch": 1, "slices": 1, "messages": 2}
    here = checkpoint(tmp_path / "here", **offset, broker=broker.address)
    moved = checkpoint(tmp_path / "moved", **offset, broker="127.0.0.1:1")
    foreign = checkpoint(tmp_path / "foreign", topic="orders")
    client = BulkClient(broker.address)
    client.publish_many("q", ["a", "b"])
    client.stage("q", "s", 1, count=2)

    def settle(folder: Path, *options: str) -> tuple[int, str]:
        with wakeq("127.0.0.1:9", "settle", str(folder), options=options) as process:
            _, said = process.communicate(timeout=60)
        return process.returncode, said

    done = f"messages acknowledged, at {broker.address}\n"
    assert settle(here) == (0, f"wakeq: queue q: 2 {done}")
    assert settle(moved, "--broker", broker.address) == (0, f"wakeq: queue q: 0 {done}")
    assert settle(foreign) == (78, f"wakeq: {foreign}: no stream of its query is a queue of wakeq\n")
    client.delete_queue("q")
    status, said = settle(here)
    assert (status, "queue q does not exist" in said, said.count("\n")) == (1, True, 1)


def test_release_returns_what_a_query_holds(broker: BrokerProcess, tmp_path: Path) -> None:
    offset = {"wakeq": 1, "broker": broker.address, "queue": "q", "source": "s", "epoch": 1, "slices": 1, "messages": 1}
    folder = checkpoint(tmp_path, **offset)
    (folder / "offsets" / "1").write_text("v1\n{}\n" + json.dumps(offset | {"epoch": 2}))
    client = BulkClient(broker.address)
    client.publish_many("q", ["a", "b", "c"])
    client.stage("q", "s", 1, count=1)
    client.stage("q", "s", 2, count=2)

    def release(address: str, *arguments: str) -> tuple[int, str]:
        with wakeq(address, "release", *arguments) as process:
            _, said = process.communicate(timeout=60)
        return process.returncode, said

    done = f"released, at {broker.address}\n"
    assert release("127.0.0.1:9", str(folder)) == (0, f"wakeq: queue q: 1 message acknowledged, 2 {done}")
    assert release("127.0.0.1:9", f"file://{folder}") == (0, f"wakeq: queue q: 0 messages acknowledged, 0 {done}")
    assert client.stats("q")["acked"] == 1, "the finished batch was acknowledged"
    client.stage("q", "s", 3, count=2)
    assert release(broker.address, "--queue", "q", "--source", "s") == (
        0, "wakeq: queue q: 0 messages acknowledged, 2 released\n",
    )  # fmt: skip
    status, said = release(broker.address, "--queue", "q", "--source", "t")
    assert (status, "knows no source t" in said) == (78, True)
    assert [message.failures for message in client.fetch_many("q", 9)] == [0, 0], "that was no failure"
    for wrong in ((), (str(folder), "--queue", "q", "--source", "s"), ("--queue", "q")):
        status, said = release(broker.address, *wrong)
        assert (status, "give a CHECKPOINT, or both --queue and --source" in said) == (2, True)
