"""The tag of a message: `type:spec:id:pid:creator`, by which it is routed.

    text, or its UTF-8 --> read_tag --> Tag --> .text, the very same          unwrapped: for old servers' tags

Nobody looks into the message instead, which may be encrypted, or compares the two.  Must never let a tag through that
has not just five fields and a known type in front.
"""

from typing import Literal

from msgspec import Struct

from wakeq.protocol.wire.monique.errors import BadTag

Type = Literal["config", "result", "error", "data"]

TYPES: frozenset[str] = frozenset(("config", "result", "error", "data"))
SEPARATOR = ":"
FIELDS = 5
TAG_BYTES_MAX = 4096  # ids have 40, a spec and a creator some dozens
SHOWN_CHARS_MAX = 60  # of a bad tag, in the error's text

_BIN8, _BIN16 = 0xC4, 0xC5  # MessagePack's markers of bytes with a length of one byte, or of two


class Tag(Struct, frozen=True, gc=False):
    """The five fields.  None has a colon in it; `pid` may be empty."""

    type: str
    spec: str
    id: str
    pid: str
    creator: str

    @property
    def text(self) -> str:
        """What is sent.  It is what was read, for nothing is lost between colons."""
        return f"{self.type}:{self.spec}:{self.id}:{self.pid}:{self.creator}"


def read_tag(raw: str | bytes) -> Tag:
    """Return the tag, or raise BadTag."""
    size = len(raw) if isinstance(raw, bytes) or raw.isascii() else len(raw.encode())
    if size > TAG_BYTES_MAX:
        raise BadTag(f"the tag has {size} bytes, at most {TAG_BYTES_MAX} are accepted")
    if isinstance(raw, bytes):
        raw = _text(raw)
    fields = raw.split(SEPARATOR)
    if len(fields) != FIELDS:
        raise BadTag(f"tag {_shown(raw)} has {len(fields)} fields, it must have {FIELDS}: type:spec:id:pid:creator")
    if fields[0] not in TYPES:
        raise BadTag(f"tag {_shown(raw)}: the type in front must be config, result, error or data, in lower case")
    return Tag(*fields)


def unwrapped(raw: bytes) -> bytes:
    """Return the tag out of the MessagePack in which servers before August 2018 wrapped it (section 3).

    A tag begins with a letter, so one that begins with a marker of bytes is wrapped; what is neither stays as it is.
    """
    for marker, size_bytes in ((_BIN8, 1), (_BIN16, 2)):
        start = 1 + size_bytes
        if raw[:1] == bytes((marker,)) and int.from_bytes(raw[1:start], "big") == len(raw) - start:
            return raw[start:]
    return raw


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadTag(f"the tag is not UTF-8 at byte {error.start}; it is sent as text, not as MessagePack") from None


def _shown(text: str) -> str:
    return ascii(text[:SHOWN_CHARS_MAX])
