"""TaskFluxSession and the queues: what a client holds, what comes back, who waits, and what is bounded."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.taskflux.by_hand import HandTaskFlux, error, held, stored
from wakeq.actors.queue.waiting import serve_and_wake
from wakeq.actors.sessions.door import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, KEPT_BYTES_MIN, Received
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    NACK,
    OK,
    AuthorizationRequest,
    BootstrapRequest,
    BootstrapResponse,
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
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP

TIMEOUT_S = 60.0


# --- how it begins ---


@pytest.mark.parametrize("greeting", [[BootstrapRequest(1, 0, 0)], [AuthorizationRequest(), AuthorizationRequest()]])
def test_connection_whose_handshake_is_wrong_is_closed_without_an_answer_to_it(
    broker: Broker, greeting: list[Packet]
) -> None:
    client = HandTaskFlux(broker, greeting=greeting)

    assert client.door.ended.startswith("closed: bad handshake")


def test_client_is_known_when_both_halves_of_the_handshake_are_done(broker: Broker) -> None:
    client = HandTaskFlux(broker, greeting=(AuthorizationRequest(),))
    half = client.door.is_welcome

    answers = client.ask(BootstrapRequest(1, 0, 0))

    assert [type(answer) for answer in answers] == [BootstrapResponse]
    assert (half, client.door.is_welcome) == (False, True)


def test_packet_instead_of_the_handshake_closes_the_connection_at_once(broker: Broker) -> None:
    client = HandTaskFlux(broker, greeting=(Dequeue("q"),))

    assert client.door.ended.startswith("closed: bad handshake: ")


def test_packet_instead_of_the_second_half_of_the_handshake_closes_the_connection_at_once(broker: Broker) -> None:
    client = HandTaskFlux(broker, greeting=(AuthorizationRequest(),))

    assert client.ask(Dequeue("q")) == []
    assert client.door.ended.startswith("closed: bad handshake: ")


# --- what is held ---


def test_record_is_held_as_long_as_its_connection_lives(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    stored(flux, b"a")
    record = held(flux)

    for _ in range(100):
        broker.advance(TIMEOUT_S / 4)
        assert client.finds_nothing("")

    assert record == Record(0, b"a")
    assert flux.ask(ACK, Count("")) == [OK, CountResponse(0)]


@pytest.mark.parametrize("pause_s", [0, TIMEOUT_S])
def test_records_held_for_long_are_renewed(broker: Broker, flux: HandTaskFlux, client: Client, pause_s: float) -> None:
    stored(flux, b"a", b"b")
    for _ in range(2):
        held(flux)
        broker.advance(TIMEOUT_S * 10)
        assert client.figures("")["leased"] == 1
        assert flux.ask(ACK) == [OK]
        broker.advance(pause_s)  # nothing is held when its renewal would be due

    assert flux.ask(Count("")) == [CountResponse(0)]


@pytest.mark.parametrize("way_s", [TIMEOUT_S - 0.001, TIMEOUT_S * 2])
def test_record_that_was_long_on_its_way_does_not_keep_the_broker_busy(
    broker: Broker, flux: HandTaskFlux, client: Client, way_s: float
) -> None:
    client.call("CREATE", "q", lease="strict")
    stored(flux, b"a", queue="q")
    broker.log_disk.held = True
    flux.say(Dequeue("q"))
    broker.advance(way_s)
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert flux.take() == [Record(0, b"a")]

    broker.advance(10)  # which sees if anything is due again and again


def test_lost_connection_releases_its_record_at_once_whatever_the_disconnect_policy(
    broker: Broker, flux: HandTaskFlux, client: Client
) -> None:
    stored(flux, b"a")
    held(flux)
    assert client.figures("")["policies"]["on_disconnect"] == "keep"

    flux.close()

    message = client.fetch("")
    assert (message["error_count"], message.get("failures", 1)) == (1, 1)  # all of them failed
    assert not flux.process.alive


def test_nack_releases_the_record_at_once_whatever_the_retry_policy(
    broker: Broker, flux: HandTaskFlux, client: Client
) -> None:
    client.call("CREATE", "q", retry={"base": 30})
    stored(flux, b"a", queue="q")
    held(flux, "q")

    assert flux.ask(NACK, Count("q"), Dequeue("q")) == [OK, CountResponse(1), Record(0, b"a")]


def test_enqueue_behind_a_nack_comes_behind_the_returned_record_and_finds_its_room_taken(flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q", 1, 1))
    stored(flux, b"a")
    stored(flux, b"a", queue="q")

    assert flux.ask(Dequeue(""), NACK, Enqueue("", 0, b"b"), ACK, Dequeue(""), ACK)[-2:] == [Record(0, b"a"), OK]
    assert flux.ask(Dequeue("q"), NACK, Enqueue("q", 0, b"b"), ACK)[-1] == QueueSizeViolation(1)


def test_record_released_too_often_becomes_a_dead_letter(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=2)
    stored(flux, b"a", queue="q")

    assert flux.ask(Dequeue("q"), NACK) == [Record(0, b"a"), OK]
    held(flux, "q")
    flux.close()

    assert client.fetch("q.dead")["msg"] == "a"


def test_record_released_unseen_has_not_failed(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    client.call("CREATE", "q", lease="strict")
    stored(flux, b"a", queue="q")
    broker.log_disk.held = True
    flux.say(Dequeue("q"))
    broker.settle()

    flux.close()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    message = client.fetch("q")
    assert (message["error_count"], message["failures"]) == (1, 0)
    assert not flux.process.alive


def test_ack_or_nack_of_a_record_whose_queue_is_deleted_is_answered_ok(flux: HandTaskFlux, broker: Broker) -> None:
    other = HandTaskFlux(broker)
    assert flux.ask(CreateQueue("q")) == [OK]
    stored(flux, b"a", b"b", queue="q")
    held(flux, "q")
    held(other, "q")

    assert HandTaskFlux(broker).ask(DeleteQueue("q")) == [OK]

    assert flux.ask(ACK) == [OK]
    assert other.ask(NACK) == [OK]


@pytest.mark.parametrize(("addresses", "expected"), [(("a:1",), BusinessError), (("a:1", "b:1", "c:1"), NotLeader)])
def test_ack_of_a_redelivered_record_is_refused(
    broker: Broker, client: Client, addresses: tuple[str, ...], expected: type
) -> None:
    flux = HandTaskFlux(broker, addresses=addresses)
    stored(flux, b"a")
    held(flux)
    queue = broker.queue("")
    queue.leases.extend(1, broker.now_ms() - 1)  # type: ignore[union-attr]  # as if the broker had stood still
    serve_and_wake(queue, broker.now_ms())
    broker.advance(1)
    assert client.fetch("")["msg"] == "a"

    (answer,) = flux.ask(ACK)

    assert type(answer) is expected
    assert answer == NotLeader(2) or isinstance(answer, BusinessError)


def test_held_record_outlives_a_crash_of_its_queue(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    stored(flux, b"a")
    held(flux)
    crashed = broker.queue("")
    crashed.tell("a message that no queue understands")

    broker.advance(TIMEOUT_S * 5)

    assert broker.queue("") is not crashed
    assert client.finds_nothing("")
    assert flux.ask(ACK, Count("")) == [OK, CountResponse(0)]


# --- waiting ---


def test_waiting_dequeues_are_served_in_the_order_of_their_arrival(broker: Broker, flux: HandTaskFlux) -> None:
    first, second = HandTaskFlux(broker), HandTaskFlux(broker)
    assert first.ask(Dequeue("", 5000), ACK, Dequeue("", 5000), ACK) == []
    assert second.ask(Dequeue("", 5000)) == []

    stored(flux, b"a", b"b", b"c")

    assert first.take() == [Record(0, b"a"), OK, Record(0, b"c"), OK]
    assert second.take() == [Record(0, b"b")]


def test_dequeues_wait_one_after_the_other(broker: Broker, flux: HandTaskFlux) -> None:
    assert flux.ask(Dequeue("", 1000), ACK, Dequeue("", 1000), ACK) == []

    broker.advance(1.001)
    assert flux.take() == [EMPTY]
    broker.advance(0.9)
    assert flux.take() == []
    broker.advance(0.2)

    assert flux.take() == [EMPTY]


def test_wait_is_over_when_the_queue_is_deleted(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q"))
    assert flux.ask(Dequeue("q", 5000)) == []

    assert HandTaskFlux(broker).ask(DeleteQueue("q")) == [OK]

    assert error(ErrorCode.NO_QUEUE, flux.take())


def test_waiting_dequeue_of_a_closed_connection_takes_no_record(broker: Broker, flux: HandTaskFlux) -> None:
    waiting = HandTaskFlux(broker)
    waiting.ask(Dequeue("", 5000))

    waiting.close()
    stored(flux, b"a")

    assert flux.ask(Count("")) == [CountResponse(1)]
    assert not waiting.process.alive


def test_waiting_dequeue_of_a_failed_connection_is_forgotten_and_takes_no_record(
    broker: Broker, flux: HandTaskFlux
) -> None:
    waiting = HandTaskFlux(broker)
    waiting.ask(Dequeue("", 5000))

    waiting.process.tell(object())  # a bug: no session knows it
    broker.settle()
    leases = broker.queue("").leases

    assert not waiting.process.alive
    assert leases is not None
    assert not leases.audience.all_waits()
    stored(flux, b"a")
    assert held(flux) == Record(0, b"a")


def test_client_that_ends_its_side_gets_all_answers(broker: Broker, flux: HandTaskFlux) -> None:
    flux.say(Enqueue("", 1, b"a"), ACK, Dequeue("", 5000), ACK, Dequeue("", 5000), ACK)
    flux.end()

    assert flux.take() == [OK, OK, Record(1, b"a"), OK, EMPTY]
    assert flux.door.ended == "hung up"


# --- dialects ---


def test_number_of_a_record_is_its_id_and_stays(broker: Broker) -> None:
    flux = HandTaskFlux(broker, CSHARP)
    stored(flux, b"a", b"b", key=3)

    assert flux.ask(Dequeue(""), NACK, Dequeue(""), NACK) == [Record(3, b"a", 1), OK, Record(3, b"b", 2), OK]
    assert flux.ask(Dequeue("")) == [Record(3, b"a", 1)]


# --- bounds ---


def test_client_that_does_not_read_is_delivered_no_further_record(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a", b"b", b"c")
    flux.door.is_congested = True
    assert flux.ask(Dequeue(""), ACK) == [Record(0, b"a"), OK]

    assert flux.ask(Dequeue(""), ACK, Dequeue(""), ACK) == []
    flux.read_on()

    assert flux.take() == [Record(0, b"b"), OK, Record(0, b"c"), OK]


def test_reading_pauses_while_too_much_is_under_way(broker: Broker, flux: HandTaskFlux) -> None:
    broker.log_disk.held = True
    flux.ask(*[Enqueue("", 1, b""), ACK] * (IN_FLIGHT_MAX + 1))
    assert flux.door.paused

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert not flux.door.paused


def test_ack_of_the_largest_enqueue_is_still_read(flux: HandTaskFlux) -> None:
    flux.process.tell(Received([Enqueue("", 1, b"")], IN_FLIGHT_BYTES_MAX + 1))

    assert flux.take() == [OK]

    assert not flux.door.paused
    assert flux.door.kept_bytes > IN_FLIGHT_BYTES_MAX
    assert flux.ask(ACK) == [OK]
    assert flux.door.kept_bytes == 0


def test_enqueue_that_awaits_its_ack_is_counted_as_kept(flux: HandTaskFlux) -> None:
    flux.ask(Enqueue("", 1, bytes(KEPT_BYTES_MIN)))
    assert flux.door.kept_bytes > KEPT_BYTES_MIN

    flux.ask(ACK)

    assert flux.door.kept_bytes == 0


def test_quiet_connection_is_kept_only_while_it_waits_for_an_answer(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(Dequeue("", 600_000))
    flux.be_quiet()
    assert not flux.door.ended

    stored(HandTaskFlux(broker), b"a")
    flux.be_quiet()

    assert flux.door.ended.startswith("dropped")


def test_wrong_packet_gives_the_record_back_and_closes(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a")
    held(flux)

    (answer,) = flux.ask(ListQueues())

    assert isinstance(answer, ErrorResponse)
    assert flux.door.ended.startswith("closed")
    assert HandTaskFlux(broker).ask(Count("")) == [CountResponse(1)]


# --- a broker that stops ---


def test_broker_that_shuts_down_begins_no_work_and_ends_held_deliveries(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a", b"b")
    other, away = HandTaskFlux(broker), NotLeader(0)
    held(flux)
    held(other)

    for one in (flux, other):
        one.send_away()

    assert flux.ask(ACK) == [OK]
    assert other.ask(NACK) == [OK]
    assert flux.ask(Enqueue("", 0, b"c"), ACK) == [OK, away]
    assert flux.ask(Dequeue(""), Count(""), CreateQueue("q")) == [away] * 3
    assert isinstance(*flux.ask(ClusterMetadataRequest()), ClusterMetadataResponse)
    assert HandTaskFlux(broker).ask(Count("")) == [CountResponse(1)]


def test_client_of_a_cluster_is_sent_to_the_node_that_leads_next(broker: Broker) -> None:
    nodes = ClusterMetadataResponse(("a:1", "b:1"), leader=1, responder=0)
    flux = HandTaskFlux(broker, nodes=lambda: nodes)

    flux.send_away()

    assert flux.ask(Count("")) == [NotLeader(1)]
