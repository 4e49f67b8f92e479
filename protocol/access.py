"""Who may do what: tokens as the broker knows them, and the rights that they carry.  Pure.

    a token --> Book.find --> Grant --> allows(right, queue)

A token is 256 random bits, so one round of SHA-256 hides it: there is nothing to guess it from, and a slow hash would
only slow down those who log in.  Must never keep a token itself, or let a text say what one was.
"""

import hmac
import math
import re
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from msgspec import Struct

from wakeq.protocol.errors import BadField
from wakeq.protocol.names import check_name

TOKEN_PREFIX = "wakeq_"  # so that whoever looks for lost secrets knows one when he sees it
TOKEN_CHARS_MAX = 256
NAME_CHARS_MAX = 64

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")


class Right(Enum):
    """What a token may be good for.  None of them includes another."""

    PUBLISH = "publish"
    FETCH = "fetch"  # and all that belongs to working: acknowledge, give back, sleep, look at messages
    ADMIN = "admin"  # make, change, empty and delete queues; look at the node


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the file for one token.  A pattern is a queue's name, or the beginning of names with * behind."""

    name: str
    sha256: str
    queues: tuple[str, ...]
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None = None

    def allows(self, right: Right, queue: str) -> bool:
        """Whether this may be done to the queue."""
        return right in self.rights and any(_matches(pattern, queue) for pattern in self.queues)

    def allows_all(self, right: Right, prefix: str = "") -> bool:
        """Whether this may be done to every queue whose name begins so."""
        if right not in self.rights:
            return False
        return any(pattern.endswith("*") and prefix.startswith(pattern[:-1]) for pattern in self.queues)

    def includes(self, other: "Grant") -> bool:
        """Whether whatever the other allows is allowed by this one too."""
        if not set(other.rights) <= set(self.rights):
            return False
        return all(any(_matches(mine, pattern) for mine in self.queues) for pattern in other.queues)

    @property
    def end_ms(self) -> float:
        """From when on it is worth nothing; infinity: never."""
        return math.inf if self.expires_at is None else self.expires_at.timestamp() * 1000


class _Entry(NamedTuple):
    """A token as it is looked up: everything that would take time is done before."""

    digest: bytes
    end_ms: float
    grant: Grant | None


_NOBODY = _Entry(bytes(32), math.inf, None)


class Book:
    """All tokens that the broker takes."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.grants = tuple(grants)
        entries = [_Entry(bytes.fromhex(grant.sha256), grant.end_ms, grant) for grant in self.grants]
        self._by_digest = {entry.digest: entry for entry in entries}

    def find(self, digest: bytes, now_ms: int) -> Grant | None:
        """Return what a token is good for now; the same work is done whether it is unknown, wrong or over."""
        known, end_ms, grant = self._by_digest.get(digest, _NOBODY)
        is_right, is_valid = hmac.compare_digest(known, digest), now_ms < end_ms
        return grant if is_right and is_valid else None

    def next_end_ms(self, now_ms: int) -> float:
        """Return when the next of them expires; infinity: never."""
        return min((grant.end_ms for grant in self.grants if grant.end_ms > now_ms), default=math.inf)


def digest_of(token: str) -> bytes:
    """Return what is kept and compared instead of a token."""
    return sha256(token.encode(errors="surrogatepass")).digest()


def check_pattern(pattern: str) -> str:
    """Return a pattern if it is one; "" is the default queue."""
    if "*" in pattern[:-1]:
        raise BadField(f"{pattern!r} is not a pattern; give a queue's name, or the beginning of names followed by *")
    check_name(pattern.removesuffix("*"))
    return pattern


def check_token_name(name: str) -> str:
    """Return the name of a token if it is one."""
    if not _NAME.fullmatch(name):
        raise BadField(f"{name!r} is not a token name; use 1 to {NAME_CHARS_MAX} letters, digits, dots, - and _")
    return name


def _matches(pattern: str, queue: str) -> bool:
    """Whether a queue, or all queues that another pattern means, are meant by this pattern."""
    return queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern


def is_this_machine(host: str) -> bool:
    """Whether nobody but this machine reaches the address.  Of names only localhost is known to be so."""
    try:
        address = ip_address(host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None  # of a socket for both
        return (mapped or address).is_loopback
    except ValueError:
        return host == "localhost"
