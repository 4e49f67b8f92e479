"""The record of version 1 in a key-value store: key and value <-> one message of a worker queue.

Pure.  There are no checksums, so only bytes that cannot be decoded at all are refused.
"""

import struct
from dataclasses import dataclass
from struct import Struct

from wakeq.protocol.errors import BadField

_VALUE = Struct(">BQQQ")  # status, timeout, delay, expires


@dataclass(frozen=True, slots=True)
class RecordVersion1:
    """One message of a worker queue as version 1 stores it; moments are Unix seconds, 0 is none."""

    qname: str
    uid: str
    status: int
    timeout_s: int
    delay_at_s: int
    expires_at_s: int
    item: str


def decode_record_v1(key: bytes, value: bytes) -> RecordVersion1:
    """Return the record of a key and its value.  Only the queue name may contain dashes: split at the last."""
    name, dash, uid = key.rpartition(b"-")
    if not dash or not uid:
        raise BadField(f"record key {key!r}: expected a queue name, a dash and a uid")
    try:
        status, timeout_s, delay_at_s, expires_at_s = _VALUE.unpack_from(value)
        item = value[_VALUE.size :].decode()
        return RecordVersion1(name.decode(), uid.decode("ascii"), status, timeout_s, delay_at_s, expires_at_s, item)
    except struct.error as error:
        raise BadField(f"record {key!r}: expected {_VALUE.size} bytes or more, found {len(value)}") from error
    except UnicodeDecodeError as error:
        raise BadField(f"record {key!r}: expected text, found {error.object[error.start :][:8]!r}") from error


def encode_record_v1(record: RecordVersion1) -> tuple[bytes, bytes]:
    """Return key and value of a record."""
    if not 0 <= record.status <= 255 or "-" in record.uid:
        raise BadField(f"record {record.uid!r} with status {record.status}: version 1 cannot hold it")
    key = record.qname.encode() + b"-" + record.uid.encode("ascii")
    head = _VALUE.pack(record.status, record.timeout_s, record.delay_at_s, record.expires_at_s)
    return key, head + record.item.encode()
