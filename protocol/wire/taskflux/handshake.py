"""Handshake: the first two packets of a TaskFlux connection, as its server sees them.  Pure.

    AuthorizationRequest, BootstrapRequest --> step --> what is answered, or why the connection ends

Nothing is said about what is out of place: the dialect, and so an error's form, is not known yet (section 3).
"""

from enum import Enum, auto
from typing import Protocol

from wakeq.protocol.errors import Unauthorized
from wakeq.protocol.wire.taskflux.commands import (
    METHOD_NONE,
    METHOD_TOKEN,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    Packet,
    Response,
)
from wakeq.protocol.wire.taskflux.dialects import VERSION, Dialect, dialect_of

METHODS = {METHOD_NONE: "none", METHOD_TOKEN: "token"}


class Session(Protocol):
    """Who knows which tokens are good."""

    def log_in(self, token: str | None) -> None:
        """Check a token; raise Unauthorized."""

    def welcome(self) -> None:
        """The handshake is over."""


class Phase(Enum):
    """How far a connection has come."""

    CONNECTED = auto()
    AUTHORIZED = auto()
    READY = auto()


class Handshake:
    """See the head of this file."""

    __slots__ = ("_session", "dialect", "phase")

    def __init__(self, dialect: Dialect, session: Session) -> None:
        self.dialect = dialect  # the listener's until the client's version shows that it is another
        self.phase = Phase.CONNECTED
        self._session = session

    def step(self, packet: Packet | Bad) -> tuple[Response | None, str]:
        """Return the answer, if there is one, and why the connection is to be closed, or nothing."""
        match self.phase, packet:
            case Phase.CONNECTED, AuthorizationRequest():
                return self._authorize(packet)
            case Phase.AUTHORIZED, BootstrapRequest():
                return self._bootstrap(packet)
        return None, f"bad handshake: {described(packet)}"

    def _authorize(self, request: AuthorizationRequest) -> tuple[Response, str]:
        reason = ""
        if request.method in METHODS:
            try:
                self._session.log_in(request.token if request.method == METHOD_TOKEN else None)
            except Unauthorized as error:
                reason = str(error)
        else:
            known = " or ".join(f"0x{method:02X}, {name}" for method, name in METHODS.items())
            reason = f"authorization method 0x{request.method:02X} is unknown; use {known}"
        if reason:
            return AuthorizationResponse(False, reason), reason
        self.phase = Phase.AUTHORIZED
        return AuthorizationResponse(True), ""

    def _bootstrap(self, packet: BootstrapRequest) -> tuple[Response, str]:
        dialect = dialect_of(packet, self.dialect)
        if dialect is None:
            found, here = f"{packet.major}.{packet.minor}", f"{VERSION[0]}.{VERSION[1]}"
            reason = f"version {found} is not served; this is {here}"
            return BootstrapResponse(False, reason), reason
        self.phase, self.dialect = Phase.READY, dialect
        self._session.welcome()
        return BootstrapResponse(True), ""


def described(packet: Packet | Bad) -> str:
    """Return what came, for the text of an error."""
    return str(packet.error) if isinstance(packet, Bad) else f"{type(packet).__name__} came"
