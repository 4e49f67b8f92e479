"""What became of a TaskFlux intent, in the words of the protocol.

    Outcome, Refusal, figures (queue, log) --> Response for each intent (conversation)

Pure.  Every function here reads one kind of answer; whoever asked keeps it beside the intents until the answer comes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from wakeq.protocol.catalog import Policies, QueueRecord
from wakeq.protocol.errors import OutcomeUnknown
from wakeq.protocol.log.entries import Result, Token
from wakeq.protocol.queue.outcomes import Delivery, Outcome, Refusal, RemovedOnDelivery
from wakeq.protocol.wire.taskflux.intents import Delivery as Delivered
from wakeq.protocol.wire.taskflux.intents import Intent
from wakeq.protocol.wire.taskflux.intents import Outcome as Replied
from wakeq.protocol.wire.taskflux.packets import (
    EMPTY,
    OK,
    UNKNOWN_NODE,
    BusinessError,
    ClusterMetadataResponse,
    CountResponse,
    ErrorCode,
    GeneralViolation,
    ListQueuesResponse,
    NotLeader,
    Record,
    Response,
    Taken,
)
from wakeq.protocol.wire.taskflux.queues import INT32_MAX, info_of, refused

_DONE, _STALE = int(Result.DONE), int(Result.STALE)


class Holding(Struct, frozen=True, gc=False):
    """A record that a client holds, by what its queue calls it, and until when it is leased at first."""

    uid: str
    queue_id: int
    number: int
    token: Token
    until_ms: int


class Known(NamedTuple):
    """What a node knows that its queues do not say."""

    find: Callable[[str], QueueRecord | None]  # a queue in the catalog
    nodes: Callable[[], ClusterMetadataResponse]  # who there is, who leads
    payload_bytes_max: int

    def policies(self, name: str) -> Policies:
        """Return the policies of a queue, which may be gone by now."""
        record = self.find(name)
        return Policies() if record is None else record.policies

    def not_leader(self) -> NotLeader:
        """Return where to go."""
        return NotLeader(self.nodes().leader)


def stored(intents: Sequence[Intent], answer: Outcome | Refusal, known: Known) -> Sequence[Replied]:
    """What became of the records of a Store."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    results = answer.results
    if type(results) is range:  # numbers in a row: all of them
        return [OK]
    policies, limit = known.policies(answer.queue), known.payload_bytes_max
    return [[OK if code > 0 else refused(Result(code), policies, limit) for code in results]]


def dequeued(intents: Sequence[Intent], answer: Sequence[Delivery] | Refusal | None, known: Known) -> Sequence[Replied]:
    """What a Dequeue found, if anything; its number is the record's id."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    if answer is None:
        return [EMPTY]
    (found,) = answer
    holding = Holding(found.uid, found.queue_id, found.number, found.token, found.until_ms)
    return [Delivered(Record(found.priority, found.body, found.number), holding)]


def taken(intents: Sequence[Intent], answer: RemovedOnDelivery | Refusal | None, known: Known) -> Sequence[Replied]:
    """The records that are gone by now, for as many Dequeues."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    return [Taken([], []) if answer is None else Taken(answer.numbers, answer.drafts)]


def removed(intents: Sequence[Intent], answer: Outcome | Refusal, known: Known) -> Sequence[Response]:
    """What became of records that clients took.  One whose queue is gone is gone, as it was to be."""
    if isinstance(answer, Refusal):
        return [_undone(answer, known)] * len(intents)
    if not any(answer.results):
        return [OK] * len(intents)
    return [_stale(known) if code == _STALE else OK for code in answer.results]


def _undone(answer: Refusal, known: Known) -> Response:
    """The client holds the record no longer; if nobody can know whether it is gone, leadership was lost meanwhile."""
    return known.not_leader() if answer.code == OutcomeUnknown.code else refusal(answer, known)


def _stale(known: Known) -> Response:
    """The record was handed out again meanwhile: another leader did not know who held it."""
    if len(known.nodes().addresses) > 1:
        return known.not_leader()
    return BusinessError(ErrorCode.UNKNOWN, "not removed: the record was handed out again meanwhile")


def returned(intents: Sequence[Intent], answer: Outcome | Refusal, known: Known) -> Sequence[Response]:
    """What became of a record that was given back.  One that nobody holds any more is back already, or gone."""
    return [refusal(answer, known) if isinstance(answer, Refusal) else OK] * len(intents)


def changed(intents: Sequence[Intent], answer: Outcome | Refusal, known: Known) -> Sequence[Response]:
    """What became of a CreateQueue or DeleteQueue.  What was deleted is counted, so the result may be above 0."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    code = answer.results[0]
    return [OK if code >= _DONE else refused(Result(code), known.policies(answer.queue), known.payload_bytes_max)]


def counted(intents: Sequence[Intent], answer: dict[str, Any] | Refusal, known: Known) -> Sequence[Response]:
    """How many records a queue has, but for those that are held."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    return [CountResponse(min(answer["size"], INT32_MAX))]


def listed(intents: Sequence[Intent], answer: list[dict[str, Any]] | Refusal, known: Known) -> Sequence[Response]:
    """All queues, each with what it holds and its policies."""
    if isinstance(answer, Refusal):
        return [refusal(answer, known)]
    rows = ((row["qname"], row["size"], known.find(row["qname"])) for row in answer)
    return [ListQueuesResponse(tuple(info_of(name, size, record.policies) for name, size, record in rows if record))]


def refusal(answer: Refusal, known: Known) -> Response:
    """What was not done for a reason that is no queue's."""
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
