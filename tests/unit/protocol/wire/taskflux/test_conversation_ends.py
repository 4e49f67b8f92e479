"""One TaskFlux connection of a server that is lost or ends: what is given back, and what is still answered."""

from tests.helpers.taskflux.conversation import commands, held, is_open, ready, taken
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.queue import orders
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    NACK,
    OK,
    Count,
    CreateQueue,
    Dequeue,
    Enqueue,
    NotLeader,
    Record,
    Remove,
    Return,
)


def test_lost_connection_forgets_its_unacknowledged_enqueue() -> None:
    session = ready()
    session.receive(Enqueue("q", 1, b"a"))

    assert not session.lose()
    assert not session.receive(ACK)
    assert session.conversation.is_over


def test_lost_connection_releases_its_record() -> None:
    session = ready()
    remove = taken(session)

    (returned,) = session.lose()
    assert returned.command == Return("q", remove.holding, Reason.DISCONNECT)
    assert not session.conversation.is_over
    session.resolve((returned, OK))
    assert session.conversation.is_over


def test_record_that_comes_for_a_lost_connection_is_given_back() -> None:
    session = ready()
    (dequeue,) = session.receive(Dequeue("q", 1000), ACK)

    assert session.lose() == []
    assert session.stopped == [dequeue]
    (returned,) = session.resolve((dequeue, Record(1, b"a", 71)))
    assert isinstance(returned.command, Return)
    assert (returned.command.holding.number, returned.command.reason) == (71, Reason.RETURNED)
    assert not session.conversation.is_over
    session.resolve((returned, OK))
    assert session.conversation.is_over


def test_packets_that_come_while_a_lost_connection_is_wound_up_are_ignored() -> None:
    session = ready()
    (dequeue,) = session.receive(Dequeue("q", 1000), Count("q"))
    session.lose()

    assert session.receive(Enqueue("q", 1, b"a"), ACK) == []

    assert session.resolve((dequeue, EMPTY)) == []
    assert session.conversation.is_over


def test_client_that_ends_its_side_is_answered_every_command() -> None:
    session = ready()
    (dequeue,) = session.receive(Dequeue("q", 1000), ACK, Dequeue("q", 1000))

    assert session.end() == []
    assert session.stopped == [dequeue]
    dequeue.tell(session.in_words_of_a_queue(None, Record(1, b"a", 71)))
    session.conversation.go_on()
    filed = session.lobby.lanes_of("q").filed
    assert filed is not None
    assert [order.wait_ms for order in filed.orders if isinstance(order, orders.Fetch)] == [0]
    remove, again = session.begun()
    assert isinstance(remove.command, Remove)
    assert again.command == Dequeue("q", 1000)
    assert not session.conversation.is_finished
    (returned,) = session.resolve((remove, OK), (again, Record(2, b"b", 72)))
    assert isinstance(returned.command, Return)
    assert (returned.command.holding.number, returned.command.reason) == (72, Reason.DISCONNECT)

    assert session.hear() == [Record(1, b"a", 71), OK, Record(2, b"b", 72)]
    assert session.conversation.is_finished


def test_client_that_ends_its_side_while_it_waits_is_answered_empty() -> None:
    session = ready()
    (dequeue,) = session.receive(Dequeue("q", 1000))

    assert session.end() == []
    assert session.stopped == [dequeue]
    assert is_open(dequeue)
    assert not session.conversation.closing
    session.resolve((dequeue, EMPTY))

    assert session.hear() == [EMPTY]
    assert session.conversation.is_finished


def test_broker_that_stops_begins_nothing_new_and_ends_what_is_held() -> None:
    session = ready()
    first = taken(session)
    session.conversation.is_sent_away = True
    session.leader = 2

    (removed,) = session.receive(ACK)
    assert removed.command == first
    session.resolve((removed, OK))
    assert session.receive(Enqueue("q", 1, b"a"), ACK, Dequeue("q", 5), CreateQueue("q"), Count("q")) == []

    assert session.hear() == [OK, OK, *[NotLeader(2)] * 4]
    assert session.conversation.in_flight == 0


def test_record_that_is_held_when_the_broker_stops_can_be_given_back() -> None:
    session = ready()
    remove = taken(session)
    session.conversation.is_sent_away = True

    assert held(session) == remove
    assert commands(session.receive(NACK)) == [Return("q", remove.holding)]
