"""The outcomes of entries: the bytes of the files `journal/outcomes.<first index>` (docs/files.md, "journal/").

    in   for a stretch of the log: the entries that were refused, and the next message number of each queue
    out  the bytes to be appended; or the records found, each checked

The log holds the requests.  With the outcomes a reader also knows the results, and the uid of each message, without
the state store.  This file is pure.  It never accepts a record with a wrong checksum or length.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from wakeq.protocol.errors import DamagedFile, WrongVersion
from wakeq.protocol.log.format import Identity, record_seed

MARKER = bytes.fromhex("2f6f0f4f")
VERSION = 1
HEADER = Struct(">4si16siQ24xI")  # marker, version, cluster, node, first index, zeros, CRC
HEADER_BYTES = HEADER.size
RECORD = Struct(">II")  # length of the body, CRC of the body
BODY = Struct(">QQIII")  # after, through, flags, queues, notes
QUEUE = Struct(">QQB")  # queue id (0: there is no such queue), its next number, length of the name
NOTE = Struct(">Qiq")  # index, place of the item, its outcome
LISTS_ALL = 1
WHOLE = -1  # the place in a note about an entry as a whole

Note = tuple[int, int, int]
Counter = tuple[int, int, str]  # queue id, next number, name


class Outcomes(NamedTuple):
    """The outcomes of the entries from `after` + 1 to `through`, and the next numbers of their queues afterwards.

    `queues` are the queues that these entries concern, or all queues (`lists_all`).  An entry without a note did what
    it asks for.  A note below 0 is a refusal.  A note above 0 is the number that a foreign uid got.  For an Unstash it
    is the number of the first message of a run, and the place is their count, or WHOLE less their count if they were
    dropped.
    """

    after: int
    through: int
    lists_all: bool
    queues: list[Counter]
    notes: list[Note]


def encode_header(identity: Identity, first_index: int) -> bytes:
    head = HEADER.pack(MARKER, VERSION, identity.cluster_id, identity.node_id, first_index, 0)[:-4]
    return head + crc32(head).to_bytes(4, "big")


def decode_header(data: bytes, path: object) -> tuple[Identity, int]:
    """Return the owner of the file and the index of its first entry."""
    hint = "the history can be read without it, less exactly: move the file aside, or restore it from a copy"
    if len(data) < HEADER_BYTES or data[:4] != MARKER:
        found = data[:4].hex() or "nothing"
        raise DamagedFile(path, 0, found=found, expected=f"the marker {MARKER.hex()} and a header", hint=hint)
    _marker, version, cluster, node, first_index, checksum = HEADER.unpack_from(data)
    if version != VERSION:
        raise WrongVersion(f"{path}: holds version {version}, this release reads {VERSION}; use the one that wrote it")
    if crc32(data[: HEADER_BYTES - 4]) != checksum:
        raise DamagedFile(path, 0, found="a header with a wrong checksum", expected="a whole header", hint=hint)
    return Identity(cluster, node), first_index


def encode_record(outcomes: Outcomes, identity: Identity) -> bytes:
    """Return the record for one stretch of the log."""
    queues, notes = outcomes.queues, outcomes.notes
    parts = [BODY.pack(outcomes.after, outcomes.through, LISTS_ALL * outcomes.lists_all, len(queues), len(notes))]
    for queue_id, next_number, name in queues:
        raw = name.encode()
        parts += (QUEUE.pack(queue_id, next_number, len(raw)), raw)
    parts += [NOTE.pack(*note) for note in notes]
    body = b"".join(parts)
    return RECORD.pack(len(body), crc32(body, record_seed(identity))) + body


def decode_records(data: bytes, identity: Identity, path: object) -> Iterator[Outcomes]:
    """Yield the records behind the header.  An unfinished one at the end is left by a crash and is ignored."""
    return map(_decode_body, bodies_in(data, identity, path))


def bodies_in(data: bytes, identity: Identity, path: object) -> Iterator[bytes]:
    """Yield the records as bytes, each checked, for readers who need a part of each only."""
    seed, position = record_seed(identity), HEADER_BYTES
    while position + RECORD.size <= len(data):
        size, checksum = RECORD.unpack_from(data, position)
        start, end = position + RECORD.size, position + RECORD.size + size
        if end > len(data):
            return
        body = data[start:end]
        if crc32(body, seed) != checksum:
            if not data[end:].strip(b"\0"):
                return
            hint = "move the file aside: the history can be read without it, less exactly"
            raise DamagedFile(path, position, found="a wrong checksum", expected="a whole record", hint=hint)
        yield body
        position = end


def span_of(body: bytes) -> tuple[int, int]:
    """Return `after` and `through` of a record."""
    after, through, *_ = BODY.unpack_from(body)
    return after, through


def counter_in(body: bytes, name: str) -> Counter | None:
    """Return the counter of a queue in a record; the id 0 if there is no such queue, None if nothing is said of it."""
    _after, _through, flags, queue_count, _notes = BODY.unpack_from(body)
    raw = name.encode()
    position = BODY.size if bytes([len(raw)]) + raw in body else len(body)
    for _ in range(queue_count if position < len(body) else 0):
        queue_id, next_number, size = QUEUE.unpack_from(body, position)
        position += QUEUE.size + size
        if size == len(raw) and body[position - size : position] == raw:
            return queue_id, next_number, name
    return (0, 0, name) if flags & LISTS_ALL else None


def notes_in(body: bytes) -> Iterator[Note]:
    """Yield the notes of a record."""
    note_count = BODY.unpack_from(body)[4]
    return NOTE.iter_unpack(body[len(body) - note_count * NOTE.size :])


def _decode_body(body: bytes) -> Outcomes:
    after, through, flags, queue_count, note_count = BODY.unpack_from(body)
    position, queues = BODY.size, []
    for _ in range(queue_count):
        queue_id, next_number, size = QUEUE.unpack_from(body, position)
        position += QUEUE.size + size
        queues.append((queue_id, next_number, body[position - size : position].decode()))
    notes = list(NOTE.iter_unpack(body[position : position + note_count * NOTE.size]))
    return Outcomes(after, through, bool(flags & LISTS_ALL), queues, notes)
