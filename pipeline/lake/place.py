"""A place: where the files of a lake are, opened by its address.

    lake, /srv/lake, file:///srv/lake                                       --> Folder
    s3://, s3a://, gs://, abfs://, abfss://, hdfs://, memory:// and more    --> Store, by fsspec

An address stays text: a path object would turn s3a://bucket into s3a:/bucket.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from wakeq.protocol.errors import BadSettings

# The names that Hadoop and fsspec have for one file system.
SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasb": "abfs", "wasbs": "abfs"}
HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
DATA_FILE = re.compile(r"date=[^/]+/[^/._][^/]*\.parquet")


class Place(Protocol):
    """The operations that a lake needs.  A file appears whole or not at all, and is durable when a call returns."""

    @property
    def address(self) -> str:
        """The place, as the user wrote it."""

    @property
    def filesystem(self) -> Any:
        """The file system for pyarrow."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; of a folder that does not exist, none."""

    def data_files(self) -> list[str]:
        """Return the files in folders `date=...`, relative to the place, in order."""

    def path_of(self, name: str) -> str:
        """Return a file as `filesystem` calls it."""

    def address_of(self, name: str) -> str:
        """Return a file as an engine calls it."""

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; return False if somebody else has created it."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file that nobody else writes."""

    def move(self, source: str, target: str, data: bytes | None = None) -> None:
        """Give a file another name.  Another process may do the same; `data` is its content, if it is known."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove these files, if they are still there."""

    def refuses_second(self, name: str) -> bool:
        """Return whether creating this file, which exists, is refused, so that of two creators one is told no."""


def place_at(address: str | Path) -> "Place":
    """Open a place.  Nothing is created, and a store is not asked yet."""
    from wakeq.pipeline.lake.folder import Folder

    text = str(address)
    if not HAS_SCHEME.match(text):
        # An address of fsspec in which one file system reads through another.
        if "::" in text and "://" in text:
            raise BadSettings(f"{text} is not an address of one place; write it as {text.rpartition('::')[2]}")
        return Folder(Path(text), text)
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if text.lower().startswith("file:/"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise BadSettings(f"{text} names another machine; write a path of this one as file:///{rest}")
        return Folder(Path(unquote(parts.path)), text)
    if not separator:
        name, _, rest = text.partition(":/")
        raise BadSettings(f"{text} is neither a path nor an address; write an address as {name}://{rest.lstrip('/')}")
    if ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise BadSettings(
            f"an address contains no password, because errors show addresses; set FSSPEC_{scheme.upper()}_PASSWORD"
        )
    from wakeq.pipeline.lake.store import Store

    return Store(text, f"{SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}")
