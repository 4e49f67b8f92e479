"""Frames of WebSocket as a server sends them (RFC 6455, 5.2): whole, not masked, not compressed.

    opcode, payload --> frame --> bytes, the same for whoever gets them

So what many are sent is made once.  It reads nothing: that is the HTTP library's affair.
"""

from struct import Struct as Layout
from typing import Final

TEXT: Final = 0x81  # the first byte of a whole frame of each kind
BINARY: Final = 0x82
PING: Final = 0x89
PONG: Final = 0x8A

_SHORT, _MIDDLE, _LONG = Layout("!BB"), Layout("!BBH"), Layout("!BBQ")
_SIZE_IN_2_BYTES, _SIZE_IN_8_BYTES = 126, 127


def frame(first: int, payload: bytes) -> bytes:
    """Return a whole frame; `first` says its kind."""
    size = len(payload)
    if size < _SIZE_IN_2_BYTES:
        return _SHORT.pack(first, size) + payload
    if size < 65536:
        return _MIDDLE.pack(first, _SIZE_IN_2_BYTES, size) + payload
    return _LONG.pack(first, _SIZE_IN_8_BYTES, size) + payload
