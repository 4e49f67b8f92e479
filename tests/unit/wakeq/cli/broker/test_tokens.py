"""`wakeq token`: a new token in a file, and who can read it there."""

import json
import os
from pathlib import Path

import pytest

from wakeq.cli import main
from wakeq.protocol.access import digest_of
from wakeq.storage.credentials import TokenFile


def created(data_dir: Path, *flags: str) -> int:
    return main(["token", "create", "me", "--data-dir", str(data_dir), *flags])


def test_token_in_a_file_is_readable_by_its_owner_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.umask(0)
    try:
        status = created(tmp_path, "--out", str(tmp_path / "me.token"))
    finally:
        os.umask(before)

    assert (status, capsys.readouterr().out) == (0, "")
    file = tmp_path / "me.token"
    assert file.stat().st_mode & 0o777 == 0o600
    (grant,) = TokenFile(tmp_path / "tokens.json").read()
    assert grant.sha256 == digest_of(file.read_text().strip()).hex()


def test_json_of_a_token_in_a_file_names_the_file_and_not_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created(tmp_path, "--out", str(tmp_path / "me.token"), "--json")

    assert json.loads(capsys.readouterr().out) == {"name": "me", "file": str(tmp_path / "me.token")}


def test_existing_token_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "me.token"
    file.write_text("other")

    status = created(tmp_path, "--out", str(file))

    assert status != 0
    assert "exists already" in capsys.readouterr().err
    assert file.read_text() == "other"
    assert not (tmp_path / "tokens.json").exists()


def test_refused_token_leaves_no_file(tmp_path: Path) -> None:
    created(tmp_path)

    assert created(tmp_path, "--out", str(tmp_path / "again.token")) != 0

    assert not (tmp_path / "again.token").exists()
