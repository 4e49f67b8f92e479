"""Killing a task: what the scheduler makes of a message with spec `kill` on the technical layer (section 6).

    the kill's transfer, a fresh id, the moment --> killed --> the transfer with error 301, for the communication layer
    that transfer --> tells_of_kill

It is published first, then the kill is relayed on its own layer as it came.  Must never let through a kill that
components could not read.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from wakeq.protocol.wire.monique.errors import REASON_CHARS_MAX, BadEncoding, BadMessage, ErrorCode, MoniqueError
from wakeq.protocol.wire.monique.messages import Message, decode_message, error_data
from wakeq.protocol.wire.monique.transfers import Transfer, transfer_of

KILL: Final = "kill"  # the spec of a tag that asks for it
ERROR: Final = "error"  # the spec and the type of what is told about it
KILLED_TEXT = "task killed"


class _Kill(Struct, frozen=True, gc=False):
    task_id: Annotated[str, Meta(min_length=1)]


class _Error(Struct, frozen=True, gc=False):
    code: int


_KILLS = msgspec.json.Decoder(_Kill)
_ERRORS = msgspec.json.Decoder(_Error)


def task_of(kill: Message) -> str:
    """Return the id of the message whose task is to be killed, or raise BadEncoding or BadMessage."""
    try:
        return _KILLS.decode(kill.data).task_id
    except msgspec.ValidationError as error:
        raise BadMessage(f"the kill names no task: {str(error)[:REASON_CHARS_MAX]}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadEncoding(f"the data of the kill is not JSON: {str(error)[:REASON_CHARS_MAX]}") from None


def killed(kill: Transfer, *, id: str, now_ms: int) -> Transfer:
    """Return what tells everybody that the task was killed.

    Raises BadEncoding or BadMessage for a kill that cannot be used: nothing is published then, and it is not relayed.
    """
    message = decode_message(kill.message)
    return transfer_of(
        Message(
            created_at_ms=now_ms,
            creator=message.creator,
            data=error_data(ErrorCode.KILLED, KILLED_TEXT),
            encoding="JSON",
            expires_at_ms=message.expires_at_ms,
            id=id,
            pid=task_of(message),
            spec=ERROR,
            type=ERROR,
        )
    )


def tells_of_kill(error: Transfer) -> bool:
    """Whether a message with spec and type error is one that `killed` has made; components have errors of their own."""
    try:
        return _ERRORS.decode(decode_message(error.message).data).code == ErrorCode.KILLED
    except (MoniqueError, msgspec.DecodeError, UnicodeError, RecursionError):
        return False
