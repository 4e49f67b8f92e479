"""Tools for durable files: the text of the error after a failed write."""

import errno
import os
from pathlib import Path

import pytest

from wakeq.storage.files import sync_failed


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "the disk is full: free some space, then start the node again"),
        (errno.EDQUOT, "the disk is full: free some space, then start the node again"),
        (errno.EACCES, "the node must own its data directory and everything in it: see owner and mode"),
        (errno.EPERM, "the node must own its data directory and everything in it: see owner and mode"),
        (errno.EROFS, "the kernel may have made it read-only because the disk fails"),
        (errno.EIO, "the disk may be failing: look into the kernel's log before starting the node again"),
    ],
)
def test_hint_of_a_failed_write_depends_on_its_cause(tmp_path: Path, number: int, hint: str) -> None:
    error = sync_failed(tmp_path / "file", "create", OSError(number, os.strerror(number)))

    assert str(error).startswith(f"{tmp_path}/file: create failed: {os.strerror(number)}; ")
    assert hint in str(error)
