"""Security: what stands between a node's doors and whoever comes: tokens, certificates, limits.

    settings --> Gate, ServerTls, Admission, for every door
    a file that changed, SIGHUP --> the same, renewed; what is wrong with the new is logged, and the old goes on

Must never let somebody in because a file cannot be read.
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
from wakeq.protocol.access import Book
from wakeq.protocol.addresses import is_this_machine
from wakeq.protocol.errors import BadSettings, WakeqError
from wakeq.storage.cluster_secret import read_secret
from wakeq.storage.files import anyone_may_change, anyone_may_read
from wakeq.storage.tokens import OPEN_HINT, TokenFile

logger = logging.getLogger("wakeq.security")


class Security:
    """See the head of this file."""

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
        """How long a connection may take to say who it is, if that is asked."""
        return None if self.gate is None else HANDSHAKE_S_MAX

    def may_listen(self, host: str, *, is_guarded: bool = True) -> bool:
        """Whether a door may be opened there."""
        return may_listen(self._settings, host, is_guarded=is_guarded)

    def look(self) -> None:
        """See whether tokens have changed or expired; called twice a second, and nearly always one look at a file."""
        self.admission.look()
        for tls in (self.tls, None if self.peer_tls is None else self.peer_tls.accepting):
            if tls is not None:
                tls.complaints.look()
        if self.gate is None:
            return
        if self._tokens.has_changed():
            try:
                self.gate.renew(self._read_tokens())
            except WakeqError as error:
                logger.error("the tokens stay as they were: %s", error)
        self.gate.look()

    def reload(self, settings: Settings) -> None:
        """Take what can be taken while connections go on: limits, and certificates; nothing if one is no good."""
        for tls in (self.peer_tls, self.tls):  # the nodes' needs one file more, so if it is good the other one is
            if tls is not None:
                tls.reload()
        self._limit(settings)

    def _limit(self, settings: Settings) -> None:
        admission = self.admission
        admission.connections_max = settings.connections_max
        admission.held_bytes_max = settings.buffer_bytes_max
        # Where nobody else can connect, addresses are all the same and not looked at.
        admission.per_address_max = 0 if is_this_machine(settings.host) else settings.connections_per_address_max

    def _check_exposure(self, path: Path) -> None:
        """Refuse what others may change on this machine, or warn where somebody says that something protects it."""
        text = exposure_of(path)
        if text and not self._settings.insecure:
            raise BadSettings(text)
        if text:
            logger.warning("%s", text)

    def _read_tokens(self) -> Book:
        self._check_exposure(self._tokens.path)
        grants = self._tokens.read()
        if grants:
            logger.info("tokens that are good here: %d (%s)", len(grants), self._tokens.path)
        else:
            logger.warning("no client can connect: no token is in %s; see `wakeq token create`", self._tokens.path)
        return Book(grants)


def may_listen(settings: Settings, host: str, *, is_guarded: bool = True) -> bool:
    """Whether a door may be opened there; one that is not guarded knows neither tokens nor TLS."""
    if settings.insecure or is_this_machine(host):
        return True
    return is_guarded and settings.auth.required and settings.tls.cert_file is not None


def shared_key(settings: Settings) -> str:
    """Say so if every user of this machine may read the key of the certificate; else nothing."""
    key = settings.tls.key_file
    if key is None or not anyone_may_read(key):
        return ""
    return f"{key} is readable by everybody, so every user of this machine can pass for this broker; `chmod o-r` it"


def shared_secret(settings: Settings) -> str:
    """Say so if every user of this machine may read or change the secret of the cluster; else nothing."""
    file = settings.cluster.secret_file
    if file is None or not (anyone_may_read(file) or anyone_may_change(file)):
        return ""
    may = "readable" if anyone_may_read(file) else "writable"
    return (
        f"{file} is {may} by everybody, so every user of this machine can pass for a node; `chmod o-rw {file}`; "
        "--insecure if no other user is there"
    )


def exposure_of(path: Path) -> str:
    """Say so if every user of this machine may change the data directory, or a file of tokens; else nothing."""
    if not anyone_may_change(path):
        return ""
    if path.is_dir():
        what = "so every user of this machine can put other messages and tokens there"
        hint = f"`chmod o-w {path}`, or name a directory within it, which the broker makes for itself alone"
    else:
        what, hint = "so every user of this machine can give himself a token", OPEN_HINT
    return f"{path} is writable by everybody, {what}; {hint}; --insecure if no other user is there"


def peer_tls_of(settings: Settings) -> PeerTls | None:
    """Return how the nodes of a cluster secure what they say to each other; None: not at all."""
    tls = settings.tls
    if tls.peer_ca_file is None or tls.cert_file is None or tls.key_file is None:
        return None
    return PeerTls(tls.cert_file, tls.key_file, tls.peer_ca_file)


def cluster_secret_of(settings: Settings) -> bytes | None:
    """Return the secret by which the nodes know each other; None if there is none.  Say so where that matters."""
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
            "the nodes of this cluster prove nothing to each other: whatever reaches one of the ports in cluster.peers "
            "can be a node; `wakeq cluster secret --out FILE` makes a secret, for cluster.secret_file of every node"
        )
    return None


def _server_context(settings: Settings) -> ssl.SSLContext:
    tls = settings.tls
    assert tls.cert_file is not None, "asked before"
    assert tls.key_file is not None, "checked with the settings"
    return server_context(tls.cert_file, tls.key_file)
