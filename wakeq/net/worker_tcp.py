"""WorkerTcpDoor: the worker protocol over TCP: JSON lines in and out, and frames for blocks of messages.

    socket --> lines, frames --> decode --> one Received --> session --> send --> one write --> socket

All commands of one read go to the session together.  A door must never look inside a command, or answer one itself.
"""

from collections.abc import Callable, Sequence

from wakeq.actors.runtime.rounds import FREE_BYTES, SHARE_BYTES_MAX
from wakeq.actors.sessions.door import DOOR_WORKER_TCP, Admission, Received, Told
from wakeq.net.tcp_door import TcpDoor
from wakeq.net.tcp_listener import TcpListener
from wakeq.net.tls import ServerTls
from wakeq.protocol.errors import Busy, FrameTooLarge, Refused
from wakeq.protocol.wire.lines import LineTooLong, end_of_lines, line_bytes_max
from wakeq.protocol.wire.worker.blocks import STAR, BadFrame, BlockReader, may_hold_frames
from wakeq.protocol.wire.worker.codec import Bad, Command, Nok, Ok, Reply, decode, decode_lines, encode, nok, weight_of

MESSAGE_BYTES_MAX = 1024 * 1024


class WorkerTcpDoor(TcpDoor[Reply]):
    """One connection."""

    __slots__ = ("_line_bytes_max", "_reader")

    kind = DOOR_WORKER_TCP
    encode = staticmethod(encode)

    def __init__(self, listener: "WorkerTcpListener") -> None:
        super().__init__(listener)
        self._line_bytes_max = listener.line_bytes_max
        # Exists only while a line or frame is incomplete.
        self._reader: BlockReader | None = None

    @property
    def unfinished_bytes(self) -> int:
        return self._reader.waiting_bytes if self._reader else 0

    def is_burst(self, replies: Sequence[Reply]) -> bool:
        return all(type(reply) is Ok or type(reply) is Nok for reply in replies)

    def forget_unfinished(self) -> None:
        self._reader = None

    def turn_away(self, reason: str) -> None:
        self.refuse([nok(Busy(reason))], "too many connections")

    def take(self, data: bytes, at: int, commands_max: int) -> int:
        end = len(data)
        if end > SHARE_BYTES_MAX or (end > FREE_BYTES and data.count(b"\n", at) > commands_max):
            end = end_of_lines(data, at, commands_max, SHARE_BYTES_MAX)
        # All of the data is not copied.
        data = data[at:end]
        size_bytes = len(data)
        is_whole = self._reader is None and data.endswith(b"\n") and size_bytes <= self._line_bytes_max
        # Hardly any read has a star, and one byte is found fast.
        if is_whole and (STAR not in data or not may_hold_frames(data)):
            commands = decode_lines(data)
        else:
            size_bytes += self.unfinished_bytes
            commands = self._cut(data)
            size_bytes -= self.unfinished_bytes
        if commands and self._subscriber is not None:
            count = len(commands) if size_bytes <= FREE_BYTES else max(len(commands), weight_of(data))
            self._listener.admission.rounds.left -= count
            self._subscriber.arrive(Received(commands, size_bytes))
        return end

    def _cut(self, data: bytes) -> list[Command | Bad]:
        """Decode data that begins or ends in the middle of a line, or has frames."""
        if self.exceeds_stranger_bytes:
            return self._end(
                b"", FrameTooLarge("the command is too long before HELLO; authenticate with HELLO and a token first")
            )
        reader = self._reader or BlockReader(self._line_bytes_max)
        try:
            lines = reader.receive(data)
        except (LineTooLong, BadFrame) as error:
            return self._end(error.lines, error)
        bounds = self._watch()
        if not reader.waiting_bytes:
            self._reader = bounds.unfinished_since_s = None
        else:
            if self._reader is None or lines:
                bounds.unfinished_since_s = self._listener.clock()
            self._reader = reader
        bounds.hold(self)
        if self._listener.admission.crowded and self._reader is not None:
            return self._end(lines, Busy("too much is unfinished on all connections together; try again later"))
        return decode(lines) if lines else []

    def _end(self, lines: bytes, error: Refused) -> list[Command | Bad]:
        """Return the last commands of this connection; the session answers the error behind them, and closes."""
        self.stop_receiving()
        return [*decode(lines), Bad(error)]


class WorkerTcpListener(TcpListener[WorkerTcpDoor]):
    """The port of the worker protocol."""

    def __init__(
        self,
        make_subscriber: Callable[[WorkerTcpDoor], Told],
        *,
        admission: Admission | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        clock: Callable[[], float] | None = None,
        tls: ServerTls | None = None,
        handshake_s: float | None = None,
    ) -> None:
        super().__init__(make_subscriber, admission=admission, clock=clock, tls=tls, handshake_s=handshake_s)
        self.line_bytes_max = line_bytes_max(message_bytes_max)

    def make_door(self) -> WorkerTcpDoor:
        return WorkerTcpDoor(self)
