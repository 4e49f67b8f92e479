"""Identity: who a client is, as it said in HELLO: the program, what it can do, and what it publishes again and again.

    Hello --> packed --> the bytes that a session keeps          the bytes --> facts_of --> what an operator sees
    a HELLO as it came --> without_misfits --> one that can be obeyed

A session lives as long as its connection, and thousands may be idle: so an identity is kept as bytes, and their number
is limited.  Must never keep the token, and never refuse a client: what does not fit is left out.
"""

from typing import Any

import msgspec

from wakeq.protocol.wire.worker.commands import Hello

FIELDS = ("host", "pid", "name", "versions", "concurrency", "tasks", "schedules")
IDENTITY_BYTES_MAX = 16 * 1024

NOT_SAID: dict[str, Any] = dict.fromkeys(FIELDS) | {"tasks": [], "schedules": []}


def packed(hello: Hello) -> bytes:
    """Return what a HELLO says of the client, without the last fields if it is too long; empty if it says nothing."""
    said = {name: value for name in FIELDS if (value := getattr(hello, name)) is not None}
    if any((one.cron is None) == (one.every is None) for one in hello.schedules or ()):
        del said["schedules"]
    while len(identity := msgspec.msgpack.encode(said)) > IDENTITY_BYTES_MAX:
        said.popitem()
    return identity if said else b""


def without_misfits(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a HELLO without those of the identity that are of another type or out of their range."""
    return {name: value for name, value in given.items() if name not in FIELDS or _fits(name, value)}


def _fits(name: str, value: Any) -> bool:
    try:
        msgspec.convert({"cmd": "HELLO", name: value}, Hello)
    except msgspec.ValidationError:
        return False
    return True


def facts_of(identity: bytes) -> dict[str, Any]:
    """Return what a client said of itself, with None or an empty list for what it did not say."""
    return NOT_SAID | (msgspec.msgpack.decode(identity) if identity else {})
