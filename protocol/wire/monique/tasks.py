"""Tasks on a queue: how a MoniQue message stands there, for workers of any protocol, and how they answer it.

    Transfer --> draft_of --> Draft          body, headers of a queue's message --> transfer_of --> Transfer
    body, headers of an answer --> answer_of --> Transfer

The body is the data of the message, so that a worker need not know MoniQue; the other fields are headers.  What cannot
be read, perhaps because it is encrypted, stands there packed as it came.  Pure; must never lose a field.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from wakeq.protocol.catalog import SECONDS_MAX
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.monique.errors import BadMessage, MoniqueError
from wakeq.protocol.wire.monique.messages import (
    Message,
    decode_message,
    encode_message,
    expires_after_ms,
    ids_as_bytes,
)
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.transfers import Transfer, transfer_of

TAG: Final = "monique-tag"
ENCODING: Final = "monique-encoding"  # of the body; without it the body is the packed message
CREATED_AT: Final = "monique-created-at"
EXPIRES_AT: Final = "monique-expires-at"
BYTES: Final = "monique-bytes"  # which of id and pid are bytes in the message, as they were before 0.1.6
TYPE: Final = "monique-type"  # of an answer: result, if it does not say
CREATOR: Final = "monique-creator"  # of an answer

EXPIRES_MS_MAX = SECONDS_MAX * 1000  # as of any message; what is wanted longer is wanted for so long


def draft_of(transfer: Transfer, now_ms: int) -> Draft | None:
    """Return what is put on the queue, or None for what nobody wants any more."""
    tag = transfer.tag
    try:
        message = decode_message(transfer.message)
    except MoniqueError:
        return Draft(transfer.message, headers=_packed({TAG: tag.text}))
    expires_ms = expires_after_ms(message, now_ms)
    if expires_ms is None:
        return None
    headers = {
        TAG: tag.text,
        ENCODING: message.encoding,
        CREATED_AT: str(message.created_at_ms),
        EXPIRES_AT: str(message.expires_at_ms),
    }
    if old := ids_as_bytes(transfer.message):
        headers[BYTES] = " ".join(old)
    return Draft(message.data, expires_ms=min(expires_ms, EXPIRES_MS_MAX), headers=_packed(headers))


def headers_of(packed: bytes) -> dict[str, str]:
    """Return the headers of a queue's message."""
    return msgspec.msgpack.decode(packed, type=dict[str, str]) if packed else {}


def task_transfer_of(body: bytes, headers: Mapping[str, str]) -> Transfer:
    """Return the task that stands on a queue, for a component, or raise BadMessage, BadTag."""
    tag = read_tag(_named(headers, TAG))
    encoding = headers.get(ENCODING)
    if encoding is None:
        return Transfer(tag, body)
    message = Message(
        created_at_ms=_moment(headers, CREATED_AT),
        creator=tag.creator,
        data=body,
        encoding=encoding,  # type: ignore[arg-type]  # encode_message looks at it
        expires_at_ms=_moment(headers, EXPIRES_AT),
        id=tag.id,
        pid=tag.pid,
        spec=tag.spec,
        type=tag.type,  # type: ignore[arg-type]  # read_tag has looked at it
    )
    return Transfer(tag, encode_message(message, headers.get(BYTES, "").split()))


def answer_of(body: bytes, headers: Mapping[str, str], *, id: str, creator: str, now_ms: int) -> Transfer:
    """Return the message that answers a task, or raise BadMessage, BadTag.

    The headers are those of the task, and what is different.
    """
    task = read_tag(_named(headers, TAG))
    return transfer_of(
        Message(
            created_at_ms=now_ms,
            creator=headers.get(CREATOR, creator),
            data=body,
            encoding=headers.get(ENCODING, "JSON"),  # type: ignore[arg-type]  # encode_message looks at it
            expires_at_ms=0,
            id=id,
            pid=task.id,
            spec=task.spec,
            type=headers.get(TYPE, "result"),  # type: ignore[arg-type]  # encode_message looks at it
        )
    )


def _named(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if value is None:
        raise BadMessage(f"it has no header {name}; an answer carries the headers of its task")
    return value


def _moment(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise BadMessage(f"its header {name} is not a time in milliseconds")
    return int(text)


def _packed(headers: dict[str, str]) -> bytes:
    return msgspec.msgpack.encode(headers)
