"""Marks: one byte for each job in a file that worker and measuring process both map; a job that ran sets its own.

So a job costs no call to the kernel, one that ran twice counts once, and it does not matter in which thread or
process it ran.  The file has a byte for each job from the start and never grows.
"""

import mmap
from pathlib import Path


class Marks:
    """The number of runs of each job so far, by job number."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, jobs: int) -> "Marks":
        path.write_bytes(bytes(jobs))
        return cls(path)

    def leave(self, number: int) -> None:
        self._bytes[number] = 1

    def count(self) -> int:
        return self._bytes[:].count(1)
