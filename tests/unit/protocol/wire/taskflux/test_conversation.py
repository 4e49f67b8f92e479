"""One TaskFlux connection of a server: the order of things, the end of a connection, and what dialects change."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.helpers.taskflux_apart import apart, taken_as
from wakeq.protocol.commands import Draft, Reason
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Remove, Return, StopWaiting, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    EMPTY,
    NACK,
    OK,
    TAKEN_TOGETHER_MAX,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataRequest,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Dequeues,
    Enqueue,
    EnqueueResponse,
    Enqueues,
    ErrorCode,
    ErrorResponse,
    ListQueues,
    NotLeader,
    Ok,
    Packet,
    QueueSizeViolation,
    Record,
    Response,
)


def ready(dialect: Dialect = SPEC) -> Conversation:
    """Return a conversation behind the handshake."""
    conversation = Conversation(SPEC if dialect is LEGACY else dialect)
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    assert not conversation.receive([AuthorizationRequest(), version])
    assert answers(conversation) == [AuthorizationResponse(True), BootstrapResponse(True)]
    return conversation


def works(intents: Iterable[Intent]) -> list[object]:
    return [intent.work for intent in intents]


def stored(*enqueues: Enqueue) -> Store:
    """Return what is to be done for acknowledged Enqueues of one queue."""
    return Store(enqueues[0].queue, [Draft(enqueue.payload, enqueue.key) for enqueue in enqueues])


def answers(conversation: Conversation) -> list[Packet | Bad]:
    return apart(conversation.answers())


def taken(conversation: Conversation, handle: Any = 7) -> None:
    """Have a record delivered to the client."""
    (dequeue,) = conversation.receive([Dequeue("q")])
    assert not conversation.resolve([(dequeue, Delivery(Record(1, b"x", 7), handle))])
    assert answers(conversation) == [Record(1, b"x", 7)]


def test_pipelined_enqueues_are_under_way_together() -> None:
    conversation = ready()
    first, second = Enqueue("q", 1, b"a"), Enqueue("r", 2, b"b")

    intents = conversation.receive([first, ACK, second, ACK])

    assert works(intents) == [stored(first), stored(second)]
    assert answers(conversation) == [OK]
    assert not conversation.resolve([(intents[1], QueueSizeViolation(3))])
    assert answers(conversation) == []
    assert not conversation.resolve([(intents[0], OK)])
    assert answers(conversation) == [OK, OK, QueueSizeViolation(3)]
    assert conversation.in_flight == 0


@pytest.mark.parametrize("look", [Dequeue("q"), Count("q"), ListQueues()], ids=lambda look: type(look).__name__)
def test_who_looks_at_queues_waits_for_what_was_enqueued_before(look: Packet) -> None:
    conversation = ready()
    (enqueue,) = conversation.receive([Enqueue("q", 1, b"a"), ACK, look])

    assert works(conversation.resolve([(enqueue, OK)])) == [look]


@pytest.mark.parametrize("first", [CreateQueue("q"), DeleteQueue("q"), Dequeue("q", 5)], ids=lambda p: type(p).__name__)
def test_everything_waits_for_a_change_of_queues_and_for_a_dequeue(first: Packet) -> None:
    conversation = ready()
    (alone,) = conversation.receive([first, ACK, ClusterMetadataRequest(), Enqueue("q", 1, b"a"), ACK])
    assert conversation.in_flight == 5

    begun = conversation.resolve([(alone, EMPTY if isinstance(first, Dequeue) else OK)])

    assert works(begun) == [ClusterMetadataRequest(), stored(Enqueue("q", 1, b"a"))]


def test_a_dequeue_does_not_wait_for_the_acknowledgement_before_it() -> None:
    conversation = ready()
    taken(conversation)

    removed, second = conversation.receive([ACK, Dequeue("q")])
    conversation.resolve([(second, Delivery(Record(2, b"b"), 72))])

    assert removed.work == Remove("q", 7)
    assert answers(conversation) == []
    conversation.resolve([(removed, OK)])
    assert answers(conversation) == [OK, Record(2, b"b")]


def test_one_dequeue_that_is_acknowledged_ahead_is_held_until_it_is_sent() -> None:
    conversation = ready()

    (dequeue,) = conversation.receive([Dequeue("q"), ACK])
    (removed,) = conversation.resolve([(dequeue, Delivery(Record(1, b"a"), 71))])

    assert answers(conversation) == [Record(1, b"a")]
    assert removed.work == Remove("q", 71)


def test_enqueues_of_one_queue_that_are_acknowledged_are_stored_together() -> None:
    conversation = ready()
    first, second, third = (Enqueue("q", key, b"a") for key in range(3))

    (store,) = conversation.receive([first, ACK, second, ACK, third])
    assert store.work == stored(first, second)
    assert answers(conversation) == [OK]
    assert conversation.in_flight == 3
    conversation.resolve([(store, [QueueSizeViolation(1), OK])])

    assert answers(conversation) == [QueueSizeViolation(1), OK, OK, OK]
    assert conversation.in_flight == 0
    assert works(conversation.receive([ACK])) == [stored(third)]


def test_one_answer_may_be_that_to_all_that_was_stored_together() -> None:
    conversation = ready()
    (store,) = conversation.receive([Enqueue("q", 1, b""), ACK, Enqueue("q", 2, b""), ACK])

    conversation.resolve([(store, NotLeader(2))])

    assert answers(conversation) == [OK, NotLeader(2), OK, NotLeader(2)]


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
def test_what_is_too_large_is_not_stored_together_with_others(sizes: tuple[int, int]) -> None:
    conversation = ready()
    conversation._payload_bytes_max = 2
    first, second = (Enqueue("q", 1, bytes(size)) for size in sizes)

    assert works(conversation.receive([first, ACK, second, ACK])) == [stored(first), stored(second)]


def test_dequeues_that_are_acknowledged_ahead_go_together() -> None:
    conversation = ready()
    first, second, third = Dequeue("q"), Dequeue("q", 5), Dequeue("q", 7)

    (take,) = conversation.receive([first, ACK, second, ACK, third, ACK, Dequeue("q")])
    assert take.work == Take("q", [first, second, third])
    assert answers(conversation) == []
    assert conversation.in_flight == 4

    (rest,) = conversation.resolve([(take, taken_as(Record(1, b"a"), Record(2, b"b")))])

    assert answers(conversation) == [Record(1, b"a"), OK, Record(2, b"b"), OK]
    assert rest.work == third  # alone, so it is held


def test_of_those_that_find_nothing_the_first_that_may_waits_alone() -> None:
    conversation = ready()
    first, second, third = Dequeue("q"), Dequeue("q", 5), Dequeue("q", 7)
    (take,) = conversation.receive([first, ACK, second, ACK, third, ACK, third, ACK])

    (waiting,) = conversation.resolve([(take, taken_as())])
    assert waiting.work == second
    assert answers(conversation) == [EMPTY]
    removed, rest = conversation.resolve([(waiting, Delivery(Record(1, b"a"), 71))])

    assert removed.work == Remove("q", 71)
    assert rest.work == Take("q", [third, third])
    assert answers(conversation) == [Record(1, b"a")]


def test_no_more_dequeues_go_together_than_may() -> None:
    conversation = ready()

    (take,) = conversation.receive([Dequeue("q"), ACK] * (TAKEN_TOGETHER_MAX + 1))

    assert isinstance(take.work, Take)
    assert len(take.work.dequeues) == TAKEN_TOGETHER_MAX


@pytest.mark.parametrize("between", [[], [NACK], [ACK, Dequeue("r"), ACK]], ids=["nothing", "a nack", "another queue"])
def test_a_dequeue_that_is_not_acknowledged_or_of_another_queue_goes_alone(between: list[Packet]) -> None:
    assert works(ready().receive([Dequeue("q"), *between, Dequeue("q"), ACK])) == [Dequeue("q")]


def test_what_was_read_in_one_piece_begins_so() -> None:
    conversation = ready()
    drafts = [Draft(b"a", 1), Draft(b"b", 2)]

    (begun,) = conversation.receive([Enqueues("q", drafts, 40), Dequeues(Dequeue("q", 5), 3)])

    assert begun.work == Store("q", drafts)
    assert conversation.in_flight == 2 + 6
    assert answers(conversation) == []  # the first Ok goes with the others
    (take,) = conversation.resolve([(begun, OK)])
    assert answers(conversation) == [OK, OK, OK, OK]
    assert take.work == Take("q", [Dequeue("q", 5)] * 3)
    assert conversation.in_flight == 3
    conversation.resolve([(take, taken_as(Record(1, b"a"), Record(2, b"b"), Record(3, b"c")))])
    assert answers(conversation) == [Record(1, b"a"), OK, Record(2, b"b"), OK, Record(3, b"c"), OK]
    assert conversation.in_flight == 0


def test_each_of_those_that_were_read_in_one_piece_has_its_answer() -> None:
    conversation = ready()
    (begun,) = conversation.receive([Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40)])

    conversation.resolve([(begun, [QueueSizeViolation(1), OK])])

    assert answers(conversation) == [OK, QueueSizeViolation(1), OK, OK]


RUNS = [Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40), Dequeues(Dequeue("q"), 2)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_a_run_behind_an_enqueue_that_is_not_acknowledged_is_wrong_as_its_first_packet_is(run: Packet) -> None:
    conversation = ready()

    assert conversation.receive([Enqueue("q", 1, b"a"), run]) == []

    first, second = answers(conversation)
    assert first == OK
    assert isinstance(second, ErrorResponse)
    assert second.details.endswith(f"{type(run).__name__.removesuffix('s')} came")
    assert conversation.finished


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_a_run_behind_a_nack_waits_until_the_record_is_back(run: Packet) -> None:
    conversation = ready()
    taken(conversation)

    (returned,) = conversation.receive([NACK, run])

    assert isinstance(returned.work, Return)
    assert len(conversation.resolve([(returned, OK)])) == 1


def test_a_run_that_brings_much_is_not_begun_for_who_does_not_read() -> None:
    conversation = ready()
    conversation.hold_up()

    assert conversation.receive([Dequeues(Dequeue("q"), 2)]) == []
    assert works(conversation.go_on()) == [Take("q", [Dequeue("q")] * 2)]


def test_of_a_run_of_enqueues_what_is_too_large_goes_alone() -> None:
    conversation = ready()
    conversation._payload_bytes_max = 2

    begun = conversation.receive([Enqueues("q", [Draft(b"ab", 1), Draft(b"ab", 2), Draft(b"abc", 3)], 60)])

    assert [len(intent.work.drafts) for intent in begun if isinstance(intent.work, Store)] == [2, 1]


def test_a_run_for_what_can_be_no_queue_is_refused_packet_by_packet() -> None:
    conversation = ready()

    assert conversation.receive([Enqueues("a b", [Draft(b"", 1)] * 2, 40), Dequeues(Dequeue("a b"), 2)]) == []

    said = answers(conversation)
    assert [type(answer) for answer in said] == [Ok, BusinessError, Ok, BusinessError, BusinessError, BusinessError]


def test_of_a_run_that_finds_nothing_the_first_waits_alone_and_the_rest_goes_with_what_came_behind() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeues(Dequeue("q", 5), 3)])
    conversation.receive([Dequeues(Dequeue("q", 5), 2)])

    (waiting,) = conversation.resolve([(take, taken_as())])
    removed, rest = conversation.resolve([(waiting, Delivery(Record(1, b"a"), 71))])

    assert waiting.work == Dequeue("q", 5)
    assert removed.work == Remove("q", 71)
    assert rest.work == Take("q", [Dequeue("q", 5)] * 4)


def test_one_answer_may_be_that_to_all_that_were_to_be_taken() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q"), ACK, Dequeue("q"), ACK])

    conversation.resolve([(take, NotLeader(2))])

    assert answers(conversation) == [NotLeader(2), NotLeader(2)]


def test_what_was_to_be_taken_for_a_lost_connection_is_not_taken_any_further() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q", 5), ACK, Dequeue("q", 5), ACK])

    assert conversation.lost() == []

    assert conversation.resolve([(take, taken_as(Record(1, b"a")))]) == []
    assert conversation.under_way == 0


def test_who_has_ended_does_not_wait_for_those_that_found_nothing() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q", 5), ACK, Dequeue("q", 5), ACK])
    conversation.ended()

    conversation.resolve([(take, taken_as())])

    assert answers(conversation) == [EMPTY, EMPTY]
    assert conversation.finished


def test_nothing_that_brings_much_is_begun_for_who_does_not_read() -> None:
    conversation = ready()
    conversation.hold_up()

    begun = conversation.receive([Enqueue("q", 1, b"a"), ACK, Dequeue("q")])
    conversation.resolve([(begun[0], OK)])

    assert works(begun) == [stored(Enqueue("q", 1, b"a"))]
    assert works(conversation.go_on()) == [Dequeue("q")]


def test_a_count_behind_a_nack_waits_until_the_record_is_back() -> None:
    conversation = ready()
    taken(conversation)
    (returned,) = conversation.receive([NACK, Count("q")])

    assert returned.work == Return("q", 7)
    assert works(conversation.resolve([(returned, OK)])) == [Count("q")]


def test_an_ack_behind_an_empty_dequeue_is_swallowed() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q"), ACK])

    assert not conversation.resolve([(dequeue, EMPTY)])
    assert answers(conversation) == [EMPTY]


def test_an_outcome_that_is_told_twice_counts_once() -> None:
    conversation = ready()
    (enqueue,) = conversation.receive([Enqueue("q", 1, b"a"), ACK, Count("q")])

    (count,) = conversation.resolve([(enqueue, OK), (enqueue, NotLeader(2))])
    conversation.resolve([(count, CountResponse(1)), (enqueue, OK)])

    assert answers(conversation) == [OK, OK, CountResponse(1)]


def test_not_leader_takes_the_place_of_any_outcome() -> None:
    conversation = ready()
    intents = conversation.receive([Enqueue("q", 1, b"a"), ACK])
    conversation.resolve([(intents[0], NotLeader(2))])
    taken_away = conversation.receive([Dequeue("q")])
    conversation.resolve([(taken_away[0], NotLeader(2))])

    assert answers(conversation) == [OK, NotLeader(2), NotLeader(2)]
    assert not conversation.closing


def test_a_record_whose_removal_failed_is_given_back() -> None:
    conversation = ready()
    taken(conversation)
    (remove,) = conversation.receive([ACK])

    assert works(conversation.resolve([(remove, NotLeader(1))])) == [Return("q", 7, Reason.RETURNED)]
    assert answers(conversation) == [NotLeader(1)]


@pytest.mark.parametrize("outcome", [OK, NotLeader(1)], ids=lambda outcome: type(outcome).__name__)
def test_a_wrong_packet_is_answered_only_when_the_record_is_back(outcome: Response) -> None:
    conversation = ready()
    taken(conversation)
    (returned,) = conversation.receive([ListQueues()])
    assert answers(conversation) == []
    assert not conversation.finished

    conversation.resolve([(returned, outcome)])

    assert [type(answer) for answer in answers(conversation)] == [ErrorResponse]
    assert conversation.finished


# --- the end of a connection ---


def test_a_lost_connection_forgets_what_was_to_be_stored() -> None:
    conversation = ready()
    conversation.receive([Enqueue("q", 1, b"a")])

    assert not conversation.lost()
    assert not conversation.receive([ACK])
    assert conversation.finished


def test_a_lost_connection_gives_back_what_it_held() -> None:
    conversation = ready()
    taken(conversation)

    assert works(conversation.lost()) == [Return("q", 7, Reason.DISCONNECT)]


def test_a_record_that_comes_for_a_lost_connection_is_given_back() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q", 1000), ACK])

    assert works(conversation.lost()) == [StopWaiting()]
    (returned,) = conversation.resolve([(dequeue, Delivery(Record(1, b"a"), 71))])
    assert returned.work == Return("q", 71, Reason.RETURNED)
    assert conversation.under_way == 1
    conversation.resolve([(returned, OK)])
    assert conversation.under_way == 0


def test_who_only_ends_is_answered_everything_he_asked() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q", 1000), ACK, Dequeue("q", 1000)])

    (stop,) = conversation.ended()
    assert stop.work == StopWaiting()
    remove, again = conversation.resolve([(dequeue, Delivery(Record(1, b"a"), 71))])
    assert (remove.work, again.work) == (Remove("q", 71), Dequeue("q", 0))
    assert not conversation.finished
    assert works(conversation.resolve([(remove, OK), (again, Delivery(Record(2, b"b"), 72))])) == [
        Return("q", 72, Reason.DISCONNECT)
    ]

    assert answers(conversation) == [Record(1, b"a"), OK, Record(2, b"b")]
    assert conversation.finished


def test_who_ends_while_he_waits_hears_that_there_was_nothing() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q", 1000)])

    assert works(conversation.ended()) == [StopWaiting()]
    assert not conversation.closing
    conversation.resolve([(dequeue, EMPTY)])

    assert answers(conversation) == [EMPTY]
    assert conversation.finished


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


def test_a_range_of_one_key_and_limits_of_zero_are_in_order() -> None:
    create = CreateQueue("q", 2, 0, 0, (5, 5))

    assert works(ready().receive([create])) == [create]
    assert works(ready(CSHARP).receive([create])) == [create]


# --- legacy ---


def test_a_record_of_legacy_is_gone_when_it_comes() -> None:
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
