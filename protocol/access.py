"""Access: the tokens that a broker accepts, and their rights.  Pure.

    a token --> Book.find --> Grant --> allows(right, queue)

A token is 256 random bits, so one round of SHA-256 hides it: it cannot be guessed, and a slow hash would only delay
logins.  This module must never keep a token itself, or put one into a text.
"""

import hmac
import math
import re
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from wakeq.protocol.errors import BadField
from wakeq.protocol.names import check_name

# By this prefix scanners for leaked secrets recognise a token.
TOKEN_PREFIX = "wakeq_"
TOKEN_CHARS_MAX = 256
NAME_CHARS_MAX = 64

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")


class Right(Enum):
    """A right of a token.  None includes another."""

    PUBLISH = "publish"
    # Everything that a worker does: fetch, acknowledge, release, sleep, peek.
    FETCH = "fetch"
    # Create, change, purge and delete queues; inspect the node.
    ADMIN = "admin"


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """One token of the file.  A pattern is the name of a queue, or the beginning of names followed by *."""

    name: str
    sha256: str
    queues: tuple[str, ...]
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None = None

    def allows(self, right: Right, queue: str) -> bool:
        """Whether the token has this right on the queue."""
        return right in self.rights and any(_matches(pattern, queue) for pattern in self.queues)

    def allows_all(self, right: Right, prefix: str = "") -> bool:
        """Whether the token has this right on every queue with this prefix."""
        if right not in self.rights:
            return False
        return any(pattern.endswith("*") and prefix.startswith(pattern[:-1]) for pattern in self.queues)

    def includes(self, other: "Grant") -> bool:
        """Whether this token allows everything that the other allows."""
        if not set(other.rights) <= set(self.rights):
            return False
        return all(any(_matches(mine, pattern) for mine in self.queues) for pattern in other.queues)

    @property
    def end_ms(self) -> float:
        """The moment at which the token expires; infinity if it never does."""
        return math.inf if self.expires_at is None else self.expires_at.timestamp() * 1000


class _Entry(NamedTuple):
    """A token in the index, with everything prepared that a login would spend time on."""

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
        """Return the grant of a token that is valid now; the work is the same for an unknown, wrong or expired one."""
        known, end_ms, grant = self._by_digest.get(digest, _NOBODY)
        is_right, is_valid = hmac.compare_digest(known, digest), now_ms < end_ms
        return grant if is_right and is_valid else None

    def next_end_ms(self, now_ms: int) -> float:
        """Return when the next token expires; infinity if none will."""
        return min((grant.end_ms for grant in self.grants if grant.end_ms > now_ms), default=math.inf)


def digest_of(token: str) -> bytes:
    """Return the digest that is kept and compared instead of a token."""
    return sha256(token.encode(errors="surrogatepass")).digest()


def check_pattern(pattern: str) -> str:
    """Return a valid pattern, or raise BadField; "" is the default queue."""
    if "*" in pattern[:-1]:
        raise BadField(f"{pattern!r} is not a pattern; give a queue's name, or the beginning of names followed by *")
    check_name(pattern.removesuffix("*"))
    return pattern


def check_token_name(name: str) -> str:
    """Return a valid name of a token, or raise BadField."""
    if not _NAME.fullmatch(name):
        raise BadField(f"{name!r} is not a token name; use 1 to {NAME_CHARS_MAX} letters, digits, dots, - and _")
    return name


def _matches(pattern: str, queue: str) -> bool:
    """Whether a pattern covers a queue, or all queues of another pattern."""
    return queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern
