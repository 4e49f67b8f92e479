"""One TaskFlux connection of a server: what is stored and taken together, and each still has its own answer."""

import pytest

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import answers, ready, stored, taken, works
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.intents import Delivery, Remove, Return, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    EMPTY,
    NACK,
    OK,
    TAKEN_TOGETHER_MAX,
    BusinessError,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    ErrorResponse,
    NotLeader,
    Ok,
    Packet,
    QueueSizeViolation,
    Record,
)


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


def test_answer_to_enqueues_stored_together_may_be_one_for_all() -> None:
    conversation = ready()
    (store,) = conversation.receive([Enqueue("q", 1, b""), ACK, Enqueue("q", 2, b""), ACK])

    conversation.resolve([(store, NotLeader(2))])

    assert answers(conversation) == [OK, NotLeader(2), OK, NotLeader(2)]


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
def test_enqueue_that_is_too_large_is_not_stored_together_with_others(sizes: tuple[int, int]) -> None:
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


def test_first_dequeue_with_a_wait_waits_alone_when_the_queue_is_empty() -> None:
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


def test_dequeues_go_together_up_to_a_bound() -> None:
    conversation = ready()

    (take,) = conversation.receive([Dequeue("q"), ACK] * (TAKEN_TOGETHER_MAX + 1))

    assert isinstance(take.work, Take)
    assert len(take.work.dequeues) == TAKEN_TOGETHER_MAX


@pytest.mark.parametrize("between", [[], [NACK], [ACK, Dequeue("r"), ACK]], ids=["nothing", "a nack", "another queue"])
def test_dequeue_that_is_not_acknowledged_or_of_another_queue_goes_alone(between: list[Packet]) -> None:
    assert works(ready().receive([Dequeue("q"), *between, Dequeue("q"), ACK])) == [Dequeue("q")]


def test_runs_that_are_read_in_one_piece_are_begun_in_one_piece() -> None:
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


def test_enqueues_read_in_one_piece_have_an_answer_each() -> None:
    conversation = ready()
    (begun,) = conversation.receive([Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40)])

    conversation.resolve([(begun, [QueueSizeViolation(1), OK])])

    assert answers(conversation) == [OK, QueueSizeViolation(1), OK, OK]


RUNS = [Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40), Dequeues(Dequeue("q"), 2)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_run_behind_an_enqueue_that_is_not_acknowledged_is_wrong_as_its_first_packet_is(run: Packet) -> None:
    conversation = ready()

    assert conversation.receive([Enqueue("q", 1, b"a"), run]) == []

    first, second = answers(conversation)
    assert first == OK
    assert isinstance(second, ErrorResponse)
    assert second.details.endswith(f"{type(run).__name__.removesuffix('s')} came")
    assert conversation.finished


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_run_behind_a_nack_waits_until_the_record_is_back(run: Packet) -> None:
    conversation = ready()
    taken(conversation)

    (returned,) = conversation.receive([NACK, run])

    assert isinstance(returned.work, Return)
    assert len(conversation.resolve([(returned, OK)])) == 1


def test_run_of_dequeues_is_not_begun_for_a_client_that_does_not_read() -> None:
    conversation = ready()
    conversation.hold_up()

    assert conversation.receive([Dequeues(Dequeue("q"), 2)]) == []
    assert works(conversation.go_on()) == [Take("q", [Dequeue("q")] * 2)]


def test_enqueue_of_a_run_that_is_too_large_goes_alone() -> None:
    conversation = ready()
    conversation._payload_bytes_max = 2

    begun = conversation.receive([Enqueues("q", [Draft(b"ab", 1), Draft(b"ab", 2), Draft(b"abc", 3)], 60)])

    assert [len(intent.work.drafts) for intent in begun if isinstance(intent.work, Store)] == [2, 1]


def test_run_for_an_invalid_queue_name_is_refused_packet_by_packet() -> None:
    conversation = ready()

    assert conversation.receive([Enqueues("a b", [Draft(b"", 1)] * 2, 40), Dequeues(Dequeue("a b"), 2)]) == []

    said = answers(conversation)
    assert [type(answer) for answer in said] == [Ok, BusinessError, Ok, BusinessError, BusinessError, BusinessError]


def test_run_at_an_empty_queue_waits_with_its_first_and_joins_the_rest_to_the_next_run() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeues(Dequeue("q", 5), 3)])
    conversation.receive([Dequeues(Dequeue("q", 5), 2)])

    (waiting,) = conversation.resolve([(take, taken_as())])
    removed, rest = conversation.resolve([(waiting, Delivery(Record(1, b"a"), 71))])

    assert waiting.work == Dequeue("q", 5)
    assert removed.work == Remove("q", 71)
    assert rest.work == Take("q", [Dequeue("q", 5)] * 4)


def test_answer_to_dequeues_taken_together_may_be_one_for_all() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q"), ACK, Dequeue("q"), ACK])

    conversation.resolve([(take, NotLeader(2))])

    assert answers(conversation) == [NotLeader(2), NotLeader(2)]


def test_dequeues_of_a_lost_connection_are_not_taken_any_further() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q", 5), ACK, Dequeue("q", 5), ACK])

    assert conversation.lost() == []

    assert conversation.resolve([(take, taken_as(Record(1, b"a")))]) == []
    assert conversation.under_way == 0


def test_dequeues_of_a_client_that_has_ended_its_side_do_not_wait() -> None:
    conversation = ready()
    (take,) = conversation.receive([Dequeue("q", 5), ACK, Dequeue("q", 5), ACK])
    conversation.ended()

    conversation.resolve([(take, taken_as())])

    assert answers(conversation) == [EMPTY, EMPTY]
    assert conversation.finished
