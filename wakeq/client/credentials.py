"""Credentials: the token that a client shows to a broker, and the TLS context that verifies the broker.

    token=, else WAKEQ_TOKEN, else the file named by WAKEQ_TOKEN_FILE  -->  the token in HELLO, on each connection
    tls=, else WAKEQ_TLS  -->  an SSLContext, or none

A token file is read again for each connection, so a new token needs no restart. No token may appear in an error or log.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    import ssl

# This value of WAKEQ_TLS stands for the certificate authorities that the system trusts.
SYSTEM = "system"

Tls: TypeAlias = "bool | str | os.PathLike[str] | ssl.SSLContext | None"
TokenSource: TypeAlias = Callable[[], str | None]


def no_token() -> str | None:
    """Return no token: the client shows none."""
    return None


def token_source(token: str | None) -> TokenSource:
    """Return a function that gives the token for the next connection."""
    return _from_environment if token is None else lambda: token


class Credentials(NamedTuple):
    """The credentials of a new connection."""

    token: TokenSource
    context: "ssl.SSLContext | None"


NO_CREDENTIALS = Credentials(no_token, None)


def _from_environment() -> str | None:
    token = os.environ.get("WAKEQ_TOKEN")
    name = os.environ.get("WAKEQ_TOKEN_FILE")
    if token or not name:
        return token or None
    try:
        return Path(name).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSettings(
            f"the token file {name} cannot be read: {reason}; check --token-file or WAKEQ_TOKEN_FILE"
        ) from error


def tls_context(tls: Tls) -> "ssl.SSLContext | None":
    """Return the context for TLS connections, or None for connections without TLS.

    True stands for the certificate authorities that the system trusts; a path names a file of others to trust instead.
    """
    if tls is None:
        tls = os.environ.get("WAKEQ_TLS") or False
    if tls is False:
        return None
    # This import is slow, and most connections stay within one machine.
    import ssl

    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is True or tls == SYSTEM:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=tls)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"tls: {tls} is not a file of certificates ({error}); give one, or {SYSTEM!r}") from error
