"""History: the outside ledger of a run, kept by the driver and never by the broker.

    driver --> invoke (before the bytes leave) --> ok | fail | unknown (when the answer is known) --> checker

`ok` is a promise that the broker made, `fail` a definite refusal (nothing happened), `unknown` an answer
that never came: it may have taken effect at any time after its invoke, or never. An invoke without an end
counts as unknown. Times are CLOCK_MONOTONIC of the driver. Records are only ever appended; nothing is
corrected later.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import msgspec

Phase = Literal["invoke", "ok", "fail", "unknown"]
Kind = Literal["publish", "deliver", "ack", "nack", "touch", "remain", "crash"]


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of the ledger.  `op` joins an invoke with what came of it; a fetch may have many `ok`s."""

    phase: Phase
    kind: Kind
    op: int
    at_s: float
    task: str = ""  # the driver's own name of the message, carried inside of its body
    queue: str = ""
    uid: str = ""
    lease: str = ""
    error_count: int = 0
    digest: int = 0
    priority: int = 0
    delay_s: float = 0
    timeout_s: float = 60
    expires_s: float = 0  # 0 is never
    publish_id: str = ""
    batch: int = 0  # publishes with the same number (not 0) are stored all or not at all
    max_deliveries: int = 0  # 0 is no limit
    dead_letter: str = ""  # where the message goes when its deliveries are used up
    strict: bool = False  # deliveries are on disk before they are answered
    known: bool = True  # of an ack: whether the broker still had the message


class Said(TypedDict, total=False):
    """What an event says beside what it is, for those that write one down: its fields mean what they do there."""

    task: str
    queue: str
    uid: str
    lease: str
    error_count: int
    digest: int
    priority: int
    delay_s: float
    timeout_s: float
    expires_s: float
    publish_id: str
    batch: int
    max_deliveries: int
    dead_letter: str
    strict: bool
    known: bool


class History:
    """Append-only list of events with the ids that join them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self._clock = clock
        self._last_op = 0

    def new_id(self) -> int:
        """Return a number that nothing else in this history has."""
        self._last_op += 1
        return self._last_op

    def record(self, event: Event) -> None:
        self.events.append(event)

    def invoke(self, kind: Kind, **said: Unpack[Said]) -> int:
        """Write down that a request is about to leave, with all that the broker is to be told; return its op."""
        op = self.new_id()
        self.events.append(Event("invoke", kind, op, self._clock(), **said))
        return op

    def ok(self, kind: Kind, op: int, **said: Unpack[Said]) -> None:
        self.events.append(Event("ok", kind, op, self._clock(), **said))

    def fail(self, kind: Kind, op: int) -> None:
        self.events.append(Event("fail", kind, op, self._clock()))

    def unknown(self, kind: Kind, op: int) -> None:
        self.events.append(Event("unknown", kind, op, self._clock()))

    def crash(self) -> None:
        """Write down that the broker is about to be killed or its disk to be cut off."""
        self.events.append(Event("ok", "crash", self.new_id(), self._clock()))

    def save(self, path: Path) -> None:
        """Keep the ledger as JSON lines, for the finding of a fault afterwards."""
        path.write_bytes(msgspec.json.Encoder().encode_lines(self.events))


def load_events(path: Path) -> list[Event]:
    """Read what `save` wrote."""
    return msgspec.json.Decoder(Event).decode_lines(path.read_bytes())


def in_time_order(events: Iterable[Event]) -> list[Event]:
    """Return the events as they happened; hand-made and generated ones may be written in another order."""
    return sorted(events, key=lambda event: event.at_s)
