"""Answers: what one TaskFlux connection is to be told, in the order of its requests.  Pure.

    what is known, what is under way --> add --> take --> all answers before the first that is not known

Answers to intents stand in the intents, and come there in any order.
"""

from collections import deque

from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.intents import Intent
from wakeq.protocol.wire.taskflux.packets import OK, VIOLATIONS, BusinessError, EnqueueResponse, Ok, Response


class Answers:
    """See the head of this file."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Response | Intent] = deque()

    def __len__(self) -> int:
        return len(self._queue)

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


def interleaved(responses: list[Response]) -> list[Response]:
    """Return the answers to Enqueues with their Acks, but for the first of all, which was sent when that came."""
    answers: list[Response] = [OK] * (2 * len(responses) - 1)
    answers[::2] = responses
    return answers


def added(response: Response) -> Response:
    """Return how a client without phases hears what became of an Enqueue."""
    if isinstance(response, Ok):
        return EnqueueResponse(True)
    return EnqueueResponse(False) if isinstance(response, VIOLATIONS) else response


def in_dialect(response: Response, dialect: Dialect) -> Response:
    """Return how a dialect says it: not all of them say why."""
    if isinstance(response, BusinessError) and not dialect.explains_errors and response.code:
        return BusinessError(response.code)
    return response
