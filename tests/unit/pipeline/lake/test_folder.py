"""A folder as a place, on file systems without links."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.lakes.lives import history, rows_in, told_by, without_cluster
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.place import place_at


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
