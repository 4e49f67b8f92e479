"""The commands in a log of version 1, in both encodings that its program used.  Pure.

    the data of all entries --> decode_log --> the effect of each command

Since 19 August 2023 a queue name is encoded as one byte of length and the name; before, it was a String with four bytes
of length.  The file does not say which, and an upgraded program went on with its old log.  So a log is decoded in the
newer encoding if all of it can be, and otherwise in the older one up to the first command that does not fit it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from wakeq.protocol.errors import DamagedFile

NAME_BYTES = range(33, 127)
NAME_BYTES_MAX = 255
RESTORE = "the file was not changed: restore it from a copy, or remove it to give up its content"
TIMEOUT_BYTES = 4
RECORD = Struct(">qi")  # key, length
_STRING = Struct(">i")
_CREATE = Struct(">iii")  # implementation, maximum size, maximum payload
_RANGE = Struct(">qq")


@dataclass(frozen=True, slots=True)
class ImportedQueue:
    """A queue and the policies that version 1 knows; None is no limit."""

    name: str
    max_size: int | None = None
    max_message_size: int | None = None
    priority_min: int | None = None
    priority_max: int | None = None
    structure: str = "H4"


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    queue: str
    key: int
    payload: bytes


Imported = ImportedQueue | ImportedMessage


@dataclass(frozen=True, slots=True)
class DeletedQueue:
    name: str


@dataclass(frozen=True, slots=True)
class RemovedFirst:
    """The first message of a queue was dequeued and not returned: the one-phase Dequeue does not name it."""

    queue: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A client asked for the number of messages in a queue; nothing changed."""

    queue: str


Command: TypeAlias = ImportedQueue | ImportedMessage | DeletedQueue | RemovedFirst | Counted


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log; `offset` is the place of its data in the file."""

    term: int
    data: bytes
    offset: int


class Cursor:
    """Bytes with a position; every failure names file and offset."""

    def __init__(
        self, path: object, data: bytes, position: int = 0, base: int = 0, *, names_are_strings: bool = False
    ) -> None:
        self.path, self.data, self.position, self.base = path, data, position, base
        self._names_are_strings = names_are_strings

    def fail(self, *, found: str, expected: str, at: int | None = None) -> DamagedFile:
        offset = self.base + (self.position if at is None else at)
        return DamagedFile(self.path, offset, found=found, expected=expected, hint=RESTORE)

    def take(self, size: int, what: str) -> bytes:
        if size < 0:
            raise self.fail(found=f"a length of {size}", expected=f"the length of {what}")
        left = len(self.data) - self.position
        if size > left:
            raise self.fail(found=f"the end after {left} bytes", expected=f"{size} bytes of {what}")
        self.position += size
        return self.data[self.position - size : self.position]

    def unpack(self, layout: Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, what))

    def name(self) -> str:
        at = self.position
        (size,) = self.unpack(_STRING, "a queue name") if self._names_are_strings else self.take(1, "a queue name")
        if size > NAME_BYTES_MAX:
            raise self.fail(
                at=at, found=f"a length of {size}", expected=f"a queue name of {NAME_BYTES_MAX} bytes at most"
            )
        name = self.take(size, "a queue name")
        if not all(byte in NAME_BYTES for byte in name):
            raise self.fail(at=at, found=repr(name), expected="a valid queue name: bytes 33..126")
        return name.decode("ascii")

    def end(self, after: str) -> None:
        left = len(self.data) - self.position
        if left:
            raise self.fail(found=f"{left} more bytes", expected=f"the end after {after}")


def decode_log(entries: Sequence[LogEntry], *, path: object) -> tuple[list[Command], int]:
    """Return the commands of a log, and how many of the first ones are in the older encoding."""
    try:
        return [decode_command(entry.data, path=path, offset=entry.offset) for entry in entries], 0
    except DamagedFile as error:
        damage = error
    commands: list[Command] = []
    for entry in entries:
        try:
            commands.append(decode_command(entry.data, path=path, offset=entry.offset, names_are_strings=True))
        except DamagedFile:
            break
    older = len(commands)
    if not older:
        raise damage
    newer = [decode_command(entry.data, path=path, offset=entry.offset) for entry in entries[older:]]
    return commands + newer, older


def decode_command(
    data: bytes, *, path: object = "command", offset: int = 0, names_are_strings: bool = False
) -> Command:
    """Return the effect of a TaskFlux command; a log of version 1 has no other commands than these."""
    cursor = Cursor(path, data, base=offset, names_are_strings=names_are_strings)
    command: Command
    match cursor.take(1, "a command"):
        case b"E":
            name = cursor.name()
            key, size = cursor.unpack(RECORD, "an Enqueue")
            command = ImportedMessage(name, key, cursor.take(size, "a payload"))
        case b"D":
            command = RemovedFirst(cursor.name())
            if len(data) == cursor.position + TIMEOUT_BYTES:
                expected = "one of the one-phase protocol: with a timeout nobody knows whether the message was returned"
                raise cursor.fail(at=0, found="a Dequeue with a timeout", expected=expected)
        case b"C":
            command = Counted(cursor.name())
        case b"Q":
            command = _decode_create(cursor)
        case b"R":
            command = DeletedQueue(cursor.name())
        case marker:
            expected = "Enqueue, Dequeue, Count, CreateQueue or DeleteQueue"
            raise cursor.fail(at=0, found=f"command {marker.hex()}", expected=expected)
    cursor.end("the command")
    return command


def _decode_create(cursor: Cursor) -> ImportedQueue:
    name = cursor.name()
    at = cursor.position
    structure, max_size, max_payload = cursor.unpack(_CREATE, "a CreateQueue")
    if structure not in (0, 1, 2) or max_size < -1 or max_payload < -1:
        found = f"implementation {structure}, sizes {max_size} and {max_payload}"
        raise cursor.fail(at=at, found=found, expected="a CreateQueue that was accepted")
    low = high = None
    if cursor.take(1, "a CreateQueue") != b"\0":
        low, high = cursor.unpack(_RANGE, "a key range")
    return ImportedQueue(
        name, None if max_size < 0 else max_size, None if max_payload < 0 else max_payload, low, high,
        "QA" if structure == 2 else "H4",
    )  # fmt: skip
