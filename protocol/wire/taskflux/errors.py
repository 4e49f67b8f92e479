"""What can be wrong with the bytes or the order of TaskFlux packets.

Raised by nobody to the outside: the reader puts them, as a Bad, where the packet would have been, and a client's
session may raise what it finds there.  The text names the byte or the field, what it was and what it must be.
"""

from wakeq.protocol.errors import Busy, FrameTooLarge, WakeqError


class BadPacket(WakeqError):
    """Bytes that are no packet.  Where the next packet begins is unknown."""

    code = "BAD_PACKET"
    closes = True


class UnexpectedPacket(BadPacket):
    """A marker or a packet that may not come here."""


class BadBody(BadPacket):
    """A framed body that is no command.  The frame says where the next packet begins, so the stream goes on."""

    closes = False


class Crowded(Busy):
    """All connections together hold too much that is unfinished, and this one some of it."""

    closes = True


class PacketTooLong(FrameTooLarge):
    """A packet that announces more bytes than are read.  They are not."""
