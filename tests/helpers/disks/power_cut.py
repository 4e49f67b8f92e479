"""LoopDisk: an ext4 file system in a file whose power can be cut, with everything that was not synced lost.

    image file --> mkfs, mount -o loop --> cut: partial writeback, then the shutdown ioctl --> umount, mount again

The cut is the kernel's own (EXT4_IOC_SHUTDOWN without a flush of the journal): what was never synced is
gone, and a random part of it may have reached the disk in any order. It needs root. It never leaves a mount
or a loop device.
"""

import atexit
import ctypes
import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_JOURNAL_FLUSH = 2
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7
PAGE_BYTES = 4096
UNMOUNT_TIMEOUT_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOUNTED: "weakref.WeakSet[LoopDisk]" = weakref.WeakSet()


def unavailable_reason() -> str:
    """Return why power cannot be cut here, or nothing if it can."""
    if os.geteuid() != 0:
        return "a power cut needs root to mount a loop device"
    if shutil.which("mkfs.ext4") is None:
        return "a power cut needs mkfs.ext4, which is not installed"
    if not Path("/dev/loop-control").exists():
        return "a power cut needs loop devices, which this machine does not have"
    with tempfile.TemporaryDirectory() as directory:
        try:
            with LoopDisk(Path(directory), size_bytes=16 << 20):
                return ""
        except subprocess.CalledProcessError as error:
            return f"a power cut needs a loop mount, which failed here: {error.stderr.strip()}"


class LoopDisk:
    """One disk; `path` is where its files are while it is mounted."""

    def __init__(self, directory: Path, *, size_bytes: int = 256 << 20) -> None:
        self.image = directory / "disk.img"
        self.path = directory / "disk"
        self.size_bytes = size_bytes
        self.mounted = False

    def __enter__(self) -> Self:
        with self.image.open("wb") as image:
            image.truncate(self.size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self.image))
        self.path.mkdir()
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def mount(self) -> None:
        """Mount the disk; after a cut the kernel plays its journal back."""
        _run("mount", "-o", "loop", str(self.image), str(self.path))
        self.mounted = True
        _MOUNTED.add(self)

    def cut(self, draw: random.Random, *, pages_share_max: float = 0.5) -> None:
        """Let a random part of what is dirty reach the disk, then lose the rest.  The disk fails every write now."""
        if draw.random() < 0.7:
            self._write_back_some(draw, draw.uniform(0, pages_share_max))
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL_FLUSH))
        finally:
            os.close(directory)

    def power_on(self) -> None:
        """Unmount what was cut and mount it again.  Whoever had files open must have ended."""
        self.unmount()
        self.mount()

    def unmount(self) -> None:
        deadline_s = time.monotonic() + UNMOUNT_TIMEOUT_S
        while self.mounted:
            try:
                _run("umount", str(self.path))
                self.mounted = False
                self._wait_until_gone(deadline_s)
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline_s:
                    _run("umount", "-l", str(self.path))  # leave nothing behind, and say that something held it
                    self.mounted = False
                    raise
                time.sleep(0.02)

    def _wait_until_gone(self, deadline_s: float) -> None:
        """Wait for the loop device: where somebody else still has the disk mounted, it would come back as it was."""
        while _run("losetup", "-j", str(self.image)):
            assert time.monotonic() < deadline_s, f"{self.path} is still mounted somewhere, in another namespace"
            time.sleep(0.01)

    def close(self) -> None:
        """Unmount and remove everything; may be called again."""
        try:
            self.unmount()
        finally:
            self.image.unlink(missing_ok=True)
            _MOUNTED.discard(self)

    def _write_back_some(self, draw: random.Random, share: float) -> None:
        """Push random pages out in random order: what a disk's own cache may do before the light goes out."""
        pages = []
        for file in self.path.rglob("*"):
            if file.is_file():
                count = -(-file.stat().st_size // PAGE_BYTES)
                last = range(max(0, count - 256), count)  # dirty pages are near the end of a log
                pages += [(file, page) for page in last if draw.random() < share]
        draw.shuffle(pages)
        for file, page in pages[:512]:
            self._write_back(file, page)

    @staticmethod
    def _write_back(file: Path, page: int) -> None:
        try:
            descriptor = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            return  # it was renamed in between
        try:
            offset, size = ctypes.c_int64(page * PAGE_BYTES), ctypes.c_int64(PAGE_BYTES)
            _LIBC.sync_file_range(descriptor, offset, size, SYNC_FILE_RANGE_WRITE_AND_WAIT)
        finally:
            os.close(descriptor)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@atexit.register
def _close_all() -> None:
    for disk in list(_MOUNTED):
        disk.close()
