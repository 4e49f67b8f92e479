"""Door: what a session holds of its connection, the bounds that doors and sessions keep, and what an operator sees.

    listener --> Received(commands), Closed(reason) --> session --> Door.send, close, pause, resume

Sockets, tasks and codecs are the listeners' affair.  Nothing here may wait, or know a queue rule.
"""

import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.runtime import Process, Rounds
from wakeq.actors.sessions.access import Access
from wakeq.protocol.access import is_this_machine

CommandT = TypeVar("CommandT")  # what a protocol's codec makes of bytes
ReplyT_contra = TypeVar("ReplyT_contra", contravariant=True)  # what it makes bytes of

logger = logging.getLogger("wakeq.doors")

DOOR_WORKER_TCP = 1
DOOR_WORKER_WS = 2
DOOR_TASKFLUX = 3
DOOR_MONIQUE = 4

MIB = 1024 * 1024
UNREAD_BYTES_MAX = 4 * MIB  # of replies that a peer asked for and does not read: then it is disconnected
BURST_BYTES_MAX = 128 * MIB  # of the answers to a burst of PUBs that nobody reads: then reading pauses
STUCK_S_MAX = 60.0  # reading is paused and the peer takes nothing: then it is disconnected
FRAME_S_MAX = 10.0  # until a frame that was begun is complete, and a closing connection closed
HANDSHAKE_S_MAX = 5.0  # until a connection has said who it is, where that is asked
STRANGER_BYTES_MAX = 64 * 1024  # unfinished, of one that has not
CONNECTIONS_MAX = 50_000
SPARE_CONNECTIONS = 16  # beyond them, for requests by HTTP: probes, and an operator who looks for who has the others
HELD_BYTES_MAX = 1024 * MIB  # unfinished lines and unread replies, of all together


class Received(Struct, Generic[CommandT], frozen=True, gc=False):
    """What one read of the connection brought, in its order.  After one that ends the stream nothing comes."""

    commands: list[CommandT]
    size_bytes: int = 0  # of the commands themselves, however many reads they came in; bounds what is under way


class Closed(Struct, frozen=True, gc=False):
    """The connection is gone.  Comes once, after everything that was received."""

    reason: str


class Ended(Struct, frozen=True, gc=False):
    """The peer will say nothing more but may still read: answer what it said, then let `hang_up` end the connection."""


class Idle(Struct, frozen=True, gc=False):
    """Nothing came and nothing was sent for as long as a connection may be idle."""


class SendAway(Struct, frozen=True, gc=False):
    """The broker stops: what is asked for from now on is refused, in words by which the client goes and asks again."""


class Drained(Struct, frozen=True, gc=False):
    """The peer has read what it was sent, after `is_congested` was true."""


class Told(Protocol):
    """A subscriber, as a listener sees it."""

    def tell(self, message: object, /) -> None: ...

    def arrive(self, message: object, /) -> None:
        """Tell what was received; it may be answered before this returns."""


class Door(Protocol[ReplyT_contra]):
    """A connection, as a subscriber sees it.  All of it may be called after the connection has gone."""

    @property
    def kind(self) -> int: ...

    @property
    def peer(self) -> str: ...

    @property
    def access(self) -> Access | None:
        """What the connection may do, if that was known before it said anything."""

    def welcome(self) -> None:
        """The peer has said who it is: it may stay as long as it likes."""

    def send(self, replies: Sequence[ReplyT_contra], /) -> None:
        """Write the replies, in their order, in one write."""

    def close(self, reason: str, /) -> None:
        """Close when what was written has gone out; Closed follows."""

    def hang_up(self) -> None:
        """Everything is answered after Ended: close, in turn with others that end at the same time."""

    def pause(self) -> None:
        """Receive nothing until `resume`: too much is under way."""

    def resume(self) -> None:
        """Receive again."""

    def keep(self, size_bytes: int, /) -> bool:
        """Count so much of what was received as still held; return whether there is room for more."""


class CarefulDoor(Door[ReplyT_contra], Protocol[ReplyT_contra]):
    """A connection whose subscriber does not begin everything at once, and may hold much for long."""

    @property
    def is_congested(self) -> bool:
        """Whether much of what was sent is unread; Drained follows when it no longer is."""

    def drop(self, reason: str, /) -> None:
        """Close at once, and say nothing."""


class Admission:
    """What all doors of a node share: connections, bytes that are held for them, and the turns that they take.

    The log hears from it of those that could not come in, or stay.  An address has no limit of its own if that is 0,
    and this machine's has none ever: who is here can do worse.
    """

    __slots__ = (
        "_by_address", "_expelled", "_turned_away", "connections", "connections_max", "held_bytes", "held_bytes_max",
        "per_address_max", "rounds",
    )  # fmt: skip

    def __init__(
        self,
        connections_max: int = CONNECTIONS_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
        per_address_max: int = 0,
        rounds: Rounds | None = None,
    ) -> None:
        self.connections_max = connections_max
        self.held_bytes_max = held_bytes_max
        self.per_address_max = per_address_max
        self.rounds = rounds or Rounds()
        self.connections = 0
        self.held_bytes = 0
        self._by_address: dict[str, int] = {}
        self._turned_away, self._expelled = (
            RateLimitedLog(logger),
            RateLimitedLog(logger),
        )  # many of one hide none of the other

    @property
    def counts_addresses(self) -> bool:
        """Whether it matters where a connection comes from."""
        return self.per_address_max > 0

    @property
    def full(self) -> str:
        """Why there may not be one more; empty if there may."""
        if self.connections < self.connections_max:
            return ""
        return f"there are {self.connections_max} connections already"

    def enter(self, address: str = "", *, may_be_spare: bool = False) -> str:
        """Count one more connection and return nothing; or return why there may not be one more."""
        here = self._by_address.get(address, 0)
        refusal, setting = self.full, "connections_max"
        if may_be_spare and self.connections < self.connections_max + SPARE_CONNECTIONS:
            refusal = ""
        if not refusal and address and 0 < self.per_address_max <= here and not is_this_machine(address):
            refusal = f"there are {self.per_address_max} connections from {address} already"
            setting = "connections_per_address_max"
        if refusal:
            self._turned_away.log(f"a connection was turned away: {refusal} ({setting})")
            return refusal
        self.connections += 1
        self._by_address[address] = here + 1
        return ""

    def leave(self, address: str = "") -> None:
        """Count one connection less."""
        self.connections -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    def expelled(self, peer: str, reason: str) -> None:
        """Say who was disconnected, and why."""
        self._expelled.log(f"{peer} was disconnected: {reason}")

    def tick(self) -> None:
        """Say what was left out; called now and then."""
        self._turned_away.tick()
        self._expelled.tick()

    @property
    def crowded(self) -> bool:
        """Whether more is held than should be."""
        return self.held_bytes > self.held_bytes_max


class Verdict(Enum):
    """What a door must do about a peer that does not read."""

    KEEP = auto()
    PAUSE = auto()
    RESUME = auto()
    DROP = auto()


class Backlog:
    """Judge a peer by what it was sent and has not read.  Exists only while that is more than a little.

    `asked_bytes` counts replies other than to PUBs, and starts again whenever everything was read; so no more
    than that waits of them.
    """

    __slots__ = ("_asked_bytes", "_drained_bytes", "_progress_at_s", "_written_bytes", "paused")

    def __init__(self, waiting_bytes: int, now_s: float) -> None:
        self._written_bytes = waiting_bytes
        self._drained_bytes = 0
        self._asked_bytes = 0
        self._progress_at_s = now_s
        self.paused = False

    def wrote(self, size: int, waiting_bytes: int, now_s: float, *, burst: bool, crowded: bool) -> Verdict:
        """Judge after a write of `size`; `waiting_bytes` includes it.  `burst`: only answers to PUBs."""
        before = max(waiting_bytes - size, 0)
        if not before:
            self._asked_bytes = 0
        if not burst:
            # One answer may be as long as it is; the next one is too much when that one still waits.
            if min(self._asked_bytes, before) > UNREAD_BYTES_MAX:
                return Verdict.DROP
            self._asked_bytes += size
        self._written_bytes += size
        limit = UNREAD_BYTES_MAX if crowded else BURST_BYTES_MAX
        if self.paused or waiting_bytes <= limit:
            return Verdict.KEEP
        self.paused = True
        self._progress_at_s = now_s
        return Verdict.PAUSE

    def check(self, waiting_bytes: int, now_s: float) -> Verdict:
        """Judge again, some time later."""
        drained = self._written_bytes - waiting_bytes
        if drained > self._drained_bytes:
            self._drained_bytes = drained
            self._progress_at_s = now_s
        if not self.paused:
            return Verdict.KEEP
        if waiting_bytes <= UNREAD_BYTES_MAX // 2:
            self.paused = False
            return Verdict.RESUME
        return Verdict.DROP if now_s - self._progress_at_s >= STUCK_S_MAX else Verdict.KEEP


# How much of one connection may be under way -------------------------------------------------------------------------

IN_FLIGHT_MAX = 16_384  # commands without an answer; then reading pauses ...
IN_FLIGHT_LOW = 4_096  # ... until no more than this many are left
IN_FLIGHT_BYTES_MAX = 16 << 20  # read since the connection last owed no answer; then reading pauses until that is so
KEPT_BYTES_MIN = 64 * 1024  # of one connection; less is nothing to count among all


class Batches:
    """The bytes of commands that have no answer yet, by the reads that brought them; only while they are many."""

    __slots__ = ("_batches", "_commands", "size_bytes")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._commands = 0
        self.size_bytes = 0

    def add(self, commands: int, size_bytes: int) -> None:
        """Note what one read brought."""
        self._batches.append((commands, size_bytes))
        self._commands += commands
        self.size_bytes += size_bytes

    def leave(self, commands: int) -> int:
        """Forget the batches before the last so many commands; return how many bytes the others have."""
        while self._batches and self._commands - self._batches[0][0] >= commands:
            done, size_bytes = self._batches.popleft()
            self._commands -= done
            self.size_bytes -= size_bytes
        return self.size_bytes


class Pausable(Protocol):
    """The part of a door that matters here."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def bound_reading(door: Pausable, *, is_paused: bool, in_flight: int, in_flight_bytes: int) -> bool:
    """Pause reading while too much is under way, and resume it when that is done; return whether it is paused."""
    if is_paused and in_flight <= IN_FLIGHT_LOW and in_flight_bytes <= IN_FLIGHT_BYTES_MAX:
        door.resume()
        return False
    if not is_paused and (in_flight > IN_FLIGHT_MAX or in_flight_bytes > IN_FLIGHT_BYTES_MAX):
        door.pause()
        return True
    return is_paused


# What an operator sees of a connection ------------------------------------------------------------------------------

DOOR_NAMES = {
    DOOR_WORKER_TCP: "worker",
    DOOR_WORKER_WS: "websocket",
    DOOR_TASKFLUX: "taskflux",
    DOOR_MONIQUE: "monique",
}
QUEUES_SHOWN_MAX = 20
QUEUES_ASKED_MAX = 1_000  # of one connection, for what it has of each


def describe(process: Process, worker: int, door: Door[Any], since_ms: int, *, in_flight: int) -> dict[str, Any]:
    """Return who is connected, since when, and to which queues it has subscribed."""
    groups = process.runtime.groups.groups_of(process)
    queues = [group[1] for group in groups if type(group) is tuple and group[0] == "subscribers"]
    return {
        "id": worker,
        "door": DOOR_NAMES.get(door.kind, str(door.kind)),
        "peer": door.peer,
        "since_ms": since_ms,
        "in_flight": in_flight,
        "subscriptions": len(queues),
        "queues": list(islice(queues, QUEUES_SHOWN_MAX)),
    }
