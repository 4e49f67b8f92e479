"""One TaskFlux connection of a server: which packets wait for which, and when the answers come."""

import pytest

from tests.helpers.taskflux.conversation import answers, ready, stored, taken, works
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.wire.taskflux.intents import Delivery, Remove, Return
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    EMPTY,
    NACK,
    OK,
    ClusterMetadataRequest,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ErrorResponse,
    ListQueues,
    NotLeader,
    Packet,
    QueueSizeViolation,
    Record,
    Response,
)


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
def test_look_at_queues_waits_for_earlier_enqueues(look: Packet) -> None:
    conversation = ready()
    (enqueue,) = conversation.receive([Enqueue("q", 1, b"a"), ACK, look])

    assert works(conversation.resolve([(enqueue, OK)])) == [look]


@pytest.mark.parametrize("first", [CreateQueue("q"), DeleteQueue("q"), Dequeue("q", 5)], ids=lambda p: type(p).__name__)
def test_commands_behind_a_queue_change_or_a_dequeue_wait_for_its_outcome(first: Packet) -> None:
    conversation = ready()
    (alone,) = conversation.receive([first, ACK, ClusterMetadataRequest(), Enqueue("q", 1, b"a"), ACK])
    assert conversation.in_flight == 5

    begun = conversation.resolve([(alone, EMPTY if isinstance(first, Dequeue) else OK)])

    assert works(begun) == [ClusterMetadataRequest(), stored(Enqueue("q", 1, b"a"))]


def test_dequeue_does_not_wait_for_the_acknowledgement_before_it() -> None:
    conversation = ready()
    taken(conversation)

    removed, second = conversation.receive([ACK, Dequeue("q")])
    conversation.resolve([(second, Delivery(Record(2, b"b"), 72))])

    assert removed.work == Remove("q", 7)
    assert answers(conversation) == []
    conversation.resolve([(removed, OK)])
    assert answers(conversation) == [OK, Record(2, b"b")]


def test_record_that_waits_behind_an_acknowledgement_can_be_withdrawn_until_it_is_sent() -> None:
    conversation = ready()
    taken(conversation)
    removed, second = conversation.receive([ACK, Dequeue("q")])
    assert conversation.unseen is None

    conversation.resolve([(second, Delivery(Record(2, b"b"), 72))])
    assert conversation.unseen == conversation.held == Remove("q", 72)
    conversation.withdraw(NotLeader(1))

    assert (conversation.unseen, conversation.held) == (None, None)
    conversation.resolve([(removed, OK)])
    assert answers(conversation) == [OK, NotLeader(1)]
    assert conversation.receive([ACK]) == [], "nothing is held"


def test_record_that_was_sent_or_acknowledged_is_not_unseen() -> None:
    conversation = ready()
    taken(conversation)
    assert (conversation.unseen, conversation.held) == (None, Remove("q", 7))

    _, second = conversation.receive([ACK, Dequeue("q")])
    conversation.receive([ACK])
    conversation.resolve([(second, Delivery(Record(2, b"b"), 72))])

    assert (conversation.unseen, conversation.held) == (None, None)


def test_record_of_one_dequeue_acknowledged_ahead_is_removed_when_it_has_come() -> None:
    conversation = ready()

    (dequeue,) = conversation.receive([Dequeue("q"), ACK])
    (removed,) = conversation.resolve([(dequeue, Delivery(Record(1, b"a"), 71))])

    assert answers(conversation) == [Record(1, b"a")]
    assert removed.work == Remove("q", 71)


def test_dequeue_is_not_begun_for_a_client_that_does_not_read() -> None:
    conversation = ready()
    conversation.hold_up()

    begun = conversation.receive([Enqueue("q", 1, b"a"), ACK, Dequeue("q")])
    conversation.resolve([(begun[0], OK)])

    assert works(begun) == [stored(Enqueue("q", 1, b"a"))]
    assert works(conversation.go_on()) == [Dequeue("q")]


def test_count_behind_a_nack_waits_until_the_record_is_back() -> None:
    conversation = ready()
    taken(conversation)
    (returned,) = conversation.receive([NACK, Count("q")])

    assert returned.work == Return("q", 7)
    assert works(conversation.resolve([(returned, OK)])) == [Count("q")]


def test_ack_behind_an_empty_dequeue_is_swallowed() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q"), ACK])

    assert not conversation.resolve([(dequeue, EMPTY)])
    assert answers(conversation) == [EMPTY]


def test_outcome_that_is_told_twice_counts_once() -> None:
    conversation = ready()
    (enqueue,) = conversation.receive([Enqueue("q", 1, b"a"), ACK, Count("q")])

    (count,) = conversation.resolve([(enqueue, OK), (enqueue, NotLeader(2))])
    conversation.resolve([(count, CountResponse(1)), (enqueue, OK)])

    assert answers(conversation) == [OK, OK, CountResponse(1)]


def test_not_leader_may_be_the_outcome_of_any_command() -> None:
    conversation = ready()
    intents = conversation.receive([Enqueue("q", 1, b"a"), ACK])
    conversation.resolve([(intents[0], NotLeader(2))])
    taken_away = conversation.receive([Dequeue("q")])
    conversation.resolve([(taken_away[0], NotLeader(2))])

    assert answers(conversation) == [OK, NotLeader(2), NotLeader(2)]
    assert not conversation.closing


def test_record_whose_removal_failed_is_given_back() -> None:
    conversation = ready()
    taken(conversation)
    (remove,) = conversation.receive([ACK])

    assert works(conversation.resolve([(remove, NotLeader(1))])) == [Return("q", 7, Reason.RETURNED)]
    assert answers(conversation) == [NotLeader(1)]


@pytest.mark.parametrize("outcome", [OK, NotLeader(1)], ids=lambda outcome: type(outcome).__name__)
def test_wrong_packet_is_answered_only_when_the_record_is_back(outcome: Response) -> None:
    conversation = ready()
    taken(conversation)
    (returned,) = conversation.receive([ListQueues()])
    assert answers(conversation) == []
    assert not conversation.finished

    conversation.resolve([(returned, outcome)])

    assert [type(answer) for answer in answers(conversation)] == [ErrorResponse]
    assert conversation.finished
