"""`wakeq pipeline archive` to any place."""

import json
from pathlib import Path

import pytest

from tests.helpers.lakes.lives import history, rows_in
from wakeq.cli.entry import main
from wakeq.pipeline.lake.store import Store


def test_archive_to_an_address_is_written_there_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = history(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert main(["pipeline", "archive", str(files.path), "--to", "memory://cli/lake", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"events": 21, "files": 1, "missing": 0, "next_index": 10}
    assert len(rows_in("memory://cli/lake")) == 21
    assert list(Path.cwd().iterdir()) == []


def test_archive_into_the_directory_of_a_broker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = history(tmp_path).path
    before = sorted(path.iterdir())

    assert main(["pipeline", "archive", str(path), "--to", str(path)]) == 78

    said = f"wakeq: {path} is the data directory of a broker; name another folder for the lake\n"
    assert capsys.readouterr().err == said
    assert sorted(path.iterdir()) == before


def test_archive_says_that_a_place_is_not_exclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Store, "refuses_second", lambda self, name: False)

    assert main(["pipeline", "archive", str(history(tmp_path).path), "--to", "memory://said/lake"]) == 0

    assert "never let two archives of one cluster write there at the same time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"),
    [("s3a:/bucket/lake", "write an address as s3a://bucket/lake"), ("nothing://bucket/lake", "nothing opens nothing")],
)
def test_wrong_address_of_a_lake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str, words: str
) -> None:
    assert main(["pipeline", "archive", str(history(tmp_path).path), "--to", address]) == 78

    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
