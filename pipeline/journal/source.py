"""`spark.read.format("wakeq-journal")`: the history of a broker as a data frame.

    broker, or path; since, until, queue, columns, body, done, partitions --> spans of the journal --> Arrow batches

With `broker` the tasks read over the HTTP ports of these brokers. A directory must be readable where the tasks run.
Nothing is changed. The token travels to the tasks in their spans, and must never appear in an error.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wakeq.pipeline.journal.broker import BrokerFiles
from wakeq.pipeline.journal.directory import Directory
from wakeq.pipeline.journal.files import NodeFiles
from wakeq.pipeline.journal.plan import NOTHING, History, Place, Span, is_url
from wakeq.pipeline.journal.rows import USUAL, Wanted, moment_ms
from wakeq.pipeline.journal.table import events_of
from wakeq.pipeline.options import known_options, number, truth
from wakeq.protocol.errors import BadSettings

# As a user writes them; Spark passes names on in lower case.
OPTIONS = ("broker", "token", "tokenFile", "tls", "since", "until", "queue", "columns", "body", "done", "partitions")
OF_BROKERS = ("token", "tokenFile", "tls")
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
        self._places = places_of(options)
        self._wanted = wanted_by(options)
        # The driver does not know how many cores the cluster has.
        self._cores = number(options, "partitions", 0) or None

    def partitions(self) -> list[SpanPartition]:
        since_ms, until_ms = self._wanted.since_ms, self._wanted.until_ms
        spans = History(self._places).spans(cores=self._cores, since_ms=since_ms, until_ms=until_ms)
        return [SpanPartition(span) for span in spans] or [SpanPartition(NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition), "as planned"
        return events_of(partition.span, self._wanted)


def places_of(options: Options) -> list[NodeFiles]:
    """Return the brokers or data directories: of one node, or of several nodes of one cluster."""
    brokers = [address.strip() for address in options.get("broker", "").split(",") if address.strip()]
    places = json.loads(options["paths"]) if "paths" in options else [options["path"]] if "path" in options else []
    if bool(brokers) == bool(places):
        raise BadSettings(
            'give either the HTTP port of a broker, spark.read.format("wakeq-journal").option("broker", '
            '"http://HOST:8080").load(), or its data directory, load("wakeq-data")'
        )
    brokers += [place for place in places if is_url(place)]
    token, token_file, tls = (options.get(name.lower()) for name in OF_BROKERS)
    if not brokers and (token or token_file or tls):
        raise BadSettings("the options token, tokenFile and tls are for brokers; name one with the option broker")
    nodes = [BrokerFiles.at(one, token=token, token_file=token_file, tls=tls) for one in brokers]
    return [*nodes, *(Directory.at(place) for place in places if not is_url(place))]


def options_of(places: Sequence[Place], wanted: Wanted) -> Options:
    """Return the options for these places and columns."""
    options = {
        "paths": json.dumps([str(place) for place in places]),
        "columns": ",".join(wanted.columns),
        "done": str(wanted.done_only).lower(),
    }
    for name, at_ms in (("since", wanted.since_ms), ("until", wanted.until_ms)):
        if at_ms is not None:
            options[name] = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    return options if wanted.queue is None else options | {"queue": wanted.queue}


def wanted_by(options: Options) -> Wanted:
    """Return the wanted columns and events; refuse unknown options."""
    options = known_options(options, OPTIONS, source="wakeq-journal", unnamed=("path", "paths"))
    columns = tuple(name.strip() for name in options["columns"].split(",")) if "columns" in options else USUAL
    if truth(options, "body", default=False) and "body" not in columns:
        columns = (*columns, "body")
    since, until = (_moment(options, name) for name in ("since", "until"))
    done_only = truth(options, "done", default=False)
    return Wanted(columns=columns, since_ms=since, until_ms=until, queue=options.get("queue"), done_only=done_only)


def _moment(options: Options, name: str) -> int | None:
    if name not in options:
        return None
    try:
        return moment_ms(options[name])
    except ValueError:
        raise BadSettings(f"option {name} is {options[name]!r}; write it as 2026-01-31 or 2026-01-31T15:00") from None
