"""The options of `wakeq-journal` without a session of Spark: which places are read, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.journal.files import JOBS, JournalFiles, publish
from tests.helpers.journal.served import Served
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.protocol.errors import BadSettings

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


def reader_of(**options: str) -> Any:
    from wakeq.pipeline.journal.source import JournalReader

    # Spark passes names on in lower case.
    return JournalReader({name.lower(): value for name, value in options.items()})


def names_of(**options: str) -> list[str]:
    return [place.name for place in reader_of(**options)._places]


def test_places_are_brokers_or_directories() -> None:
    assert names_of(broker="one:8080, https://two") == ["one:8080", "https://two"]
    assert names_of(path="http://one:8080", token="secret") == ["http://one:8080"]
    assert names_of(path="/data") == ["/data"]
    assert names_of(paths='["/data", "http://one:8080"]') == ["http://one:8080", "/data"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "give either the HTTP port of a broker"),
        ({"broker": " , "}, "give either"),
        ({"broker": "one", "path": "/data"}, "give either"),
        ({"path": "/data", "token": "secret"}, "tokenFile and tls are for brokers"),
        ({"broker": "one", "tokenFile": "/nowhere/token"}, "/nowhere/token cannot be read"),
        ({"broker": "one", "colour": "red"}, "unknown option colour; wakeq-journal knows broker, token, tokenFile"),
        ({"broker": "one", "column": "at"}, "unknown option column; did you mean columns[?]"),
        ({"broker": "one", "done": "maybe"}, "option done is 'maybe'; it must be true or false"),
        ({"broker": "one", "partitions": "0"}, "a whole number from 1"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint) as refused:
        reader_of(**options)

    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_tasks_have_the_token_and_do_not_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_plan, "SPAN_BYTES_MIN", 1)
    files = JournalFiles(tmp_path / "data")
    for after in range(3):
        files.write(JOBS if not after else publish("a"))
        files.seal()
        files.outcomes(after)
    with Served(files.log) as served:
        reader = reader_of(broker=served.url, token="secret")

        partitions = reader.partitions()

        assert len(partitions) >= 3, "without the number of cores, each segment is worth a task"
        assert partitions[0].span.stretches[0].segment.files.token == "secret"
        assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) == 3
    assert "secret" not in repr(partitions)
