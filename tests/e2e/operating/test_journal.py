"""The journal of a real broker: read while it runs, after kill -9, from a copy, and beyond what the log keeps."""

import shutil
import time
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.sized import sized
from tests.helpers.clients.lines import LineClient
from tests.helpers.journal.files import rows_of

DEADLINE_S = 30.0
MIB = 1024 * 1024


def settled(path: Path, uids: set[str], event: str) -> list[dict[str, Any]]:
    """Wait until the journal says that this has happened to all of these messages."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        rows = rows_of(path)
        if uids <= {row["uid"] for row in rows if row["event"] == event and row["outcome"] == "done"}:
            return rows
        assert time.monotonic() < until_s, f"{event} was not told in time of all {len(uids)} messages"
        time.sleep(0.05)


def publish(client: LineClient, count: int, body: str = "x") -> set[str]:
    reply = client.ask("PUB", "jobs", messages=[{"message": body}] * count)
    return set(reply["uids"])


def work(client: LineClient, count: int) -> set[str]:
    """Fetch and acknowledge."""
    done = set()
    for _ in range(count):
        message = client.ask("FET", "jobs")
        client.ask("ACK", "jobs", uid=message["uid"], lease=message["lease"])
        done.add(message["uid"])
    return done


def test_journal_is_readable_live_after_a_kill_and_from_a_copy(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    broker = start_broker()
    client = connect(broker)
    published, done = publish(client, 20), work(client, 7)

    settled(broker.data_dir, published, "published")
    settled(broker.data_dir, done, "acked")
    broker.kill()
    broker.start()
    client = connect(broker)
    published |= publish(client, 20)
    done |= work(client, 5)
    rows = settled(broker.data_dir, done, "acked")
    broker.terminate()
    copy = Path(shutil.copytree(broker.data_dir, tmp_path / "copy"))

    told = [row["uid"] for row in rows_of(copy) if row["event"] == "published" and row["outcome"] == "done"]
    assert set(told) == published
    assert len(told) == len(published)
    assert {row["uid"] for row in rows_of(copy) if row["event"] == "acked"} == done
    assert {row["outcome"] for row in rows_of(copy)} == {"done"}
    assert len(rows) == len(rows_of(copy))


def test_journal_keeps_segments_that_the_log_has_dropped(start_broker: StartBroker, connect: Connect) -> None:
    small = sized(segment_bytes_max=MIB, snapshot_bytes_min=MIB, flush_bytes=MIB // 2)
    broker = start_broker(command=small)
    client = connect(broker)
    published: set[str] = set()
    until_s = time.monotonic() + DEADLINE_S

    while len(list((broker.data_dir / "journal").glob("raft.log.*"))) < 3:
        published |= publish(client, 10, "x" * 20_000)
        work(client, 10)
        assert time.monotonic() < until_s, "no segment came into the journal"

    rows = settled(broker.data_dir, published, "acked")
    told = [row["uid"] for row in rows if row["event"] == "published"]
    assert set(told) == published
    assert len(told) == len(published)
