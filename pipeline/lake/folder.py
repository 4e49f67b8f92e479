"""A folder of this machine as the place of a lake; it survives a loss of power."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from wakeq.pipeline.lake.place import DATA_FILE
from wakeq.protocol.errors import StorageError


class Folder:
    """Files and folders below a path; they are created when they are needed."""

    def __init__(self, path: Path, address: str) -> None:
        # As the user wrote it.
        self.address = address
        # Not changed by a later change of the working directory.
        self._path = path.absolute()

    @property
    def filesystem(self) -> Any:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem()

    def names(self, folder: str) -> list[str]:
        with self._told():
            try:
                return sorted(os.listdir(self._path / folder))
            except FileNotFoundError:
                return []

    def data_files(self) -> list[str]:
        found = (path.relative_to(self._path).as_posix() for path in self._path.glob("date=*/*.parquet"))
        return sorted(name for name in found if DATA_FILE.fullmatch(name))

    def path_of(self, name: str) -> str:
        return str(self._path / name)

    def address_of(self, name: str) -> str:
        return self.path_of(name)

    def read(self, name: str) -> bytes:
        with self._told(FileNotFoundError):
            return (self._path / name).read_bytes()

    def create(self, name: str, data: bytes) -> bool:
        unfinished, path = f"{name}.{uuid4().hex}", self._path / name
        self.write(unfinished, data)
        with self._told():
            try:
                # Unlike a rename, a link fails if the name is taken.
                os.link(self._path / unfinished, path)
            except (FileExistsError, FileNotFoundError):
                # Another archive has this name, and perhaps even removed `unfinished` as a remainder.
                return False
            except OSError:
                # This file system has no links; `refuses_second` says so.
                if path.exists():
                    return False
                os.replace(self._path / unfinished, path)
            finally:
                self.remove([unfinished])
            _sync(path.parent)
        return True

    def write(self, name: str, data: bytes) -> None:
        path = self._path / name
        with self._told():
            _make(path.parent)
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _sync(path.parent)

    def move(self, source: str, target: str, data: bytes | None = None) -> None:
        old, new = self._path / source, self._path / target
        with self._told():
            _make(new.parent)
            # If it is not there, another archive has moved it.
            with suppress(FileNotFoundError):
                os.replace(old, new)
            _sync(new.parent)
            _sync(old.parent)

    def remove(self, names: Iterable[str]) -> None:
        with self._told():
            for name in names:
                (self._path / name).unlink(missing_ok=True)

    def refuses_second(self, name: str) -> bool:
        other = f"{name}.{uuid4().hex}"
        try:
            os.link(self._path / name, self._path / other)
        except OSError:
            return False
        self.remove([other])
        return True

    @contextmanager
    def _told(self, *passed: type[OSError]) -> Iterator[None]:
        """Turn an error of the file system into one line."""
        try:
            yield
        except OSError as error:
            if isinstance(error, passed):
                raise
            raise StorageError(f"{self.address}: cannot be read or written: {error.strerror or error}") from None


def _make(folder: Path) -> None:
    """Create a folder and those above it, durably."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
