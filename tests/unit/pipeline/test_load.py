"""Loading files: every row once, however often it is begun anew; and what a column becomes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.helpers.memory_bulk import MemoryClient
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.load import Mapping, load
from wakeq.protocol.errors import BadSettings, Disconnected


def bodies(client: BulkClient) -> list[bytes]:
    return [message.body for message in client.fetch_many("q", 1000)]


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_become_json_objects_or_what_a_column_says(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": "late", "p": 9, "d": 0}, {"text": "first", "p": -1, "d": 0}])

    done = load(client, [file], "q", Mapping(body="text", priority="p", delay="d"))

    assert (done.rows, bodies(client)) == (2, [b"first", b"late"])
    load(client, [file], "q", Mapping(priority="p"))
    assert bodies(client) == [b'{"text": "first", "d": 0}', b'{"text": "late", "d": 0}']


def test_csv_and_json_lines_are_read_too(client: MemoryClient, tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "b.jsonl"
    table.write_text("id,name\n1,x\n2,y\n")
    lines.write_text('{"n": 1,   "as": "it stands"}\n\n{"n": 2}\n')

    load(client, [table], "q", Mapping(body="id"))
    load(client, [lines], "q", Mapping())

    assert bodies(client) == [b"1", b"2", b'{"n": 1,   "as": "it stands"}', b'{"n": 2}']


def test_the_same_load_begun_again_goes_on_behind_what_was_published(client: MemoryClient, tmp_path: Path) -> None:
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


def test_two_loads_of_the_same_at_once_publish_each_row_once(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": f"m{i}"} for i in range(9)])

    class Overtaken(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            load(client, [file], "q", Mapping(body="text"), batch_rows=3)
            return super().publish_stashes(*args, **named)

    load(Overtaken(client.machine), [file], "q", Mapping(body="text"), batch_rows=3)

    assert bodies(client) == [f"m{i}".encode() for i in range(9)]
    assert client.stats("q")["stashed"] == 0


def test_a_batch_that_was_stashed_and_not_published_is_published_once(client: MemoryClient, tmp_path: Path) -> None:
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
        ("a.txt", "", Mapping(), "is not known by its name"),
        ("a.parquet", "no", Mapping(), "cannot be read as parquet"),
        ("a.csv", "id\n1\n", Mapping(body="text"), "has no column text; it has id"),
        ("a.jsonl", "{}\n[]\n", Mapping(), "line 2 is no JSON object"),
        ("a.jsonl", "{}\n", Mapping(body="text"), "line 1 has no text"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(
    client: MemoryClient, tmp_path: Path, name: str, text: str, mapping: Mapping, complaint: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(BadSettings, match=complaint):
        load(client, [tmp_path / name], "q", mapping)
