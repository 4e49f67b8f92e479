"""Places for lakes: a folder, the memory of fsspec, a file system with a rename, and S3 on the loopback.

kind --> addresses of empty places, and a call at the n-th write to any of them
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry, register_implementation

from wakeq.pipeline.lake.place import place_at

KINDS = ("folder", "memory", "renaming", "s3")
# Of two archives at once only one goes on there.
EXCLUSIVE = ("folder", "memory", "s3")
BUCKET = "lakes"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
# Calls that change a file, by the kind of place.
WRITES = {"folder": ("fsync", "replace", "link", "unlink"), "renaming": ("pipe_file", "mv", "rm_file")}
WRITES_OF_STORES = ("pipe_file", "rm_file")


class RenamingFiles(MemoryFileSystem):
    """Stands for HDFS as pyarrow has it: folders are made, nothing is created exclusively, a rename replaces a file."""

    protocol = "sftp"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = path.removeprefix("sftp://").strip("/")
        return f"/{path}" if path else ""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        assert mode == "overwrite", "this file system does not create exclusively"
        super().pipe_file(path, value)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if not self.isdir(self._parent(path2)):
            raise OSError(f"rename of {path1} to {path2} failed")
        self.cp_file(path1, path2)
        super()._rm(path1)


class Kind:
    """One kind of place."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def address(self) -> str:
        """Return the address of a place where nothing is."""
        name = uuid4().hex
        match self.name:
            case "folder":
                return str(self._folder / name)
            case "memory":
                return f"memory://{name}/lake"
            case "renaming":
                return f"sftp://{name}/lake"
        return f"s3a://{BUCKET}/{name}/lake"

    @contextmanager
    def at_write(self, number: int, then: Callable[[], None], *, after: bool) -> Iterator[list[str]]:
        """Call `then` once, before or after the write with this number; yield the names of the writes so far.

        If it raises something other than an Exception, the process is dead: code that cleans up writes nothing.
        """
        writes: list[str] = []
        deaths: list[BaseException] = []
        target: Any = os if self.name == "folder" else place_at(self.address())._files  # type: ignore[attr-defined]

        def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                if deaths:
                    raise deaths[0]
                writes.append(name)
                mine = len(writes) == number
                try:
                    if mine and not after:
                        then()
                    result = call(*args, **kwargs)
                    if mine and after:
                        then()
                except Exception:
                    raise
                except BaseException as error:
                    deaths.append(error)
                    raise
                return result

            return wrapper

        with pytest.MonkeyPatch.context() as patch:
            for name in WRITES.get(self.name, WRITES_OF_STORES):
                patch.setattr(target, name, watched(name, getattr(target, name)))
            yield writes


@contextmanager
def renaming_files() -> Iterator[None]:
    """Let sftp:// be RenamingFiles."""
    register_implementation("sftp", RenamingFiles, clobber=True)
    try:
        yield
    finally:
        _registry.pop("sftp")
        RenamingFiles.store.clear()


@contextmanager
def s3_on_loopback() -> Iterator[None]:
    """Run a server that speaks S3, with an empty bucket, for all of s3fs in this process."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(BUCKET)
        yield
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
