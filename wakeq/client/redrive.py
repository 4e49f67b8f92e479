"""Redrive: dead letters go back to the queues that they came from.

    redrive  -->  Request  -->  whoever carries it out  -->  what the reply said  -->  ...  -->  Redriven

One conversation for both clients.  A message leaves the dead-letter queue in the same step in which it is published
again, so that it is never in both and never in neither, whatever dies in between; what was only fetched comes back.
Many are moved in one step, and each in a step of its own where that is refused.  It must end: only as many as were
ready at the beginning are moved, for one that fails again becomes a dead letter once more.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from wakeq.client.core import requests
from wakeq.client.core.requests import Ending, Request
from wakeq.client.message import Received
from wakeq.protocol.errors import BadField, MessageNotFound, Refused, StaleLease, WakeqError
from wakeq.protocol.wire.worker import codec as wire

BATCH_MAX = 100
STEP_BYTES_MAX = 64 * 1024  # of bodies in one step, but for one that is larger: lines are bounded too
HELD_MAX = 10_000  # messages without an origin; then it ends
DEAD_SUFFIX = ".dead"  # of the queue for the dead letters of another one, unless that says otherwise
# As protocol/queue/dead_letters.py writes it; importing that here would load it into every program that publishes.
ORIGIN = "wakeq-origin"
OWN_PREFIX = "wakeq-"  # of the headers in which a dead letter says why it is one
REDRIVEN = "wakeq-redriven"  # the header that counts how often a message was brought back
GONE = (MessageNotFound.code, StaleLease.code)  # somebody else has taken it meanwhile
UNTRIED = Ending(delay=0, error=None, failed=False, dead=False)

T = TypeVar("T")
Letter: TypeAlias = tuple[Received, str]  # and where to
Steps: TypeAlias = Generator[Request[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Redriven:
    """How many messages were moved, and how many stayed: they do not say where they came from, or a strange queue.

    `strangers` are the queues that were named and do not send their dead letters here.
    """

    done: int
    left: int
    strangers: tuple[str, ...] = ()


def redrive(queue: str, count: int | None, to: str | None, *, anywhere: bool = False) -> Steps[Redriven]:
    """Move up to `count` messages, or as many as are ready now, to where each came from, or all of them to `to`.

    Whoever may publish here may have written where a message came from.  So one that names a queue which does not send
    its dead letters here stays, unless `anywhere` says that it may go.
    """
    if to == queue:
        raise BadField(f"what is in {queue!r} cannot be redriven to {queue!r}; name another queue")
    if count is not None and (type(count) is not int or count < 1):
        raise BadField(f"count is {count!r}; give a number of messages, or None for all that are ready")
    stats: Mapping[str, Any] = yield requests.stats(queue)
    held: dict[str, Received] = {}
    origins = Origins(queue, to, anywhere=anywhere)
    try:
        done = yield from _move(queue, min(stats["ready"], count or stats["ready"]), origins, held)
    except WakeqError as error:
        try:
            yield from _give_back(held)
        except WakeqError:  # they come back after their timeout
            error.add_note("what was fetched comes back after its timeout")
        raise
    yield from _give_back(held)
    return Redriven(done, len(held), tuple(sorted(origins.strangers)))


class Origins:
    """Where messages go, and whether they may."""

    def __init__(self, queue: str, to: str | None, *, anywhere: bool) -> None:
        self._queue, self._to, self._anywhere = queue, to, anywhere
        self._family: set[str] = set()
        self.strangers: set[str] = set()

    def target_of(self, message: Received) -> Steps[str | None]:
        """Where a message is to go; None: it stays."""
        if self._to is not None:
            return self._to
        origin = message.headers.get(ORIGIN)
        if origin is None or self._anywhere or origin in self._family:
            return origin
        if origin not in self.strangers:
            is_own = yield from self._sends_here(origin)
            (self._family if is_own else self.strangers).add(origin)
        return origin if origin in self._family else None

    def _sends_here(self, origin: str) -> Steps[bool]:
        """Whether the dead letters of a queue come here."""
        if origin + DEAD_SUFFIX == self._queue:
            return True
        try:
            stats: Mapping[str, Any] = yield requests.stats(origin)
        except Refused:  # it is not there, or not ours to see
            return False
        return bool(stats["policies"]["dead_letter"] == self._queue)


def _move(queue: str, room: int, origins: Origins, held: dict[str, Received]) -> Steps[int]:
    """Fetch and move; whatever was fetched and not moved is in `held` at the end, and at every error."""
    done = 0
    while room and len(held) < HELD_MAX:
        batch: list[Received] = yield requests.fetch_many(queue, min(room, BATCH_MAX), 0, _received)
        if not batch:
            break
        room -= len(batch)
        held |= {message.uid: message for message in batch}
        letters: list[Letter] = []
        for message in batch:
            target = yield from origins.target_of(message)
            if target is not None:
                letters.append((message, target))
        for together in _in_steps(letters):
            done += yield from _move_together(together)
            for message, _ in together:
                del held[message.uid]
    return done


def _in_steps(letters: list[Letter]) -> Iterator[list[Letter]]:
    together: list[Letter] = []
    room_bytes = STEP_BYTES_MAX
    for letter in letters:
        size_bytes = len(letter[0].body)
        if together and size_bytes > room_bytes:
            yield together
            together, room_bytes = [], STEP_BYTES_MAX
        together.append(letter)
        room_bytes -= size_bytes
    if together:
        yield together


def _move_together(letters: list[Letter]) -> Steps[int]:
    """Move letters in one step; each in its own if that is refused, for one of them may be gone, or find no room."""
    if len(letters) > 1:
        try:
            if (yield _moved(letters)):
                return len(letters)
        except Refused:
            pass  # whoever is to blame is refused again below
    done = 0
    for letter in letters:
        done += yield _moved([letter])
    return done


def _give_back(held: Mapping[str, Received]) -> Steps[None]:
    """Only now: given back at once, they would be fetched again and again."""
    for batch in _batches(list(held.values())):
        yield requests.nack_many(batch, UNTRIED)


def _batches(messages: list[Received]) -> Iterator[list[Received]]:
    for start in range(0, len(messages), BATCH_MAX):
        yield messages[start : start + BATCH_MAX]


def _moved(letters: list[Letter]) -> Request[bool]:
    """Acknowledge them here and publish them there, in one step.  False: one was gone, and nothing was done."""

    def read(reply: wire.Reply) -> bool:
        if isinstance(reply, wire.Nok) and reply.err in GONE:
            return False
        requests.expect(reply, wire.Okack)
        return True

    first = letters[0][0]
    publish = [_followup(message, target) for message, target in letters]
    if len(letters) == 1:
        return Request(wire.Ack(qname=first.queue, uid=first.uid, lease=first.lease, publish=publish), read)
    uids, leases = [message.uid for message, _ in letters], [message.lease for message, _ in letters]
    return Request(wire.Ack(qname=first.queue, uids=uids, leases=leases, publish=publish), read)


def _followup(message: Received, target: str) -> wire.Followup:
    text, encoding = wire.text_of(message.body)
    return wire.Followup(qname=target, message=text, enc=encoding, priority=message.priority, headers=_headers(message))


def _headers(message: Received) -> dict[str, str]:
    """Its own headers, and how often it was brought back."""
    own = {name: value for name, value in message.headers.items() if not name.startswith(OWN_PREFIX)}
    before = message.headers.get(REDRIVEN, "")
    return own | {REDRIVEN: str(int(before) + 1 if before.isascii() and before.isdigit() else 1)}


def _received(queue: str, one: wire.Msg | wire.Delivery) -> Received:
    return Received(**requests.facts_of(queue, one))
