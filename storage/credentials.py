"""The secrets of a broker in files: TokenFile, the tokens that it accepts, and the secret of its cluster.

    tokens.json --> TokenFile.read --> grants          grants --> change --> tokens.json, whole, or as it was
    nothing --> write_secret --> a file that only its owner can read --> read_secret --> its bytes

The file of tokens holds hashes, never a token.  A broker reads it again after a change, so a change needs no restart.
It is never half written, and two processes that change it at once take turns.  The secret of a cluster is the same on
every node and is never sent.  This code must never print it or replace an existing one.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from wakeq.protocol.access import Grant, check_pattern, check_token_name
from wakeq.protocol.errors import BadField, BadName, BadSettings, StorageError
from wakeq.storage.files import anyone_may_change, new_private_file, replace_durably

VERSION = 1
DIGEST_CHARS = 64
OPEN_HINT = "look whether all of them are yours (`wakeq token list`), then `chmod 600` the file"

Grants = list[Grant]

SECRET_BYTES: Final = 32  # of randomness in a new secret, and the least length of any
FILE_BYTES_MAX: Final = 4_096


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file."""

    version: int
    tokens: Grants


class TokenFile:
    """One file; it may be missing, which means no tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_stamp: tuple[int, ...] | None = None  # the stamp at the last `read`

    def read(self) -> Grants:
        """Return all grants; none if there is no file."""
        self._read_stamp = self._stamp()
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error.strerror or str(error), "check its owner and rights") from error
        try:
            content = msgspec.json.decode(data, type=_Content)
            if content.version != VERSION:
                raise self._unusable(f"it is of version {content.version}, this release reads {VERSION}", "upgrade")
            _check(content.tokens)
        except (msgspec.MsgspecError, UnicodeError, ValueError, BadField, BadName) as error:
            raise self._unusable(str(error), "restore it, or delete it and create the tokens again") from error
        return content.tokens

    def has_changed(self) -> bool:
        """Whether the file has changed since the last `read`."""
        return self._stamp() != self._read_stamp

    def change(self, step: Callable[[Grants], Grants]) -> None:
        """Replace the grants by the result of `step`; no other process changes them in the meantime."""
        with self._alone():
            # Our change would give the file a new mode and so hide that others may have added tokens.
            if anyone_may_change(self.path):
                raise self._unusable("every user of this machine may change them", OPEN_HINT)
            grants = step(self.read())
            content = msgspec.json.format(msgspec.json.encode(_Content(VERSION, grants)), indent=2)
            replace_durably(self.path, content + b"\n")
            self._give_to_owner()

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder, because each change replaces the file itself."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._unusable(error.strerror or str(error), "name another data directory or file") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _give_to_owner(self) -> None:
        """Give a file written by root to the owner of the folder: the broker must be able to read it."""
        folder = self.path.parent.stat()
        if os.geteuid() == 0 and folder.st_uid != 0:
            os.chown(self.path, folder.st_uid, folder.st_gid)

    def _unusable(self, reason: str, hint: str) -> BadSettings:
        return BadSettings(f"{self.path}: the tokens cannot be read: {reason}; {hint}")


def _check(grants: Grants) -> None:
    """Check the rules that the types cannot express."""
    names = [check_token_name(grant.name) for grant in grants]
    if len(set(names)) < len(names):
        raise ValueError("two tokens have the same name")
    for grant in grants:
        if len(grant.sha256) != DIGEST_CHARS or bytes.fromhex(grant.sha256).hex() != grant.sha256:
            raise ValueError(f"sha256 of {grant.name} is no SHA-256 in hexadecimal")
        if grant.expires_at is not None and grant.expires_at.tzinfo is None:
            raise ValueError(f"expires_at of {grant.name} has no time zone")
        for pattern in grant.queues:
            check_pattern(pattern)


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
