"""ClusterSecret: the file with the secret by which the nodes of a cluster recognise each other.

    nothing --> make_secret --> a text, in a file that only its owner can read
    file --> read_secret --> its bytes, without the white space around them

The secret is the same on every node and is never sent.  This code must never print it or replace an existing one.
"""

import secrets
from pathlib import Path
from typing import Final

from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.storage.files import new_private_file

SECRET_BYTES: Final = 32  # of randomness in a new secret, and the least length of any
FILE_BYTES_MAX: Final = 4_096


def make_secret() -> str:
    """Return a new secret."""
    return secrets.token_urlsafe(SECRET_BYTES)


def write_secret(path: Path) -> None:
    """Put a new secret into a new file that only its owner can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path.parent}: {error.strerror}; choose another place") from error
    with new_private_file(path) as file:
        file.write(make_secret() + "\n")


def read_secret(path: Path) -> bytes:
    """Return the secret in a file."""
    try:
        with path.open("rb") as file:
            secret = file.read(FILE_BYTES_MAX + 1).strip()
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadSettings(
            f"cluster.secret_file {path}: {reason}; `wakeq cluster secret --out {path}` makes one"
        ) from None
    if not SECRET_BYTES <= len(secret) <= FILE_BYTES_MAX:
        raise BadSettings(
            f"cluster.secret_file {path}: it has {len(secret)} bytes, and a secret has {SECRET_BYTES} to "
            f"{FILE_BYTES_MAX}; `wakeq cluster secret` makes one"
        )
    return secret
