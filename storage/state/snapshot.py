"""Snapshot: `raft.snapshot`, an image of the state at one index of the log (docs/files.md).

    in   a header and the items (table, key, value) of one view of the store, in its order
    out  the old file or the new one, whole; and the items read back, each block checked

The file is written under a temporary name and renamed when it is on disk.  The caller may stop the writer at every
block.  The code never looks inside an item.  A reader that reaches the end without an error has read exactly the items
that were written.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NoReturn
from zlib import crc32

from wakeq.protocol.errors import DamagedFile, DiskFull, WrongVersion
from wakeq.protocol.log.format import MARKER, Identity, Read, check_prefix
from wakeq.storage.files import MODE, is_full, rename_durably, sync_data, sync_failed, temporary
from wakeq.storage.log.segments import open_file, reader

NAME = "raft.snapshot"
VERSION = 2  # on disk as -2: version 1 has the index of its last entry in this place, which is never negative
HEADER = Struct(">4si16siQQQI")  # marker, -version, cluster, node, last index, last term, clock, CRC
HEADER_BYTES = HEADER.size
BLOCK_BYTES = 1024 * 1024  # of a block, at most; a larger item has a block of its own
_BLOCK = Struct(">II")  # length of the payload, CRC
_ITEM = Struct(">BII")  # table, length of the key, length of the value
_END = Struct(">IQQII")  # 0, items, blocks, CRC over all, CRC of this block
NUMBER_END = 1 << 48  # above any index or term: at a million a second it takes nine years
CLOCK_MS_END = 1 << 46  # of the cluster clock: the year 4199
RESTORE = "the file was not changed: restore it from a copy, or from its peers"

Item = tuple[int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The image holds the state after `last_index`, at the cluster clock `clock_ms`."""

    identity: Identity
    last_index: int
    last_term: int
    clock_ms: int


# Writing ----------------------------------------------------------------------------------------------------


def write_snapshot(
    path: Path, header: SnapshotHeader, items: Iterable[Item], *, check: Callable[[], None] | None = None
) -> int:
    """Write an image and replace the old one by it; return its size.

    `check` is called before each block; an exception from it ends the writing and leaves the old image.  A full disk is
    DiskFull, because the node can go on without this image; every other error of the disk is SyncFailed.
    """
    new = temporary(path)
    descriptor = _create(new)
    try:
        try:
            size = _write_blocks(descriptor, new, header, items, check or _go_on)
            sync_data(descriptor, new)
        finally:
            os.close(descriptor)
        rename_durably(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return size


def stream_snapshot(
    descriptor: int, header: SnapshotHeader, items: Iterable[Item], *, check: Callable[[], None] | None = None
) -> int:
    """Write an image into a blocking pipe or socket; return its size."""
    return _write_blocks(descriptor, Path("the stream"), header, items, check or _go_on)


def _go_on() -> None:
    """The default `check`: never stop."""


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    except OSError as error:
        _raise_for(path, "create", error)


def _write_blocks(
    descriptor: int, path: Path, header: SnapshotHeader, items: Iterable[Item], check: Callable[[], None]
) -> int:
    data = _encode_header(header)
    chain = crc32(data)
    size = _write(descriptor, path, [data])
    count = blocks = 0
    for parts, block_items in _blocks_of(items):
        check()
        payload = b"".join(parts)
        chain = crc32(payload, chain)
        size += _write(descriptor, path, [_BLOCK.pack(len(payload), chain), payload])
        count += block_items
        blocks += 1
    check()
    end = _END.pack(0, count, blocks, chain, 0)[:-4]
    return size + _write(descriptor, path, [end + crc32(end).to_bytes(4, "big")])


def _blocks_of(items: Iterable[Item]) -> Iterator[tuple[list[bytes], int]]:
    """Yield blocks of items as (pieces to be joined, number of items).  This loop runs for every item."""
    pack, parts, size, count = _ITEM.pack, list[bytes](), 0, 0
    for table, key, value in items:
        added = _ITEM.size + len(key) + len(value)
        if size + added > BLOCK_BYTES and count:
            yield parts, count
            parts, size, count = [], 0, 0
        parts += (pack(table, len(key), len(value)), key, value)
        size += added
        count += 1
    if count:
        yield parts, count


def _write(descriptor: int, path: Path, parts: list[bytes]) -> int:
    size = sum(map(len, parts))
    try:
        written = os.writev(descriptor, parts)
        if written != size:
            raise OSError(errno.ENOSPC, f"only {written} of {size} bytes were written")
    except OSError as error:
        _raise_for(path, "write", error)
    return size


def _raise_for(path: Path, action: str, error: OSError) -> NoReturn:
    if is_full(path, error):
        raise DiskFull(f"{path}: {action} failed: {error.strerror}; free some space") from error
    raise sync_failed(path, action, error) from error


def _encode_header(header: SnapshotHeader) -> bytes:
    identity = header.identity
    body = HEADER.pack(
        MARKER, -VERSION, identity.cluster_id, identity.node_id,
        header.last_index, header.last_term, header.clock_ms, 0,
    )[:-4]  # fmt: skip
    return body + crc32(body).to_bytes(4, "big")


# Reading ----------------------------------------------------------------------------------------------------


def has_snapshot(path: Path) -> bool:
    """Whether there is an image; refuse a file with another prefix."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        data = file.read(8)
    check_prefix(data, path)
    if len(data) < 8:
        raise _damaged(path, 0, found=f"a file of {len(data)} bytes", expected="a header")
    return True


def read_snapshot(path: Path, identity: Identity | None) -> tuple[SnapshotHeader, Iterator[Item]]:
    """Return the header and the items.  The items may be trusted only when the iterator has ended without an error.

    The image must be of this cluster, but may be of another node: images are sent to nodes that are behind.
    """
    descriptor = open_file(path, os.O_RDONLY)
    try:
        header = _read_header(path, reader(descriptor, path), identity)
    except BaseException:
        os.close(descriptor)
        raise
    return header, _read_items(path, descriptor)


def check_header(path: Path, identity: Identity | None) -> None:
    """Check only the header of an image; that takes no longer for a large one."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        read_header(path, descriptor, identity)
    finally:
        os.close(descriptor)


def verify_snapshot(
    path: Path, identity: Identity | None, *, check: Callable[[], None] | None = None
) -> SnapshotHeader:
    """Check an image to its last byte without decoding its items; `check` is called after each block."""
    go_on = check or _go_on
    descriptor = open_file(path, os.O_RDONLY)
    try:
        header = _read_header(path, reader(descriptor, path), identity)
        for _payload in _read_blocks(path, descriptor):
            go_on()
    finally:
        os.close(descriptor)
    return header


def read_header(path: Path, descriptor: int, identity: Identity | None) -> SnapshotHeader:
    """Return the header of an open image."""
    return _read_header(path, reader(descriptor, path), identity)


def _read_header(path: Path, read: Read, identity: Identity | None) -> SnapshotHeader:
    data = read(0, HEADER_BYTES)
    check_prefix(data, path)
    version = -int.from_bytes(data[4:8], "big", signed=True)
    if len(data) >= 8 and version != VERSION:
        found = "1" if version <= 0 else str(version)
        raise WrongVersion(f"{path}: at offset 4: expected version {VERSION}, found {found}; use its own release")
    if len(data) < HEADER_BYTES:
        raise _damaged(path, 0, found=f"a file of {len(data)} bytes", expected=f"{HEADER_BYTES} bytes of header")
    _marker, _version, cluster, node, last_index, last_term, clock_ms, checksum = HEADER.unpack(data)
    if crc32(data[:-4]) != checksum:
        expected = f"header checksum {crc32(data[:-4]):08x}"
        raise _damaged(path, HEADER_BYTES - 4, found=f"{checksum:08x}", expected=expected)
    if identity is not None and cluster != identity.cluster_id:
        raise DamagedFile(
            path, 8, found=f"cluster {cluster.hex()}", expected=f"cluster {identity.cluster_id.hex()}",
            hint="the file belongs to another cluster: put the right data directory in its place",
        )  # fmt: skip
    for what, number, end in (
        ("index", last_index, NUMBER_END),
        ("term", last_term, NUMBER_END),
        ("clock", clock_ms, CLOCK_MS_END),
    ):
        if number >= end:
            raise _damaged(path, HEADER_BYTES - 28, found=f"the {what} {number}", expected=f"less than {end}")
    return SnapshotHeader(Identity(cluster, node), last_index, last_term, clock_ms)


def _read_items(path: Path, descriptor: int) -> Iterator[Item]:
    try:
        for payload in _read_blocks(path, descriptor):
            yield from _items_of(payload)
    finally:
        os.close(descriptor)


def _read_blocks(path: Path, descriptor: int) -> Iterator[bytes]:
    """Yield the payload of each block, checked; raise unless an end block matches all of them."""
    read, size = reader(descriptor, path), os.fstat(descriptor).st_size
    chain, offset, items, blocks = crc32(read(0, HEADER_BYTES)), HEADER_BYTES, 0, 0
    while True:
        front = read(offset, _BLOCK.size)
        if len(front) < _BLOCK.size:
            raise _damaged(path, offset, found="the end of the file", expected=f"block {blocks} or the end block")
        length, checksum = _BLOCK.unpack(front)
        if length == 0:
            _check_end(path, offset, read(offset, _END.size + 1), (items, blocks, chain))
            return
        if offset + _BLOCK.size + length > size:
            found = f"a block of {length} bytes that runs past the end of the file"
            raise _damaged(path, offset, found=found, expected=f"block {blocks}")
        payload = read(offset + _BLOCK.size, length)
        chain = crc32(payload, chain)
        if chain != checksum:
            expected = f"checksum {chain:08x} of block {blocks}"
            raise _damaged(path, offset + 4, found=f"{checksum:08x}", expected=expected)
        items += _count_items(path, offset + _BLOCK.size, payload)
        blocks += 1
        yield payload
        offset += _BLOCK.size + length


def _check_end(path: Path, offset: int, data: bytes, seen: tuple[int, int, int]) -> None:
    body, checksum = data[: _END.size - 4], data[_END.size - 4 : _END.size]
    if len(checksum) < 4 or crc32(body) != int.from_bytes(checksum, "big"):
        raise _damaged(path, offset, found="no whole end block", expected="the end block")
    _zero, items, blocks, chain, _crc = _END.unpack_from(data)
    if seen != (items, blocks, chain):
        found = f"{seen[0]} items in {seen[1]} blocks"
        raise _damaged(path, offset, found=found, expected=f"{items} items in {blocks} blocks")
    if len(data) > _END.size:
        raise _damaged(path, offset + _END.size, found="more bytes", expected="the end of the file")


def _count_items(path: Path, offset: int, payload: bytes) -> int:
    """Return the number of items in a block; refuse a block that they do not fill exactly."""
    position = count = 0
    limit = len(payload) - _ITEM.size
    while position <= limit:
        _table, key_bytes, value_bytes = _ITEM.unpack_from(payload, position)
        position += _ITEM.size + key_bytes + value_bytes
        count += 1
    if position != len(payload):
        raise _damaged(path, offset, found="an item that runs past its block", expected="whole items")
    return count


def _items_of(payload: bytes) -> Iterator[Item]:
    unpack, position, size = _ITEM.unpack_from, 0, _ITEM.size
    while position < len(payload):
        table, key_bytes, value_bytes = unpack(payload, position)
        key_at = position + size
        position = key_at + key_bytes + value_bytes
        yield table, payload[key_at : key_at + key_bytes], payload[key_at + key_bytes : position]


def _damaged(path: Path, offset: int, *, found: str, expected: str) -> DamagedFile:
    return DamagedFile(path, offset, found=found, expected=expected, hint=RESTORE)
