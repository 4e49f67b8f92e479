"""A store: creations that are refused, repeated or not exclusive, and errors in one line."""

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.helpers.lakes.lives import history
from tests.helpers.lakes.places import BUCKET, EXCLUSIVE, Kind
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.place import place_at
from wakeq.pipeline.lake.reading import Lake
from wakeq.protocol.errors import StorageError


def test_file_is_created_once_and_the_second_creator_is_told(kind: Kind) -> None:
    place = place_at(kind.address())

    assert [place.create("_wakeq/one", content) for content in (b"1", b"2")] == [True, False]
    assert place.read("_wakeq/one") == b"1"
    assert place.refuses_second("_wakeq/one") == (kind.name in EXCLUSIVE)
    assert place.names("_wakeq") == ["one"]


def test_creation_whose_answer_was_lost_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_at("memory://lost/lake")
    pipe = MemoryFileSystem.pipe_file

    def lose_answer(self: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        pipe(self, path, value, mode)
        raise TimeoutError("no answer")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lose_answer)

    assert place.create("_wakeq/one", b"1")
    assert not place.create("_wakeq/one", b"2")


def test_creation_that_failed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise TimeoutError("no answer\nfrom there")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fail)

    with pytest.raises(StorageError, match=r"^memory://x/lake: cannot be read or written: no answer$"):
        place_at("memory://x/lake").create("_wakeq/one", b"1")


def test_store_that_creates_a_name_twice_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipe = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, value, mode="": pipe(self, path, value))

    assert not archive([history(tmp_path).path], "memory://twice/lake").is_exclusive


@pytest.mark.usefixtures("s3")
def test_missing_bucket_and_refused_key_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    files = history(tmp_path)

    with pytest.raises(StorageError, match=r"^s3://nothing/lake: its bucket or container does not exist; create it$"):
        archive([files.path], "s3://nothing/lake")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StorageError, match="Unable to locate credentials; credentials come from AWS_PROFILE, or"):
        archive([files.path], f"s3://{BUCKET}/lake")
    s3fs.S3FileSystem.clear_instance_cache()


def test_lake_of_another_process_is_seen_although_it_was_listed_before(kind: Kind, tmp_path: Path) -> None:
    files, address = history(tmp_path), kind.address()
    place = place_at(address)
    assert place.data_files() == []
    archive([files.path], address)

    assert len(place.data_files()) == 1
    assert Lake(address).files[0].startswith(address)
