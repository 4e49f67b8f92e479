"""One TaskFlux connection of a server in each dialect: what is checked in which order, what an error says."""

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import commands, ready
from wakeq.protocol.wire.taskflux.commands import (
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
    Take,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY

# --- csharp ---


def test_csharp_refuses_fields_at_once_and_stays_open() -> None:
    session = ready(CSHARP)

    slots = session.receive(
        Enqueue("a b", 1, b""), ACK,
        CreateQueue("a b", 0, -2, -2, (2, 1)), CreateQueue("a b", 2, -2, -2), CreateQueue("a b", 2, -2, -2, (2, 1)),
        CreateQueue("a b", 1, -2, -2), CreateQueue("a b", 1, -2), CreateQueue("a b", 1), CreateQueue("", 1),
    )  # fmt: skip

    assert slots == []
    assert session.hear() == [
        ErrorResponse(1, ""),
        *(ErrorResponse(number, "") for number in (8, 7, 4, 6, 5, 1)),
        BusinessError(ErrorCode.QUEUE_EXISTS),
    ]
    assert not session.conversation.closing


def test_csharp_says_nothing_about_an_error_but_its_code() -> None:
    session = ready(CSHARP)
    (store,) = session.receive(Enqueue("q", 1, b""), ACK, Enqueue("q", 1, b""), ACK)
    unknown, missing = BusinessError(ErrorCode.UNKNOWN, "why"), BusinessError(ErrorCode.NO_QUEUE, "why")

    session.resolve((store, [unknown, missing]))

    first, said, second, named = session.hear()
    assert (first, second, named) == (OK, OK, BusinessError(ErrorCode.NO_QUEUE))
    assert isinstance(said, BusinessError)
    assert (said.code, bool(said.details)) == (ErrorCode.UNKNOWN, True)


# --- spec: names and the order of checks ---


def test_spec_checks_a_new_queue_in_its_order() -> None:
    session = ready()

    slots = session.receive(
        CreateQueue("a b", 3), CreateQueue("", 3), CreateQueue("q", 2, -2, -2), CreateQueue("q", 2, -2, -2, (2, 1)),
        CreateQueue("q", 1, -2, -2), CreateQueue("q", 1, -1, -2), CreateQueue(""),
    )  # fmt: skip

    assert slots == []
    codes = [answer.code for answer in session.hear() if isinstance(answer, BusinessError)]
    assert codes == [1, 9, 8, 5, 6, 7, 3]


def test_range_of_one_key_and_limits_of_zero_are_in_order() -> None:
    create = CreateQueue("q", 2, 0, 0, (5, 5))

    assert commands(ready().receive(create)) == [create]
    assert commands(ready(CSHARP).receive(create)) == [create]


# --- legacy ---


def test_record_of_legacy_is_gone_when_it_comes() -> None:
    session = ready(LEGACY)
    (dequeue,) = session.receive(Dequeue("q"))

    assert dequeue.command == Take("q", [Dequeue("q")])
    assert session.resolve((dequeue, taken_as(Record(1, b"a")))) == []

    assert session.hear() == [Record(1, b"a")]
    assert session.lose() == []


def test_dequeues_of_legacy_go_together() -> None:
    session = ready(LEGACY)

    (take,) = session.receive(Dequeue("q"), Dequeue("q"), Dequeue("r"))
    assert take.command == Take("q", [Dequeue("q"), Dequeue("q")])
    (other,) = session.resolve((take, taken_as(Record(1, b"a"))))
    assert other.command == Take("q", [Dequeue("q")])
    (last,) = session.resolve((other, taken_as()))

    assert last.command == Take("r", [Dequeue("r")])
    assert session.hear() == [Record(1, b"a"), EMPTY]


def test_legacy_stores_at_once_and_says_whether_it_was_added() -> None:
    session = ready(LEGACY)
    (store,) = session.receive(Enqueue("q", 1, b"a"), Enqueue("q", 1, b"a"), Enqueue("q", 1, b"a"))
    missing = BusinessError(ErrorCode.NO_QUEUE, "the queue does not exist; create it first")

    session.resolve((store, [OK, QueueSizeViolation(1), missing]))

    assert session.hear() == [EnqueueResponse(True), EnqueueResponse(False), missing]
