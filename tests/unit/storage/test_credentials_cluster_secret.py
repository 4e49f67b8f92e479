"""ClusterSecret: it is made once, for its owner alone, and read back unchanged."""

import stat
from pathlib import Path

import pytest

from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.storage.credentials import SECRET_BYTES, read_secret, write_secret


def test_new_secret_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"

    write_secret(path)

    assert len(read_secret(path)) >= SECRET_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_existing_secret_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("what others have")

    with pytest.raises(StorageError, match="exists already"):
        write_secret(path)

    assert path.read_text() == "what others have"


@pytest.mark.parametrize("place", ["file/secret", "file/new/secret"])
def test_path_that_cannot_hold_a_file_is_refused_with_a_hint(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match="choose another place"):
        write_secret(tmp_path / place)


def test_white_space_around_the_secret_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b" " + b"x" * SECRET_BYTES + b"\r\n")

    assert read_secret(path) == b"x" * SECRET_BYTES


@pytest.mark.parametrize(("content", "match"), [(b"x" * 31 + b"\n", "it has 31 bytes"), (b"x" * 5000, "32 to 4096")])
def test_secret_that_is_too_short_or_long_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)

    with pytest.raises(BadSettings, match=match):
        read_secret(path)


def test_missing_file_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    with pytest.raises(BadSettings, match=f"No such file or directory; `wakeq cluster secret --out {path}` makes one"):
        read_secret(path)
