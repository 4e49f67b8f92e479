"""The data source `wakeq-journal`: a broker's history as a data frame, found by Spark without any registration."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.journal.served import Served, log_in
from wakeq.actors.sessions.access import Gate
from wakeq.protocol.access import Book, Grant, Right, digest_of

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def data_directory(tmp_path: Path) -> Path:
    """A broker's directory in which one message was worked and one waits."""
    broker = Broker(tmp_path / "data")
    client = broker.client()
    client.publish("jobs", "done", priority=4)
    message = client.fetch("jobs")
    client.call("ACK", "jobs", uid=message["uid"], lease=message["lease"])
    broker.advance(10)
    client.publish("other", "waits")
    broker.flush()
    broker.close()
    return tmp_path / "data"


def test_events_are_one_row_each(spark: Any, data_directory: Path) -> None:
    frame = spark.read.format("wakeq-journal").load(str(data_directory))

    rows = frame.where("queue <> ''").orderBy("index", "place").collect()

    assert [(row.queue, row.event, row.outcome) for row in rows] == [
        ("jobs", "published", "done"),
        ("jobs", "delivered", "done"),
        ("jobs", "acked", "done"),
        ("other", "published", "done"),
    ]
    assert (rows[0].priority, rows[0].size, rows[0].door) == (4, 4, "worker")
    assert rows[0].uid == rows[1].uid == rows[2].uid
    assert rows[1].delivery == rows[2].delivery


def test_options_choose_queue_time_and_bodies(spark: Any, data_directory: Path) -> None:
    reader = spark.read.format("wakeq-journal")
    at = reader.load(str(data_directory)).where("queue = 'other'").first().at

    bodies = reader.option("queue", "jobs").option("body", "true").load(str(data_directory))
    later = reader.option("since", at.isoformat()).option("queue", "other").load(str(data_directory))

    assert [bytes(row.body) for row in bodies.where("event = 'published'").collect()] == [b"done"]
    assert later.count() == 1


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [("since", "yesterday", "2026-01-31"), ("colour", "red", "unknown option colour"), ("body", "2", "true or false")],
)
def test_wrong_option_is_named_in_the_error(
    spark: Any, data_directory: Path, option: str, value: str, complaint: str
) -> None:
    reader = spark.read.format("wakeq-journal").option(option, value)

    with pytest.raises(Exception, match=complaint):
        reader.load(str(data_directory)).count()


def test_broker_is_read_over_http_with_a_token(spark: Any, data_directory: Path, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("reader-secret")
    grant = Grant("reader", digest_of("reader-secret").hex(), ("*",), (Right.FETCH,), datetime.now(UTC))
    order = ("index", "place")
    expected = spark.read.format("wakeq-journal").load(str(data_directory)).orderBy(*order).collect()

    with Served(log_in(data_directory), Gate(Book([grant]), lambda: 0)) as served:
        reader = spark.read.format("wakeq-journal").option("broker", served.url)
        by_text = reader.option("token", "reader-secret").load()
        by_file = spark.read.format("wakeq-journal").option("tokenFile", str(token_file)).load(served.url)

        assert by_text.orderBy(*order).collect() == expected
        assert by_file.orderBy(*order).collect() == expected
        with pytest.raises(Exception, match="the token is not valid") as refused:
            reader.option("token", "wrong-secret").load().count()
    assert "wrong-secret" not in str(refused.value)
