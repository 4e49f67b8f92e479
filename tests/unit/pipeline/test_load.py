"""Loading files: every row once, however often it is begun anew; and what a column becomes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.load import Mapping, load
from wakeq.protocol.errors import BadSettings, Disconnected


def bodies(client: BulkClient) -> list[bytes]:
    return [message.body for message in client.fetch_many("q", 1000)]


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_become_json_objects_or_the_value_of_a_column(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": "late", "p": 9, "d": 0}, {"text": "first", "p": -1, "d": 0}])

    done = load(client, [file], "q", Mapping(body="text", priority="p", delay="d"))

    assert (done.rows, bodies(client)) == (2, [b"first", b"late"])
    load(client, [file], "q", Mapping(priority="p"))
    assert bodies(client) == [b'{"text": "first", "d": 0}', b'{"text": "late", "d": 0}']


def test_csv_values_are_published_as_written(client: MemoryClient, tmp_path: Path) -> None:
    file = tmp_path / "A.CSV"
    file.write_text("id,zip,p\n007,01234, 2\nNA,1.50,\n")

    load(client, [file], "q", Mapping(body="zip", priority="p"))
    load(client, [file], "q", Mapping(priority="p"))

    texts = [b"1.50", b'{"id": "NA", "zip": "1.50"}', b"01234", b'{"id": "007", "zip": "01234"}']
    assert bodies(client) == texts


def test_csv_and_json_lines_are_read_too(client: MemoryClient, tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "b.jsonl"
    table.write_text("id,name\n1,x\n2,y\n")
    lines.write_text('{"n": 1,   "as": "it stands"}\n\n{"n": 2}\n')

    load(client, [table], "q", Mapping(body="id"))
    load(client, [lines], "q", Mapping())

    assert bodies(client) == [b"1", b"2", b'{"n": 1,   "as": "it stands"}', b'{"n": 2}']


def test_repeated_load_continues_behind_published_rows(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": f"m{i}"} for i in range(10)])

    class Breaks(MemoryClient):
        published = 0

        def publish_stashes(self, *args: Any, **named: Any) -> int:
            rows = super().publish_stashes(*args, **named)
            self.published += 1
            if self.published == 2:
                raise Disconnected("as if it had been killed behind the second batch")
            return rows

    with pytest.raises(Disconnected):
        load(Breaks(client.machine), [file], "q", Mapping(body="text"), batch_rows=3)

    done = load(client, [file], "q", Mapping(body="text"), batch_rows=3)

    assert (done.rows, done.skipped) == (4, 6)
    assert load(client, [file], "q", Mapping(body="text"), batch_rows=3).rows == 0
    assert bodies(client) == [f"m{i}".encode() for i in range(10)]


def test_repeated_load_at_another_rate_continues(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": f"m{i}"} for i in range(10)])

    class Stopped(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            super().publish_stashes(*args, **named)
            raise Disconnected("as if it had been stopped because it was too fast")

    with pytest.raises(Disconnected):
        load(Stopped(client.machine), [file], "q", Mapping(body="text"), batch_rows=4)

    done = load(client, [file], "q", Mapping(body="text"), rate=10_000, batch_rows=3)

    assert (done.rows, done.skipped) == (6, 4)
    assert bodies(client) == [f"m{i}".encode() for i in range(10)]


def test_named_load_continues_although_its_file_was_moved(client: MemoryClient, tmp_path: Path) -> None:
    first, longer = tmp_path / "a.jsonl", tmp_path / "moved.jsonl"
    first.write_text('{"n": 1}\n')
    longer.write_text('{"n": 1}\n{"n": 2}\n')

    load(client, [first], "q", Mapping(), name="orders")
    done = load(client, [longer], "q", Mapping(), name="orders")

    assert (done.rows, done.skipped) == (1, 1)
    assert bodies(client) == [b'{"n": 1}', b'{"n": 2}']


def test_concurrent_loads_of_one_file_publish_each_row_once(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": f"m{i}"} for i in range(9)])

    class Overtaken(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            load(client, [file], "q", Mapping(body="text"), batch_rows=3)
            return super().publish_stashes(*args, **named)

    done = load(Overtaken(client.machine), [file], "q", Mapping(body="text"), batch_rows=3)

    assert (done.rows, done.skipped) == (0, 9)
    assert bodies(client) == [f"m{i}".encode() for i in range(9)]
    assert client.stats("q")["stashed"] == 0


def test_stashed_batch_is_published_once_by_the_next_load(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": "a"}])

    class Dies(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            raise Disconnected("as if it had been killed before")

    with pytest.raises(Disconnected):
        load(Dies(client.machine), [file], "q", Mapping(body="text"))
    load(client, [file], "q", Mapping(body="text"))

    assert bodies(client) == [b"a"]


@pytest.mark.parametrize(
    ("name", "text", "mapping", "complaint"),
    [
        ("a.txt", "", Mapping(), "its name does not show its format"),
        ("a.parquet", "no", Mapping(), "cannot be read as parquet"),
        ("a.csv", "id\n1\n", Mapping(body="text"), "has no column text; it has id"),
        ("a.jsonl", "{}\n[]\n", Mapping(), "line 2 is not a JSON object"),
        ("a.jsonl", "{}\n", Mapping(body="text"), "line 1 has no text"),
        ("a.jsonl", '{"text": null}\n', Mapping(body="text"), "line 1 has null as text; a message has a body"),
        ("a.csv", "id,id\n1,2\n", Mapping(), "has two columns id; name them differently"),
        ("a.jsonl", '{"p": "x"}\n', Mapping(priority="p"), "line 1 has 'x' as p; it must be a whole number"),
        ("a.jsonl", '{"p": 1.5}\n', Mapping(delay="p"), "line 1 has 1.5 as p; it must be a whole number"),
        ("a.jsonl", f'{{"p": {2**63}}}\n', Mapping(priority="p"), "as p; it must be a whole number of 64 bits"),
        ("a.csv", "id,p\n1,soon\n", Mapping(body="id", priority="p"), "column p: Failed to parse string: 'soon'"),
    ],
)
def test_unreadable_file_is_one_line_of_error(
    client: MemoryClient, tmp_path: Path, name: str, text: str, mapping: Mapping, complaint: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(BadSettings, match=complaint):
        load(client, [tmp_path / name], "q", mapping)
