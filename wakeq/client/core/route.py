"""Route: which address to connect to next, and after which pause.

The leader that a node has named comes first, then the addresses that the user gave, in turn. The route remembers what
happened at each address, so that the final error lists all attempts. It opens no connection and waits for nothing.
"""

import logging
import os

from wakeq.client.core.backoff import ReconnectBackoff
from wakeq.client.core.session import NotReady, PeerSilent
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, NotLeader, WakeqError

PORT = 2601
# A silent address is skipped for this long: by then the other nodes know who leads.
SILENT_LAST_S = 3.0
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"

logger = logging.getLogger("wakeq.client")


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
            logger.warning("no broker came back within %g s", self._reconnect_for_s)
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
