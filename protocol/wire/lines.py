"""Cut a byte stream at its line ends, without looking at the lines.

Pieces of a stream go in, all complete lines so far come out as one bytes object; the rest waits.
Must never do work for each line, copy a long line again for each piece of it, or keep more than the limit.
"""

from wakeq.protocol.errors import FrameTooLarge

LINE_ROOM_BYTES = 64 * 1024  # for everything in a line that is not the body
ESCAPED_SHARE = 3  # what is two bytes in UTF-8 is six characters to who escapes all but ASCII, as json.dumps does


def line_bytes_max(message_bytes_max: int) -> int:
    """Return the limit of a line, for a limit of a message: escapes make letters of a body three times as long."""
    return ESCAPED_SHARE * message_bytes_max + LINE_ROOM_BYTES


def end_of_lines(data: bytes, at: int, lines_max: int, bytes_max: int) -> int:
    """Return where to cut data, so that at most so many lines are complete in it, and not many more bytes.

    A line that is longer than that is not cut, for a part of a line is no work.
    """
    end = len(data)
    if end - at > bytes_max:
        last = data.rfind(b"\n", at, at + bytes_max)
        if last < 0:
            last = data.find(b"\n", at + bytes_max)
        end = last + 1 or end
    if data.count(b"\n", at, end) > lines_max:
        end -= len(data[at:end].split(b"\n", lines_max)[-1])
    return end


class LineTooLong(FrameTooLarge):
    """A line passed the limit.  `lines` are the complete ones before it, not returned yet."""

    def __init__(self, limit: int, lines: bytes) -> None:
        super().__init__(f"a line is longer than {limit} bytes; send less at once, or raise message_bytes_max")
        self.lines = lines


class LineReader:
    """Keep the rest of a stream that has no line end yet."""

    __slots__ = ("_limit", "_rest")

    def __init__(self, line_bytes_max: int) -> None:
        self._limit = line_bytes_max
        self._rest = bytearray()  # grows in place: a long line in small pieces costs what its length costs

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished line is held."""
        return len(self._rest)

    def receive(self, data: bytes) -> bytes:
        """Return all complete lines so far, with their line ends.  After LineTooLong it is of no more use."""
        end = data.rfind(b"\n") + 1
        lines = b""
        if end:
            self._rest += data[:end]
            lines, self._rest = bytes(self._rest), bytearray()
            if len(lines) > self._limit + 1:
                self._check_each(lines)
        self._rest += data[end:]
        if len(self._rest) > self._limit:
            raise LineTooLong(self._limit, lines)
        return lines

    def _check_each(self, lines: bytes) -> None:
        """Refuse the first line that is too long (looked for only when all together pass the limit)."""
        start = 0
        while start < len(lines):
            end = lines.index(b"\n", start)
            if end - start > self._limit:
                raise LineTooLong(self._limit, lines[:start])
            start = end + 1
