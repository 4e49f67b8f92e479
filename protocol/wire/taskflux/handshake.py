"""Handshake: the first two packets of a TaskFlux connection, as its server sees them.  Pure.

    AuthorizationRequest, BootstrapRequest --> step --> what is answered, or why the connection ends

Nothing is said about what is out of place: the dialect, and so an error's form, is not known yet (section 3).
"""

from enum import Enum, auto

from wakeq.protocol.wire.taskflux.dialects import VERSION, Dialect, dialect_of
from wakeq.protocol.wire.taskflux.packets import (
    METHOD_NONE,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    Packet,
    Response,
)


class Phase(Enum):
    """How far a connection has come."""

    CONNECTED = auto()
    AUTHORIZED = auto()
    READY = auto()


class Handshake:
    """See the head of this file.  `dialect` is the listener's until the client's version shows that it is another."""

    __slots__ = ("dialect", "phase")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.phase = Phase.CONNECTED

    def step(self, packet: Packet | Bad) -> tuple[Response | None, str]:
        """Return the answer, if there is one, and why the connection is to be closed, or nothing."""
        match self.phase, packet:
            case Phase.CONNECTED, AuthorizationRequest(method=method):
                return self._authorize(method)
            case Phase.AUTHORIZED, BootstrapRequest():
                return self._bootstrap(packet)
        return None, f"bad handshake: {described(packet)}"

    def _authorize(self, method: int) -> tuple[Response, str]:
        if method != METHOD_NONE:
            reason = f"authorization method 0x{method:02X} is unknown; use 0x{METHOD_NONE:02X}, none"
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
        return BootstrapResponse(True), ""


def described(packet: Packet | Bad) -> str:
    """Return what came, for the text of an error."""
    return str(packet.error) if isinstance(packet, Bad) else f"{type(packet).__name__} came"
