"""Mounts: the kind of file system comes from the mount point of the path."""

from pathlib import Path

from wakeq.storage import files as module


def test_file_system_is_that_of_the_longest_mount_point(tmp_path: Path) -> None:
    inner = tmp_path / "a b"
    inner.mkdir()
    mounts = tmp_path / "mounts"
    point = str(inner).replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/x {point} nfs4 rw 0 0\nnone /proc proc rw 0 0\n")

    assert module._kind_of_file_system(inner, mounts) == "nfs4"
    assert module._kind_of_file_system(tmp_path, mounts) == "ext4"
    assert module._kind_of_file_system(tmp_path, tmp_path / "none") == ""
