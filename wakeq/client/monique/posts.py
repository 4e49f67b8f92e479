"""Posts: MoniQue messages as a program makes and reads them.

    spec, data, ... --> make --> Post --> tag and packed message          Post.json(), .id, .answers(task)

A message is packed once. A received message is unpacked only when the program looks into it: it may be encrypted.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import msgspec

from wakeq.client.message import json_of
from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.monique.errors import BadEncoding, ErrorCode
from wakeq.protocol.wire.monique.messages import (
    NEVER,
    Encoding,
    Message,
    decode_message,
    encode_message,
    error_data,
    make_id,
    tag_of,
)
from wakeq.protocol.wire.monique.tags import Tag, Type
from wakeq.protocol.wire.monique.transfers import read_transfer

# Bytes are sent as they are; any other value is encoded.
Data: TypeAlias = object

CREATOR = "wakeq"


class Post(msgspec.Struct, frozen=True, gc=False):
    """A packed message and its tag."""

    tag: Tag
    packed: bytes

    @property
    def id(self) -> str:
        return self.tag.id

    @property
    def pid(self) -> str:
        """The id of the message that this one answers, or empty."""
        return self.tag.pid

    @property
    def spec(self) -> str:
        return self.tag.spec

    @property
    def type(self) -> str:
        return self.tag.type

    @property
    def creator(self) -> str:
        return self.tag.creator

    @property
    def frames(self) -> tuple[bytes, bytes]:
        """The two frames of the message over ZeroMQ."""
        return self.tag.text.encode(), self.packed

    def message(self) -> Message:
        """Return the nine fields; raise BadMessage or BadEncoding if they cannot be read."""
        return decode_message(self.packed)

    @property
    def data(self) -> bytes:
        """The content, not decoded."""
        return self.message().data

    def value(self) -> Any:
        """Return the content, decoded by the encoding that the message names; raise BadEncoding if that fails.

        In MessagePack a timestamp becomes a msgpack.Timestamp, any other extension a msgspec.msgpack.Ext.
        """
        message = self.message()
        try:
            if message.encoding == "JSON":
                return msgspec.json.decode(message.data)
            # Most programs send JSON and need not load this.
            from wakeq.protocol.wire import messagepack

            return messagepack.decode(message.data)
        except (ValueError, RecursionError) as error:
            raise BadEncoding(f"the data of {self.tag.text} cannot be read as {message.encoding}: {error}") from None

    def answers(self, task: Self) -> bool:
        """Return whether this is the result of a task or the error instead, also that the task was killed."""
        return self.pid == task.id and self.type in ("result", "error")


def read_post(frames: Sequence[bytes]) -> Post:
    """Read a message received over ZeroMQ; raise BadTransfer or BadTag."""
    transfer = read_transfer(frames)
    return Post(transfer.tag, transfer.message)


def make(
    spec: str,
    data: Data,
    *,
    type: Type = "config",
    encoding: Encoding = "JSON",
    pid: str = "",
    creator: str = CREATOR,
    expires_in_s: float | None = None,
) -> Post:
    """Return a new, packed message; raise BadMessage or BadField if it cannot be sent."""
    now_ms = time.time_ns() // 1_000_000
    message = Message(
        created_at_ms=now_ms,
        creator=creator,
        data=encoded(data, encoding),
        encoding=encoding,
        expires_at_ms=NEVER if expires_in_s is None else now_ms + int(expires_in_s * 1000),
        id=make_id(secrets.randbelow),
        pid=pid,
        spec=spec,
        type=type,
    )
    return Post(tag_of(message), encode_message(message))


def result_of(task: Post, data: Data, *, encoding: Encoding = "JSON", creator: str = CREATOR) -> Post:
    """Return the result of a task."""
    return make(task.spec, data, type="result", encoding=encoding, pid=task.id, creator=creator)


def error_of(task: Post, code: int, text: str, *, creator: str = CREATOR) -> Post:
    """Return an error as the answer to a task."""
    return make(task.spec, error_data(ErrorCode(code), text), type="error", pid=task.id, creator=creator)


def encoded(data: Data, encoding: Encoding) -> bytes:
    """Return the content as bytes."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if encoding == "JSON":
        return json_of(data)
    from wakeq.protocol.wire import messagepack

    try:
        return messagepack.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadField(f"the data cannot be written as MessagePack ({error})") from None
