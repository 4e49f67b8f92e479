"""How long a client waits for what, and the errors that it makes of silence.

Numbers and words only, the same for both clients; nothing here waits.
"""

from dataclasses import dataclass

from wakeq.client.core.session import NotTheProtocol, Silent
from wakeq.protocol.errors import Disconnected, WakeqError

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0  # a broker that says nothing for so long is hung
RECONNECT_FOR_S = 10.0  # how long a call outlives its broker


@dataclass(frozen=True, slots=True)
class Timeouts:
    """For a connection, for an answer, and for a broker to come back."""

    connect_s: float
    answer_s: float
    reconnect_for_s: float


class Closed(Disconnected):
    """Our own side ended it."""


def was_closed() -> Closed:
    """The error of a client that was closed."""
    return Closed("this client was closed; make another one")


def mute(address: str) -> Silent:
    """The error for a peer that does not greet."""
    return Silent(f"{address} accepted the connection and does not answer; is it a wakeq worker port?")


def foreign(address: str, error: NotTheProtocol) -> NotTheProtocol:
    """The error for a peer that says what no broker says."""
    return NotTheProtocol(f"{address} does not speak the worker protocol: {error}; is this the HTTP port?")


def ungreeted(error: WakeqError, kind: str = "worker") -> WakeqError:
    """The error of a connection that a peer ended before it had greeted: brokers do not, other ports and TLS do."""
    if type(error) is not Disconnected:
        return error
    return Disconnected(f"{error} before it greeted; is it a {kind} port, and does it want TLS (tls=, WAKEQ_TLS)?")


def silent(address: str) -> Silent:
    """The error for a broker that says nothing, where there are others to ask."""
    return Silent(f"{address} has fallen silent")


def hung(address: str, timeouts: Timeouts) -> Silent:
    """The error for a broker that stopped to answer."""
    return Silent(f"{address} does not answer for {timeouts.answer_s:g} s; see whether the broker still works")
