"""Files: rows of Parquet, CSV and JSON lines as messages.

    paths, the columns for the fields of a message, a condition --> batches; a position is a number of rows

The order of the rows is that of the files.  A position counts all rows, also those that the condition leaves out.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from wakeq.pipeline.load.load import BATCH_ROWS, Batch
from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    from wakeq.pipeline.load.condition import Condition

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
# A batch has fewer rows if they are large; it may exceed this by one row, or if rows differ much.
BATCH_BYTES = 16 * 1024 * 1024
# The columns of a batch of JSON lines.
LINE, NUMBER = "line", "number"
LINES = pa.schema([(NUMBER, pa.int64()), (LINE, pa.string())])


@dataclass(frozen=True, slots=True)
class Mapping:
    """The column for each field of a message; without `body` the whole row becomes a JSON object."""

    body: str | None = None
    priority: str | None = None
    delay: str | None = None


class Files:
    """Rows of files; they have one part."""

    parts = ("",)

    def __init__(self, paths: Sequence[Path], mapping: Mapping, where: str | None = None) -> None:
        self._paths = paths
        self._mapping = mapping
        # A condition in SQL about the columns of a file.
        self._where = where

    @property
    def identity(self) -> object:
        # A file that was moved or changed is another one.
        facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in self._paths]
        return facts, self._mapping, self._where

    def count(self, part: str, after: int) -> int:
        return sum(batch.messages.num_rows for batch in self.batches(part, after, BATCH_ROWS))

    def batches(self, part: str, after: int, rows: int) -> Iterator[Batch]:
        start = 0
        for path in self._paths:
            with _readable(path) as kind:
                condition = None if self._where is None else _condition(self._where, path, kind)
                for batch in _rows_of(path, kind, rows):
                    end = start + batch.num_rows
                    if end > after:
                        chosen = batch.slice(max(0, after - start))
                        if condition is not None:
                            _check(path, kind, chosen)
                            chosen = condition.choose(chosen)
                        if chosen.num_rows:
                            yield Batch(end, _messages(path, kind, chosen, self._mapping))
                    start = end


@contextmanager
def _readable(path: Path) -> Iterator[str]:
    """Yield the format of a file; report errors with its name."""
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise BadSettings(f"{path}: its name does not show its format; name it {', '.join(FORMATS)}")
    try:
        yield kind
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise BadSettings(f"{path} cannot be read as {kind}: {str(error).splitlines()[0]}") from None


def _condition(where: str, path: Path, kind: str) -> "Condition":
    """Return the condition for the rows of one file; only here DuckDB is needed."""
    from wakeq.pipeline.load.condition import Condition, fields_of

    if kind != "json":
        return Condition(where)
    lines = pa.RecordBatchReader.from_batches(LINES, _lines_of(path, BATCH_ROWS))
    return Condition(where, fields_of(lines))


def _rows_of(path: Path, kind: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file; a row of JSON lines is a line with its number."""
    if kind == "json":
        yield from _lines_of(path, rows)
        return
    for batch in _csv(path) if kind == "csv" else _parquet(path, rows):
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _parquet(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    file = pyarrow.parquet.ParquetFile(path)
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    yield from file.iter_batches(min(rows, max(1, BATCH_BYTES * file.metadata.num_rows // max(1, size))))


def _csv(path: Path) -> pyarrow.csv.CSVStreamingReader:
    """Read every column as text: 01234 is not a number, and a column that begins with numbers may contain others."""
    names = pyarrow.csv.open_csv(path).schema.names
    texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return pyarrow.csv.open_csv(path, convert_options=texts)


def _lines_of(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    with path.open(encoding="utf-8") as file:
        numbered = ((number, line.strip()) for number, line in enumerate(file, 1))
        filled = ((number, line) for number, line in numbered if line)
        while some := _some_of(filled, rows):
            numbers, lines = zip(*some, strict=True)
            yield pa.RecordBatch.from_pydict({NUMBER: numbers, LINE: lines}, LINES)


def _some_of(numbered: Iterator[tuple[int, str]], rows: int) -> list[tuple[int, str]]:
    """Take so many lines, fewer if they are large."""
    some, size = list[tuple[int, str]](), 0
    for number, line in islice(numbered, rows):
        some.append((number, line))
        size += len(line)
        if size >= BATCH_BYTES:
            break
    return some


def _check(path: Path, kind: str, rows: pa.RecordBatch) -> None:
    """Refuse rows that a condition would leave out only because they cannot be read."""
    if kind == "json":
        for number, line in _numbered(rows):
            _object_in(path, number, line)


def _numbered(rows: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    return zip(rows.column(NUMBER).to_pylist(), rows.column(LINE).to_pylist(), strict=True)


def _messages(path: Path, kind: str, rows: pa.RecordBatch, mapping: Mapping) -> pa.RecordBatch:
    if kind != "json":
        return _from_columns(path, rows, mapping)
    messages = [_from_line(path, number, line, mapping) for number, line in _numbered(rows)]
    return pa.RecordBatch.from_pydict({name: [one[name] for one in messages] for name in messages[0]})


def _from_columns(path: Path, rows: pa.RecordBatch, mapping: Mapping) -> pa.RecordBatch:
    named = {"body": mapping.body, "priority": mapping.priority, "delay": mapping.delay}
    names = rows.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadSettings(f"{path} has two columns {twice}; name them differently")
    for column in named.values():
        if column is not None and column not in names:
            raise BadSettings(f"{path} has no column {column}; it has {', '.join(names)}")
    arrays = {name: rows.column(column) for name, column in named.items() if column is not None}
    if mapping.body is None:
        others = [name for name in names if name not in (mapping.priority, mapping.delay)]
        arrays["body"] = pa.array([_json_of(row) for row in rows.select(others).to_pylist()], pa.string())
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


def _object_in(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadSettings(f"{path}: line {number} is not a JSON object")
    return row


def _from_line(path: Path, number: int, line: str, mapping: Mapping) -> dict[str, Any]:
    """Return the message of one line; without a column for the body, the body is the line itself."""
    row = _object_in(path, number, line)
    if mapping.body is not None and mapping.body not in row:
        raise BadSettings(f"{path}: line {number} has no {mapping.body}")
    body = line if mapping.body is None else row[mapping.body]
    if body is None:
        raise BadSettings(f"{path}: line {number} has null as {mapping.body}; a message has a body")
    message: dict[str, Any] = {"body": body if isinstance(body, str) else _json_of(body)}
    for name, column in (("priority", mapping.priority), ("delay", mapping.delay)):
        if column is not None:
            message[name] = value = row.get(column)
            if value is not None and not (type(value) is int and -(2**63) <= value < 2**63):
                raise BadSettings(
                    f"{path}: line {number} has {value!r} as {column}; it must be a whole number of 64 bits"
                )
    return message


def _json_of(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
