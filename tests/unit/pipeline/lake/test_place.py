"""Addresses of places: what they open, and how wrong ones are refused."""

import sys
from pathlib import Path

import pytest

from wakeq.pipeline.lake.folder import Folder
from wakeq.pipeline.lake.place import place_at
from wakeq.pipeline.lake.store import Store
from wakeq.protocol.errors import BadSettings, NotInstalled


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("lake", "{here}/lake"),
        ("a:b/lake", "{here}/a:b/lake"),
        ("/srv/lake", "/srv/lake"),
        (Path("/srv/lake"), "/srv/lake"),
        ("file:///srv/a%20lake", "/srv/a lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("file://localhost/srv/lake", "/srv/lake"),
    ],
)
def test_path_is_a_folder_that_a_later_change_of_directory_does_not_move(
    address: str | Path, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = place_at(address)
    monkeypatch.chdir("/")

    assert isinstance(place, Folder)
    assert place.path_of("x") == path.format(here=tmp_path) + "/x"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_names_that_hadoop_has_for_s3_open_s3_and_stay_as_they_were_written(scheme: str) -> None:
    place = place_at(f"{scheme}://bucket/some/lake/")

    assert isinstance(place, Store)
    assert place.path_of("x") == "bucket/some/lake/x"
    assert place.address_of("x") == f"{scheme}://bucket/some/lake/x"


@pytest.mark.parametrize("address", ["memory://", "memory:///"])
def test_root_of_a_store_is_not_a_folder_of_this_machine(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = place_at(address)
    place.write("date=2026-01-31/a.parquet", b"1")

    assert place.path_of("x") == "/x"
    assert place.address_of("x") == "memory:///x"
    assert place.data_files() == ["date=2026-01-31/a.parquet"]
    assert list(tmp_path.iterdir()) == []
    place.remove(place.data_files())


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("s3a:/bucket/lake", "write an address as s3a://bucket/lake"),
        (Path("s3a://bucket/lake"), "write an address as s3a://bucket/lake"),
        ("file://host/lake", "names another machine; write a path of this one as file:///host/lake"),
        ("simplecache::s3://bucket/lake", "is not an address of one place; write it as s3://bucket/lake"),
        ("nothing://bucket/lake", "nothing opens nothing://; give a path or s3://..."),
    ],
)
def test_wrong_address_is_refused_with_advice(address: str | Path, advice: str) -> None:
    with pytest.raises(BadSettings) as refused:
        place_at(address)

    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("address", ["sftp://me:secret@host/lake", "SMB://me:secret@host:445/lake"])
def test_address_with_a_password_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(BadSettings, match=r"an address contains no password.* FSSPEC_[A-Z0-9]+_PASSWORD") as refused:
        place_at(address)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "module", "advice"),
    [
        ("s3a://bucket/lake", "s3fs", "nothing installed here opens s3a://; pip install s3fs"),
        ("gs://bucket/lake", "gcsfs", "nothing installed here opens gs://; pip install gcsfs"),
        ("abfss://box@name.dfs.core.windows.net/lake", "adlfs", "opens abfss://; pip install adlfs"),
        ("wasbs://box@name.blob.core.windows.net/lake", "adlfs", "opens wasbs://; pip install adlfs"),
        ("s3://bucket/lake", "fsspec.core", "fsspec; pip install 'wakeq[lake]'"),
    ],
)
def test_missing_package_of_an_address_is_named(
    address: str, module: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.registry import _registry

    for scheme in ("s3", "gs", "abfs"):
        monkeypatch.delitem(_registry, scheme, raising=False)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(NotInstalled) as refused:
        place_at(address)

    assert advice in str(refused.value)
