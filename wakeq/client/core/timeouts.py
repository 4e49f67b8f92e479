"""Timeouts of a client, and the errors for a peer that does not behave as a broker.

Numbers and texts only, the same for all clients; nothing here waits.
"""

from dataclasses import dataclass

from wakeq.client.core.session import PeerSilent, WrongProtocol
from wakeq.protocol.errors import Disconnected, WakeqError

CONNECT_TIMEOUT_S = 5.0
# A broker that owes an answer and says nothing for this long is taken to hang.
ANSWER_TIMEOUT_S = 30.0
RECONNECT_FOR_S = 10.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client waits for a connection, for an answer, and for a lost broker to return."""

    connect_s: float
    answer_s: float
    reconnect_for_s: float


class Closed(Disconnected):
    """The program closed this client."""


def client_closed() -> Closed:
    return Closed("this client was closed; make another one")


def no_greeting(address: str) -> PeerSilent:
    return PeerSilent(f"{address} accepted the connection and does not answer; is it a wakeq worker port?")


def wrong_protocol(address: str, error: WrongProtocol) -> WrongProtocol:
    return WrongProtocol(f"{address} does not speak the worker protocol: {error}; is this the HTTP port?")


def ended_before_greeting(error: WakeqError, kind: str = "worker") -> WakeqError:
    """Return the error for a connection that the peer ended before it greeted: a port of another kind, or with TLS."""
    if type(error) is not Disconnected:
        return error
    return Disconnected(f"{error} before it greeted; is it a {kind} port, and does it want TLS (tls=, WAKEQ_TLS)?")


def fell_silent(address: str) -> PeerSilent:
    """Return the error for a silent broker in a cluster whose other nodes can be asked."""
    return PeerSilent(f"{address} has fallen silent")


def no_answer(address: str, timeouts: Timeouts) -> PeerSilent:
    return PeerSilent(f"{address} has not answered for {timeouts.answer_s:g} s; check whether the broker still works")
