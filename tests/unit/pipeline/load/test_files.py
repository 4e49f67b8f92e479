"""Files: which message a row becomes, which rows a condition chooses, and what is said of an unreadable file."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.load import files as module
from wakeq.pipeline.load.files import Files, Mapping
from wakeq.pipeline.load.load import load
from wakeq.protocol.errors import BadSettings


def bodies(client: BulkClient) -> list[bytes]:
    return [message.body for message in client.fetch_many("q", 1000)]


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_become_json_objects_or_the_value_of_a_column(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"text": "late", "p": 9, "d": 0}, {"text": "first", "p": -1, "d": 0}])

    done = load(client, Files([file], Mapping(body="text", priority="p", delay="d")), "q")

    assert (done.rows, bodies(client)) == (2, [b"first", b"late"])
    load(client, Files([file], Mapping(priority="p")), "q")
    assert bodies(client) == [b'{"text": "first", "d": 0}', b'{"text": "late", "d": 0}']


def test_csv_values_are_published_as_written(client: MemoryClient, tmp_path: Path) -> None:
    file = tmp_path / "A.CSV"
    file.write_text("id,zip,p\n007,01234, 2\nNA,1.50,\n")

    load(client, Files([file], Mapping(body="zip", priority="p")), "q")
    load(client, Files([file], Mapping(priority="p")), "q")

    texts = [b"1.50", b'{"id": "NA", "zip": "1.50"}', b"01234", b'{"id": "007", "zip": "01234"}']
    assert bodies(client) == texts


def test_csv_and_json_lines_are_read_too(client: MemoryClient, tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "b.jsonl"
    table.write_text("id,name\n1,x\n2,y\n")
    lines.write_text('{"n": 1,   "as": "it stands"}\n\n{"n": 2}\n')

    load(client, Files([table], Mapping(body="id")), "q")
    load(client, Files([lines], Mapping()), "q")

    assert bodies(client) == [b"1", b"2", b'{"n": 1,   "as": "it stands"}', b'{"n": 2}']


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
        load(client, Files([tmp_path / name], mapping), "q")


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_batch_of_large_rows_has_fewer_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    rows = [{"text": f"{i}" * 1000} for i in range(9)]
    parquet(tmp_path / "a.parquet", rows)
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(module, "BATCH_BYTES", 2500)

    batches = list(Files([tmp_path / name], Mapping(body="text")).batches("", 0, 100))

    assert max(batch.messages.num_rows for batch in batches) <= 3
    assert [batch.end for batch in batches] == sorted({batch.end for batch in batches})
    found = [body for batch in batches for body in batch.messages.column("body").to_pylist()]
    assert found == [row["text"] for row in rows]


ROWS = [{"id": i, "kind": "a" if i % 3 else "b", "text": f"m{i}"} for i in range(9)]


def test_condition_chooses_rows_of_every_format(client: MemoryClient, tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", ROWS)
    (tmp_path / "a.csv").write_text("id,kind,text\n" + "".join(f"{r['id']},{r['kind']},{r['text']}\n" for r in ROWS))
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    where = "kind = 'b' AND id::INT > 0 -- not the first"

    for name in ("a.parquet", "a.csv", "a.jsonl"):
        load(client, Files([tmp_path / name], Mapping(body="text"), where), "q", batch_rows=2)

        assert bodies(client) == [b"m3", b"m6"]


def test_condition_about_json_knows_fields_that_a_batch_lacks(client: MemoryClient, tmp_path: Path) -> None:
    file = tmp_path / "orders [1].jsonl"
    file.write_text('{"id": 1}\n{"id": 2}\n{"id": 3, "to": {"name": "ada"}}\n')

    load(client, Files([file], Mapping(), "\"to\".name = 'ada'"), "q", batch_rows=1)

    assert bodies(client) == [b'{"id": 3, "to": {"name": "ada"}}']


def test_condition_leaves_out_no_line_that_cannot_be_read(client: MemoryClient, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n{"id": 2\n')

    with pytest.raises(BadSettings, match="line 2 is not a JSON object"):
        load(client, Files([file], Mapping(), "id = 1"), "q")


@pytest.mark.parametrize("where", ["id = 1) OR (id = 2", "true) UNION ALL SELECT 0 WHERE (true", "true; SELECT 1"])
def test_condition_that_is_more_than_one_expression_is_refused(
    client: MemoryClient, tmp_path: Path, where: str
) -> None:
    file = parquet(tmp_path / "a.parquet", ROWS)

    with pytest.raises(BadSettings, match=r"--where .*Parser Error"):
        load(client, Files([file], Mapping(), where), "q")


def test_condition_reads_no_files(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", ROWS)

    with pytest.raises(BadSettings, match=r"--where .*file system operations are disabled"):
        load(client, Files([file], Mapping(), f"id IN (SELECT id FROM '{file}')"), "q")


def test_condition_knows_no_variables_of_the_program(client: MemoryClient, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", ROWS)

    # `chosen` is one of choose().
    with pytest.raises(BadSettings, match=r"--where .*chosen does not exist"):
        load(client, Files([file], Mapping(), "id IN (SELECT id FROM chosen)"), "q")


def test_condition_may_leave_out_rows_without_a_body(client: MemoryClient, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": null}\n{"text": "m"}\n')

    load(client, Files([file], Mapping(body="text"), "text IS NOT NULL"), "q")

    assert bodies(client) == [b"m"]


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("nope = 1", 'Referenced column "nope" not found'),
        ("id >", "syntax error"),
        ("count(*) > 1", "WHERE clause cannot contain aggregates"),
        ("id = 'x'", "Could not convert string 'x'"),
    ],
)
def test_wrong_condition_is_one_line(client: MemoryClient, tmp_path: Path, where: str, complaint: str) -> None:
    file = parquet(tmp_path / "a.parquet", ROWS)

    with pytest.raises(BadSettings, match=f"--where .*{re.escape(complaint)}") as refused:
        load(client, Files([file], Mapping(), where), "q")

    assert "\n" not in str(refused.value)
