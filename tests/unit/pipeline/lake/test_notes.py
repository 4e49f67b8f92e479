"""The chain of notes: what an archive reads while another one goes on."""

from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.helpers.journal.files import CLUSTER
from tests.helpers.lakes.lives import add, history, rows_in, told_by, without_cluster
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.notes import LIST_TRIES, Notes
from wakeq.pipeline.lake.place import place_at
from wakeq.protocol.errors import StorageError

NOTE = "0000000000000000001.json"


def test_note_that_is_removed_before_it_is_read_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, address = history(tmp_path), "memory://follows/lake"
    archive([files.path], address, bodies=True)
    read = MemoryFileSystem.cat_file

    def go_on(self: MemoryFileSystem, path: str, **kwargs: object) -> bytes:
        if path.endswith(NOTE):
            monkeypatch.undo()
            add(files, 4)
            archive([files.path], address, bodies=True)
        content: bytes = read(self, path)
        return content

    monkeypatch.setattr(MemoryFileSystem, "cat_file", go_on)

    done = archive([files.path], address, bodies=True)

    assert (done.events, done.next_index) == (0, 12)
    assert without_cluster(rows_in(address)) == told_by(files.path)
    assert place_at(address).names(f"_wakeq/{CLUSTER.hex()}") == ["0000000000000000002.json"]


def test_notes_that_are_always_removed_before_they_are_read_end_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, address = history(tmp_path), "memory://gone/lake"
    archive([files.path], address)
    reads: list[str] = []

    def gone(self: MemoryFileSystem, path: str, **kwargs: object) -> bytes:
        reads.append(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", gone)

    with pytest.raises(StorageError, match="another archive is writing to it; wait until it has ended"):
        Notes(place_at(address), CLUSTER.hex())

    assert len(reads) == LIST_TRIES
