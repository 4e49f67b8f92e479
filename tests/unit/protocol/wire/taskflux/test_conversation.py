"""One TaskFlux connection of a server: which packets wait for which, and when the answers come."""

from sys import getrefcount

import pytest

from tests.helpers.steps import peak_bytes
from tests.helpers.taskflux.conversation import TERM, commands, held, ready, stored, taken
from wakeq.protocol.errors import Forbidden
from wakeq.protocol.errors import NotLeader as NotLeaderError
from wakeq.protocol.log.entries import Reason, Result
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    NACK,
    OK,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ErrorCode,
    ErrorResponse,
    ListQueues,
    NotLeader,
    Packet,
    QueueSizeViolation,
    Record,
    Remove,
    Response,
    Return,
    Store,
)

DEPOSED = Refusal(NotLeaderError.code, "node 2 leads")


def test_pipelined_enqueues_are_under_way_together() -> None:
    session = ready()
    first, second = Enqueue("q", 1, b"a"), Enqueue("r", 2, b"b")

    slots = session.receive(first, ACK, second, ACK)

    assert commands(slots) == [stored(first), stored(second)]
    assert session.hear() == [OK]
    assert not session.resolve((slots[1], QueueSizeViolation(3)))
    assert session.hear() == []
    assert not session.resolve((slots[0], OK))
    assert session.hear() == [OK, OK, QueueSizeViolation(3)]
    assert session.conversation.in_flight == 0


@pytest.mark.parametrize("look", [Dequeue("q"), Count("q"), ListQueues()], ids=lambda look: type(look).__name__)
def test_look_at_queues_waits_for_earlier_enqueues(look: Packet) -> None:
    session = ready()
    enqueue, other = session.receive(Enqueue("q", 1, b"a"), ACK, Enqueue("r", 1, b"a"), ACK, look)

    assert not session.resolve((other, OK))
    assert commands(session.resolve((enqueue, OK))) == [look]


def test_enqueue_waits_for_no_other_enqueue_and_metadata_for_nothing() -> None:
    session = ready()
    session.receive(Enqueue("q", 1, b"a"), ACK)

    (second,) = session.receive(ClusterMetadataRequest(), Enqueue("q", 1, b"b"), ACK)

    assert second.command == stored(Enqueue("q", 1, b"b"))
    assert session.conversation.slots[2].outcome == ClusterMetadataResponse(("a:1",), 0, 0)


@pytest.mark.parametrize("first", [CreateQueue("q"), DeleteQueue("q"), Dequeue("q", 5)], ids=lambda p: type(p).__name__)
def test_commands_behind_a_queue_change_or_a_dequeue_wait_for_its_outcome(first: Packet) -> None:
    session = ready()
    (alone,) = session.receive(first, ACK, ClusterMetadataRequest(), Enqueue("q", 1, b"a"), ACK)
    assert session.conversation.in_flight == 5

    begun = session.resolve((alone, EMPTY if isinstance(first, Dequeue) else OK))

    assert commands(begun) == [stored(Enqueue("q", 1, b"a"))]
    assert [type(answer) for answer in session.hear()][1:] == [ClusterMetadataResponse, type(OK)]


def test_dequeue_does_not_wait_for_the_acknowledgement_before_it() -> None:
    session = ready()
    remove = taken(session)

    removed, second = session.receive(ACK, Dequeue("q"))
    session.resolve((second, Record(2, b"b")))

    assert removed.command == remove
    assert session.hear() == []
    session.resolve((removed, OK))
    assert session.hear() == [OK, Record(2, b"b")]


def test_record_that_waits_behind_an_acknowledgement_can_be_withdrawn_until_it_is_sent() -> None:
    session = ready()
    taken(session)
    removed, second = session.receive(ACK, Dequeue("q"))

    session.resolve((second, Record(2, b"b", 72)))
    remove = held(session)
    session.leader, session.withdrawn[TERM] = 1, DEPOSED
    session.resolve((removed, OK))

    assert session.hear() == [OK, NotLeader(1)]
    assert session.unsent == [("q", [remove.holding])]
    assert session.conversation.held is None
    assert session.receive(ACK) == [], "nothing is held"


def test_record_that_was_sent_or_acknowledged_ahead_is_not_withdrawn() -> None:
    session = ready()
    taken(session)
    session.withdrawn[TERM] = DEPOSED
    assert held(session).holding.number == 7

    removed, second = session.receive(ACK, Dequeue("q"))
    session.receive(ACK)
    (ahead,) = session.resolve((second, Record(2, b"b", 72)), (removed, OK))

    assert session.hear() == [OK, Record(2, b"b", 72)]
    assert isinstance(ahead.command, Remove)
    assert session.unsent == []
    assert session.conversation.held is None


def test_removal_whose_entry_is_skipped_is_not_confirmed() -> None:
    session = ready()
    taken(session)

    (removed,) = session.receive(ACK)
    session.resolve((removed, int(Result.SET_ASIDE)))

    (answer,) = session.hear()
    assert isinstance(answer, BusinessError)
    assert answer.code is ErrorCode.UNKNOWN


def test_stored_payload_is_not_kept_though_nothing_else_follows() -> None:
    session, payload = ready(), bytes(1_000)
    references = getrefcount(payload)

    (store,) = session.receive(Enqueue("q", 1, payload), ACK)
    session.resolve((store, OK))
    del store

    assert session.hear() == [OK, OK]
    assert getrefcount(payload) == references


def test_record_that_was_given_back_is_not_kept_though_no_enqueue_follows() -> None:
    session = ready()
    holding = taken(session).holding
    mine_alone = object()

    (back,) = session.receive(NACK)
    session.resolve((back, OK))
    del back

    assert session.hear() == [OK]
    assert getrefcount(holding) == getrefcount(mine_alone)


def test_record_given_back_unseen_is_sent_though_another_one_has_come_since() -> None:
    session = ready()
    taken(session)
    removed, second = session.receive(ACK, Dequeue("r"))
    session.resolve((second, Record(2, b"b", 72)))

    (back,) = session.receive(NACK, Dequeue("r"))
    (third,) = session.resolve((back, OK))
    session.resolve((third, Record(2, b"b", 72)))
    assert session.hear() == []
    session.resolve((removed, OK))

    assert session.hear() == [OK, Record(2, b"b", 72), OK, Record(2, b"b", 72)]
    assert held(session).holding.number == 72


def test_record_of_one_dequeue_acknowledged_ahead_is_removed_when_it_has_come() -> None:
    session = ready()

    (dequeue,) = session.receive(Dequeue("q"), ACK)
    (removed,) = session.resolve((dequeue, Record(1, b"a", 71)))

    assert session.hear() == [Record(1, b"a", 71)]
    assert isinstance(removed.command, Remove)
    assert removed.command.holding.number == 71


def test_dequeue_is_not_begun_for_a_client_that_does_not_read() -> None:
    session = ready()
    session.conversation.is_held_up = True

    (store,) = session.receive(Enqueue("q", 1, b"a"), ACK, Dequeue("q"))
    assert session.resolve((store, OK)) == []
    session.conversation.is_held_up = False
    session.conversation.go_on()

    assert store.command == stored(Enqueue("q", 1, b"a"))
    assert commands(session.begun()) == [Dequeue("q")]


@pytest.mark.parametrize(
    ("packets", "command"),
    [
        ([Count("q")], Count("q")),
        ([Dequeue("q")], Dequeue("q")),
        ([ListQueues()], ListQueues()),
        ([Enqueue("q", 1, b"a"), ACK], stored(Enqueue("q", 1, b"a"))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_look_or_enqueue_behind_a_nack_waits_until_the_record_is_back(packets: list[Packet], command: object) -> None:
    session = ready()
    remove = taken(session)
    (returned,) = session.receive(NACK, *packets)

    assert returned.command == Return("q", remove.holding)
    assert commands(session.resolve((returned, OK))) == [command]


def test_ack_behind_an_empty_dequeue_is_swallowed() -> None:
    session = ready()
    (dequeue,) = session.receive(Dequeue("q"), ACK)

    assert not session.resolve((dequeue, EMPTY))
    assert session.hear() == [EMPTY]


def test_outcome_that_is_told_twice_counts_once() -> None:
    session = ready()
    (enqueue,) = session.receive(Enqueue("q", 1, b"a"), ACK, Count("q"))

    (count,) = session.resolve((enqueue, OK), (enqueue, NotLeader(2)))
    session.resolve((count, CountResponse(1)), (enqueue, OK))

    assert session.hear() == [OK, OK, CountResponse(1)]


def test_not_leader_may_be_the_outcome_of_any_command() -> None:
    session = ready()
    (store,) = session.receive(Enqueue("q", 1, b"a"), ACK)
    session.resolve((store, NotLeader(2)))
    (dequeue,) = session.receive(Dequeue("q"))
    session.resolve((dequeue, NotLeader(2)))

    assert session.hear() == [OK, NotLeader(2), NotLeader(2)]
    assert not session.conversation.closing


def test_record_whose_removal_failed_is_given_back() -> None:
    session = ready()
    remove = taken(session)
    (removed,) = session.receive(ACK)

    assert commands(session.resolve((removed, NotLeader(1)))) == [Return("q", remove.holding, Reason.RETURNED)]
    assert session.hear() == [NotLeader(1)]


@pytest.mark.parametrize("outcome", [OK, NotLeader(1)], ids=lambda outcome: type(outcome).__name__)
def test_wrong_packet_is_answered_only_when_the_record_is_back(outcome: Response) -> None:
    session = ready()
    taken(session)
    (returned,) = session.receive(ListQueues())
    assert session.hear() == []
    assert not session.conversation.is_finished

    session.resolve((returned, outcome))

    assert [type(answer) for answer in session.hear()] == [ErrorResponse]
    assert session.conversation.is_finished


def test_command_that_the_client_may_not_do_is_refused_in_its_place_and_filed_nowhere() -> None:
    session = ready()
    session.forbidden[Store] = Forbidden("no right to publish")

    assert session.receive(Enqueue("q", 1, b"a"), ACK) == []

    _, answer = session.hear()
    assert isinstance(answer, BusinessError)
    assert (answer.code, answer.details) == (ErrorCode.UNKNOWN, "FORBIDDEN: no right to publish")
    assert session.conversation.in_flight == 0


def test_forbidden_dequeue_does_not_keep_later_packets_waiting() -> None:
    session = ready()
    session.forbidden[Dequeue] = Forbidden("no right to fetch")

    (store,) = session.receive(Dequeue("q", 5), Enqueue("q", 1, b"a"), ACK)

    assert isinstance(store.command, Store)


def test_connection_that_only_enqueues_keeps_nothing_of_what_is_stored() -> None:
    session = ready()

    def enqueue() -> None:
        for _ in range(100):
            (slot,) = session.receive(Enqueue("q", 1, bytes(10_000)), ACK)
            session.resolve((slot, OK))
            session.hear()

    assert peak_bytes(enqueue) < 100_000


def test_connection_that_only_gives_records_back_keeps_nothing_of_them() -> None:
    session = ready()

    def give_back() -> None:
        for _ in range(1_000):
            taken(session)
            (slot,) = session.receive(NACK)
            session.resolve((slot, OK))
            session.hear()

    give_back()
    assert peak_bytes(give_back) < 50_000


def test_removal_that_all_nodes_skip_is_refused_and_its_record_given_back() -> None:
    session = ready()
    remove = taken(session)
    (slot,) = session.receive(ACK)

    (back,) = session.resolve((slot, int(Result.SET_ASIDE)))

    assert commands([back]) == [Return("q", remove.holding, Reason.RETURNED)]
    assert session.hear() == [BusinessError(ErrorCode.UNKNOWN, "not done: set aside")]
