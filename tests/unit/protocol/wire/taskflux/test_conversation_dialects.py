"""One TaskFlux connection of a server in each dialect: what is checked in which order, what an error says."""

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import answers, ready, works
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY
from wakeq.protocol.wire.taskflux.intents import Take
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    EMPTY,
    OK,
    BusinessError,
    CreateQueue,
    Dequeue,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    QueueSizeViolation,
    Record,
)

# --- csharp ---


def test_csharp_refuses_fields_at_once_and_stays_open() -> None:
    conversation = ready(CSHARP)

    intents = conversation.receive(
        [
            Enqueue("a b", 1, b""), ACK,
            CreateQueue("a b", 0, -2, -2, (2, 1)), CreateQueue("a b", 2, -2, -2), CreateQueue("a b", 2, -2, -2, (2, 1)),
            CreateQueue("a b", 1, -2, -2), CreateQueue("a b", 1, -2), CreateQueue("a b", 1), CreateQueue("", 1),
        ]
    )  # fmt: skip

    assert intents == []
    assert answers(conversation) == [
        ErrorResponse(1, ""),
        *(ErrorResponse(number, "") for number in (8, 7, 4, 6, 5, 1)),
        BusinessError(ErrorCode.QUEUE_EXISTS),
    ]
    assert not conversation.closing


def test_csharp_says_nothing_about_an_error_but_its_code() -> None:
    conversation = ready(CSHARP)
    (store,) = conversation.receive([Enqueue("q", 1, b""), ACK, Enqueue("q", 1, b""), ACK])
    unknown, missing = BusinessError(ErrorCode.UNKNOWN, "why"), BusinessError(ErrorCode.NO_QUEUE, "why")

    conversation.resolve([(store, [unknown, missing])])

    assert answers(conversation) == [OK, unknown, OK, BusinessError(ErrorCode.NO_QUEUE)]


# --- spec: names and the order of checks ---


def test_spec_checks_a_new_queue_in_its_order() -> None:
    conversation = ready()

    intents = conversation.receive(
        [
            CreateQueue("a b", 3), CreateQueue("", 3), CreateQueue("q", 2, -2, -2), CreateQueue("q", 2, -2, -2, (2, 1)),
            CreateQueue("q", 1, -2, -2), CreateQueue("q", 1, -1, -2), CreateQueue(""),
        ]
    )  # fmt: skip

    assert intents == []
    codes = [answer.code for answer in answers(conversation) if isinstance(answer, BusinessError)]
    assert codes == [1, 9, 8, 5, 6, 7, 3]


def test_range_of_one_key_and_limits_of_zero_are_in_order() -> None:
    create = CreateQueue("q", 2, 0, 0, (5, 5))

    assert works(ready().receive([create])) == [create]
    assert works(ready(CSHARP).receive([create])) == [create]


# --- legacy ---


def test_record_of_legacy_is_gone_when_it_comes() -> None:
    conversation = ready(LEGACY)
    (dequeue,) = conversation.receive([Dequeue("q")])

    assert dequeue.work == Take("q", [Dequeue("q")])
    assert conversation.resolve([(dequeue, taken_as(Record(1, b"a")))]) == []

    assert answers(conversation) == [Record(1, b"a")]
    assert conversation.lost() == []


def test_dequeues_of_legacy_go_together() -> None:
    conversation = ready(LEGACY)

    (take,) = conversation.receive([Dequeue("q"), Dequeue("q"), Dequeue("r")])
    assert take.work == Take("q", [Dequeue("q"), Dequeue("q")])
    (other,) = conversation.resolve([(take, taken_as(Record(1, b"a")))])
    assert other.work == Take("q", [Dequeue("q")])
    (last,) = conversation.resolve([(other, taken_as())])

    assert last.work == Take("r", [Dequeue("r")])
    assert answers(conversation) == [Record(1, b"a"), EMPTY]


def test_legacy_stores_at_once_and_says_whether_it_was_added() -> None:
    conversation = ready(LEGACY)
    (store,) = conversation.receive([Enqueue("q", 1, b"a"), Enqueue("q", 1, b"a"), Enqueue("q", 1, b"a")])
    missing = BusinessError(ErrorCode.NO_QUEUE, "no such queue")

    conversation.resolve([(store, [OK, QueueSizeViolation(1), missing])])

    assert answers(conversation) == [EnqueueResponse(True), EnqueueResponse(False), missing]
