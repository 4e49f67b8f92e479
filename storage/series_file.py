"""SeriesFile: `series`, what the dashboard's charts show (docs/files.md).

    the series of the node and of queues --> one file, replaced as a whole --> the same after any crash

It is the only file that a node can do without: one that is damaged, of another node or of another version is thrown
away with one line in the log, and the charts begin anew.  It never stops a start, and a write that fails ends nothing.
"""

import logging
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.series import DAY_S, VALUE_BYTES, WIDTH, Ring, Series, little_endian
from wakeq.storage.files import replace_durably

NAME: Final = "series"
MARKER: Final = b"\x2f\x6f\x0f\x53"
VERSION: Final = 1
# marker, version, cluster, node, CRC of what follows
HEADER = struct.Struct(">4si16siI")
# Subject: the length of the queue's name.  The node is first, and has no name.
SUBJECT = struct.Struct(">H")
# Ring: step, rows of its span, newest step, rows
RING = struct.Struct(">IIQI")
LEVEL = 1  # of compression: most values are zeros, unknown, or like the one before

logger = logging.getLogger("wakeq.series")


class SeriesFile:
    """The file of one data directory.  Both methods wait for the disk; `write` is for a thread."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.path = folder / NAME
        self._identity = identity
        # Whether the last write failed: what is wrong is logged once.
        self._has_failed = False

    def read(self) -> tuple[Series, dict[str, Series]] | None:
        """Return the series of the node and of queues by name; None if there are none that can be used."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s: %s; the charts begin anew", self.path, error.strerror)
            return None
        try:
            return self._decode(data)
        except (ValueError, struct.error, zlib.error) as error:
            logger.warning("%s: %s; the charts begin anew", self.path, error)
            return None

    def write(self, node: Series, queues: Mapping[str, Series]) -> None:
        """Replace the file.  Nobody may change the series meanwhile."""
        pack = zlib.compressobj(LEVEL)
        # One buffer: with very many queues this is many megabytes.
        data = bytearray(HEADER.size)
        for part in _parts(node, queues):
            data += pack.compress(part)
        data += pack.flush()
        about = MARKER, VERSION, self._identity.cluster_id, self._identity.node_id
        HEADER.pack_into(data, 0, *about, zlib.crc32(memoryview(data)[HEADER.size :]))
        try:
            replace_durably(self.path, data)
        except (StorageError, OSError) as error:
            if not self._has_failed:
                logger.warning("the series of the charts are not written: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _decode(self, data: bytes) -> tuple[Series, dict[str, Series]]:
        marker, version, cluster, node_id, checksum = HEADER.unpack_from(data)
        body = memoryview(data)[HEADER.size :]
        if marker != MARKER or version != VERSION:
            raise ValueError(f"found marker {marker.hex()} and version {version}, expected version {VERSION}")
        if (cluster, node_id) != (self._identity.cluster_id, self._identity.node_id):
            raise ValueError("it is of another node")
        if zlib.crc32(body) != checksum:
            raise ValueError("wrong checksum")
        text = memoryview(zlib.decompress(body))
        node, at = _read_series(text, 0, Series(DAY_S))
        queues = {}
        while at < len(text):
            (size,) = SUBJECT.unpack_from(text, at)
            name = bytes(text[at + SUBJECT.size : at + SUBJECT.size + size]).decode()
            queues[name], at = _read_series(text, at + SUBJECT.size + size, Series())
        return node, queues


def _parts(node: Series, queues: Mapping[str, Series]) -> Iterator[bytes]:
    yield from _rings(node)
    for name, series in queues.items():
        text = name.encode()
        yield SUBJECT.pack(len(text)) + text
        yield from _rings(series)


def _rings(series: Series) -> Iterator[bytes]:
    for ring in series.rings:
        yield RING.pack(ring.step_s, ring.length, ring.last, ring.rows)
        yield little_endian(ring.values).tobytes()


def _read_series(text: memoryview, at: int, series: Series) -> tuple[Series, int]:
    """Read rings into a series that has the same; return where the next subject begins."""
    for ring in series.rings:
        step_s, length, last, rows = RING.unpack_from(text, at)
        at += RING.size
        end = at + length * WIDTH * VALUE_BYTES
        if (step_s, length) != (ring.step_s, ring.length) or rows > length or end > len(text):
            raise ValueError("its rings are not those of this version")
        _fill(ring, text[at:end], last, rows)
        at = end
    return series, at


def _fill(ring: Ring, cells: memoryview, last: int, rows: int) -> None:
    del ring.values[:]
    ring.values.frombytes(cells)
    ring.values = little_endian(ring.values)
    ring.last, ring.rows = last, rows
