"""`spark.read.format("wakeq-journal").load(DATA_DIR)`: what has happened in a broker, as a data frame.

    options: path (or several), since, until, queue, body, partitions --> spans of the journal --> Arrow batches

The data directories must be readable where the work is done.  Nothing in them is changed, and no broker is asked.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wakeq.pipeline.journal import Wanted, events_of
from wakeq.pipeline.journal_plan import NOTHING, History, Span
from wakeq.protocol.errors import BadSettings

COLUMNS = (
    "at timestamp, queue string, uid string, event string, outcome string, priority bigint, delivery bigint, "
    "worker bigint, door string, reason string, size int, until timestamp, index bigint, place int"
)
OPTIONS = ("path", "paths", "since", "until", "queue", "body", "partitions")
TRUTHS = {"true": True, "false": False}
Options = dict[str, str]


@dataclass(slots=True)
class SpanPartition(InputPartition):
    """One span of the journal."""

    span: Span


class JournalSource(DataSource):
    """The data source `wakeq-journal`."""

    @classmethod
    def name(cls) -> str:
        return "wakeq-journal"

    def schema(self) -> str:
        return f"{COLUMNS}, body binary" if wanted_by(dict(self.options)).body else COLUMNS

    def reader(self, schema: object) -> "JournalReader":
        return JournalReader(dict(self.options))


class JournalReader(DataSourceReader):
    """Plans in the driver, reads in the workers."""

    def __init__(self, options: Options) -> None:
        self._directories = directories_of(options)
        self._wanted = wanted_by(options)
        self._cores = _number(options, "partitions") or os.cpu_count() or 1

    def partitions(self) -> list[SpanPartition]:
        spans = History(self._directories).spans(cores=self._cores)
        return [SpanPartition(span) for span in spans] or [SpanPartition(NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition), "as planned"
        return events_of(partition.span, self._wanted)


def directories_of(options: Options) -> list[Path]:
    """Return the data directories: of one node, or of several nodes of one cluster."""
    if "paths" in options:
        return [Path(path) for path in json.loads(options["paths"])]
    if "path" in options:
        return [Path(options["path"])]
    raise BadSettings('no data directory is given: spark.read.format("wakeq-journal").load("wakeq-data")')


def wanted_by(options: Options) -> Wanted:
    """Return what the options ask for; an option that nobody knows is an error."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise BadSettings(f"unknown option {unknown[0]}; wakeq-journal knows {', '.join(OPTIONS[2:])}")
    body = TRUTHS.get(options.get("body", "false").lower())
    if body is None:
        raise BadSettings(f"option body is {options['body']!r}; it must be true or false")
    since, until = (_moment(options, name) for name in ("since", "until"))
    return Wanted(since_ms=since, until_ms=until, queue=options.get("queue"), body=body)


def _number(options: Options, name: str) -> int | None:
    if name not in options:
        return None
    if not options[name].isdecimal() or not int(options[name]):
        raise BadSettings(f"option {name} is {options[name]!r}; it must be a whole number from 1")
    return int(options[name])


def _moment(options: Options, name: str) -> int | None:
    if name not in options:
        return None
    try:
        return moment_ms(options[name])
    except ValueError:
        raise BadSettings(f"option {name} is {options[name]!r}; write it as 2026-01-31 or 2026-01-31T15:00") from None


def moment_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a moment as ISO 8601 writes it; without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
