"""The rights of tokens: which token may do what to which queue. Pure.

    a token --> Book.find --> Grant --> allows(right, queue)

A token is 256 random bits, so one round of SHA-256 hides it: nobody can guess it, and a slow hash would only slow down
logins. This code must never keep a token itself, or show one in a text.
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

# A search for leaked secrets recognises tokens by this prefix.
TOKEN_PREFIX = "wakeq_"
TOKEN_CHARS_MAX = 256
NAME_CHARS_MAX = 64

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")


class Right(Enum):
    """A right of a token.  No right includes another."""

    PUBLISH = "publish"
    # Also acknowledge, release, sleep, and look at messages.
    FETCH = "fetch"
    # Create, change, empty and delete queues; look at the node.
    ADMIN = "admin"


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one token in the file. A pattern is the name of a queue, or the beginning of names followed by *."""

    name: str
    sha256: str
    queues: tuple[str, ...]
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None = None

    def allows(self, right: Right, queue: str) -> bool:
        """Whether the token has this right for a queue."""
        return right in self.rights and any(_matches(pattern, queue) for pattern in self.queues)

    def allows_all(self, right: Right, prefix: str = "") -> bool:
        """Whether the token has this right for all queues whose names begin with `prefix`."""
        if right not in self.rights:
            return False
        return any(pattern.endswith("*") and prefix.startswith(pattern[:-1]) for pattern in self.queues)

    def includes(self, other: "Grant") -> bool:
        """Whether this grant allows everything that the other one allows."""
        if not set(other.rights) <= set(self.rights):
            return False
        return all(any(_matches(mine, pattern) for mine in self.queues) for pattern in other.queues)

    @property
    def end_ms(self) -> float:
        """The moment at which it expires; infinity for never."""
        return math.inf if self.expires_at is None else self.expires_at.timestamp() * 1000


class _Entry(NamedTuple):
    """A token, prepared for fast lookups."""

    digest: bytes
    end_ms: float
    grant: Grant | None


_NOBODY = _Entry(bytes(32), math.inf, None)


class Book:
    """All tokens that the broker accepts."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.grants = tuple(grants)
        entries = [_Entry(bytes.fromhex(grant.sha256), grant.end_ms, grant) for grant in self.grants]
        self._by_digest = {entry.digest: entry for entry in entries}

    def find(self, digest: bytes, now_ms: int) -> Grant | None:
        """Return the grant of a token, or None; an unknown, a wrong and an expired token take the same time."""
        known, end_ms, grant = self._by_digest.get(digest, _NOBODY)
        is_right, is_valid = hmac.compare_digest(known, digest), now_ms < end_ms
        return grant if is_right and is_valid else None

    def next_end_ms(self, now_ms: int) -> float:
        """Return when the next grant expires; infinity for never."""
        return min((grant.end_ms for grant in self.grants if grant.end_ms > now_ms), default=math.inf)


def digest_of(token: str) -> bytes:
    """Return the digest that is kept and compared instead of a token."""
    return sha256(token.encode(errors="surrogatepass")).digest()


def check_pattern(pattern: str) -> str:
    """Return the pattern, or raise BadField; "" is the default queue."""
    if "*" in pattern[:-1]:
        raise BadField(f"{pattern!r} is not a pattern; give a queue's name, or the beginning of names followed by *")
    check_name(pattern.removesuffix("*"))
    return pattern


def check_token_name(name: str) -> str:
    """Return the name of a token, or raise BadField."""
    if not _NAME.fullmatch(name):
        raise BadField(f"{name!r} is not a token name; use 1 to {NAME_CHARS_MAX} letters, digits, dots, - and _")
    return name


def _matches(pattern: str, queue: str) -> bool:
    """Whether a pattern matches a queue, or all queues that another pattern matches."""
    return queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern


def is_address(host: str) -> bool:
    """Whether this is an address of IPv4 or IPv6, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_this_machine(host: str) -> bool:
    """Whether only this machine can reach an address.  Of names, only localhost counts."""
    try:
        address = ip_address(host)
        # A socket for both families maps addresses of IPv4.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback
    except ValueError:
        return host == "localhost"
