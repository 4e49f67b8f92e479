"""Checkpoints of streaming queries: the offsets that Spark has written there, on any file system.

    a path, or a URL that fsspec opens --> the offsets of the last finished batch, and of the last planned one

It only reads, and a running query does not notice.
"""

from pathlib import Path
from typing import Any

from wakeq.pipeline.stream.offsets import offset_of
from wakeq.protocol.errors import BadSettings, NotInstalled

# The first two lines of a file of offsets are a version and Spark's own data.
HEAD_LINES = 2


class Checkpoint:
    """The checkpoint of one query."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        # The file system of a URL; None for a local folder.
        self._files: Any = None
        # The folder, as the file system calls it.
        self._folder = self.place
        if "://" in place or place.startswith("file:"):
            self._files, self._folder = _open(self.place)
        self._numbers("offsets", is_needed=True)

    def finished(self) -> list[dict[str, Any]]:
        """Return the offsets of our queues at the end of the last finished batch; empty if there is none."""
        return self._offsets(self._numbers("commits"))

    def planned(self) -> list[dict[str, Any]]:
        """Return the offsets of our queues at the end of the last batch, which may not be finished."""
        return self._offsets(self._numbers("offsets"))

    def _offsets(self, numbers: list[int]) -> list[dict[str, Any]]:
        if not numbers:
            return []
        lines = self._read(f"offsets/{max(numbers)}").splitlines()[HEAD_LINES:]
        offsets = [offset for offset in map(offset_of, lines) if offset is not None]
        if not offsets:
            raise BadSettings(f"{self.place}: no stream of its query is a queue of wakeq")
        return offsets

    def _numbers(self, folder: str, *, is_needed: bool = False) -> list[int]:
        """Return the numbers of the batches that are noted in a folder."""
        try:
            if self._files is None:
                names = [path.name for path in Path(self._folder, folder).iterdir()]
            else:
                names = [
                    one.rstrip("/").rpartition("/")[2] for one in self._files.ls(f"{self._folder}/{folder}", False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            if is_needed:
                raise BadSettings(
                    f"{self.place} is not the checkpoint of a streaming query: it has no directory {folder}"
                ) from None
            return []
        except Exception as error:
            raise self._unreadable(error) from error
        return [int(name) for name in names if name.isdecimal()]

    def _read(self, name: str) -> str:
        try:
            if self._files is None:
                return Path(self._folder, name).read_text(encoding="utf-8")
            return bytes(self._files.cat_file(f"{self._folder}/{name}")).decode()
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> BadSettings:
        """Return the error of a file system, whichever kind it raises."""
        return BadSettings(f"{self.place} cannot be read: {error or type(error).__name__}")


def _open(place: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the folder in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise NotInstalled("a checkpoint with a URL needs fsspec: pip install 'wakeq[lake]'") from None
    try:
        found: tuple[Any, str] = url_to_fs(place)
    # A package of a file system that is not installed, or an unknown one.
    except (ImportError, ValueError) as error:
        raise NotInstalled(f"{place} cannot be opened: {error}") from None
    return found
