"""Credentials: what a client shows a broker, and how it knows that the broker is the right one.

    token=, else WAKEQ_TOKEN, else the file that WAKEQ_TOKEN_FILE names  -->  what HELLO says, on each connection
    tls=, else WAKEQ_TLS  -->  an SSLContext, or none

A file is read again for each connection, so a new token needs no restart.  Must never put a token into a text.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    import ssl

SYSTEM = "system"  # of WAKEQ_TLS: whom the system trusts

Tls: TypeAlias = "bool | str | os.PathLike[str] | ssl.SSLContext | None"
TokenSource: TypeAlias = Callable[[], str | None]


def no_token() -> str | None:
    """Show none."""
    return None


def token_source(token: str | None) -> TokenSource:
    """Return what gives the token for the next connection."""
    return _from_environment if token is None else lambda: token


class Credentials(NamedTuple):
    """What a new connection needs."""

    token: TokenSource
    context: "ssl.SSLContext | None"


NONE = Credentials(no_token, None)


def _from_environment() -> str | None:
    token = os.environ.get("WAKEQ_TOKEN")
    name = os.environ.get("WAKEQ_TOKEN_FILE")
    if token or not name:
        return token or None
    try:
        return Path(name).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSettings(
            f"the token file {name} cannot be read: {why}; check --token-file or WAKEQ_TOKEN_FILE"
        ) from error


def context_of(tls: Tls) -> "ssl.SSLContext | None":
    """Return how to secure connections; None: not at all.

    True stands for the authorities that the system trusts, a text or path for a file of those to trust instead.
    """
    if tls is None:
        tls = os.environ.get("WAKEQ_TLS") or False
    if tls is False:
        return None
    import ssl  # it takes its time to load, and most connections stay within a machine

    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is True or tls == SYSTEM:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=tls)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"tls: {tls} is not a file of certificates ({error}); give one, or {SYSTEM!r}") from error
