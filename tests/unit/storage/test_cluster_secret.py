"""ClusterSecret: it is made once, for its owner alone, and read as it was made."""

import stat
from pathlib import Path

import pytest

from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.storage.cluster_secret import SECRET_BYTES, make_secret, read_secret, write_secret


def test_secret_that_was_made_is_read_and_belongs_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"

    write_secret(path)

    assert len(read_secret(path)) >= SECRET_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_secret_is_another_one() -> None:
    assert make_secret() != make_secret()


def test_secret_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("what others have")

    with pytest.raises(StorageError, match="exists already"):
        write_secret(path)

    assert path.read_text() == "what others have"


@pytest.mark.parametrize("place", ["file/secret", "file/new/secret"])
def test_place_where_no_file_can_be_is_an_error_that_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match="choose another place"):
        write_secret(tmp_path / place)


def test_white_space_around_it_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b" " + b"x" * SECRET_BYTES + b"\r\n")

    assert read_secret(path) == b"x" * SECRET_BYTES


@pytest.mark.parametrize(("content", "match"), [(b"x" * 31 + b"\n", "it has 31 bytes"), (b"x" * 5000, "32 to 4096")])
def test_text_that_is_too_short_or_long_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)

    with pytest.raises(BadSettings, match=match):
        read_secret(path)


def test_file_that_is_missing_is_named_with_the_way_to_make_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    with pytest.raises(BadSettings, match=f"No such file or directory; `wakeq cluster secret --out {path}` makes one"):
        read_secret(path)
