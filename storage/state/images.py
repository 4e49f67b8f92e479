"""Images on their way between nodes: read in pieces where one is, put together again where one is missing.

    ImageReader: header, then pieces      ImageWriter: pieces in order --> a whole image, checked --> `raft.install`

An image that has come is installed at a start (`wakeq/data/opening.py`): until then it lies beside what it will
replace.  So it is with the order to make the state anew.
Must never give an image its name before all of it is on disk and fits its checksums.
"""

import os
from pathlib import Path
from typing import Self
from zlib import crc32

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import Identity
from wakeq.storage.files import MODE, rename_durably, replace_durably, sync_data, sync_failed, write_all
from wakeq.storage.log.segments import open_file
from wakeq.storage.state.snapshot import SnapshotHeader, read_header, verify_snapshot

RECEIVED_NAME = "raft.received"
INSTALL_NAME = "raft.install"
SPOILT_NAME = "state.spoilt"


class ImageReader:
    """An image of this node, as it was when it was opened: a newer one that replaces it does not matter."""

    def __init__(self, header: SnapshotHeader, descriptor: int) -> None:
        self.header = header
        self.offset = 0
        self.crc = 0
        self.size_bytes = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, identity: Identity) -> Self | None:
        """Return the image, None if there is none."""
        if not path.exists():
            return None
        descriptor = open_file(path, os.O_RDONLY)
        try:
            return cls(read_header(path, descriptor, identity), descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, size: int) -> bytes:
        """Return the next piece; `crc` is then that of all pieces so far."""
        data = os.pread(self._descriptor, size, self.offset)
        self.offset += len(data)
        self.crc = crc32(data, self.crc)
        return data

    @property
    def is_at_end(self) -> bool:
        return self.offset >= self.size_bytes

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class ImageWriter:
    """An image that is being received."""

    def __init__(self, consensus: Path) -> None:
        self.path = consensus / RECEIVED_NAME
        self.offset = 0
        self._crc = 0
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise sync_failed(self.path, "create", error) from error

    def write(self, offset: int, data: bytes) -> None:
        """Take the next piece; any other than the next is refused."""
        if offset != self.offset:
            hint = "the transfer begins again by itself"
            raise DamagedFile(self.path, offset, found="another piece", expected=f"offset {self.offset}", hint=hint)
        write_all(self._descriptor, data, offset, self.path)
        self.offset += len(data)
        self._crc = crc32(data, self._crc)

    def finish(self, crc: int, identity: Identity) -> SnapshotHeader:
        """Put all of it on disk and check it to its last byte."""
        if crc != self._crc:
            hint = "the transfer begins again by itself"
            raise DamagedFile(self.path, 0, found=f"checksum {self._crc:08x}", expected=f"{crc:08x}", hint=hint)
        sync_data(self._descriptor, self.path)
        return verify_snapshot(self.path, identity)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def discard(self) -> None:
        """Give back the room of an image that will not be whole: a full disk may be the reason."""
        self.close()
        self.path.unlink(missing_ok=True)


def mark_spoilt(consensus: Path, index: int) -> None:
    """From now on a start makes the state anew, from an image in which this entry is not, and the log."""
    replace_durably(consensus / SPOILT_NAME, b"%d\n" % index)


def mark_for_install(consensus: Path) -> None:
    """From now on every start begins with this image."""
    rename_durably(consensus / RECEIVED_NAME, consensus / INSTALL_NAME)
