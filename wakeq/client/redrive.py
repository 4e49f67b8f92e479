"""redrive: moves dead letters back to the queues that they came from.

    redrive  -->  Request  -->  Client or AsyncClient sends it  -->  its result  -->  ...  -->  Redriven

One conversation for both clients. A message leaves the dead-letter queue in the same step in which it is published
again, so that no crash leaves it in both queues or in neither; a message that was only fetched is redelivered. Many
messages are moved in one step; if that is refused, each is moved in a step of its own. A redrive must end: it moves
only as many messages as were ready at the beginning, because one that fails again becomes a dead letter once more.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from wakeq.client import requests
from wakeq.client.message import Received
from wakeq.client.requests import NackOptions, Request
from wakeq.protocol.errors import BadField, MessageNotFound, Refused, StaleLease, WakeqError
from wakeq.protocol.redrive import Origins, redriven_headers
from wakeq.protocol.wire.worker import codec as wire

BATCH_MAX = 100
# The bodies moved in one step, except for a single larger one: the broker limits the length of a line.
STEP_BYTES_MAX = 64 * 1024
# A redrive ends when so many messages stay in the queue.
STAYING_MAX = 10_000
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


def redrive(
    queue: str,
    count: int | None,
    to: str | None,
    *,
    anywhere: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Steps[Redriven]:
    """Move up to `count` messages, or as many as are ready now, to their origins, or all of them to `to`.

    A letter stays if the queue that it names does not send its dead letters here, unless `anywhere` allows it. `tell`
    hears how many were moved so far, and how many there are.
    """
    if to == queue:
        raise BadField(f"{queue!r} cannot be redriven to itself; name another queue")
    if count is not None and (type(count) is not int or count < 1):
        raise BadField(f"count is {count!r}; give a number of messages, or None for all that are ready")
    stats: Mapping[str, Any] = yield requests.stats(queue)
    # Messages that were fetched and not moved.
    staying: dict[str, Received] = {}
    origins = Origins(queue, anywhere=anywhere)
    try:
        done = yield from _move(queue, min(stats["ready"], count or stats["ready"]), to, origins, staying, tell)
    except WakeqError as error:
        try:
            yield from _release(staying)
        except WakeqError:
            error.add_note("messages that were fetched are redelivered after their timeout")
        raise
    yield from _release(staying)
    return Redriven(done, len(staying), tuple(sorted(origins.strangers)))


def _target_of(message: Received, to: str | None, origins: Origins) -> Steps[str | None]:
    """Return the queue to move a message to, or None if it has to stay."""
    if to is not None:
        return to
    origin = origins.origin_of(message.headers)
    if origin is not None and origins.is_unknown(origin):
        try:
            stats: Mapping[str, Any] = yield requests.stats(origin)
            origins.learn(origin, stats["policies"]["dead_letter"])
        except Refused:
            # The queue does not exist, or this client may not see it.
            origins.learn(origin, None)
    return origin if origin is not None and origins.allows(origin) else None


def _move(
    queue: str,
    room: int,
    to: str | None,
    origins: Origins,
    staying: dict[str, Received],
    tell: Callable[[int, int], None] | None,
) -> Steps[int]:
    """Fetch and move messages. At the end, and after an error, `staying` has those that were fetched and not moved."""
    done, total = 0, room
    while room and len(staying) < STAYING_MAX:
        batch: list[Received] = yield requests.fetch_many(queue, min(room, BATCH_MAX), 0, _received)
        if not batch:
            break
        room -= len(batch)
        staying |= {message.uid: message for message in batch}
        letters: list[Letter] = []
        for message in batch:
            target = yield from _target_of(message, to, origins)
            if target is not None:
                letters.append((message, target))
        for together in _in_steps(letters):
            done += yield from _move_together(together)
            for message, _ in together:
                del staying[message.uid]
            if tell is not None:
                tell(done, total)
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
    headers = redriven_headers(message.headers)
    return wire.Followup(qname=target, message=text, enc=encoding, priority=message.priority, headers=headers)


def _received(queue: str, one: wire.Msg | wire.Delivery) -> Received:
    return Received(**requests.delivered_fields(queue, one))
