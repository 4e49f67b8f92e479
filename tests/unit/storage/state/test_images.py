"""Images between nodes: only an image that arrived whole, in order and unchanged gets its name."""

from pathlib import Path

import pytest

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import Identity
from wakeq.storage.state.images import RECEIVED_NAME, ImageReader, ImageWriter
from wakeq.storage.state.snapshot import SnapshotHeader, write_snapshot

IDENTITY = Identity(bytes(range(16)), 1)
HEADER = SnapshotHeader(IDENTITY, 1234, 5, 1_700_000_000_123)
PIECE_BYTES = 1000


@pytest.fixture
def reader(tmp_path: Path) -> ImageReader:
    """An image of five pieces, as a peer would send it."""
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, [(1, b"key-%08d" % number, bytes(range(250))) for number in range(16)])
    reader = ImageReader.open(path, IDENTITY)
    assert reader is not None
    return reader


@pytest.fixture
def consensus(tmp_path: Path) -> Path:
    path = tmp_path / "receiver"
    path.mkdir()
    return path


def pieces_of(reader: ImageReader) -> list[tuple[int, bytes]]:
    pieces = []
    while not reader.is_at_end:
        pieces.append((reader.offset, reader.read(PIECE_BYTES)))
    return pieces


def test_open_without_an_image_returns_none(tmp_path: Path) -> None:
    assert ImageReader.open(tmp_path / "raft.snapshot", IDENTITY) is None


def test_image_received_in_pieces_equals_the_sent_one(reader: ImageReader, consensus: Path) -> None:
    writer = ImageWriter(consensus)

    for offset, data in pieces_of(reader):
        writer.write(offset, data)

    assert writer.finish(reader.crc, IDENTITY) == HEADER
    assert (consensus / RECEIVED_NAME).stat().st_size == reader.size_bytes


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 2), (0, 1, 0)])
def test_piece_out_of_order_is_refused(reader: ImageReader, consensus: Path, order: tuple[int, ...]) -> None:
    pieces, writer = pieces_of(reader), ImageWriter(consensus)
    *first, last = [pieces[number] for number in order]
    for offset, data in first:
        writer.write(offset, data)
    before = writer.path.read_bytes()

    with pytest.raises(DamagedFile, match="found another piece"):
        writer.write(*last)

    assert writer.path.read_bytes() == before


def test_image_with_another_checksum_is_refused(reader: ImageReader, consensus: Path) -> None:
    writer = ImageWriter(consensus)
    for offset, data in pieces_of(reader):
        writer.write(offset, data)

    with pytest.raises(DamagedFile, match="checksum"):
        writer.finish(reader.crc ^ 1, IDENTITY)


def test_image_without_its_last_piece_is_refused(reader: ImageReader, consensus: Path) -> None:
    *pieces, _last = pieces_of(reader)
    writer = ImageWriter(consensus)
    for offset, data in pieces:
        writer.write(offset, data)

    with pytest.raises(DamagedFile):
        writer.finish(writer._crc, IDENTITY)


def test_discarded_image_leaves_no_file(reader: ImageReader, consensus: Path) -> None:
    writer = ImageWriter(consensus)
    writer.write(*pieces_of(reader)[0])

    writer.discard()

    assert list(consensus.iterdir()) == []
