"""redrive: moves dead letters back to the queues that they came from.

    redrive  -->  Request  -->  Client or AsyncClient sends it  -->  its result  -->  ...  -->  Redriven

One conversation for both clients. A message leaves the dead-letter queue in the same step in which it is published
again, so that no crash leaves it in both queues or in neither; a message that was only fetched is redelivered. Many
messages are moved in one step; if that is refused, each is moved in a step of its own. A redrive must end: it moves
only as many messages as were ready at the beginning, because one that fails again becomes a dead letter once more.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from wakeq.client import requests
from wakeq.client.message import Received
from wakeq.client.requests import NackOptions, Request
from wakeq.protocol.errors import BadField, MessageNotFound, Refused, StaleLease, WakeqError
from wakeq.protocol.wire.worker import codec as wire

BATCH_MAX = 100
# The bodies moved in one step, except for a single larger one: the broker limits the length of a line.
STEP_BYTES_MAX = 64 * 1024
# A redrive ends when so many messages stay in the queue.
STAYING_MAX = 10_000
# Appended to the name of a queue, the default name of its dead-letter queue.
DEAD_SUFFIX = ".dead"
# As protocol/queue/dead_letters.py writes it; importing that here would load it into every program that publishes.
ORIGIN = "wakeq-origin"
# Headers with this prefix say why a message became a dead letter.
BROKER_PREFIX = "wakeq-"
# This header counts how often a message was redriven.
REDRIVEN = "wakeq-redriven"
# Another client has fetched or acknowledged the message meanwhile.
GONE = (MessageNotFound.code, StaleLease.code)
RELEASE = NackOptions(delay=0, error=None, failed=False, dead=False)

T = TypeVar("T")
# A dead letter and the queue to move it to.
Letter: TypeAlias = tuple[Received, str]
Steps: TypeAlias = Generator[Request[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Redriven:
    """How many messages were moved, and how many stayed because their origin is missing or not allowed.

    `strangers` are the queues that letters name as their origin although they do not send their dead letters here.
    """

    done: int
    left: int
    strangers: tuple[str, ...] = ()


def redrive(queue: str, count: int | None, to: str | None, *, anywhere: bool = False) -> Steps[Redriven]:
    """Move up to `count` messages, or as many as are ready now, to their origins, or all of them to `to`.

    Any client that may publish to `queue` can forge an origin. So a letter stays if the queue that it names does not
    send its dead letters here, unless `anywhere` allows it.
    """
    if to == queue:
        raise BadField(f"{queue!r} cannot be redriven to itself; name another queue")
    if count is not None and (type(count) is not int or count < 1):
        raise BadField(f"count is {count!r}; give a number of messages, or None for all that are ready")
    stats: Mapping[str, Any] = yield requests.stats(queue)
    # Messages that were fetched and not moved.
    staying: dict[str, Received] = {}
    origins = Origins(queue, to, anywhere=anywhere)
    try:
        done = yield from _move(queue, min(stats["ready"], count or stats["ready"]), origins, staying)
    except WakeqError as error:
        try:
            yield from _release(staying)
        except WakeqError:
            error.add_note("messages that were fetched are redelivered after their timeout")
        raise
    yield from _release(staying)
    return Redriven(done, len(staying), tuple(sorted(origins.strangers)))


class Origins:
    """The queue to which each message goes back, if that is allowed."""

    def __init__(self, queue: str, to: str | None, *, anywhere: bool) -> None:
        self._queue = queue
        # The target for all messages, if there is one.
        self._to = to
        self._anywhere = anywhere
        # Origins whose dead letters are sent to this queue.
        self._members: set[str] = set()
        # Other queues that were named as origins.
        self.strangers: set[str] = set()

    def target_of(self, message: Received) -> Steps[str | None]:
        """Return the queue to move a message to, or None if it has to stay."""
        if self._to is not None:
            return self._to
        origin = message.headers.get(ORIGIN)
        if origin is None or self._anywhere or origin in self._members:
            return origin
        if origin not in self.strangers:
            is_member = yield from self._sends_here(origin)
            (self._members if is_member else self.strangers).add(origin)
        return origin if origin in self._members else None

    def _sends_here(self, origin: str) -> Steps[bool]:
        """Return whether a queue sends its dead letters here."""
        if origin + DEAD_SUFFIX == self._queue:
            return True
        try:
            stats: Mapping[str, Any] = yield requests.stats(origin)
        # The queue does not exist, or this client may not see it.
        except Refused:
            return False
        return bool(stats["policies"]["dead_letter"] == self._queue)


def _move(queue: str, room: int, origins: Origins, staying: dict[str, Received]) -> Steps[int]:
    """Fetch and move messages. At the end, and after an error, `staying` has those that were fetched and not moved."""
    done = 0
    while room and len(staying) < STAYING_MAX:
        batch: list[Received] = yield requests.fetch_many(queue, min(room, BATCH_MAX), 0, _received)
        if not batch:
            break
        room -= len(batch)
        staying |= {message.uid: message for message in batch}
        letters: list[Letter] = []
        for message in batch:
            target = yield from origins.target_of(message)
            if target is not None:
                letters.append((message, target))
        for together in _in_steps(letters):
            done += yield from _move_together(together)
            for message, _ in together:
                del staying[message.uid]
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
    """Move letters in one step. If that is refused, move each in its own: one may be gone, or its queue full."""
    if len(letters) > 1:
        try:
            if (yield _moved(letters)):
                return len(letters)
        except Refused:
            # The letter at fault is refused again below.
            pass
    done = 0
    for letter in letters:
        done += yield _moved([letter])
    return done


def _release(staying: Mapping[str, Received]) -> Steps[None]:
    """Release messages, at the very end: released earlier, they would be fetched again and again."""
    messages = list(staying.values())
    for start in range(0, len(messages), BATCH_MAX):
        yield requests.nack_many(messages[start : start + BATCH_MAX], RELEASE)


def _moved(letters: list[Letter]) -> Request[bool]:
    """Acknowledge letters here and publish them there, in one step. False: one was gone, and nothing was done."""

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
    """Return the headers that the publisher gave, and how often the message was redriven."""
    own = {name: value for name, value in message.headers.items() if not name.startswith(BROKER_PREFIX)}
    before = message.headers.get(REDRIVEN, "")
    return own | {REDRIVEN: str(int(before) + 1 if before.isascii() and before.isdigit() else 1)}


def _received(queue: str, one: wire.Msg | wire.Delivery) -> Received:
    return Received(**requests.delivered_fields(queue, one))
