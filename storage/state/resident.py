"""ResidentPages: keeps the pages of a mapped file from counting as this process's memory.

A process that reads a file through a map is charged for every page that it ever touched, until the kernel is short of
memory: reading a gigabyte of messages once looks like a gigabyte of use.  Above a bound this object tells the kernel
that the pages are no longer needed.  They stay in its cache, and touching one again does not read the disk.

It must never release an address that no longer belongs to the file, so the owner of the map says when the map moves.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

RESIDENT_BYTES_MAX: Final = 32 * 1024 * 1024  # of all mapped files in this process, before pages are released
CHECK_EVERY: Final = 64  # uses between two checks of the size, each of which costs some microseconds

_LIBC = ctypes.CDLL(None, use_errno=True)
_MALLOC_TRIM = getattr(_LIBC, "malloc_trim", None)  # of glibc only
_STATUS = Path("/proc/self/statm")
_MAPS = Path("/proc/self/maps")


class ResidentPages:
    """A bound for the resident pages of one mapped file.  Any thread may call."""

    def __init__(self, path: Path, bytes_max: int = RESIDENT_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # held while the map moves or ends, and while its pages are released
        self._uses = 0  # small uses so far
        self._works = _STATUS.exists() and hasattr(mmap, "MADV_DONTNEED")

    def used(self) -> None:
        """Count one small use of the map; every CHECK_EVERY uses, check the bound."""
        self._uses += 1
        if self._uses % CHECK_EVERY == 0:
            self.check()

    def check(self) -> None:
        """Release the pages if too many are resident; call this after a use that touched many."""
        if self._works and mapped_file_bytes() > self._bytes_max:
            self.give_up()

    def give_up(self) -> None:
        """Tell the kernel that no page of the file is needed any more."""
        with self._lock:
            for start, size in self._ranges():
                _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Release nothing while the map moves or ends: its address may then belong to another one."""
        with self._lock:
            yield

    def _ranges(self) -> list[tuple[int, int]]:
        """Return (address, size) of the read-only shared maps of the file: releasing their pages loses nothing."""
        if not self._works:
            return []
        # The file may have been removed.
        with suppress(OSError):
            inode = str(self._path.stat().st_ino)
            lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
            places = [line[0] for line in lines if line[4] == inode and line[1] == "r--s"]
            ends = [tuple(int(address, 16) for address in place.split("-")) for place in places]
            return [(start, end - start) for start, end in ends]
        return []


def mapped_file_bytes() -> int:
    """Return the size of the file pages in this process's resident memory."""
    return int(_STATUS.read_bytes().split()[2]) * os.sysconf("SC_PAGESIZE")


def give_freed_back() -> None:
    """Make the allocator return freed memory to the kernel; otherwise it keeps that after a lot of work."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
