"""Answers: what one TaskFlux connection is to be told, in the order of its requests.  Pure.

    what is known, what is under way --> add --> take --> all answers before the first that is not known

Answers to intents stand in the intents, and come there in any order.
"""

from collections import deque
from collections.abc import Sequence

from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.intents import Intent
from wakeq.protocol.wire.taskflux.packets import (
    EMPTY,
    OK,
    VIOLATIONS,
    BusinessError,
    Dequeue,
    EnqueueResponse,
    Ok,
    Oks,
    Response,
    Taken,
)


class Answers:
    """See the head of this file."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Response | Intent] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, intent: Intent) -> bool:
        return intent in self._queue

    def add(self, answer: Response | Intent) -> None:
        """Take what comes next, or what will bring it."""
        self._queue.append(answer)

    def clear(self) -> None:
        """Nobody hears any more."""
        self._queue.clear()

    def take(self) -> list[Response]:
        """Return, once, what can be sent."""
        ready: list[Response] = []
        queue = self._queue
        while queue:
            first = queue[0]
            answer = first.answer if isinstance(first, Intent) else first
            if answer is None:
                break
            queue.popleft()
            if isinstance(answer, list):
                ready += answer
            else:
                ready.append(answer)
        return ready


def stored(
    outcome: Response | list[Response], count: int, dialect: Dialect, *, with_first: bool
) -> Response | list[Response]:
    """Return the answers to Enqueues and their Acks; the first Ok of all may have been sent when its Enqueue came."""
    if isinstance(outcome, Ok) and not dialect.is_one_phase:
        return Oks(2 * count - (not with_first))
    responses = outcome if isinstance(outcome, list) else [outcome] * count
    if dialect.is_one_phase:
        return [_added(in_dialect(response, dialect)) for response in responses]
    answers: list[Response] = [OK] * (2 * count)
    answers[1::2] = [in_dialect(response, dialect) for response in responses]
    return answers if with_first else answers[1:]


def taken(
    outcome: Response, dequeues: Sequence[Dequeue], dialect: Dialect, *, may_wait: bool
) -> tuple[Response | list[Response], int]:
    """Return the answers to the first of Dequeues that went together, with those to their Acks, and how many these are.

    Without a record it is over for those before the first that waits for one.
    """
    count = len(dequeues)
    if not isinstance(outcome, Taken):
        return [in_dialect(outcome, dialect)] * count, count
    if outcome.drafts:
        return [*outcome.records()] if dialect.is_one_phase else outcome, len(outcome.drafts)
    if may_wait:
        count = next((place for place, dequeue in enumerate(dequeues) if dequeue.timeout_ms), count)
    return [EMPTY] * count, count


def _added(response: Response) -> Response:
    """Return how a client without phases hears what became of an Enqueue."""
    if isinstance(response, Ok):
        return EnqueueResponse(True)
    return EnqueueResponse(False) if isinstance(response, VIOLATIONS) else response


def in_dialect(response: Response, dialect: Dialect) -> Response:
    """Return how a dialect says it: not all of them say why."""
    if isinstance(response, BusinessError) and not dialect.explains_errors and response.code:
        return BusinessError(response.code)
    return response
