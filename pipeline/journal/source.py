"""`spark.read.format("wakeq-journal").load(DATA_DIR)`: the history of a broker as a data frame.

    path, since, until, queue, columns, body, done, partitions --> spans of the journal --> Arrow batches

The data directories must be readable where the tasks run. Nothing in them is changed, and no broker is asked.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wakeq.pipeline.journal.plan import NOTHING, History, Span
from wakeq.pipeline.journal.rows import USUAL, Wanted, moment_ms
from wakeq.pipeline.journal.table import events_of
from wakeq.protocol.errors import BadSettings

OPTIONS = ("path", "paths", "since", "until", "queue", "columns", "body", "done", "partitions")
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
        return wanted_by(dict(self.options)).ddl

    def reader(self, schema: object) -> "JournalReader":
        return JournalReader(dict(self.options))


class JournalReader(DataSourceReader):
    """Plans the spans in the driver and reads them in the workers."""

    def __init__(self, options: Options) -> None:
        self._directories = directories_of(options)
        self._wanted = wanted_by(options)
        self._cores = _number(options, "partitions") or os.cpu_count() or 1

    def partitions(self) -> list[SpanPartition]:
        since_ms, until_ms = self._wanted.since_ms, self._wanted.until_ms
        spans = History(self._directories).spans(cores=self._cores, since_ms=since_ms, until_ms=until_ms)
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


def options_of(directories: Sequence[Path], wanted: Wanted) -> Options:
    """Return the options for these directories and columns."""
    options = {
        "paths": json.dumps([str(directory) for directory in directories]),
        "columns": ",".join(wanted.columns),
        "done": str(wanted.done_only).lower(),
    }
    for name, at_ms in (("since", wanted.since_ms), ("until", wanted.until_ms)):
        if at_ms is not None:
            options[name] = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    return options if wanted.queue is None else options | {"queue": wanted.queue}


def wanted_by(options: Options) -> Wanted:
    """Return the wanted columns and events; refuse unknown options."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise BadSettings(f"unknown option {unknown[0]}; wakeq-journal knows {', '.join(OPTIONS[2:])}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if "columns" in options else USUAL
    if _truth(options, "body") and "body" not in columns:
        columns = (*columns, "body")
    since, until = (_moment(options, name) for name in ("since", "until"))
    done_only = _truth(options, "done")
    return Wanted(columns=columns, since_ms=since, until_ms=until, queue=options.get("queue"), done_only=done_only)


def _truth(options: Options, name: str) -> bool:
    truth = TRUTHS.get(options.get(name, "false").lower())
    if truth is None:
        raise BadSettings(f"option {name} is {options[name]!r}; it must be true or false")
    return truth


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
