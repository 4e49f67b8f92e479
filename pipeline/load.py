"""Loading: rows of files become messages, batch by batch, each once, however often the command is repeated.

    Parquet, CSV, JSON lines --> batches of bodies --> STASH, UNSTASH (writer: the load, epoch: rows so far)

The broker knows how many rows a load has published: the same command continues after them, at any rate. It needs
pyarrow, and no Spark. The order of the rows depends on the files alone.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.arrow_blocks import columns_of
from wakeq.protocol.errors import BadSettings, EpochOld, QueueNotFound

BATCH_ROWS = 10_000
STASH_S = 600
FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}


@dataclass(frozen=True, slots=True)
class Mapping:
    """The column for each field of a message; without `body` the whole row becomes a JSON object."""

    body: str | None = None
    priority: str | None = None
    delay: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a load."""

    # Published by this run.
    rows: int
    # Published by an earlier run.
    skipped: int


def load(
    client: BulkClient,
    files: Sequence[Path],
    queue: str,
    mapping: Mapping,
    *,
    name: str | None = None,
    rate: int | None = None,
    batch_rows: int = BATCH_ROWS,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Publish every row of the files once; at most `rate` messages a second."""
    batch_rows = min(batch_rows, rate or batch_rows)
    writer = f"load-{name}" if name else name_of(files, queue, mapping)
    done = _rows_done(client, queue, writer)
    published = end = 0
    for batch in batches_of(files, mapping, batch_rows):
        end += batch.num_rows
        if end <= done:
            continue
        began_s = time.monotonic()
        fresh = batch.slice(max(0, done - end + batch.num_rows))
        published += _publish(client, queue, writer, end, fresh)
        tell(Progress(published, end - published))
        if rate is not None:
            time.sleep(max(0.0, began_s + fresh.num_rows / rate - time.monotonic()))
    return Progress(published, end - published)


def _publish(client: BulkClient, queue: str, writer: str, end: int, batch: pa.RecordBatch) -> int:
    """Publish the rows before `end` unless an earlier run did; return their number."""
    stash = f"{writer}-{end - batch.num_rows}-{end}"
    for part, columns in enumerate(columns_of(batch)):
        client.stash(queue, stash, part, columns, keep=STASH_S)
    stashes = [(stash, batch.num_rows)]
    try:
        return client.publish_stashes(queue, stashes, writer=writer, epoch=end)
    except EpochOld:
        # Another run is loading the same rows, and was faster.
        client.drop_stashes(queue, stashes)
        return 0


def _rows_done(client: BulkClient, queue: str, writer: str) -> int:
    try:
        return client.writer_epoch(queue, writer)
    except QueueNotFound:
        return 0


def name_of(files: Sequence[Path], queue: str, mapping: Mapping) -> str:
    """Return a name for a load, made of all that decides about its messages, so that a repetition continues it."""
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return "load-" + hashlib.sha256(repr((facts, queue, mapping)).encode()).hexdigest()[:32]


def batches_of(files: Sequence[Path], mapping: Mapping, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files as messages, `batch_rows` at a time."""
    for path in files:
        kind = FORMATS.get(path.suffix.lower())
        if kind is None:
            raise BadSettings(f"{path}: its name does not show its format; name it {', '.join(FORMATS)}")
        try:
            if kind == "json":
                yield from _from_lines(path, mapping, batch_rows)
            else:
                yield from _from_columns(path, kind, mapping, batch_rows)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise BadSettings(f"{path} cannot be read as {kind}: {str(error).splitlines()[0]}") from None


def _from_columns(path: Path, kind: str, mapping: Mapping, batch_rows: int) -> Iterator[pa.RecordBatch]:
    read = _csv(path) if kind == "csv" else pyarrow.parquet.ParquetFile(path).iter_batches(batch_rows)
    for batch in read:
        for start in range(0, batch.num_rows, batch_rows):
            yield _messages(path, batch.slice(start, batch_rows), mapping)


def _csv(path: Path) -> pyarrow.csv.CSVStreamingReader:
    """Read every column as text: 01234 is not a number, and a column that begins with numbers may contain others."""
    names = pyarrow.csv.open_csv(path).schema.names
    texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return pyarrow.csv.open_csv(path, convert_options=texts)


def _messages(path: Path, batch: pa.RecordBatch, mapping: Mapping) -> pa.RecordBatch:
    named = {"body": mapping.body, "priority": mapping.priority, "delay": mapping.delay}
    names = batch.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadSettings(f"{path} has two columns {twice}; name them differently")
    for column in named.values():
        if column is not None and column not in names:
            raise BadSettings(f"{path} has no column {column}; it has {', '.join(names)}")
    arrays = {name: batch.column(column) for name, column in named.items() if column is not None}
    if mapping.body is None:
        others = [name for name in names if name not in (mapping.priority, mapping.delay)]
        arrays["body"] = pa.array([_json_of(row) for row in batch.select(others).to_pylist()], pa.string())
    elif not (pa.types.is_string(arrays["body"].type) or pa.types.is_binary(arrays["body"].type)):
        arrays["body"] = arrays["body"].cast(pa.string())
    numbers = {name: _numbers(array, named[name]) for name, array in arrays.items() if name != "body"}
    return pa.RecordBatch.from_pydict(arrays | numbers)


def _numbers(array: pa.Array, column: str | None) -> pa.Array:
    """Return whole numbers; an empty text becomes null."""
    if pa.types.is_string(array.type):
        array = pc.utf8_trim_whitespace(array)
        array = pc.if_else(pc.equal(array, ""), None, array)
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {column}: {error}") from None


def _from_lines(path: Path, mapping: Mapping, batch_rows: int) -> Iterator[pa.RecordBatch]:
    with path.open(encoding="utf-8") as file:
        numbered = ((number, line.strip()) for number, line in enumerate(file, 1))
        rows = (_message(path, number, line, mapping) for number, line in numbered if line)
        while some := list(islice(rows, batch_rows)):
            names = [name for name in ("body", "priority", "delay") if name in some[0]]
            yield pa.RecordBatch.from_pydict({name: [row[name] for row in some] for name in names})


def _message(path: Path, place: int, line: str, mapping: Mapping) -> dict[str, Any]:
    """Return the message of one line; without a column for the body, the body is the line itself."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadSettings(f"{path}: line {place} is not a JSON object")
    if mapping.body is not None and mapping.body not in row:
        raise BadSettings(f"{path}: line {place} has no {mapping.body}")
    body = line if mapping.body is None else row[mapping.body]
    if body is None:
        raise BadSettings(f"{path}: line {place} has null as {mapping.body}; a message has a body")
    message: dict[str, Any] = {"body": body if isinstance(body, str) else _json_of(body)}
    for name, column in (("priority", mapping.priority), ("delay", mapping.delay)):
        if column is not None:
            message[name] = number = row.get(column)
            if number is not None and not (type(number) is int and -(2**63) <= number < 2**63):
                raise BadSettings(
                    f"{path}: line {place} has {number!r} as {column}; it must be a whole number of 64 bits"
                )
    return message


def _json_of(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
