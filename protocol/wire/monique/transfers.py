"""What MoniQue's components send over ZeroMQ: two frames, the tag as it is and the packed message.

    frames of one transfer --> read_transfer --> Transfer --> .frames, the very same

Must never look into the message: on the communication layer it may be encrypted.
"""

from collections.abc import Sequence

from msgspec import Struct

from wakeq.protocol.wire.monique.errors import BadTransfer
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX, Message, encode_message, tag_of
from wakeq.protocol.wire.monique.tags import Tag, read_tag


class Transfer(Struct, frozen=True, gc=False):
    """A message on its way between components."""

    tag: Tag
    message: bytes

    @property
    def frames(self) -> tuple[bytes, bytes]:
        """What is sent, unchanged if it was read."""
        return self.tag.text.encode(), self.message


def read_transfer(frames: Sequence[bytes], message_bytes_max: int = MESSAGE_BYTES_MAX) -> Transfer:
    """Return the transfer, or raise BadTransfer (200) or BadTag (201): it is to be dropped and logged (section 6)."""
    if len(frames) != 2:
        raise BadTransfer(f"a transfer of {len(frames)} frames, it must have two: tag and message")
    tag, message = frames
    if len(message) > message_bytes_max:
        raise BadTransfer(f"a message of {len(message)} bytes, the limit is {message_bytes_max}; split it")
    return Transfer(read_tag(tag), message)


def transfer_of(message: Message) -> Transfer:
    """Return the transfer of a message that is sent from here, or raise BadMessage."""
    return Transfer(tag_of(message), encode_message(message))
