"""One TaskFlux connection of a server that is lost or ends: what is given back, and what is still answered."""

from tests.helpers.taskflux.conversation import answers, ready, taken, works
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.wire.taskflux.intents import Delivery, Remove, Return, StopWaiting
from wakeq.protocol.wire.taskflux.packets import ACK, EMPTY, OK, Dequeue, Enqueue, Record


def test_lost_connection_forgets_its_unacknowledged_enqueue() -> None:
    conversation = ready()
    conversation.receive([Enqueue("q", 1, b"a")])

    assert not conversation.lost()
    assert not conversation.receive([ACK])
    assert conversation.finished


def test_lost_connection_releases_its_record() -> None:
    conversation = ready()
    taken(conversation)

    assert works(conversation.lost()) == [Return("q", 7, Reason.DISCONNECT)]


def test_record_that_comes_for_a_lost_connection_is_given_back() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q", 1000), ACK])

    assert works(conversation.lost()) == [StopWaiting()]
    (returned,) = conversation.resolve([(dequeue, Delivery(Record(1, b"a"), 71))])
    assert returned.work == Return("q", 71, Reason.RETURNED)
    assert conversation.under_way == 1
    conversation.resolve([(returned, OK)])
    assert conversation.under_way == 0


def test_client_that_ends_its_side_is_answered_every_command() -> None:
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


def test_client_that_ends_its_side_while_it_waits_is_answered_empty() -> None:
    conversation = ready()
    (dequeue,) = conversation.receive([Dequeue("q", 1000)])

    assert works(conversation.ended()) == [StopWaiting()]
    assert not conversation.closing
    conversation.resolve([(dequeue, EMPTY)])

    assert answers(conversation) == [EMPTY]
    assert conversation.finished
