"""What the data source says on the driver, before any task runs."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from wakeq.pipeline.stream.source import QueueSource
from wakeq.protocol.errors import BadName, BrokerUnreachable

pytestmark = pytest.mark.spark
NOWHERE = "127.0.0.1:1"


def schema() -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("body", StringType())])


def test_write_to_a_broker_that_is_away_fails_when_it_is_planned() -> None:
    source = QueueSource({"queue": "q", "broker": NOWHERE})

    with pytest.raises(BrokerUnreachable, match=f"no broker answers at {NOWHERE}"):
        source.writer(schema(), overwrite=False)


def test_stream_to_a_broker_that_is_away_waits_for_it_later() -> None:
    QueueSource({"queue": "q", "broker": NOWHERE}).streamWriter(schema(), overwrite=False)


def test_impossible_name_of_a_queue_is_refused_when_it_is_planned() -> None:
    source = QueueSource({"queue": "two words", "broker": NOWHERE})

    for plan in (source.writer, source.streamWriter):
        with pytest.raises(BadName):
            plan(schema(), overwrite=False)
    for read in (source.reader, source.streamReader):
        with pytest.raises(BadName):
            read(schema())
