"""WebSocket: the client's side of RFC 6455, without a socket.

    request() --> bytes          receive <-- bytes --> messages, once the server has agreed          send --> a frame

Masks and the key of the handshake are random numbers that are passed in.  Pings are answered by themselves: what is to
be sent for that is in `bytes_to_send`.  No extension is asked for, so whatever needs one is refused.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha1

from wakeq.client.core.session import NotTheProtocol
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, Forbidden, Unauthorized
from wakeq.protocol.wire.monique.frames import FRAME_BYTES_MAX

HEAD_BYTES_MAX = 64 * 1024  # of the server's agreement
SAID_BYTES_MAX = 4096  # that are read of the reason why it does not agree
SHOWN_CHARS_MAX = 200
HTTP = b"HTTP/1.1 "
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455, 1.3

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FIN, _RESERVED, _OPCODE, _MASKED, _SIZE = 0x80, 0x70, 0x0F, 0x80, 0x7F


class WebSocket:
    """One connection."""

    def __init__(
        self, host: str, path: str, *, random_bytes: Callable[[int], bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        self.is_open = False  # the server has agreed
        self._random_bytes = random_bytes
        self._key = b64encode(random_bytes(16))
        self._head = _request(host, path, self._key, headers or {})
        self._buffer = bytearray()
        self._parts: list[bytes] | None = None  # of a message that came in fragments
        self._unsent: list[bytes] = []

    def request(self) -> bytes:
        """Return what begins the connection."""
        return self._head

    def bytes_to_send(self) -> bytes:
        """Return answers to the server's pings and to its good-bye."""
        unsent, self._unsent = self._unsent, []
        return b"".join(unsent)

    def send(self, message: bytes) -> bytes:
        """Return the frame of a message."""
        return self._frame(_BINARY, message)

    def close(self) -> bytes:
        """Return the frame that says good-bye."""
        return self._frame(_CLOSE, (1000).to_bytes(2, "big"))

    def receive(self, data: bytes) -> list[bytes]:
        """Take what the socket gave; return whole messages.  Raises Disconnected when the server closes."""
        self._buffer += data
        if not self.is_open and not self._agree():
            return []
        messages: list[bytes] = []
        while (found := self._next_frame()) is not None:
            first, payload = found
            opcode = first & _OPCODE
            if opcode >= _CLOSE:
                self._control(opcode, payload)
            else:
                messages += self._join(opcode, payload, is_last=bool(first & _FIN))
        return messages

    # --- the handshake ---

    def _agree(self) -> bool:
        """Return whether the server's answer is here; raise if it is no agreement."""
        end = self._buffer.find(b"\r\n\r\n")
        if not self._buffer.startswith(HTTP[: len(self._buffer)]) or (end < 0 and len(self._buffer) > HEAD_BYTES_MAX):
            raise NotTheProtocol("it does not answer as an HTTP server does")
        if end < 0:
            return False
        status, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words = status.split(" ", 2)
        if words[1:2] != ["101"]:
            return self._refused(status, fields, end + 4)
        if fields.get("sec-websocket-accept") != b64encode(sha1(self._key + GUID).digest()).decode():
            raise NotTheProtocol("it answers, but not to our handshake; is a proxy in between?")
        del self._buffer[: end + 4]
        self.is_open = True
        return True

    def _refused(self, status: str, fields: Mapping[str, str], start: int) -> bool:
        """Raise with what the server says; False while it has not said all of it."""
        size = fields.get("content-length", "0")
        if size.isdigit() and len(self._buffer) < start + min(int(size), SAID_BYTES_MAX):
            return False
        told = _told(bytes(self._buffer[start : start + SAID_BYTES_MAX]))
        if told is not None:
            raise told
        said = self._buffer[start : start + SHOWN_CHARS_MAX].decode(errors="replace").strip()
        reason = status.partition(" ")[2]
        if reason.startswith("401"):
            raise Unauthorized(f"the server wants a token, or another one (token=, WAKEQ_TOKEN): {said or reason}")
        raise BrokerUnreachable(f"it refuses WebSocket connections here: {said or reason} ({reason})")

    # --- frames ---

    def _next_frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if buffer[0] & _RESERVED or buffer[1] & _MASKED:
            raise NotTheProtocol("it sent a frame that no server sends to us")
        size, start = buffer[1] & _SIZE, 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size > FRAME_BYTES_MAX:
            raise NotTheProtocol(f"it sent a frame of {size} bytes, the limit is {FRAME_BYTES_MAX}")
        if len(buffer) < start + size:
            return None
        first, payload = buffer[0], bytes(buffer[start : start + size])
        del buffer[: start + size]
        return first, payload

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._unsent.append(self._frame(_PONG, payload))
        elif opcode == _CLOSE:
            self._unsent.append(self._frame(_CLOSE, payload[:2]))
            code = int.from_bytes(payload[:2], "big")
            reason = payload[2:].decode(errors="replace") or "it gave no reason"
            raise Disconnected(f"the server closed the connection: {reason} ({code})")

    def _join(self, opcode: int, payload: bytes, *, is_last: bool) -> list[bytes]:
        """Return the message that this frame ends, if it does."""
        if (self._parts is None) == (opcode == _CONTINUATION) or opcode not in (_CONTINUATION, _TEXT, _BINARY):
            raise NotTheProtocol("its frames come in an order that makes no sense")
        if is_last and self._parts is None:
            return [payload]
        parts = self._parts = [*(self._parts or ()), payload]
        if sum(map(len, parts)) > FRAME_BYTES_MAX:
            raise NotTheProtocol(f"it sent a message of more than {FRAME_BYTES_MAX} bytes")
        if not is_last:
            return []
        self._parts = None
        return [b"".join(parts)]

    def _frame(self, opcode: int, payload: bytes) -> bytes:
        size = len(payload)
        if size < 126:
            head = bytes((_FIN | opcode, _MASKED | size))
        elif size < 65536:
            head = bytes((_FIN | opcode, _MASKED | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((_FIN | opcode, _MASKED | 127)) + size.to_bytes(8, "big")
        mask = self._random_bytes(4)
        return head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return the payload with each byte changed by its byte of the mask; doing it twice gives the payload again."""
    size = len(payload)
    stretched = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")).to_bytes(size, "big")


def _request(host: str, path: str, key: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Version": "13",
        **headers,
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _told(body: bytes) -> Unauthorized | Forbidden | None:
    """Return what a broker says of the token, in its own words; None of whatever another attempt may change."""
    try:
        said = json.loads(body)
        kinds = {kind.code: kind for kind in (Unauthorized, Forbidden)}
        return kinds[said["err"]](said["detail"])
    except (ValueError, LookupError, TypeError):
        return None
