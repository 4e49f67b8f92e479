"""Blocks of the worker protocol as Arrow batches, and back: both have the same layout, so little is copied.

wire.Block --> RecordBatch RecordBatch --> Columns, in pieces that fit into a frame
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wakeq.client.bulk import Columns
from wakeq.pipeline.stream.columns import check_names
from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.worker.blocks import Buffers
from wakeq.protocol.wire.worker.codec import Block

HEADERS = pa.map_(pa.string(), pa.string())
# In one frame, and so in one entry of the log.
PIECE_ROWS_MAX = 10_000
PIECE_BYTES_MAX = 8 << 20

_encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


def batch_of(block: Block, queue: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return fetched messages with these columns of the data source."""
    buffers = Buffers(block.block, block.rows, block.columns)
    return pa.RecordBatch.from_pydict({name: _column(name, buffers, block.rows, queue) for name in columns})


def _column(name: str, buffers: Buffers, rows: int, queue: str) -> pa.Array:
    match name:
        case "queue":
            return pa.array([queue], pa.string()).take(pa.array(np.zeros(rows, np.int32)))
        case "body":
            return _texts(buffers, name, rows, pa.binary())
        case "priority":
            return _integers(buffers, name, rows)
        case "delivery":
            return pc.add(_integers(buffers, "deliveries", rows), 1).cast(pa.int32())
        case "published":
            return pc.multiply(_integers(buffers, "published_ms", rows), 1000).cast(pa.timestamp("us", tz="UTC"))
        case "headers":
            packed = buffers.texts(name)
            return pa.array([list(_decode_headers(one).items()) if one else [] for one in packed], HEADERS)
        case _:
            return _texts(buffers, name, rows, pa.string())


def _integers(buffers: Buffers, name: str, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(buffers.raw(name)[0])])


def _texts(buffers: Buffers, name: str, rows: int, kind: pa.DataType) -> pa.Array:
    offsets, data = buffers.raw(name)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def columns_of(batch: pa.RecordBatch, *, priority: int = 0, delay: int = 0) -> Iterator[Columns]:
    """Yield the messages of a batch in pieces that fit into a frame; `priority` and `delay` stand in for nulls."""
    check_names(batch.schema.names)
    body, absent = batch.column("body"), {"priority": priority, "delay": delay}
    if body.null_count:
        raise BadField(f"body is null in {body.null_count} of {batch.num_rows} rows; a message has a body")
    start = 0
    while start < batch.num_rows:
        piece = batch.slice(start, PIECE_ROWS_MAX)
        while piece.num_rows > 1 and piece.nbytes > PIECE_BYTES_MAX:
            piece = piece.slice(0, piece.num_rows // 2)
        yield _columns(piece, absent)
        start += piece.num_rows


def _columns(piece: pa.RecordBatch, absent: Mapping[str, int]) -> Columns:
    parts: list[bytes] = []
    for name in piece.schema.names:
        array = piece.column(name)
        if name == "body":
            parts += _binary(array.cast(pa.binary()))
        elif name == "headers":
            parts += _binary(
                pa.array([_encode_headers(dict(row)) if row else b"" for row in array.to_pylist()], pa.binary())
            )
        else:
            numbers = array.cast(pa.int64()).fill_null(absent[name])
            parts.append(numbers.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    return Columns(piece.num_rows, piece.schema.names, b"".join(part + bytes(-len(part) % 8) for part in parts))


def _binary(array: pa.Array) -> list[bytes]:
    """Return offsets and data of an array that may be a part of a larger one."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, "<i4")[array.offset : array.offset + len(array) + 1]
    start, end = int(places[0]), int(places[-1])
    raw = b"" if data is None else data.slice(start, end - start).to_pybytes()
    return [(places - start).astype("<i4").tobytes(), raw]
