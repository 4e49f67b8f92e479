"""A folder as a place: on file systems without links, and on full ones."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.lakes.lives import history, rows_in, told_by, without_cluster
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.place import place_at
from wakeq.protocol.errors import StorageError


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError("this file system has no links")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_folder_without_links_takes_an_archive_and_says_that_it_is_not_exclusive(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"

    done = archive([files.path], lake, bodies=True)

    assert not done.is_exclusive
    assert without_cluster(rows_in(lake)) == told_by(files.path)


@pytest.mark.usefixtures("no_links")
def test_folder_without_links_keeps_the_first_creation(tmp_path: Path) -> None:
    place = place_at(tmp_path)

    assert [place.create("one", content) for content in (b"1", b"2")] == [True, False]
    assert place.read("one") == b"1"
    assert place.names(".") == ["one"]


def test_full_disk_and_path_below_a_file_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = history(tmp_path)
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match=r"file/lake: cannot be read or written: Not a directory$"):
        archive([files.path], tmp_path / "file" / "lake")

    def fill(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(StorageError, match=r"/lake: cannot be read or written: No space left on device$"):
        archive([files.path], tmp_path / "lake")
