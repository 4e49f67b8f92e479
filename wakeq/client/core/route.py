"""Route: at which address to look for the broker next, and after which pause.

The addresses that the user gave, in turn, and before them the one that a node named as its leader.  It remembers
what became of each, so that in the end the error lists what was tried.  It opens no connection and waits for nothing.
"""

import logging
import os

from wakeq.client.core.patience import Patience
from wakeq.client.core.session import NotReady, Silent
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, NotLeader, WakeqError

PORT = 2601
SILENT_LAST_S = 3.0  # an address that fell silent is left out for so long: by then the others know who leads
DEFAULT_ADDRESS = f"127.0.0.1:{PORT}"

logger = logging.getLogger("wakeq.client")


def default_address() -> str:
    """Where the broker is if nobody says: WAKEQ_BROKER, or the usual port of this machine."""
    return os.environ.get("WAKEQ_BROKER") or DEFAULT_ADDRESS


def parse_address(address: str) -> tuple[str, int]:
    """`host`, `host:port`, `[::1]:port` as host and port."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSettings(f"{address!r} is not the address of a broker; write HOST:PORT, like {DEFAULT_ADDRESS}")
    return host, int(port)


def _is_host(host: str) -> bool:
    """Whether this can be asked for at all; each way to connect would say in words of its own that it cannot."""
    try:
        return host.encode("idna") != b"" and "/" not in host
    except UnicodeError:
        return False


class Elsewhere(NotLeader):
    """This node does not serve; `leader` does, if it is known."""

    leader: str | None = None


def elsewhere(address: str, leader: str | None) -> Elsewhere:
    """The error for a node that sends its clients away."""
    error = Elsewhere(f"{address} does not lead" + (f", {leader} does" if leader else " and knows of no leader"))
    error.leader = leader if leader and _is_address(leader) else None
    return error


class Route:
    """Where to go: to the leader if one was named, else to the next address of the list.

    Nobody is waited for until a broker was found, which may have said that it is not ready; from then on for
    `reconnect_for_s`.
    """

    def __init__(self, addresses: str, *, reconnect_for_s: float) -> None:
        """Take `HOST:PORT`, or several of them with commas between."""
        if not isinstance(addresses, str):
            raise BadSettings(f"{addresses!r} is not the address of a broker; write HOST:PORT, like {DEFAULT_ADDRESS}")
        self._addresses = [_with_port(address.strip()) for address in addresses.split(",")]
        self._reconnect_for_s = reconnect_for_s
        self._patience = Patience(0.0)
        self._was_found = self._is_lost = False
        self._must_tell = False  # of an outage that has begun and does not stand in the log yet
        self._is_told = False  # that it is lost stands in the log, and that it is found again does not yet
        self._place = 0
        self._leader: str | None = None
        self._tried: dict[str, WakeqError] = {}
        self._silent_until_s: dict[str, float] = {}
        self._given_up: WakeqError | None = None  # the error with which the last attempts ended

    @property
    def address(self) -> str:
        """Where to connect to now."""
        return self._leader or self._addresses[self._place % len(self._addresses)]

    @property
    def has_others(self) -> bool:
        """Whether there is more than one node to ask."""
        return len(self._addresses) > 1

    def found(self, now_s: float) -> None:
        """A broker greeted us."""
        self._begin_patience()
        if self._is_told:
            logger.warning("connected to %s again", self.address)  # as loud as the outage that it ends
            self._is_told = False
        self._is_lost = False
        self._silent_until_s.pop(self.address, None)
        self._patience.found(now_s)

    def _begin_patience(self) -> None:
        if not self._was_found:
            self._was_found, self._patience = True, Patience(self._reconnect_for_s)

    def renew(self) -> None:
        """It was of use, or somebody asks once more after the patience had ended: begin anew."""
        self._patience.renew()
        self._tried.clear()

    def lost(self, error: WakeqError, now_s: float) -> float:
        """The connection ended: the seconds to wait before the next one.  Raise if there were enough attempts."""
        self._is_lost = True
        is_new = self._patience.begin(now_s)
        self._must_tell |= is_new  # once for each outage, however many attempts it takes
        # An error that has ended the attempts once is no news of the address: who asks again wants it to be dialled.
        if isinstance(error, Elsewhere | Silent) and error is not self._given_up:
            return self.failed(error, now_s)
        self._tell(error)
        self._tried[self.address] = error
        return 0.0 if is_new else self._pause_s(now_s)

    def failed(self, error: WakeqError, now_s: float) -> float:
        """Nobody serves at this address, go to the next one: the seconds to wait before.  Raise as `lost` does."""
        self._tried[self.address] = error
        if isinstance(error, NotReady):
            self._begin_patience()
        if isinstance(error, Silent) or isinstance(error.__cause__, TimeoutError):
            self._silent_until_s[self.address] = now_s + SILENT_LAST_S
        leader = error.leader if isinstance(error, Elsewhere) else None
        if leader is not None and self._is_silent(leader, now_s):  # whoever names it does not know yet
            leader = None
        self._leader = leader
        if leader is not None:  # who is sent on has lost nothing
            return self._pause_s(now_s) if leader in self._tried else 0.0
        self._tell(error)
        if self._go_on(now_s):
            return 0.0
        self._place += 1
        pause_s = self._pause_s(now_s)
        if self._is_silent(self.address, now_s):
            self._go_on(now_s)
        return pause_s

    def _go_on(self, now_s: float) -> bool:
        """Go to the next address of this round; False if all but the silent ones had their turn."""
        for _ in self._addresses:
            self._place += 1
            if self.address not in self._tried and not self._is_silent(self.address, now_s):
                return True
        return False

    def _is_silent(self, address: str, now_s: float) -> bool:
        return self._silent_until_s.get(address, now_s) > now_s

    def _tell(self, error: WakeqError) -> None:
        if self._must_tell:
            logger.warning("%s; reconnecting", error)
            self._must_tell, self._is_told = False, True

    def _pause_s(self, now_s: float) -> float:
        """All had their turn; begin a new round after a pause."""
        errors = list(self._tried.values())
        is_election = any(isinstance(error, Elsewhere) and error.leader is None for error in errors)
        pause_s = self._patience.pause_s(now_s, is_election=is_election)
        self._tried.clear()
        if pause_s is not None:
            return pause_s
        error = errors[0] if len(errors) == 1 else _of_all(errors)
        if self._is_lost:
            logger.warning("no broker came back within %g s", self._reconnect_for_s)  # the error says the rest
        self._given_up = error
        raise error


def _of_all(errors: list[WakeqError]) -> WakeqError:
    """What happened at each address, and at the end what to try, if that is the same for all."""
    kind = NotLeader if any(isinstance(error, NotLeader) for error in errors) else BrokerUnreachable
    parts = [str(error).partition("; ") for error in errors]
    advice = {one for _, _, one in parts if one}
    said = "; ".join([*(what for what, _, _ in parts), *advice] if len(advice) == 1 else map(str, errors))
    return kind(f"no broker serves; tried {len(errors)} addresses: {said}")


def _with_port(address: str) -> str:
    """The address as errors name it: whoever left the port out sees which one was tried."""
    host, port = parse_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(address: str) -> bool:
    try:
        parse_address(address)
    except BadSettings:
        return False
    return True
