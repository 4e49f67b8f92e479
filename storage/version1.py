"""Version 1 of the consensus files: read once, imported, kept (docs/files.md).

    in   raft.log, raft.metadata, raft.snapshot of version 1
    out  queues and messages in order, term and vote; or an error that names file, offset and reason

The formats have no checksums.  The reader checks everything that can be checked and reports the rest.  A file of
version 1 never changes: it only gets a new name, and only after it was read to its end.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from struct import Struct
from typing import TypeAlias, assert_never

from wakeq.protocol.errors import DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log import format as log_format
from wakeq.protocol.log.format import MARKER, check_prefix
from wakeq.storage.files import replace_durably, sync_directory
from wakeq.storage.log import metadata

NAME_BYTES = range(33, 127)
NAME_BYTES_MAX = 255
RESTORE = "the file was not changed: restore it from a copy, or remove it to give up its content"
TIMEOUT_BYTES = 4
RECORD = Struct(">qi")  # key, length
_STRING = Struct(">i")
_CREATE = Struct(">iii")  # implementation, maximum size, maximum payload
_RANGE = Struct(">qq")

LOG, METADATA, SNAPSHOT = "raft.log", "raft.metadata", "raft.snapshot"
SUFFIX = ".v1"
UNFINISHED = "import.unfinished"  # exists from before the first rename until the import is on disk
_ENTRY = Struct(">ii")  # term, length
_METADATA = Struct(">4sii?i")  # marker, version, term, voted or not, vote
_SNAPSHOT = Struct(">4siii")  # marker, last index, last term, queues
_QUEUE = Struct(">II")  # maximum size, size


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
    """Return the commands of a log, and how many of the first ones are in the older encoding.

    Since 19 August 2023 a queue name is encoded as one byte of length and the name; before, it was a String with four
    bytes of length.  The file does not say which, and an upgraded program went on with its old log.  So a log is
    decoded in the newer encoding if all of it can be, otherwise in the older one up to the first command that does not
    fit it.
    """
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
                expected = (
                    "one of the one-phase protocol: with a timeout it is unknown whether the message was returned"
                )
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


@dataclass(frozen=True, slots=True)
class Log:
    """`tail` describes the bytes behind the last whole entry: an interrupted append or damage, which look the same."""

    entries: list[LogEntry]
    tail: str = ""


@dataclass(frozen=True, slots=True)
class State:
    term: int = 0
    vote: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    last_index: int
    last_term: int
    queues: list[tuple[ImportedQueue, list[ImportedMessage]]]


@dataclass(frozen=True, slots=True)
class Import:
    """The content of version 1: each queue, then its messages in order.  `notes` are for the log."""

    items: list[Imported]
    state: State
    notes: list[str] = field(default_factory=list)


# The three files --------------------------------------------------------------------------------------------


def read_log(path: Path) -> Log:
    """Return the entries of a version 1 log.  An absent or empty file is an empty log."""
    data = _bytes_of(path)
    if not data:
        return Log([])
    _check_header(path, data, 8)
    entries, position = list[LogEntry](), 8
    while position + _ENTRY.size <= len(data):
        term, size = _ENTRY.unpack_from(data, position)
        if size < 0:
            raise DamagedFile(path, position + 4, found=f"length {size}", expected="a possible length", hint=RESTORE)
        start = position + _ENTRY.size
        if start + size > len(data):
            break
        entries.append(LogEntry(term, data[start : start + size], start))
        position = start + size
    left = len(data) - position
    tail = f"{path}: entry {len(entries)} is incomplete: {left} bytes from offset {position}" if left else ""
    return Log(entries, tail)


def read_metadata(path: Path) -> State:
    """Return term and vote.  Node 0 is a valid vote; the flag says whether there is one."""
    data = _bytes_of(path)
    if not data:
        return State()
    _check_header(path, data, _METADATA.size)
    if len(data) > _METADATA.size:
        expected = f"the end after {_METADATA.size} bytes"
        raise DamagedFile(path, _METADATA.size, found="more bytes", expected=expected, hint=RESTORE)
    _marker, _version, term, voted, vote = _METADATA.unpack(data)
    return State(term, vote if voted else None)


def read_snapshot(path: Path) -> Snapshot | None:
    """Return the image, or None if there is none."""
    data = _bytes_of(path)
    if not data:
        return None
    if len(data) < _SNAPSHOT.size:
        raise _too_short(path, data, _SNAPSHOT.size)
    check_prefix(data, path)
    _marker, last_index, last_term, count = _SNAPSHOT.unpack_from(data)
    cursor = Cursor(path, data, _SNAPSHOT.size)
    for offset, value, what in ((4, last_index, "index"), (8, last_term, "term"), (12, count, "count")):
        if value < 0:
            raise cursor.fail(at=offset, found=str(value), expected=f"a possible {what}")
    queues, seen = list[tuple[ImportedQueue, list[ImportedMessage]]](), set[str]()
    for _ in range(count):
        at = cursor.position
        queue, messages = _read_queue(cursor)
        if queue.name in seen:
            raise cursor.fail(at=at, found=f"queue {queue.name!r} named twice", expected="every name once")
        seen.add(queue.name)
        queues.append((queue, messages))
    cursor.end("the last queue")
    if "" not in seen:
        raise cursor.fail(at=12, found="no default queue", expected="the default queue among the queues")
    return Snapshot(last_index, last_term, queues)


def _read_queue(cursor: Cursor) -> tuple[ImportedQueue, list[ImportedMessage]]:
    name = cursor.name()
    max_size, size = cursor.unpack(_QUEUE, "a queue")
    messages = []
    for _ in range(size):
        key, length = cursor.unpack(RECORD, "a record")
        messages.append(ImportedMessage(name, key, cursor.take(length, "a record's payload")))
    return ImportedQueue(name, max_size or None), messages


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; check its owner and mode") from error


def _check_header(path: Path, data: bytes, size: int) -> None:
    if len(data) >= 4:
        check_prefix(data, path)
    if len(data) >= 8 and data[4:8] != b"\0\0\0\1":
        version = int.from_bytes(data[4:8], "big", signed=True)
        raise WrongVersion(f"{path}: at offset 4: expected version 1, found {version}; use its own release")
    if len(data) < size:
        raise _too_short(path, data, size)


def _too_short(path: Path, data: bytes, size: int) -> DamagedFile:
    return DamagedFile(path, 0, found=f"a file of {len(data)} bytes", expected=f"{size} bytes", hint=RESTORE)


# Import -----------------------------------------------------------------------------------------------------


def needs_import(directory: Path) -> bool:
    """Whether a data directory is of version 1, or its import was not finished."""
    consensus = directory / "consensus"
    if (consensus / UNFINISHED).exists():
        return True
    return not (directory / "VERSION").exists() and any(_is_older(consensus / name) for name in _NAMES)


def read_import(directory: Path) -> Import:
    """Read all files of version 1, under their old or new names.  Change nothing; refuse damaged files."""
    log_path, metadata_path, snapshot_path = (_where(directory, name) for name in _NAMES)
    log, state, image = read_log(log_path), read_metadata(metadata_path), read_snapshot(snapshot_path)
    notes = [log.tail] if log.tail else []
    contents = Contents(notes)
    for queue, messages in image.queues if image else ():
        contents.put_queue(queue, messages)
    commands, older = decode_log(log.entries, path=log_path)
    if older:
        notes.append(f"the first {older} of {len(commands)} commands of the log have names of before 19 August 2023")
    start = _entries_in_image(log, commands, image, notes) if image else 0
    for place, command in enumerate(commands[start:], start):
        contents.apply(command, makes_queues=place < older)
    return Import(contents.items(), state, notes)


class Contents:
    """The queues and messages while commands are applied in order; a command that changes nothing is noted."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._queues: dict[str, _Content] = {"": _Content(ImportedQueue(""))}

    def put_queue(self, queue: ImportedQueue, messages: Iterable[ImportedMessage] = ()) -> None:
        """Add a queue with its messages; it replaces a queue of the same name."""
        content = self._queues[queue.name] = _Content(queue)
        for message in messages:
            content.put(message)

    def apply(self, command: Command, *, makes_queues: bool) -> None:
        """Apply a command.  A log from before 19 August 2023 has no command that creates a queue."""
        match command:
            case ImportedMessage(queue=name) if name in self._queues:
                self._queues[name].put(command)
            case ImportedMessage(queue=name) if makes_queues:
                self._notes.append(f"queue {name!r} is made, for the log has messages for it and nothing that makes it")
                self.put_queue(ImportedQueue(name), [command])
            case ImportedMessage(queue=name):
                self._notes.append(f"a message for queue {name!r}, which did not exist, is left out")
            case ImportedQueue(name=name) if name not in self._queues:
                self.put_queue(command)
            case DeletedQueue(name=name) if name and name in self._queues:
                del self._queues[name]
            case RemovedFirst(queue=name) if name in self._queues:
                self._queues[name].remove_first()
            case Counted():
                pass
            case ImportedQueue(name=name) | DeletedQueue(name=name) | RemovedFirst(queue=name):
                self._notes.append(f"{type(command).__name__} of queue {name!r} changed nothing")
            case _:
                assert_never(command)

    def items(self) -> list[Imported]:
        """Return each queue, then its messages in the order in which they were put."""
        items: list[Imported] = []
        for content in self._queues.values():
            items += [content.queue, *content.messages.values()]
        return items


class _Content:
    """One queue and its messages, by number."""

    def __init__(self, queue: ImportedQueue) -> None:
        self.queue = queue
        self.messages: dict[int, ImportedMessage] = {}
        self._next = 0  # number of the next message
        self._heap: list[tuple[int, int]] = []  # (key, number): the smallest key first, then the oldest message

    def put(self, message: ImportedMessage) -> None:
        self.messages[self._next] = message
        heappush(self._heap, (message.key, self._next))
        self._next += 1

    def remove_first(self) -> None:
        """Remove the first message; a Dequeue from an empty queue removed nothing."""
        if self._heap:
            _key, number = heappop(self._heap)
            del self.messages[number]


def _entries_in_image(log: Log, commands: list[Command], image: Snapshot, notes: list[str]) -> int:
    """Return how many entries of the log the image already contains.

    The log does not name the index of its first entry.  It begins at index 0 if the entry at the image's index has the
    image's term and the entries before put everything that is in the image.  Otherwise the log was truncated behind the
    image, and all of its entries come after it.
    """
    covered = image.last_index + 1
    if len(log.entries) >= covered and log.entries[image.last_index].term == image.last_term:
        put = Counter(command for command in commands[:covered] if isinstance(command, ImportedMessage))
        held = Counter(message for _queue, messages in image.queues for message in messages)
        if held <= put:
            notes.append(f"the log is complete; its first {covered} entries are in the snapshot")
            return covered
    if log.entries and log.entries[0].term < image.last_term:
        notes.append("the log begins in an older term than the snapshot, but does not contain it: all comes after it")
    elif log.entries:
        notes.append(f"the log was cut behind the snapshot; all its {len(log.entries)} entries come after it")
    return 0


def set_aside(directory: Path) -> None:
    """Rename the three files to `*.v1`, and delete the files of an unfinished import.

    Read the import first: after this step programs of version 1 find no data.  A crash at any moment leaves every file
    under one of its two names, and `needs_import` true until `finish_import`.
    """
    consensus = directory / "consensus"
    marker = consensus / UNFINISHED
    if marker.exists():
        _drop_unfinished(directory)
    else:
        replace_durably(marker, b"version 1 is being imported; the node finishes it at its next start\n")
    for name in _NAMES:
        path = consensus / name
        if _is_older(path):
            path.rename(_kept(path))
        elif path.exists():
            # A file of 0 bytes counts as absent.
            path.unlink()
    sync_directory(consensus)


def finish_import(directory: Path) -> None:
    """Record that the import is on disk: from now on the `*.v1` files are only kept.

    DataDirectory.finish_import calls this after it has written VERSION.
    """
    consensus = directory / "consensus"
    (consensus / UNFINISHED).unlink(missing_ok=True)
    sync_directory(consensus)


def _drop_unfinished(directory: Path) -> None:
    """Remove the files of an interrupted import: no client has seen them."""
    consensus, state = directory / "consensus", directory / "state"
    for path in consensus.glob("raft.*"):
        # If the file of version 1 was renamed, this one is ours, even if a crash left it damaged.
        renamed = _kept(path).exists()
        if path.suffix != SUFFIX and (renamed or not _is_older(path)):
            path.unlink()
    for path in state.iterdir() if state.is_dir() else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


_NAMES = (LOG, METADATA, SNAPSHOT)
_OURS = {LOG: log_format.VERSION, METADATA: metadata.VERSION}  # never 1


def _kept(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _where(directory: Path, name: str) -> Path:
    """Return the path of a file of version 1: its old name, or the new one after an unfinished import."""
    path = directory / "consensus" / name
    return _kept(path) if path.with_name(UNFINISHED).exists() and _kept(path).exists() else path


def _is_older(path: Path) -> bool:
    """Whether a file is of version 1, or not a file of this program, which the reader will refuse."""
    try:
        with path.open("rb") as file:
            data = file.read(8)
    except OSError:
        return False
    number = int.from_bytes(data[4:8], "big", signed=True)
    newer = number < 0 if path.name == SNAPSHOT else number == _OURS[path.name]
    return bool(data) and not (len(data) == 8 and data[:4] == MARKER and newer)
