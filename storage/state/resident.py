"""ResidentPages: keeps the pages of a mapped file from counting as this process's memory.

Whoever reads a file through a map is charged for every page that was ever touched, until the kernel is short
of memory: one walk over a gigabyte of messages looks like a gigabyte of use.  Past a bound we tell the kernel
that we are done with the pages.  They stay in its cache, and touching one again is no disk read.

It must never give up an address that is no longer the file's, so the owner of the map says when it moves.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

RESIDENT_BYTES_MAX: Final = 32 * 1024 * 1024  # of mapped files in this process, before ours are given up
CHECK_EVERY: Final = 64  # uses between two looks at the size, which costs some microseconds

_LIBC = ctypes.CDLL(None, use_errno=True)
_MALLOC_TRIM = getattr(_LIBC, "malloc_trim", None)  # glibc has it
_STATUS = Path("/proc/self/statm")
_MAPS = Path("/proc/self/maps")


class ResidentPages:
    """Bounds the resident pages of one mapped file.  Any thread may call."""

    def __init__(self, path: Path, bytes_max: int = RESIDENT_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # held while the map moves or goes, and while its pages are given up
        self._uses = 0
        self._works = _STATUS.exists() and hasattr(mmap, "MADV_DONTNEED")

    def used(self) -> None:
        """Count one small use of the map; now and then look whether too much of it is resident."""
        self._uses += 1
        if self._uses % CHECK_EVERY == 0:
            self.check()

    def check(self) -> None:
        """Give the pages up if too much is resident; for after a use that touched many."""
        if self._works and mapped_file_bytes() > self._bytes_max:
            self.give_up()

    def give_up(self) -> None:
        """Tell the kernel that no page of the file is needed."""
        with self._lock:
            for start, size in self._ranges():
                _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Keep off while the map moves or goes: what stood at its address may then be somebody else's."""
        with self._lock:
            yield

    def _ranges(self) -> list[tuple[int, int]]:
        """Return where the file is mapped, for reading and shared: such pages lose nothing."""
        if not self._works:
            return []
        with suppress(OSError):  # the file may be gone, then nothing is given up
            inode = str(self._path.stat().st_ino)
            lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
            places = [line[0] for line in lines if line[4] == inode and line[1] == "r--s"]
            ends = [tuple(int(address, 16) for address in place.split("-")) for place in places]
            return [(start, end - start) for start, end in ends]
        return []


def mapped_file_bytes() -> int:
    """Return how much of this process's resident memory is pages of files."""
    return int(_STATUS.read_bytes().split()[2]) * os.sysconf("SC_PAGESIZE")


def give_freed_back() -> None:
    """Let the allocator return what much work has left it with; it keeps that for ever otherwise."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
