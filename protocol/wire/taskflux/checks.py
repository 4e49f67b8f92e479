"""Checks: what is wrong in a command of TaskFlux that its bytes alone do not tell.  Pure.

CreateQueue --> the first ErrorCode that it deserves, and why        a name --> what is wrong with it, or nothing
"""

from collections.abc import Callable

from wakeq.protocol.errors import BadName
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.taskflux.commands import QA, UNLIMITED, CreateQueue, ErrorCode
from wakeq.protocol.wire.taskflux.dialects import Dialect

_TEXTS = {
    ErrorCode.BAD_IMPLEMENTATION: "this code is not an implementation; H4 is 1, QA is 2",
    ErrorCode.NO_KEY_RANGE: "QA needs a key range",
    ErrorCode.BAD_KEY_RANGE: "the key range ends before it begins",
    ErrorCode.BAD_QUEUE_SIZE: "the maximum queue size is below -1; -1 is no limit",
    ErrorCode.BAD_PAYLOAD_SIZE: "the maximum payload size is below -1; -1 is no limit",
}


def wrong_in(command: CreateQueue, dialect: Dialect) -> tuple[ErrorCode, str] | None:
    """Return the first thing that is wrong, in the order of the dialect (section 6), and what it is in words."""
    for code in dialect.create_checks:
        if code is ErrorCode.BAD_NAME:
            if text := wrong_name(command.queue):
                return code, text
        elif _IS_WRONG[code](command, dialect):
            return code, _TEXTS[code]
    return None


def wrong_name(name: str) -> str:
    """Return what is wrong with a queue name, or nothing."""
    try:
        check_name(name)
    except BadName as error:
        return str(error)
    return ""


def _has_reversed_range(command: CreateQueue, _: Dialect) -> bool:
    return command.key_range is not None and command.key_range[0] > command.key_range[1]


_IS_WRONG: dict[ErrorCode, Callable[[CreateQueue, Dialect], bool]] = {
    ErrorCode.BAD_IMPLEMENTATION: lambda command, dialect: command.implementation not in dialect.implementations,
    ErrorCode.NO_KEY_RANGE: lambda command, _: command.implementation == QA and command.key_range is None,
    ErrorCode.BAD_KEY_RANGE: _has_reversed_range,
    ErrorCode.BAD_QUEUE_SIZE: lambda command, _: command.queue_size_max < UNLIMITED,
    ErrorCode.BAD_PAYLOAD_SIZE: lambda command, _: command.payload_bytes_max < UNLIMITED,
}
