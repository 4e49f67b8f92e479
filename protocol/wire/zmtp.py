"""The PUSH end of one connection of ZeroMQ, without a socket: ZMTP 3.0, mechanism NULL (rfc.zeromq.org/spec/23).

    GREETING, receive <-- bytes of a PULL socket --> bytes_to_send()          encode(frames) --> bytes, once it is open

libzmq gives a task to whichever component it likes and does not say which one that was, so whoever has to know speaks
for himself.  A PULL socket has nothing to say but its greeting and commands: anything else is a BadPeer, which ends the
connection.  Must never hold more than one command of it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from wakeq.protocol.wire.monique.errors import ErrorCode, MoniqueError

_SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\1\x7f"
_VERSION: Final = b"\3\0"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
GREETING: Final = (_SIGNATURE + _VERSION + _MECHANISM).ljust(64, b"\0")
COMMAND_BYTES_MAX = 4096  # READY has some dozens
TOGETHER_COMMANDS_MAX = 1_000  # in one read: each costs a microsecond or two of everybody's time

_MORE, _LONG, _COMMAND = 1, 2, 4
_FLAGS: Final = frozenset((0, _MORE, _LONG, _MORE | _LONG, _COMMAND, _COMMAND | _LONG))  # a command is one frame
_SHORT_MAX = 255
_PING_TTL_BYTES, _PING_CONTEXT_BYTES_MAX = 2, 16


class BadPeer(MoniqueError):
    """Whoever is at the other end is no PULL socket of ZeroMQ 4."""

    code = "MQ_PEER"
    number = ErrorCode.TRANSPORT


class Pusher:
    """See the head of this file."""

    __slots__ = ("_buffer", "_greeted", "_pong", "_ready", "is_open")

    def __init__(self) -> None:
        self.is_open = False  # both have said who they are: frames may be sent
        self._greeted = False
        self._buffer = bytearray()
        self._ready = b""
        self._pong = b""

    def receive(self, data: bytes) -> None:
        """Take what the socket gave, or raise BadPeer."""
        self._buffer += data
        if not self._greeted and not self._greet():
            return
        for place, command in enumerate(self._commands()):
            if place >= TOGETHER_COMMANDS_MAX:
                raise BadPeer("it sends nothing but pings")
            self._obey(command)

    def bytes_to_send(self) -> bytes:
        """Return what has to be said behind GREETING, once; of many PINGs the last one is answered, as by libzmq."""
        unsent = self._ready + self._pong
        self._ready = self._pong = b""
        return unsent

    def _greet(self) -> bool:
        """Return whether the greeting is here; raise as soon as it cannot be one."""
        said = bytes(self._buffer[: len(GREETING)])
        if said[:1] not in (b"", _SIGNATURE[:1]) or (len(said) > 9 and said[9:10] != _SIGNATURE[9:]):
            raise BadPeer("it does not send a ZeroMQ greeting; is it configured with the wrong port?")
        if len(said) > 10 and said[10] < _VERSION[0]:
            raise BadPeer("it uses ZeroMQ before version 4; it needs a newer one")
        if len(said) < len(GREETING):
            return False
        if said[12:32] != _MECHANISM:
            raise BadPeer("it requires a security mechanism other than NULL, which is not supported")
        del self._buffer[: len(GREETING)]
        self._greeted = True
        self._ready = _command(b"READY", _property(b"Socket-Type", b"PUSH"))
        return True

    def _commands(self) -> Iterator[bytes]:
        """Cut whole commands off what came."""
        buffer = self._buffer
        while len(buffer) >= 2:
            flags = buffer[0]
            if flags not in _FLAGS:
                raise BadPeer("it sends bytes that are not a ZeroMQ frame")
            if not flags & _COMMAND:
                raise BadPeer("it sends messages, which a PULL socket never does")
            start = 9 if flags & _LONG else 2
            if len(buffer) < start:
                return
            end = start + int.from_bytes(buffer[1:start], "big")
            if end > COMMAND_BYTES_MAX:
                raise BadPeer(f"it sends a command of {end} bytes, at most {COMMAND_BYTES_MAX} are accepted")
            if len(buffer) < end:
                return
            body = bytes(buffer[start:end])
            del buffer[:end]
            yield body

    def _obey(self, body: bytes) -> None:
        size = body[0] if body else 0
        name, data = body[1 : 1 + size], body[1 + size :]
        if len(name) < size:
            raise BadPeer("it sends a command that ends in the middle of its name")
        if name == b"READY" and not self.is_open:
            if _type_in(data) != b"PULL":
                raise BadPeer("it is not a PULL socket")
            self.is_open = True
        elif name == b"PING" and self.is_open:
            self._pong = _command(b"PONG", data[_PING_TTL_BYTES:][:_PING_CONTEXT_BYTES_MAX])
        elif name == b"ERROR":
            raise BadPeer("it refuses this broker")
        elif not self.is_open:
            raise BadPeer("it sends another command in place of READY")


def encode(frames: Sequence[bytes]) -> bytes:
    """Return a message, ready to be sent."""
    parts: list[bytes] = []
    for place, frame in enumerate(frames, 1):
        more = _MORE if place < len(frames) else 0
        if len(frame) <= _SHORT_MAX:
            parts.append(bytes((more, len(frame))))
        else:
            parts.append(bytes((more | _LONG,)) + len(frame).to_bytes(8, "big"))
        parts.append(frame)
    return b"".join(parts)


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return bytes((_COMMAND, len(body))) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def _type_in(metadata: bytes) -> bytes:
    """Return what kind of socket it says to be; nothing, if it does not say so."""
    while metadata:
        size = metadata[0]
        name, rest = metadata[1 : 1 + size], metadata[1 + size :]
        length = int.from_bytes(rest[:4], "big")
        if len(name) < size or len(rest) < 4 + length:
            raise BadPeer("its metadata is incomplete")
        if name.lower() == b"socket-type":
            return rest[4 : 4 + length]
        metadata = rest[4 + length :]
    return b""
