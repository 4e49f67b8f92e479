"""Offsets from the checkpoint of a query, in a folder or behind a URL."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wakeq.pipeline.stream.checkpoint import Checkpoint
from wakeq.protocol.errors import BadSettings, NotInstalled, StorageError


def offset(epoch: int) -> dict[str, Any]:
    return {"wakeq": 1, "broker": "b:1", "queue": "q", "source": "s", "epoch": epoch, "slices": 1, "messages": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A query of two streams, one of them a queue: two batches are planned, one is finished."""
    for number in (9, 10):
        file = tmp_path / "c" / "offsets" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["v1", "{}", json.dumps(offset(number)), '{"logOffset": 3}', "-"]))
    (tmp_path / "c" / "offsets" / ".10.crc").write_text("")
    (tmp_path / "c" / "commits").mkdir()
    (tmp_path / "c" / "commits" / "9").write_text("v1\n{}")
    return tmp_path / "c"


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "memory"])
def test_finished_and_planned_offsets_are_read(folder: Path, form: str) -> None:
    place = form.format(folder)
    if form == "memory":
        fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
        fsspec.filesystem("memory").put(str(folder), "/c", recursive=True)
        place = "memory://c"

    checkpoint = Checkpoint(place)

    assert checkpoint.finished() == [offset(9)]
    assert checkpoint.planned() == [offset(10)]


def test_query_without_a_finished_batch_has_no_finished_offset(folder: Path) -> None:
    (folder / "commits" / "9").unlink()
    assert Checkpoint(str(folder)).finished() == []

    (folder / "commits").rmdir()
    assert Checkpoint(str(folder)).finished() == []


@pytest.mark.parametrize("place", ["{}", "file://{}", "{}/nowhere"])
def test_other_folder_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(BadSettings, match="is not the checkpoint of a streaming query: it has no directory offsets"):
        Checkpoint(place.format(tmp_path))


def test_checkpoint_of_another_source_is_refused(folder: Path) -> None:
    (folder / "offsets" / "9").write_text('v1\n{}\n{"logOffset": 3}')

    with pytest.raises(BadSettings, match="no stream of its query is a queue of wakeq"):
        Checkpoint(str(folder)).finished()


def test_checkpoint_without_the_offsets_of_its_last_batch_is_refused(folder: Path) -> None:
    (folder / "offsets" / "9").unlink()

    with pytest.raises(BadSettings, match="is not a whole checkpoint: it has no file offsets/9"):
        Checkpoint(str(folder)).finished()


def test_checkpoint_of_another_user_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", refuse)

    with pytest.raises(StorageError, match=f"^{folder}: cannot be read or written: Permission denied"):
        Checkpoint(str(folder))


def test_url_that_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(BadSettings, match=r"^nonsense://b/c: nothing opens nonsense://; give a path or s3:"):
        Checkpoint("nonsense://b/c")

    with pytest.raises(BadSettings, match=r"^s3a:/b/c is neither a path nor an address; write an address as s3a://b/c"):
        Checkpoint("s3a:/b/c")

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(NotInstalled, match=r"pip install 'wakeq\[lake\]'"):
        Checkpoint("s3://b/c")
