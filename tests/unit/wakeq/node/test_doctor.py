"""Doctor: findings about the data directory, its disk and the secret of the cluster."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from wakeq.config.settings import Cluster, Settings
from wakeq.node import doctor
from wakeq.storage.credentials import write_secret
from wakeq.storage.directory import DataDirectory

MIB = 1 << 20


def disk_of(monkeypatch: pytest.MonkeyPatch, *, size_mib: int, free_mib: int) -> None:
    """Let every file system have this size and this much free room."""
    state = SimpleNamespace(f_blocks=size_mib, f_frsize=MIB, f_bavail=free_mib)
    monkeypatch.setattr(os, "statvfs", lambda _path: state)


@pytest.mark.parametrize(
    ("size_mib", "free_mib", "level", "said"),
    [
        (200, 20, "bad", "20 MiB free, and publishes are refused below 50 MiB: make room"),
        (200, 50, "note", "50 MiB free; publishes are refused below 50 MiB"),
        (100 << 10, 4095, "note", "4095 MiB free; publishes are refused below 2048 MiB"),
        (100 << 10, 4096, "good", "4096 MiB free; publishes are refused below 2048 MiB"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False], ids=["made", "to be made"])
def test_disk_check_reports_free_room_and_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_mib: int, free_mib: int, level: str, said: str, is_there: bool
) -> None:
    path = tmp_path / "deep" / "data"
    if is_there:
        DataDirectory.open(path).close()
    disk_of(monkeypatch, size_mib=size_mib, free_mib=free_mib)

    found = next(doctor._disk(Settings(data_dir=path)))

    assert found == doctor.Finding(level, "disk", said)


@pytest.mark.parametrize("below", ["", "data", "deep/data"])
def test_data_directory_below_a_file_is_bad(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()

    findings = list(doctor.examine(Settings(data_dir=file / below)))

    (found,) = [finding for finding in findings if finding.what == "data" and finding.level != "note"]
    assert found == doctor.Finding("bad", "data", f"{file} is a file, not a directory: choose another path")
    assert [finding.what for finding in findings if finding.level == "bad"] == ["data"]


@pytest.mark.parametrize(
    ("mode", "insecure", "level", "said"),
    [
        (0o600, False, "good", "the secret of the cluster is in"),
        (0o644, False, "bad", "can impersonate a node"),
        (0o602, False, "bad", "can impersonate a node"),
        (0o644, True, "note", "can impersonate a node"),
    ],
)
def test_cluster_secret_open_to_everybody_is_bad(
    tmp_path: Path, mode: int, insecure: bool, level: str, said: str
) -> None:
    file = tmp_path / "secret"
    write_secret(file)
    file.chmod(mode)
    cluster = Cluster(node=0, peers="127.0.0.1:1,127.0.0.1:2", secret_file=file)

    found = [
        finding
        for finding in doctor._security(Settings(data_dir=tmp_path, cluster=cluster, insecure=insecure))
        if "secret" in finding.text
    ]

    assert [finding.level for finding in found] == [level]
    assert said in found[0].text
