"""Certificate: when the certificates of a PEM file begin and end (RFC 5280, 4.1.2.5).

    PEM file --> every certificate in it --> begins, ends

Python shows these dates only for a certificate of a handshake, and not for one that has ended, so they are read from
the bytes here.  Nothing is verified: the caller has loaded the file with OpenSSL before.
"""

import re
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from wakeq.protocol.errors import BadSettings

_PEM: Final = re.compile(
    r"^-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----\s*$(.+?)^-----END ", re.DOTALL | re.MULTILINE
)
_VERSION: Final = 0xA0  # tags of DER (X.690)
_UTC_TIME: Final = 0x17
_MOMENT_LETTERS: Final = len("YYYYMMDDHHMMSSZ")
# A year of two digits from here on was in the last century.
_CENTURY_TURNS: Final = "50"


class Validity(NamedTuple):
    """When a certificate begins and ends."""

    begins: datetime
    ends: datetime


def validities(path: Path) -> list[Validity]:
    """Return the validity of every certificate in a file, in their order."""
    try:
        return [_validity_of(b64decode(body)) for body in _PEM.findall(path.read_text(errors="replace"))]
    except (ValueError, IndexError) as error:
        raise BadSettings(f"{path}: it contains a malformed certificate: {error}; have it issued again") from None


def _validity_of(der: bytes) -> Validity:
    _, at, _ = _element(der, 0)  # Certificate
    _, at, _ = _element(der, at)  # its tbsCertificate
    tag, _, _ = _element(der, at)
    for _ in range(3 + (tag == _VERSION)):  # the version if it is there, serialNumber, signature, issuer
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)  # validity
    begins = _element(der, at)
    return Validity(_moment(der, *begins), _moment(der, *_element(der, begins[2])))


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, and where its content begins and ends."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size & 0x80:
        bytes_of_size = size & 0x7F
        size = int.from_bytes(der[at : at + bytes_of_size], "big")
        at += bytes_of_size
    return tag, at, at + size


def _moment(der: bytes, tag: int, begin: int, end: int) -> datetime:
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= _CENTURY_TURNS else "20") + text
    # strptime would also accept fewer digits.
    if len(text) != _MOMENT_LETTERS:
        raise ValueError(f"{text} is not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
