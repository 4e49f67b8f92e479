"""Route: which address to connect to next, and after which pause; and how long a client waits for what.

The leader that a node has named comes first, then the addresses that the user gave, in turn. The route remembers what
happened at each address, so that the final error lists all attempts. It opens no connection and waits for nothing; the
caller passes the time in.
"""

import logging
import os
from dataclasses import dataclass

from wakeq.client.session import NotReady, PeerSilent, WrongProtocol
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Disconnected, NotLeader, WakeqError

CONNECT_TIMEOUT_S = 5.0
# A broker that owes an answer and says nothing for this long is taken to hang.
ANSWER_TIMEOUT_S = 30.0
RECONNECT_FOR_S = 10.0

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
# An election takes at most a few seconds, so during one the nodes are asked more often.
ELECTION_PAUSE_S, ELECTION_S_MAX = 0.1, 3.0
# A connection that ended sooner was of no use, however short the time allowed for an outage is.
LASTED_S_MIN = 1.0

PORT = 2601
# A silent address is skipped for this long: by then the other nodes know who leads.
SILENT_LAST_S = 3.0
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"

logger = logging.getLogger("wakeq.client")


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


def no_greeting(address: str, kind: str = "wakeq worker port") -> PeerSilent:
    return PeerSilent(f"{address} accepted the connection and does not answer; is it a {kind}?")


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


class ReconnectBackoff:
    """Growing pauses between attempts to connect, for a limited time after a connection was lost.

    An answer, or a connection that lasted, starts the count anew. A connection that broke at once does not, so that a
    command which crashes its broker is not repeated for ever.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._pause_s = PAUSE_S_MIN
        self._lost_at_s: float | None = None
        self._connected_at_s: float | None = None

    def connected(self, now_s: float) -> None:
        """Note that a connection was made."""
        self._connected_at_s = now_s

    def lost(self, now_s: float) -> bool:
        """Note that the connection ended. Return True if it had been useful, so that a retry at once makes sense."""
        if self._connected_at_s is not None and now_s - self._connected_at_s > max(self._limit_s, LASTED_S_MIN):
            self.reset()
        self._connected_at_s = None
        is_new_outage = self._lost_at_s is None
        if is_new_outage:
            self._lost_at_s = now_s
        return is_new_outage

    def next_pause_s(self, now_s: float, *, is_election: bool = False) -> float | None:
        """Return how long to wait before the next attempt, or None if the time for attempts is used up."""
        if self._lost_at_s is None:
            self._lost_at_s = now_s
        pause_s = self._pause_s
        if is_election and now_s < self._lost_at_s + ELECTION_S_MAX:
            pause_s = min(pause_s, ELECTION_PAUSE_S)
        if now_s + pause_s > self._lost_at_s + self._limit_s:
            return None
        self._pause_s = min(pause_s * 2, PAUSE_S_MAX)
        return pause_s

    def reset(self) -> None:
        """Start anew: the connection was useful, or a caller asks again after all attempts had failed."""
        self._lost_at_s, self._pause_s = None, PAUSE_S_MIN


def default_address() -> str:
    """Return the address for a client that was given none: WAKEQ_BROKER, or the usual port of this machine."""
    return os.environ.get("WAKEQ_BROKER") or DEFAULT_ADDRESS


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host`, `host:port` or `[::1]:port`."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSettings(f"{address!r} is not the address of a broker; write HOST:PORT, like {DEFAULT_ADDRESS}")
    return host, int(port)


def _is_host(host: str) -> bool:
    """Return whether a host can be looked up at all. Without this check each kind of client would fail differently."""
    try:
        return host.encode("idna") != b"" and "/" not in host
    except UnicodeError:
        return False


class Redirect(NotLeader):
    """The node does not serve clients; the node at `leader` does, if that is known."""

    leader: str | None = None


def redirect(address: str, leader: str | None) -> Redirect:
    """Return the error for a node that sends its clients away."""
    error = Redirect(f"{address} does not lead" + (f", {leader} does" if leader else " and knows of no leader"))
    error.leader = leader if leader and _is_address(leader) else None
    return error


class Route:
    """The next address to connect to.

    Until a broker was reached, every address is tried once. From then on attempts go on for `reconnect_for_s` after a
    loss. A broker that answers that it is not ready was reached, too.
    """

    def __init__(self, addresses: str, *, reconnect_for_s: float) -> None:
        """`addresses` is `HOST:PORT`, or several separated by commas."""
        if not isinstance(addresses, str):
            raise BadSettings(f"{addresses!r} is not the address of a broker; write HOST:PORT, like {DEFAULT_ADDRESS}")
        self._addresses = [_with_port(address.strip()) for address in addresses.split(",")]
        self._reconnect_for_s = reconnect_for_s
        self._backoff = ReconnectBackoff(0.0)
        # A broker has greeted this client, or answered that it is not ready.
        self._was_reached = False
        self._is_lost = False
        # An outage has begun and was not logged yet.
        self._must_log_outage = False
        # The beginning of an outage was logged, its end was not.
        self._is_outage_logged = False
        self._index = 0
        self._leader: str | None = None
        # What happened at each address in this round.
        self._tried: dict[str, WakeqError] = {}
        self._silent_until_s: dict[str, float] = {}
        # The error with which the last series of attempts ended.
        self._final_error: WakeqError | None = None

    @property
    def address(self) -> str:
        """The address to connect to now."""
        return self._leader or self._addresses[self._index % len(self._addresses)]

    @property
    def has_others(self) -> bool:
        """Whether there is more than one node to ask."""
        return len(self._addresses) > 1

    def connected(self, now_s: float) -> None:
        """Note that a broker at the current address has greeted this client."""
        self._note_reached()
        if self._is_outage_logged:
            # The level is that of the outage, so that every log with its beginning also has its end.
            logger.warning("connected to %s again", self.address)
            self._is_outage_logged = False
        self._is_lost = False
        self._silent_until_s.pop(self.address, None)
        self._backoff.connected(now_s)

    def _note_reached(self) -> None:
        """Allow reconnecting for `reconnect_for_s` from the first broker on."""
        if not self._was_reached:
            self._was_reached, self._backoff = True, ReconnectBackoff(self._reconnect_for_s)

    def reset(self) -> None:
        """Start anew: the connection was useful, or a caller asks again after all attempts had failed."""
        self._backoff.reset()
        self._tried.clear()

    def lost(self, error: WakeqError, now_s: float) -> float:
        """Note that the connection ended. Return the seconds to wait before the next attempt.

        Raise an error that lists all attempts if the time for them is used up.
        """
        self._is_lost = True
        is_new_outage = self._backoff.lost(now_s)
        # Each outage is logged once, however many attempts it takes.
        self._must_log_outage |= is_new_outage
        # An error that already ended a series of attempts says nothing new about the address: the caller that asks
        # again wants the address to be dialled.
        if isinstance(error, Redirect | PeerSilent) and error is not self._final_error:
            return self.failed(error, now_s)
        self._log_outage(error)
        self._tried[self.address] = error
        return 0.0 if is_new_outage else self._next_pause_s(now_s)

    def failed(self, error: WakeqError, now_s: float) -> float:
        """Note that the current address does not serve, and go to the next one. Return and raise as `lost` does."""
        self._tried[self.address] = error
        if isinstance(error, NotReady):
            self._note_reached()
        if isinstance(error, PeerSilent) or isinstance(error.__cause__, TimeoutError):
            self._silent_until_s[self.address] = now_s + SILENT_LAST_S
        leader = error.leader if isinstance(error, Redirect) else None
        # The node that names a silent leader does not know yet that the leader is silent.
        if leader is not None and self._is_silent(leader, now_s):
            leader = None
        self._leader = leader
        # To be redirected is no outage, so nothing is logged.
        if leader is not None:
            return self._next_pause_s(now_s) if leader in self._tried else 0.0
        self._log_outage(error)
        if self._advance(now_s):
            return 0.0
        self._index += 1
        pause_s = self._next_pause_s(now_s)
        if self._is_silent(self.address, now_s):
            self._advance(now_s)
        return pause_s

    def _advance(self, now_s: float) -> bool:
        """Go to the next address of this round. Return False if all but the silent ones were tried."""
        for _ in self._addresses:
            self._index += 1
            if self.address not in self._tried and not self._is_silent(self.address, now_s):
                return True
        return False

    def _is_silent(self, address: str, now_s: float) -> bool:
        return self._silent_until_s.get(address, now_s) > now_s

    def _log_outage(self, error: WakeqError) -> None:
        if self._must_log_outage:
            logger.warning("%s; reconnecting", error)
            self._must_log_outage, self._is_outage_logged = False, True

    def _next_pause_s(self, now_s: float) -> float:
        """End this round. Return the pause before the next one, or raise if there is no time for another round."""
        errors = list(self._tried.values())
        is_election = any(isinstance(error, Redirect) and error.leader is None for error in errors)
        pause_s = self._backoff.next_pause_s(now_s, is_election=is_election)
        self._tried.clear()
        if pause_s is not None:
            return pause_s
        error = errors[0] if len(errors) == 1 else _combined(errors)
        if self._is_lost:
            # The error that is raised says the rest.
            logger.warning("no broker was reachable within %g s", self._reconnect_for_s)
        self._final_error = error
        raise error


def _combined(errors: list[WakeqError]) -> WakeqError:
    """Return one error that lists what happened at each address, with the advice last if all errors share it."""
    kind = NotLeader if any(isinstance(error, NotLeader) for error in errors) else BrokerUnreachable
    parts = [str(error).partition("; ") for error in errors]
    advice = {one for _, _, one in parts if one}
    text = "; ".join([*(problem for problem, _, _ in parts), *advice] if len(advice) == 1 else map(str, errors))
    return kind(f"no broker serves; tried {len(errors)} addresses: {text}")


def _with_port(address: str) -> str:
    """Return the address with its port, so that errors show which port was tried."""
    host, port = parse_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(address: str) -> bool:
    try:
        parse_address(address)
    except BadSettings:
        return False
    return True
