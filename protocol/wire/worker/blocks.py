"""Blocks: many messages as columns, and the frames that carry them raw between the lines (docs/protocols/worker.md).

    columns --> pack --> bytes laid out as Arrow buffers          bytes --> Buffers --> columns
    a JSON line, a block --> frame --> bytes of the stream        bytes of the stream --> BlockReader, parts_of

A block is the buffers of its columns one after the other, each filled up to a multiple of 8 bytes, little-endian: of
`binary` the offsets (i32, rows + 1) and the data, of `int64` the numbers.  Must never copy what it only passes on, or
trust an offset that it has not checked.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from sys import byteorder

from wakeq.protocol.errors import BadField, FrameTooLarge
from wakeq.protocol.wire.lines import LineReader, LineTooLong

ALIGNMENT = 8
FRAME_BYTES_MAX = 33 << 20  # with the JSON line before the block
FRAME_LINE_BYTES_MAX = 64 * 1024  # of the JSON line in it: what is large is in the block, where it makes no objects
HEAD_BYTES_MAX = 12  # of `*`, the size and the line end
STAR = b"*"
NEXT_IS_FRAME = b"\n*"

BINARY, INT64 = "binary", "int64"
KINDS: Mapping[str, str] = {
    "body": BINARY, "headers": BINARY, "uid": BINARY, "state": BINARY,
    "priority": INT64, "delay": INT64, "delay_ms": INT64, "deliveries": INT64, "published_ms": INT64, "sequence": INT64,
}  # fmt: skip


# Columns ------------------------------------------------------------------------------------------------------------


def pack(columns: Sequence[tuple[str, Sequence[bytes] | Sequence[int]]]) -> bytes:
    """Return the buffers of columns, each with as many values as the others."""
    parts: list[bytes] = []
    for name, values in columns:
        if KINDS[name] == INT64:
            _add(parts, _little_endian(array("q", values)))  # type: ignore[arg-type]
        else:
            texts: Sequence[bytes] = values  # type: ignore[assignment]
            _add(parts, _little_endian(array("i", accumulate(map(len, texts), initial=0))))
            _add(parts, b"".join(texts))
    return b"".join(parts)


def _add(parts: list[bytes], buffer: bytes) -> None:
    parts += (buffer, bytes(-len(buffer) % ALIGNMENT))


def _little_endian(column: "array[int]") -> bytes:
    if byteorder == "big":
        column.byteswap()
    return column.tobytes()


class Buffers:
    """The buffers of a block, by column; checked as they are asked for."""

    def __init__(self, block: bytes, rows: int, names: Sequence[str]) -> None:
        self._view = memoryview(block)
        self._rows = rows
        self._at = 0
        self._found: dict[str, list[memoryview]] = {}
        for name in names:
            self._found[name] = self._column(name)
        if self._at != len(block):
            raise BadField(f"block has {len(block)} bytes, its columns have {self._at}")

    def _column(self, name: str) -> list[memoryview]:
        if name not in KINDS or name in self._found:
            raise BadField(
                f"columns: {name[:40]!a} is not a column, or is given twice; the columns are {', '.join(KINDS)}"
            )
        if KINDS[name] == INT64:
            return [self._take(8 * self._rows)]
        offsets = self._take(4 * (self._rows + 1))
        size = int.from_bytes(offsets[-4:], "little", signed=True)
        if size < 0:
            raise BadField(f"column {name}: its last offset is {size}")
        return [offsets, self._take(size)]

    def _take(self, size: int) -> memoryview:
        start, self._at = self._at, self._at + size + -size % ALIGNMENT
        if self._at > len(self._view):
            raise BadField(f"block has {len(self._view)} bytes, its columns need {self._at} or more")
        return self._view[start : start + size]

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def raw(self, name: str) -> list[memoryview]:
        """Return the buffers of a column as they lie in the block."""
        return self._found[name]

    def numbers(self, name: str) -> "array[int]":
        """Return the values of an int64 column; nothing but 0 if the block does not have it."""
        if name not in self._found:
            return array("q", [0]) * self._rows
        return _native("q", self._found[name][0])

    def texts(self, name: str) -> list[bytes]:
        """Return the values of a binary column; nothing but b"" if the block does not have it."""
        if name not in self._found:
            return [b""] * self._rows
        places, whole = self.joined(name)
        return [whole[start:end] for start, end in pairwise(places)]

    def joined(self, name: str) -> tuple["array[int]", bytes]:
        """Return where the values of a binary column, which the block has, begin and end, and all of them together."""
        offsets, data = self._found[name]
        places = _native("i", offsets)
        in_order = places.tolist()
        if in_order[0] or sorted(in_order) != in_order:  # what is in order already costs a look at each, and no more
            raise BadField(f"column {name}: its offsets do not begin with 0, or do not grow")
        return places, bytes(data)


def _native(code: str, raw: memoryview) -> "array[int]":
    column = array(code, bytes(raw))
    if byteorder == "big":
        column.byteswap()
    return column


# Frames -------------------------------------------------------------------------------------------------------------


def frame(line: bytes, block: bytes) -> bytes:
    """Return a JSON object and its block as they stand in the stream, but for the line end behind them."""
    return b"*%d\n%b\n%b" % (len(line) + 1 + len(block), line, block)


def may_hold_frames(data: bytes) -> bool:
    """Whether there is anything but lines in data that begins where a line does.

    Asked about all that comes: one byte is looked for twenty times as fast as two.
    """
    return STAR in data and (data[:1] == STAR or NEXT_IS_FRAME in data)


def parts_of(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (whole lines, None) and (line, block), in the order of the stream."""
    at = 0
    while at < len(data):
        if data[at : at + 1] == STAR:
            start, stop = _inside(data, at)
            end = data.find(b"\n", start, stop)
            end = stop if end < 0 else end
            yield data[start:end], data[end + 1 : stop]
            at = stop + 1
        else:
            found = data.find(NEXT_IS_FRAME, at)
            end = len(data) if found < 0 else found + 1
            yield data[at:end], None
            at = end


def _inside(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return where the content of a frame begins and ends; (0, 0) while its head is not complete."""
    end = data.find(b"\n", at, at + HEAD_BYTES_MAX)
    if end < 0 and len(data) - at < HEAD_BYTES_MAX:
        return 0, 0
    digits = bytes(data[at + 1 : max(end, at + 1)])
    if not digits.isdigit() or int(digits) > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"a frame begins with * and its size, at most {FRAME_BYTES_MAX} bytes; split the block")
    return end + 1, end + 1 + int(digits)


class BadFrame(FrameTooLarge):
    """A frame that cannot be read.  `lines` are what was complete before it, not returned yet."""

    def __init__(self, why: str, lines: bytes) -> None:
        super().__init__(why)
        self.lines = lines


class BlockReader(LineReader):
    """Keep the rest of a stream of lines and frames: the end of a frame is known from its head."""

    __slots__ = ("_needed",)

    def __init__(self, line_bytes_max: int) -> None:
        super().__init__(line_bytes_max)
        self._needed = 0  # bytes that the unfinished frame at the head of the rest has

    def receive(self, data: bytes) -> bytes:
        """Return all complete lines and frames so far.  After LineTooLong or BadFrame it is of no more use."""
        begins = self._rest[:1] or data[:1]
        if begins != STAR and NEXT_IS_FRAME not in data:
            return super().receive(data)
        self._rest += data
        if len(self._rest) < self._needed:
            return b""
        end = self._end_of_frames()
        whole = bytes(memoryview(self._rest)[:end])  # copied once, not twice
        rest, self._rest = self._rest[end:], bytearray()
        if self._needed:
            self._rest = rest
            return whole
        try:
            return whole + super().receive(bytes(rest))
        except LineTooLong as error:
            error.lines = whole + error.lines
            raise

    def _end_of_frames(self) -> int:
        """Return where the last complete frame ends, or where an unfinished one begins; lines are passed over."""
        rest, at, self._needed = self._rest, 0, 0
        while True:
            if rest[at : at + 1] == STAR:
                try:
                    start, stop = _inside(rest, at)
                except FrameTooLarge as error:
                    raise BadFrame(str(error), bytes(rest[:at])) from None
                if not start or len(rest) <= stop:
                    self._needed = max(stop + 1 - at, len(rest) - at + 1)
                    return at
                if rest[stop] != 0x0A:
                    raise BadFrame("a frame is not ended by a line end: its size is wrong", bytes(rest[:at]))
                at = stop + 1
            else:
                found = rest.find(NEXT_IS_FRAME, at)
                if found < 0:
                    return at
                at = found + 1
