"""What TaskFlux says about queues, in the words of the catalog, and the other way round.

    CreateQueue --> the first ErrorCode that it deserves, or Policies
    Policies, Result --> QueueInfo, BusinessError, a Violation

Must never give a number to the wire that a field of 32 bits does not hold: limits and counts beyond are capped.
"""

from collections.abc import Callable

from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadName
from wakeq.protocol.log.entries import Result
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.packets import (
    QA,
    UNLIMITED,
    BusinessError,
    CreateQueue,
    ErrorCode,
    GeneralViolation,
    KeyRangeViolation,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Response,
)

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

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


def policies_of(command: CreateQueue) -> Policies:
    """Return the policies of a queue that a CreateQueue asks for, in which nothing is wrong."""
    low, high = command.key_range or (None, None)
    return Policies(
        max_size=None if command.queue_size_max == UNLIMITED else command.queue_size_max,
        max_message_size=None if command.payload_bytes_max == UNLIMITED else command.payload_bytes_max,
        priority_min=low,
        priority_max=high,
        structure="QA" if command.implementation == QA else "H4",
    )


def info_of(name: str, count: int, policies: Policies) -> QueueInfo:
    """Return a queue's line in a list: its policies in words, none for a policy that is not set."""
    metadata = []
    if policies.max_size is not None:
        metadata.append(("max-queue-size", str(min(policies.max_size, INT32_MAX))))
    if policies.max_message_size is not None:
        metadata.append(("max-payload-size", str(min(policies.max_message_size, INT32_MAX))))
    if policies.priority_min is not None or policies.priority_max is not None:
        low, high = _key_range(policies)
        metadata.append(("priority-range", f"{low} {high}"))
    return QueueInfo(name, min(count, INT32_MAX), tuple(metadata))


def refused(result: Result, policies: Policies, payload_bytes_max: int) -> Response:
    """Return the answer to a command that a queue did not obey; `payload_bytes_max` is the node's limit."""
    match result:
        case Result.QUEUE_FULL if policies.max_size is not None:
            return QueueSizeViolation(min(policies.max_size, INT32_MAX))
        case Result.QUEUE_FULL:
            return GeneralViolation("the queue holds as many bytes as it may")
        case Result.KEY_RANGE:
            return KeyRangeViolation(*_key_range(policies))
        case Result.TOO_LARGE if policies.max_message_size is not None:
            return PayloadSizeViolation(min(policies.max_message_size, payload_bytes_max, INT32_MAX))
        case Result.TOO_LARGE:
            return PayloadSizeViolation(min(payload_bytes_max, INT32_MAX))
        case Result.NO_QUEUE:
            return BusinessError(ErrorCode.NO_QUEUE, "the queue does not exist; create it first")
        case Result.EXISTS:
            return BusinessError(ErrorCode.QUEUE_EXISTS, "the queue exists already")
        case Result.DEFAULT_QUEUE:
            return BusinessError(ErrorCode.BAD_NAME, "the default queue always exists and cannot be deleted")
        case _:
            return BusinessError(ErrorCode.UNKNOWN, f"not done: {result.name.lower().replace('_', ' ')}")


def _key_range(policies: Policies) -> tuple[int, int]:
    low, high = policies.priority_min, policies.priority_max
    return INT64_MIN if low is None else low, INT64_MAX if high is None else high
