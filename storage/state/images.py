"""Images between nodes: the sender reads one in pieces, the receiver puts the pieces together again.

    ImageReader: header, then pieces      ImageWriter: pieces in order --> a whole image, checked --> `raft.install`

A received image is installed at the next start (`wakeq/data/opening.py`); until then it lies beside the files that it
will replace.  The order to rebuild the state is carried out at the next start too.  An image must never get its final
name before all of it is on disk and its checksums are right.
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
    """An open image of this node; it stays readable when a newer image replaces it."""

    def __init__(self, header: SnapshotHeader, descriptor: int) -> None:
        self.header = header
        self.offset = 0  # of the next piece
        self.crc = 0  # of all pieces so far
        self.size_bytes = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, identity: Identity) -> Self | None:
        """Open the image; return None if there is none."""
        if not path.exists():
            return None
        descriptor = open_file(path, os.O_RDONLY)
        try:
            return cls(read_header(path, descriptor, identity), descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, size: int) -> bytes:
        """Return the next piece."""
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
        self.offset = 0  # of the next piece
        self._crc = 0  # of all pieces so far
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise sync_failed(self.path, "create", error) from error

    def write(self, offset: int, data: bytes) -> None:
        """Write the next piece; refuse any other."""
        if offset != self.offset:
            hint = "the transfer begins again by itself"
            raise DamagedFile(self.path, offset, found="another piece", expected=f"offset {self.offset}", hint=hint)
        write_all(self._descriptor, data, offset, self.path)
        self.offset += len(data)
        self._crc = crc32(data, self._crc)

    def finish(self, crc: int, identity: Identity) -> SnapshotHeader:
        """Sync the image and check it to its last byte."""
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
        """Delete an image that will not be completed: the disk may be full."""
        self.close()
        self.path.unlink(missing_ok=True)


def mark_for_rebuild(consensus: Path, index: int) -> None:
    """Order the next start to rebuild the state from the log and an image without this entry."""
    replace_durably(consensus / SPOILT_NAME, b"%d\n" % index)


def mark_for_install(consensus: Path) -> None:
    """Order the next start to install the received image."""
    rename_durably(consensus / RECEIVED_NAME, consensus / INSTALL_NAME)
