"""Security: tokens, certificates and connection limits of a node's doors.

    settings --> Gate, ServerTls, Admission, for every door
    a changed file, SIGHUP --> the same objects, renewed; an invalid new file is logged and the old one stays in use

Must never let anybody in because a file cannot be read.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from wakeq.actors.runtime import Rounds
from wakeq.actors.sessions.access import Gate
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX, Admission
from wakeq.config.settings import Settings
from wakeq.net.tls import PeerTls, ServerTls, server_context
from wakeq.protocol.access import Book, is_this_machine
from wakeq.protocol.errors import BadSettings, WakeqError
from wakeq.storage.credentials import OPEN_HINT, TokenFile, read_secret
from wakeq.storage.files import anyone_may_change, anyone_may_read

logger = logging.getLogger("wakeq.security")


class Security:
    """Tokens, TLS and limits of one node."""

    def __init__(self, settings: Settings, wall_ms: Callable[[], int], rounds: Rounds | None = None) -> None:
        self.admission = Admission(rounds=rounds)
        self.gate: Gate | None = None
        self.tls: ServerTls | None = None
        self.peer_tls: PeerTls | None = None
        self.cluster_secret = cluster_secret_of(settings)
        self._settings = settings
        self._tokens = TokenFile(settings.tokens_path)
        self._limit(settings)
        self._check_exposure(settings.data_dir)
        if settings.auth.required:
            self.gate = Gate(self._read_tokens(), wall_ms)
        if settings.tls.cert_file is not None:
            self.tls = ServerTls(lambda: _server_context(settings))
            if text := shared_key(settings):
                logger.warning("%s", text)
            self.peer_tls = peer_tls_of(settings)

    @property
    def handshake_s(self) -> float | None:
        """How long a connection may take to authenticate, None if it need not."""
        return None if self.gate is None else HANDSHAKE_S_MAX

    def may_listen(self, host: str, *, is_guarded: bool = True) -> bool:
        """Return whether a door may be opened at this host."""
        return may_listen(self._settings, host, is_guarded=is_guarded)

    def tick(self) -> None:
        """Apply changed and expired tokens.  Called twice a second; nearly always this only checks a file's time."""
        self.admission.tick()
        for tls in (self.tls, None if self.peer_tls is None else self.peer_tls.accepting):
            if tls is not None:
                tls.complaints.tick()
        if self.gate is None:
            return
        if self._tokens.has_changed():
            try:
                self.gate.renew(self._read_tokens())
            except WakeqError as error:
                logger.error("could not read the tokens again; the old ones stay valid: %s", error)
        self.gate.tick()

    def reload(self, settings: Settings) -> None:
        """Apply new limits and certificates while connections go on; if a certificate is invalid, change nothing."""
        # The peers' TLS needs one file more than the clients': if it loads, the other one loads too.
        for tls in (self.peer_tls, self.tls):
            if tls is not None:
                tls.reload()
        self._limit(settings)

    def _limit(self, settings: Settings) -> None:
        admission = self.admission
        admission.connections_max = settings.connections_max
        admission.held_bytes_max = settings.buffer_bytes_max
        # If only this machine can connect, all connections have the same address, so no limit applies.
        admission.per_address_max = 0 if is_this_machine(settings.host) else settings.connections_per_address_max

    def _check_exposure(self, path: Path) -> None:
        """Refuse a path that other users of this machine may change; with --insecure, only warn."""
        text = exposure_of(path)
        if text and not self._settings.insecure:
            raise BadSettings(text)
        if text:
            logger.warning("%s", text)

    def _read_tokens(self) -> Book:
        self._check_exposure(self._tokens.path)
        grants = self._tokens.read()
        if grants:
            logger.info("read %d tokens from %s", len(grants), self._tokens.path)
        else:
            logger.warning("no client can connect: %s contains no token; see `wakeq token create`", self._tokens.path)
        return Book(grants)


def may_listen(settings: Settings, host: str, *, is_guarded: bool = True) -> bool:
    """Return whether a door may be opened at this host; an unguarded door checks neither tokens nor TLS."""
    if settings.insecure or is_this_machine(host):
        return True
    return is_guarded and settings.auth.required and settings.tls.cert_file is not None


def shared_key(settings: Settings) -> str:
    """Return a warning if every user of this machine can read the certificate's key, else an empty text."""
    key = settings.tls.key_file
    if key is None or not anyone_may_read(key):
        return ""
    return f"{key} is readable by all users, so every user of this machine can impersonate this broker; `chmod o-r` it"


def shared_secret(settings: Settings) -> str:
    """Return a warning if every user of this machine can read or change the cluster's secret, else an empty text."""
    file = settings.cluster.secret_file
    if file is None or not (anyone_may_read(file) or anyone_may_change(file)):
        return ""
    may = "readable" if anyone_may_read(file) else "writable"
    return (
        f"{file} is {may} by all users, so every user of this machine can impersonate a node; `chmod o-rw {file}`, or "
        "pass --insecure if this machine has no other users"
    )


def exposure_of(path: Path) -> str:
    """Return a warning if every user of this machine can change the data directory or a token file, else ""."""
    if not anyone_may_change(path):
        return ""
    if path.is_dir():
        consequence = "so every user of this machine can put messages and tokens there"
        hint = f"`chmod o-w {path}`, or choose a directory inside it, which the broker creates for itself alone"
    else:
        consequence, hint = "so every user of this machine can create a token for himself", OPEN_HINT
    return (
        f"{path} is writable by all users, {consequence}; {hint}, or pass --insecure if this machine has no other users"
    )


def peer_tls_of(settings: Settings) -> PeerTls | None:
    """Return the TLS between the nodes of a cluster, or None if they use none."""
    tls = settings.tls
    if tls.peer_ca_file is None or tls.cert_file is None or tls.key_file is None:
        return None
    return PeerTls(tls.cert_file, tls.key_file, tls.peer_ca_file)


def cluster_secret_of(settings: Settings) -> bytes | None:
    """Return the secret that proves a node's identity, or None; warn if a cluster has neither a secret nor TLS."""
    cluster = settings.cluster
    if cluster.peers is None:
        return None
    if cluster.secret_file is not None:
        secret = read_secret(cluster.secret_file)
        shared = shared_secret(settings)
        if shared and not settings.insecure:
            raise BadSettings(shared)
        if shared:
            logger.warning("%s", shared)
        return secret
    if settings.tls.peer_ca_file is None:
        logger.warning(
            "the nodes of this cluster do not authenticate each other: anyone who reaches a port in cluster.peers can "
            "act as a node; `wakeq cluster secret --out FILE` creates a secret, for cluster.secret_file of every node"
        )
    return None


def _server_context(settings: Settings) -> ssl.SSLContext:
    tls = settings.tls
    assert tls.cert_file is not None, "the caller has checked it"
    assert tls.key_file is not None, "the settings require it"
    return server_context(tls.cert_file, tls.key_file)
