"""What can be wrong with MoniQue's frames, messages, tags and transfers, and the numbers that the protocol has for it.

None of them closes a connection: WebSocket and ZeroMQ say themselves where the next frame begins.  To a WebSocket
client the text is the answer; of ZeroMQ's frames the text and the number are logged, for nobody there is answered.
"""

from enum import IntEnum
from typing import ClassVar

from wakeq.protocol.errors import WakeqError

UNKNOWN_MESSAGE = "unknown message"  # the original's words (section 3); clients may know them
REASON_CHARS_MAX = 200  # of what a decoder found, in the text of an error


class ErrorCode(IntEnum):
    """The codes of the protocol (section 1)."""

    PROTOCOL = 100
    ENCODING = 101
    TRANSPORT = 200
    TAG = 201
    TECHNICAL = 300
    KILLED = 301
    COMPONENT = 500
    FOREIGN = 501  # no valid answer came from another component
    INPUT = 502


class MoniqueError(WakeqError):
    """Root of this protocol's errors.  Never raised itself."""

    code = "MQ"
    number: ClassVar[ErrorCode]


class BadFrame(MoniqueError):
    """A WebSocket frame that is MessagePack, but nothing that this side may be told."""

    code = "MQ_FRAME"
    number = ErrorCode.PROTOCOL


class BadMessage(MoniqueError):
    """A packed message without its nine fields as they must be."""

    code = "MQ_MESSAGE"
    number = ErrorCode.PROTOCOL


class BadEncoding(MoniqueError):
    """Bytes that are not MessagePack, or a content that is not in the encoding that it must have."""

    code = "MQ_ENCODING"
    number = ErrorCode.ENCODING


class BadTransfer(MoniqueError):
    """Not the two frames of ZeroMQ, or more bytes than are taken."""

    code = "MQ_TRANSFER"
    number = ErrorCode.TRANSPORT


class BadTag(MoniqueError):
    """A tag without five fields, or with an unknown type."""

    code = "MQ_TAG"
    number = ErrorCode.TAG
