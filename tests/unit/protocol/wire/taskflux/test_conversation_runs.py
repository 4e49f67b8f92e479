"""One TaskFlux connection of a server: what is stored and taken together, and each still has its own answer."""

import pytest

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import commands, ready, stored, taken
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.commands import (
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
    Remove,
    Return,
    Store,
    Take,
)


def test_enqueues_of_one_queue_that_are_acknowledged_are_stored_together() -> None:
    session = ready()
    first, second, third = (Enqueue("q", key, b"a") for key in range(3))

    (store,) = session.receive(first, ACK, second, ACK, third)
    assert store.command == stored(first, second)
    assert session.hear() == [OK]
    assert session.conversation.in_flight == 3
    session.resolve((store, [QueueSizeViolation(1), OK]))

    assert session.hear() == [QueueSizeViolation(1), OK, OK, OK]
    assert session.conversation.in_flight == 0
    assert commands(session.receive(ACK)) == [stored(third)]


def test_answer_to_enqueues_stored_together_may_be_one_for_all() -> None:
    session = ready()
    (store,) = session.receive(Enqueue("q", 1, b""), ACK, Enqueue("q", 2, b""), ACK)

    session.resolve((store, NotLeader(2)))

    assert session.hear() == [OK, NotLeader(2), OK, NotLeader(2)]


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
def test_enqueue_that_is_too_large_is_not_stored_together_with_others(sizes: tuple[int, int]) -> None:
    session = ready(payload_bytes_max=2)
    first, second = (Enqueue("q", 1, bytes(size)) for size in sizes)

    assert commands(session.receive(first, ACK, second, ACK)) == [stored(first), stored(second)]


def test_dequeues_that_are_acknowledged_ahead_go_together() -> None:
    session = ready()
    first, second, third = Dequeue("q"), Dequeue("q", 5), Dequeue("q", 7)

    (take,) = session.receive(first, ACK, second, ACK, third, ACK, Dequeue("q"))
    assert take.command == Take("q", [first, second, third])
    assert session.hear() == []
    assert session.conversation.in_flight == 4

    (rest,) = session.resolve((take, taken_as(Record(1, b"a"), Record(2, b"b"))))

    assert session.hear() == [Record(1, b"a"), OK, Record(2, b"b"), OK]
    assert rest.command == third  # alone, so it is held


def test_first_dequeue_with_a_wait_waits_alone_when_the_queue_is_empty() -> None:
    session = ready()
    first, second, third = Dequeue("q"), Dequeue("q", 5), Dequeue("q", 7)
    (take,) = session.receive(first, ACK, second, ACK, third, ACK, third, ACK)

    (waiting,) = session.resolve((take, taken_as()))
    assert waiting.command == second
    assert session.hear() == [EMPTY]
    removed, rest = session.resolve((waiting, Record(1, b"a", 71)))

    assert isinstance(removed.command, Remove)
    assert removed.command.holding.number == 71
    assert rest.command == Take("q", [third, third])
    assert session.hear() == [Record(1, b"a", 71)]


def test_dequeues_go_together_up_to_a_bound() -> None:
    session = ready()

    (take,) = session.receive(*[Dequeue("q"), ACK] * (TAKEN_TOGETHER_MAX + 1))

    assert isinstance(take.command, Take)
    assert len(take.command.dequeues) == TAKEN_TOGETHER_MAX


@pytest.mark.parametrize("between", [[], [NACK], [ACK, Dequeue("r"), ACK]], ids=["nothing", "a nack", "another queue"])
def test_dequeue_that_is_not_acknowledged_or_of_another_queue_goes_alone(between: list[Packet]) -> None:
    assert commands(ready().receive(Dequeue("q"), *between, Dequeue("q"), ACK)) == [Dequeue("q")]


def test_runs_that_are_read_in_one_piece_are_begun_in_one_piece() -> None:
    session = ready()
    drafts = [Draft(b"a", 1), Draft(b"b", 2)]

    (begun,) = session.receive(Enqueues("q", drafts, 40), Dequeues(Dequeue("q", 5), 3))

    assert begun.command == Store("q", drafts, is_unheard=True)
    assert session.conversation.in_flight == 2 + 6
    assert session.hear() == []  # the first Ok goes with the others
    (take,) = session.resolve((begun, OK))
    assert session.hear() == [OK, OK, OK, OK]
    assert take.command == Take("q", [Dequeue("q", 5)] * 3)
    assert session.conversation.in_flight == 3
    session.resolve((take, taken_as(Record(1, b"a"), Record(2, b"b"), Record(3, b"c"))))
    assert session.hear() == [Record(1, b"a"), OK, Record(2, b"b"), OK, Record(3, b"c"), OK]
    assert session.conversation.in_flight == 0


def test_enqueues_read_in_one_piece_have_an_answer_each() -> None:
    session = ready()
    (begun,) = session.receive(Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40))

    session.resolve((begun, [QueueSizeViolation(1), OK]))

    assert session.hear() == [OK, QueueSizeViolation(1), OK, OK]


RUNS = [Enqueues("q", [Draft(b"a", 1), Draft(b"b", 2)], 40), Dequeues(Dequeue("q"), 2)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_run_behind_an_enqueue_that_is_not_acknowledged_is_wrong_as_its_first_packet_is(run: Packet) -> None:
    session = ready()

    assert session.receive(Enqueue("q", 1, b"a"), run) == []

    first, second = session.hear()
    assert first == OK
    assert isinstance(second, ErrorResponse)
    assert second.details.endswith(f"{type(run).__name__.removesuffix('s')} came")
    assert session.conversation.is_finished


@pytest.mark.parametrize("run", RUNS, ids=lambda run: type(run).__name__)
def test_run_behind_a_nack_waits_until_the_record_is_back(run: Packet) -> None:
    session = ready()
    taken(session)

    (returned,) = session.receive(NACK, run)

    assert isinstance(returned.command, Return)
    assert len(session.resolve((returned, OK))) == 1


def test_run_of_dequeues_is_not_begun_for_a_client_that_does_not_read() -> None:
    session = ready()
    session.conversation.is_held_up = True

    assert session.receive(Dequeues(Dequeue("q"), 2)) == []
    session.conversation.is_held_up = False
    session.conversation.go_on()
    assert commands(session.begun()) == [Take("q", [Dequeue("q")] * 2)]


def test_enqueue_of_a_run_that_is_too_large_goes_alone() -> None:
    session = ready(payload_bytes_max=2)

    begun = session.receive(Enqueues("q", [Draft(b"ab", 1), Draft(b"ab", 2), Draft(b"abc", 3)], 60))

    assert [len(slot.command.drafts) for slot in begun if isinstance(slot.command, Store)] == [2, 1]


def test_run_for_an_invalid_queue_name_is_refused_packet_by_packet() -> None:
    session = ready()

    assert session.receive(Enqueues("a b", [Draft(b"", 1)] * 2, 40), Dequeues(Dequeue("a b"), 2)) == []

    said = session.hear()
    assert [type(answer) for answer in said] == [Ok, BusinessError, Ok, BusinessError, BusinessError, BusinessError]


def test_run_at_an_empty_queue_waits_with_its_first_and_joins_the_rest_to_the_next_run() -> None:
    session = ready()
    (take,) = session.receive(Dequeues(Dequeue("q", 5), 3))
    session.receive(Dequeues(Dequeue("q", 5), 2))

    (waiting,) = session.resolve((take, taken_as()))
    assert waiting.command == Dequeue("q", 5)
    removed, rest = session.resolve((waiting, Record(1, b"a", 71)))

    assert isinstance(removed.command, Remove)
    assert removed.command.holding.number == 71
    assert rest.command == Take("q", [Dequeue("q", 5)] * 4)


def test_answer_to_dequeues_taken_together_may_be_one_for_all() -> None:
    session = ready()
    (take,) = session.receive(Dequeue("q"), ACK, Dequeue("q"), ACK)

    session.resolve((take, NotLeader(2)))

    assert session.hear() == [NotLeader(2), NotLeader(2)]


def test_dequeues_of_a_lost_connection_are_not_taken_any_further() -> None:
    session = ready()
    (take,) = session.receive(Dequeue("q", 5), ACK, Dequeue("q", 5), ACK)

    assert session.lose() == []
    assert not session.conversation.is_over

    assert session.resolve((take, taken_as(Record(1, b"a")))) == []
    assert session.conversation.is_over


def test_dequeues_of_a_client_that_has_ended_its_side_do_not_wait() -> None:
    session = ready()
    (take,) = session.receive(Dequeue("q", 5), ACK, Dequeue("q", 5), ACK)
    session.end()

    session.resolve((take, taken_as()))

    assert session.hear() == [EMPTY, EMPTY]
    assert session.conversation.is_finished
