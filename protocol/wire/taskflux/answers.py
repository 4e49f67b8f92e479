"""Answers: what a queue or the log says becomes a response of TaskFlux, in the words of its dialect.  Pure.

    Outcome, Refusal, figures --> REPLIES --> Response, or one for each packet        CreateQueue --> Policies

Must never give a number to the wire that a field of 32 bits does not hold: limits and counts beyond are capped.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from wakeq.protocol.catalog import Policies, QueueRecord
from wakeq.protocol.errors import OutcomeUnknown
from wakeq.protocol.log.entries import Result
from wakeq.protocol.queue.outcomes import Outcome, Refusal, RemovedOnDelivery
from wakeq.protocol.wire.taskflux.commands import (
    EMPTY,
    OK,
    QA,
    UNKNOWN_NODE,
    UNLIMITED,
    VIOLATIONS,
    BusinessError,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    EnqueueResponse,
    ErrorCode,
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    NotLeader,
    Ok,
    Oks,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Remove,
    Response,
    Return,
    Store,
    Take,
    Taken,
)
from wakeq.protocol.wire.taskflux.dialects import Dialect

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_DONE, _STALE = int(Result.DONE), int(Result.STALE)
_ENDED = frozenset({_DONE, int(Result.UNKNOWN)})  # the record is removed, or it was gone already


class Known(NamedTuple):
    """What a node knows that its queues do not say."""

    find: Callable[[str], QueueRecord | None]  # a queue in the catalog
    nodes: Callable[[], ClusterMetadataResponse]  # who there is, who leads
    payload_bytes_max: int  # of a record

    def policies(self, name: str) -> Policies:
        """Return the policies of a queue, which may be gone by now."""
        record = self.find(name)
        return Policies() if record is None else record.policies

    def not_leader(self) -> NotLeader:
        """Return where to go."""
        return NotLeader(self.nodes().leader)


# What becomes of records --------------------------------------------------------------------------------------------


def _stored(store: Store, outcome: Outcome | Refusal, dialect: Dialect, known: Known) -> Response | list[Response]:
    """Return the answers to Enqueues and their Acks; the first Ok of all may have left when its Enqueue came."""
    count = len(store.drafts)
    if isinstance(outcome, Refusal):
        responses = [refusal(outcome, known)] * count
    else:
        results = outcome.results
        if type(results) is not range:
            policies, limit = known.policies(outcome.queue), known.payload_bytes_max
            responses = [OK if code > 0 else refused(Result(code), policies, limit) for code in results]
        elif dialect.is_one_phase:
            responses = [OK] * count
        else:  # numbers in a row: all of them
            return OK if count == 1 and not store.is_unheard else Oks(2 * count - (not store.is_unheard))
    if dialect.is_one_phase:
        return [_added(in_dialect(response, dialect)) for response in responses]
    answers: list[Response] = [OK] * (2 * count)
    answers[1::2] = [in_dialect(response, dialect) for response in responses]
    return answers if store.is_unheard else answers[1:]


def _added(response: Response) -> Response:
    """Return how a client without phases hears what became of an Enqueue."""
    if isinstance(response, Ok):
        return EnqueueResponse(True)
    return EnqueueResponse(False) if isinstance(response, VIOLATIONS) else response


def taken(
    take: Take, outcome: RemovedOnDelivery | Refusal | None, dialect: Dialect, known: Known, *, may_wait: bool
) -> tuple[Response | list[Response], int]:
    """Return the answers to the first of Dequeues that went together, with those to their Acks, and how many these are.

    Without a record it is over for those before the first that waits for one.
    """
    dequeues = take.dequeues
    count = len(dequeues)
    if isinstance(outcome, Refusal):
        return [in_dialect(refusal(outcome, known), dialect)] * count, count
    if outcome is not None:
        records = Taken(outcome.numbers, outcome.drafts)
        return [*records.records()] if dialect.is_one_phase else records, len(outcome.drafts)
    if may_wait:
        count = next((place for place, dequeue in enumerate(dequeues) if dequeue.timeout_ms), count)
    return [EMPTY] * count, count


def _removed(_: Remove, outcome: int | Refusal, dialect: Dialect, known: Known) -> Response:
    """Return what became of a record that its client has taken.  One whose queue is gone is gone, as it was to be."""
    if isinstance(outcome, Refusal):
        # The client holds the record no longer; if nobody can know whether it is gone, leadership was lost meanwhile.
        is_lost = outcome.code == OutcomeUnknown.code
        return known.not_leader() if is_lost else in_dialect(refusal(outcome, known), dialect)
    if outcome in _ENDED:
        return OK
    if outcome != _STALE:  # its entry is skipped
        return in_dialect(refused(Result(outcome), Policies(), known.payload_bytes_max), dialect)
    if len(known.nodes().addresses) > 1:  # another leader did not know who held it
        return known.not_leader()
    text = "not removed: the record was delivered again meanwhile"
    return in_dialect(BusinessError(ErrorCode.UNKNOWN, text), dialect)


def _returned(back: Return, outcome: Outcome | Refusal, dialect: Dialect, known: Known) -> Response:
    """Return what became of a record that was given back.  One that nobody holds any more is back already, or gone."""
    if back.instead is not None:
        return back.instead
    return in_dialect(refusal(outcome, known), dialect) if isinstance(outcome, Refusal) else OK


# What becomes of queues ---------------------------------------------------------------------------------------------


def _changed(_: CreateQueue | DeleteQueue, outcome: Outcome | Refusal, dialect: Dialect, known: Known) -> Response:
    """What was deleted is counted, so the result may be above 0."""
    if isinstance(outcome, Refusal):
        return in_dialect(refusal(outcome, known), dialect)
    code = outcome.results[0]
    if code >= _DONE:
        return OK
    return in_dialect(refused(Result(code), known.policies(outcome.queue), known.payload_bytes_max), dialect)


def _counted(_: Count, answer: dict[str, Any] | Refusal, dialect: Dialect, known: Known) -> Response:
    """Return how many records a queue has, but for those that are held."""
    if isinstance(answer, Refusal):
        return in_dialect(refusal(answer, known), dialect)
    return CountResponse(min(answer["size"], INT32_MAX))


def _listed(_: ListQueues, answer: list[dict[str, Any]] | Refusal, dialect: Dialect, known: Known) -> Response:
    """Return all queues, each with what it holds and its policies."""
    if isinstance(answer, Refusal):
        return in_dialect(refusal(answer, known), dialect)
    rows = ((row["qname"], row["size"], known.find(row["qname"])) for row in answer)
    return ListQueuesResponse(tuple(info_of(name, size, record.policies) for name, size, record in rows if record))


def policies_of(command: CreateQueue) -> Policies:
    """Return the policies of a queue that a CreateQueue asks for, in which nothing is wrong."""
    low, high = command.key_range or (None, None)
    return Policies(
        max_size=None if command.queue_size_max == UNLIMITED else command.queue_size_max,
        max_message_size=None if command.payload_bytes_max == UNLIMITED else command.payload_bytes_max,
        priority_min=low,
        priority_max=high,
        structure="QA" if command.implementation == QA else "H4",
    )


def info_of(name: str, count: int, policies: Policies) -> QueueInfo:
    """Return a queue's line in a list: its policies in words, none for a policy that is not set."""
    metadata = []
    if policies.max_size is not None:
        metadata.append(("max-queue-size", str(min(policies.max_size, INT32_MAX))))
    if policies.max_message_size is not None:
        metadata.append(("max-payload-size", str(min(policies.max_message_size, INT32_MAX))))
    if policies.priority_min is not None or policies.priority_max is not None:
        low, high = _key_range(policies)
        metadata.append(("priority-range", f"{low} {high}"))
    return QueueInfo(name, min(count, INT32_MAX), tuple(metadata))


# Refusals -----------------------------------------------------------------------------------------------------------


def refusal(answer: Refusal, known: Known) -> Response:
    """Return the answer to what was not done for a reason that is no queue's."""
    match answer.code:
        case "Q_NOT_FOUND":
            return refused(Result.NO_QUEUE, Policies(), known.payload_bytes_max)  # other doors may make one by using it
        case "NOT_LEADER":
            return known.not_leader()
        case "NO_QUORUM":
            return NotLeader(UNKNOWN_NODE)
        case "QUEUE_FULL" | "TOO_MANY_QUEUES":
            return GeneralViolation(answer.detail)
        case _:
            return BusinessError(ErrorCode.UNKNOWN, f"{answer.code}: {answer.detail}")


def refused(result: Result, policies: Policies, payload_bytes_max: int) -> Response:
    """Return the answer to a command that a queue did not obey; `payload_bytes_max` is the node's limit."""
    match result:
        case Result.QUEUE_FULL if policies.max_size is not None:
            return QueueSizeViolation(min(policies.max_size, INT32_MAX))
        case Result.QUEUE_FULL:
            return GeneralViolation("the queue holds as many bytes as it may")
        case Result.KEY_RANGE:
            return KeyRangeViolation(*_key_range(policies))
        case Result.TOO_LARGE if policies.max_message_size is not None:
            return PayloadSizeViolation(min(policies.max_message_size, payload_bytes_max, INT32_MAX))
        case Result.TOO_LARGE:
            return PayloadSizeViolation(min(payload_bytes_max, INT32_MAX))
        case Result.NO_QUEUE:
            return BusinessError(ErrorCode.NO_QUEUE, "the queue does not exist; create it first")
        case Result.EXISTS:
            return BusinessError(ErrorCode.QUEUE_EXISTS, "the queue exists already")
        case Result.DEFAULT_QUEUE:
            return BusinessError(ErrorCode.BAD_NAME, "the default queue always exists and cannot be deleted")
        case _:
            return BusinessError(ErrorCode.UNKNOWN, f"not done: {result.name.lower().replace('_', ' ')}")


def _key_range(policies: Policies) -> tuple[int, int]:
    low, high = policies.priority_min, policies.priority_max
    return INT64_MIN if low is None else low, INT64_MAX if high is None else high


def in_dialect(response: Response, dialect: Dialect) -> Response:
    """Return how a dialect says it: not all of them say why."""
    if isinstance(response, BusinessError) and not dialect.explains_errors and response.code:
        return BusinessError(response.code)
    return response


Reply = Callable[[Any, Any, Dialect, Known], Response | list[Response]]

REPLIES: dict[type, Reply] = {
    Store: _stored,
    Remove: _removed,
    Return: _returned,
    CreateQueue: _changed,
    DeleteQueue: _changed,
    Count: _counted,
    ListQueues: _listed,
}
