"""Acceptance: which messages of a publish a queue takes, by its policies.  Pure."""

from collections.abc import Sequence

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Draft, Result


def refusals_of(policies: Policies, drafts: Sequence[Draft], *, size: int, held_bytes: int) -> list[int]:
    """Return 0 or the refusal for each draft, each counting those accepted before it; `size` of the queue so far.

    The order when several limits are passed is that of the TaskFlux specification 6.1: size, range, payload.
    """
    room, room_bytes = _room(policies.max_size, size), _room(policies.max_bytes, held_bytes)
    codes = []
    for draft in drafts:
        body_bytes = len(draft.body)
        needed_bytes = body_bytes + len(draft.headers)
        if room < 1 or room_bytes < needed_bytes:
            code = Result.QUEUE_FULL
        elif (policies.priority_min is not None and draft.priority < policies.priority_min) or (
            policies.priority_max is not None and draft.priority > policies.priority_max
        ):
            code = Result.KEY_RANGE
        elif policies.max_message_size is not None and body_bytes > policies.max_message_size:
            code = Result.TOO_LARGE
        else:
            code = Result.DONE
            room -= 1
            room_bytes -= needed_bytes
        codes.append(int(code))
    return codes


def _room(limit: int | None, used: int) -> int:
    return 1 << 62 if limit is None else limit - used
