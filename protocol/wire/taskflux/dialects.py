"""The dialects of TaskFlux, as a table of their differences.

A version (and what a listener is set to) goes in, a Dialect comes out; codec and conversation ask it wherever the
dialects differ, and must never ask for its name.  Sections are those of docs/protocols/taskflux.md.
"""

import struct

from msgspec import Struct

from wakeq.protocol.wire.taskflux.commands import DEFAULT_IMPLEMENTATION, H4, QA, BootstrapRequest, ErrorCode

VERSION = (1, 0)  # of this server; a client's minor version may be lower, its patch is never looked at
LEGACY_VERSION = (0, 1)


class Dialect(Struct, frozen=True):
    """How one dialect differs from the others."""

    name: str
    # Bytes.
    ack: bytes = b"Q"
    error: bytes = b"x"  # the marker of a BusinessError
    error_code: struct.Struct = struct.Struct(">i")
    error_codes: tuple[ErrorCode, ...] = tuple(ErrorCode)  # by number; one that is not in here is sent as 0
    payload_size_violation: int = 2
    key_range_violation: int = 3
    name_size: struct.Struct = struct.Struct(">B")
    has_record_id: bool = False
    has_error_response_code: bool = True
    is_framed: bool = False  # commands and responses are in frames that say how long they are
    # Behaviour.
    is_one_phase: bool = False  # there are no Ack, Nack and Ok, and a Dequeue removes
    implementations: frozenset[int] = frozenset((DEFAULT_IMPLEMENTATION, H4, QA))
    create_checks: tuple[ErrorCode, ...] = (  # in this order
        ErrorCode.BAD_NAME,
        ErrorCode.BAD_IMPLEMENTATION,
        ErrorCode.NO_KEY_RANGE,
        ErrorCode.BAD_KEY_RANGE,
        ErrorCode.BAD_QUEUE_SIZE,
        ErrorCode.BAD_PAYLOAD_SIZE,
    )
    refuses_at_once: bool = False  # what is wrong in Enqueue and CreateQueue: by an ErrorResponse that closes nothing
    explains_errors: bool = True  # a BusinessError other than UNKNOWN has details
    ignores_strays: bool = False  # packets of the server or of the handshake, where nothing is pending


SPEC = Dialect("spec")

CSHARP = Dialect(
    "csharp",
    ack=b"K",
    error=b"e",
    error_codes=(
        ErrorCode.UNKNOWN,
        ErrorCode.BAD_NAME,
        ErrorCode.NO_QUEUE,
        ErrorCode.QUEUE_EXISTS,
        ErrorCode.BAD_KEY_RANGE,
        ErrorCode.BAD_QUEUE_SIZE,
        ErrorCode.BAD_PAYLOAD_SIZE,
        ErrorCode.NO_KEY_RANGE,
        ErrorCode.BAD_IMPLEMENTATION,
    ),
    payload_size_violation=3,
    key_range_violation=2,
    has_record_id=True,
    implementations=frozenset((H4, QA)),
    create_checks=(
        ErrorCode.BAD_IMPLEMENTATION,
        ErrorCode.NO_KEY_RANGE,
        ErrorCode.BAD_KEY_RANGE,
        ErrorCode.BAD_PAYLOAD_SIZE,
        ErrorCode.BAD_QUEUE_SIZE,
        ErrorCode.BAD_NAME,
    ),
    refuses_at_once=True,
    explains_errors=False,
    ignores_strays=True,
)

LEGACY = Dialect(
    "legacy",
    error=b"E",
    error_code=struct.Struct(">B"),
    error_codes=(ErrorCode.UNKNOWN, ErrorCode.BAD_NAME, ErrorCode.NO_QUEUE),
    name_size=struct.Struct(">i"),
    has_error_response_code=False,
    is_framed=True,
    is_one_phase=True,
)

DIALECTS = {dialect.name: dialect for dialect in (SPEC, CSHARP, LEGACY)}


def dialect_of(version: BootstrapRequest, configured: Dialect) -> Dialect | None:
    """Return what a client of this version speaks, or None if it is not served."""
    if (version.major, version.minor) == LEGACY_VERSION:
        return LEGACY
    major, minor = VERSION
    return configured if version.major == major and version.minor <= minor else None
