"""Identity: who a client is, as it said in HELLO: the program, what it can do, and what it publishes again and again.

    Hello --> packed --> the bytes that a session keeps          the bytes --> facts_of --> what an operator sees

A session lives as long as its connection, and thousands may be idle: so an identity is kept as bytes, and their number
is limited.  Must never keep the token.
"""

from typing import Any

import msgspec

from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.worker.commands import Hello

FIELDS = ("host", "pid", "name", "versions", "concurrency", "tasks", "schedules")
IDENTITY_BYTES_MAX = 16 * 1024

NOT_SAID: dict[str, Any] = dict.fromkeys(FIELDS) | {"tasks": [], "schedules": []}


def packed(hello: Hello) -> bytes:
    """Return what a HELLO says of the client; empty if it says nothing.  Raise BadField for what no client may say."""
    said = {name: value for name in FIELDS if (value := getattr(hello, name)) is not None}
    for place, one in enumerate(hello.schedules or ()):
        if (one.cron is None) == (one.every is None):
            raise BadField(f"schedules[{place}]: give cron or every, one of them")
    identity = msgspec.msgpack.encode(said) if said else b""
    if len(identity) > IDENTITY_BYTES_MAX:
        raise BadField(
            f"host, name, versions, tasks and schedules have {len(identity)} bytes together, "
            f"at most {IDENTITY_BYTES_MAX} are kept; name fewer"
        )
    return identity


def facts_of(identity: bytes) -> dict[str, Any]:
    """Return what a client said of itself, with None or an empty list for what it did not say."""
    return NOT_SAID | (msgspec.msgpack.decode(identity) if identity else {})
