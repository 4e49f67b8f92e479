"""`wakeq report` and `wakeq pipeline forecast`: what they write, what they say of mistakes, what they never load."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.journal.files import AT_MS, JOBS, JournalFiles
from wakeq.cli import main
from wakeq.cli import report as module
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.embedded import Embedded
from wakeq.protocol.log.entries import Ack, Delivered, Draft, Publish

DEADLINE_S = 300.0
has_session = module._has_session
# Prints what a report should have left alone.
LOADED = """
import sys
from wakeq.cli import main
status = main(["report", sys.argv[1], "--out", sys.argv[2]])
print(status, [name for name in ("pandas", "pyspark", "wakeq.node") if name in sys.modules])
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS)
    for number in range(1, 11):
        files.write(
            Publish("jobs", [Draft(b"x")]),
            Delivered("jobs", 1, [number], [AT_MS + 60_000], number, worker=1),
            Ack("jobs", 1, [number], [(1, number)], worker=1),
        )
    files.outcomes(0, queues=[(1, 11, "jobs")])
    return files.path


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have started a session."""
    monkeypatch.setattr(module, "_has_session", lambda: False)


def test_report_writes_a_page_json_and_tables(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, tables = tmp_path / "new" / "r.html", tmp_path / "tables"

    status = main(["report", str(data), "--out", str(out), "--parquet", str(tables), "--queue", "jobs"])

    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    assert said.out.splitlines() == [
        str(path)
        for path in (out, out.with_suffix(".json"), *(tables / f"{n}.parquet" for n in ("counts", "spans", "workers")))
    ]
    assert json.loads(out.with_suffix(".json").read_text())["events"]["acked"] == 10


def test_report_without_events_says_so(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"

    status = main(["report", str(data), "--out", str(out), "--queue", "job"])

    assert (status, out.exists()) == (0, True)
    assert capsys.readouterr().err == "wakeq: no events of queue job in this time; the report is empty\n"


def test_forecast_of_a_lake_is_a_table_or_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    archive([data], lake)

    assert main(["pipeline", "forecast", str(lake), "--json", "--wait", "0.5"]) == 0
    (hour,) = json.loads(capsys.readouterr().out)
    assert main(["pipeline", "forecast", str(lake)]) == 0

    assert (hour["queue"], hour["days"], hour["service_s"], hour["workers_mean"]) == ("jobs", 1, 1.0, 1)
    assert capsys.readouterr().out.splitlines()[0].split("\t")[:2] == ["queue", "hour"]


def test_session_of_another_thread_is_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark calls a session active only in the thread that made it; session_for uses it in all of them."""
    sessions = SimpleNamespace(getActiveSession=lambda: None, active=lambda: "the default session")
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pyspark.sql", SimpleNamespace(SparkSession=sessions))
    monkeypatch.setitem(sys.modules, "pyspark.errors", SimpleNamespace(PySparkRuntimeError=RuntimeError))

    assert has_session()


def test_report_loads_neither_spark_nor_pandas(data: Path, tmp_path: Path) -> None:
    """Both take longer to load than a small report takes."""
    command = [sys.executable, "-c", LOADED, str(data), str(tmp_path / "r.html")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)

    assert done.stdout.splitlines()[-1] == "0 []"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "DATA", "--since", "yesterday"], "2026-01-31"),
        (["report", "DATA/nowhere"], "does not exist"),
        (["report", "DATA/consensus"], "is not a data directory"),
        (["report", "DATA", "--conf", "memory"], "is not a setting of Spark"),
        (["report", "DATA", "--master", "spark.example:7077"], "is not an address of Spark; write spark://HOST:PORT"),
        (["pipeline", "forecast", "DATA"], "is not a lake"),
        (["report", "DATA", "--since", "2026-02-01", "--until", "2026-02-01"], "--since must be before --until"),
        (["report", "DATA", "--out", "DATA/r.json"], "the JSON is written to r.json"),
        (["report", "DATA", "--out", "DATA/file/r.html"], "DATA/file: cannot be written: File exists"),
        (
            ["report", "DATA", "--out", "DATA/r.html", "--parquet", "DATA/file/tables"],
            "cannot be written: Not a directory",
        ),
        (["pipeline", "forecast", "http://127.0.0.1:8080"], "is a broker, not a lake; archive it first"),
        (["report"], "Missing argument"),
        (["pipeline", "report", "DATA"], "No such command"),
    ],
)
def test_mistake_is_one_line(data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    (data / "file").touch()

    status = main([argument.replace("DATA", str(data)) for argument in arguments])

    said = capsys.readouterr()
    assert status != 0
    assert words.replace("DATA", str(data)) in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""


def test_forecast_says_which_queues_have_no_known_working_time(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = JournalFiles(tmp_path / "unread")
    files.write(JOBS, Publish("jobs", [Draft(b"x")] * 36))
    files.outcomes(0, queues=[(1, 37, "jobs")])

    said = []
    for folder in (data, files.path):
        lake = str(tmp_path / f"lake-{folder.name}")
        archive([folder], lake)
        assert main(["pipeline", "forecast", lake]) == 0
        said.append(capsys.readouterr().err)

    assert said[0] == ""
    assert said[1].startswith("wakeq: no worker has acknowledged messages of jobs, so their working time is unknown")
    assert said[1].count("\n") == 1


@pytest.mark.parametrize("missing", ["duckdb", "numpy", "pyarrow"])
def test_missing_package_is_one_line_with_advice(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name, *more))

    assert main(["report", str(data)]) == 69

    assert capsys.readouterr().err == f"wakeq: not installed here: {missing}; pip install 'wakeq[report]'\n"


def test_interrupt_during_a_report_is_silent(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(tell: Callable[[int], None]) -> Embedded:
        return Embedded(lambda _events: os.kill(os.getpid(), signal.SIGINT))

    monkeypatch.setattr("wakeq.pipeline.report.embedded.Embedded", interrupted)

    status = main(["report", str(data), "--out", str(tmp_path / "r.html")])

    assert status == 130
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("options", "around", "is_asked"),
    [
        ([], {}, None),
        (["--master", "local[3]"], {}, {"master": "local[3]", "conf": ()}),
        (["--conf", "spark.a=b=c"], {}, {"master": None, "conf": (("spark.a", "b=c"),)}),
        ([], {"PYSPARK_GATEWAY_PORT": "1"}, {"master": None, "conf": ()}),
    ],
)
def test_spark_counts_only_when_it_is_asked_for(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    around: dict[str, str],
    is_asked: Any,
) -> None:
    asked = []

    @contextmanager
    def spark_for(name: str, doing: str, **given: Any) -> Any:
        asked.append(given)
        yield None

    monkeypatch.setattr(module, "spark_for", spark_for)
    monkeypatch.setattr("wakeq.pipeline.report.on_spark.OnSpark", lambda spark: Embedded())
    for name, value in around.items():
        monkeypatch.setenv(name, value)

    assert main(["report", str(data), "--out", str(tmp_path / "r.html"), *options]) == 0

    assert asked == ([] if is_asked is None else [is_asked | {"is_shown": True}])
