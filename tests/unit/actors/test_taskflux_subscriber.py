"""TaskFluxSubscriber and the queues: what a client holds, what comes back, what is refused, and who waits."""

from typing import Any

import pytest

from tests.helpers.broker import Broker, Client
from tests.helpers.taskflux_by_hand import PAYLOAD_BYTES_MAX, HandTaskFlux
from wakeq.actors.in_flight import IN_FLIGHT_MAX
from wakeq.protocol.commands import Ack
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect
from wakeq.protocol.wire.taskflux.packets import (
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
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    NotLeader,
    PayloadSizeViolation,
    QueueSizeViolation,
    Record,
)

TIMEOUT_S = 60.0


@pytest.fixture
def flux(broker: Broker) -> HandTaskFlux:
    return HandTaskFlux(broker)


def stored(flux: HandTaskFlux, *payloads: bytes, queue: str = "", key: int = 0) -> None:
    """Put records on a queue."""
    answers = flux.ask(*[packet for payload in payloads for packet in (Enqueue(queue, key, payload), ACK)])
    assert answers == [OK, OK] * len(payloads)


def held(flux: HandTaskFlux, queue: str = "") -> Record:
    """Take a record and hold it."""
    (record,) = flux.ask(Dequeue(queue))
    assert isinstance(record, Record)
    return record


def error(code: ErrorCode, answers: list[Any]) -> bool:
    """Whether there is one answer, an error with this code."""
    return [type(answer) for answer in answers] == [BusinessError] and answers[0].code is code


# --- what is held ---


def test_a_record_is_held_as_long_as_its_connection_lives(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    stored(flux, b"a")
    record = held(flux)

    for _ in range(100):
        broker.advance(TIMEOUT_S / 4)
        assert client.finds_nothing("")

    assert record == Record(0, b"a")
    assert flux.ask(ACK, Count("")) == [OK, CountResponse(0)]


def test_each_record_that_is_held_for_long_is_renewed(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a", b"b")
    for _ in range(2):
        held(flux)
        broker.advance(TIMEOUT_S * 10)
        assert flux.ask(ACK) == [OK]

    assert flux.ask(Count("")) == [CountResponse(0)]


def test_a_lost_connection_gives_back_at_once_whatever_the_queue_does_on_disconnect(
    broker: Broker, flux: HandTaskFlux, client: Client
) -> None:
    stored(flux, b"a")
    held(flux)
    assert client.figures("")["policies"]["on_disconnect"] == "keep"

    flux.close()

    message = client.fetch("")
    assert (message["error_count"], message.get("failures", 1)) == (1, 1)  # all of them failed
    assert not flux.process.alive


def test_a_nack_gives_back_at_once_whatever_the_queue_does_on_retry(
    broker: Broker, flux: HandTaskFlux, client: Client
) -> None:
    client.call("CREATE", "q", retry={"base": 30})
    stored(flux, b"a", queue="q")
    held(flux, "q")

    assert flux.ask(NACK, Count("q"), Dequeue("q")) == [OK, CountResponse(1), Record(0, b"a")]


def test_what_is_stored_behind_a_nack_comes_behind_what_is_back_and_finds_no_more_room(flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q", 1, 1))
    stored(flux, b"a")
    stored(flux, b"a", queue="q")

    assert flux.ask(Dequeue(""), NACK, Enqueue("", 0, b"b"), ACK, Dequeue(""), ACK)[-2:] == [Record(0, b"a"), OK]
    assert flux.ask(Dequeue("q"), NACK, Enqueue("q", 0, b"b"), ACK)[-1] == QueueSizeViolation(1)


def test_what_is_given_back_too_often_is_a_dead_letter(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=2)
    stored(flux, b"a", queue="q")

    assert flux.ask(Dequeue("q"), NACK) == [Record(0, b"a"), OK]
    held(flux, "q")
    flux.close()

    assert client.fetch("q.dead")["msg"] == "a"


def test_a_record_that_nobody_saw_did_not_fail(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
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


def test_an_ack_of_a_record_whose_queue_is_gone_is_in_order(flux: HandTaskFlux, broker: Broker) -> None:
    other = HandTaskFlux(broker)
    assert flux.ask(CreateQueue("q")) == [OK]
    stored(flux, b"a", b"b", queue="q")
    held(flux, "q")
    held(other, "q")

    assert HandTaskFlux(broker).ask(DeleteQueue("q")) == [OK]

    assert flux.ask(ACK) == [OK]
    assert other.ask(NACK) == [OK]


@pytest.mark.parametrize(("addresses", "expected"), [(("a:1",), BusinessError), (("a:1", "b:1", "c:1"), NotLeader)])
def test_an_ack_of_what_was_handed_out_again_is_refused(
    broker: Broker, client: Client, addresses: tuple[str, ...], expected: type
) -> None:
    flux = HandTaskFlux(broker, addresses=addresses)
    stored(flux, b"a")
    held(flux)
    broker.queue("").leases.extend(1, broker.now_ms() - 1)  # type: ignore[union-attr]  # as if the broker had stood still
    broker.advance(1)
    assert client.fetch("")["msg"] == "a"

    (answer,) = flux.ask(ACK)

    assert type(answer) is expected
    assert answer == NotLeader(2) or isinstance(answer, BusinessError)


def test_a_held_record_outlives_a_crash_of_its_queue(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    stored(flux, b"a")
    held(flux)
    crashed = broker.queue("")
    crashed.tell("a message that no queue understands")

    broker.advance(TIMEOUT_S * 5)

    assert broker.queue("") is not crashed
    assert client.finds_nothing("")
    assert flux.ask(ACK, Count("")) == [OK, CountResponse(0)]


# --- what is acknowledged ahead ---


def test_what_is_acknowledged_ahead_goes_with_its_delivery_in_one_entry(
    broker: Broker, flux: HandTaskFlux, client: Client
) -> None:
    stored(flux, b"b", b"c", key=2)
    stored(flux, b"a", key=1)
    last = broker.raft_log.core.log.last_index

    broker.log_disk.held = True
    assert flux.ask(*[Dequeue(""), ACK] * 3) == []
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert flux.take() == [Record(1, b"a"), OK, Record(2, b"b"), OK, Record(2, b"c"), OK]
    assert broker.raft_log.core.log.last_index == last + 1
    figures = client.figures("")
    assert (figures["delivered"], figures["acked"], figures["leased"], figures["size"]) == (3, 3, 0, 0)


def test_what_is_acknowledged_ahead_is_there_again_if_that_was_not_durable(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a", b"b")
    broker.log_disk.held = True
    assert flux.ask(*[Dequeue(""), ACK] * 2) == []

    broker.crash_and_restart()

    again = HandTaskFlux(broker)
    assert again.ask(Dequeue(""), NACK, Count("")) == [Record(0, b"a"), OK, CountResponse(2)]


def test_what_was_taken_for_a_connection_that_is_gone_stays_removed(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a", b"b", b"c")
    broker.log_disk.held = True
    assert flux.ask(*[Dequeue(""), ACK] * 2) == []

    flux.close()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert not flux.process.alive
    assert HandTaskFlux(broker).ask(Count(""), Dequeue("")) == [CountResponse(1), Record(0, b"c")]


@pytest.mark.parametrize("dialect", [SPEC, LEGACY], ids=lambda dialect: dialect.name)
def test_of_what_is_taken_together_only_that_is_missing_which_somebody_else_removed(
    broker: Broker, flux: HandTaskFlux, client: Client, dialect: Dialect
) -> None:
    uids = [client.publish("", body) for body in "abc"]
    taker = HandTaskFlux(broker, dialect)
    pair = [Dequeue("")] if dialect is LEGACY else [Dequeue(""), ACK]

    taker.say(*pair * 3)
    client.send({"cmd": "ACK", "qname": "", "uid": uids[1]})  # is in the log first, and known to the queue too late
    records = [answer for answer in taker.take() if isinstance(answer, Record)]

    assert client.words() == ["okack"]
    assert records == [Record(0, b"a"), Record(0, b"c")]
    assert flux.ask(Count("")) == [CountResponse(0)]
    broker.check("")


def test_what_cannot_be_taken_any_more_is_told_to_each_that_would_wait(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q"))
    stored(flux, b"a", b"b", queue="q")
    deleter = HandTaskFlux(broker)

    deleter.say(DeleteQueue("q"))  # is in the log first
    flux.say(*[Dequeue("q", 5000), ACK] * 2)

    assert [type(answer) for answer in flux.take()] == [BusinessError] * 2
    assert deleter.take() == [OK]


# --- waiting ---


def test_who_waits_is_served_first_come_first_served(broker: Broker, flux: HandTaskFlux) -> None:
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


def test_a_wait_is_over_when_the_queue_is_deleted(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q"))
    assert flux.ask(Dequeue("q", 5000)) == []

    assert HandTaskFlux(broker).ask(DeleteQueue("q")) == [OK]

    assert error(ErrorCode.NO_QUEUE, flux.take())


def test_who_waits_and_goes_takes_nothing(broker: Broker, flux: HandTaskFlux) -> None:
    waiting = HandTaskFlux(broker)
    waiting.ask(Dequeue("", 5000))

    waiting.close()
    stored(flux, b"a")

    assert flux.ask(Count("")) == [CountResponse(1)]
    assert not waiting.process.alive


def test_who_only_ends_his_side_hears_everything(broker: Broker, flux: HandTaskFlux) -> None:
    flux.say(Enqueue("", 1, b"a"), ACK, Dequeue("", 5000), ACK, Dequeue("", 5000), ACK)
    flux.end()

    assert flux.take() == [OK, OK, Record(1, b"a"), OK, EMPTY]
    assert flux.door.ended == "hung up"


# --- queues that are not there, and policies ---


@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_nothing_but_create_queue_makes_a_queue(flux: HandTaskFlux, client: Client, wait_ms: int) -> None:
    for packets in ([Dequeue("q", wait_ms)], [Count("q")], [DeleteQueue("q")]):
        assert error(ErrorCode.NO_QUEUE, flux.ask(*packets))
    assert error(ErrorCode.NO_QUEUE, flux.ask(Enqueue("q", 1, b"a"), ACK)[1:])

    assert client.call("STATS", "q")["err"] == "Q_NOT_FOUND"


def test_a_queue_that_only_workers_wait_for_does_not_exist(flux: HandTaskFlux, client: Client) -> None:
    client.fall_asleep("q")

    assert error(ErrorCode.NO_QUEUE, flux.ask(Dequeue("q", 5000)))


def test_violations_are_named_in_their_order(flux: HandTaskFlux) -> None:
    large = bytes(PAYLOAD_BYTES_MAX + 1)
    flux.ask(CreateQueue("q", 1, 1, 5, (0, 9)))
    enqueues = [Enqueue("q", 10, large), Enqueue("q", 1, large), Enqueue("q", 1, bytes(6)), Enqueue("q", 1, bytes(5)),
                Enqueue("q", 10, large)]  # fmt: skip

    answers = flux.ask(*[packet for enqueue in enqueues for packet in (enqueue, ACK)])

    assert answers[1::2] == [
        KeyRangeViolation(0, 9), PayloadSizeViolation(5), PayloadSizeViolation(5), OK, QueueSizeViolation(1),
    ]  # fmt: skip


def test_a_payload_above_the_limit_of_the_node_is_never_stored(broker: Broker, flux: HandTaskFlux) -> None:
    large = bytes(PAYLOAD_BYTES_MAX + 1)

    assert flux.ask(Enqueue("", 1, large), ACK, Count("")) == [
        OK, PayloadSizeViolation(PAYLOAD_BYTES_MAX), CountResponse(0),
    ]  # fmt: skip
    broker.crash_and_restart()
    assert HandTaskFlux(broker).ask(Count("")) == [CountResponse(0)]


def test_a_full_disk_is_told_in_words(broker: Broker, flux: HandTaskFlux) -> None:
    broker.disk_full(True)

    assert error(ErrorCode.UNKNOWN, flux.ask(Enqueue("", 1, b"a"), ACK)[1:])


def test_a_limit_of_bytes_is_a_general_violation(flux: HandTaskFlux, client: Client) -> None:
    client.call("CREATE", "q", max_bytes=3)

    (_, answer) = flux.ask(Enqueue("q", 1, b"abcd"), ACK)

    assert isinstance(answer, GeneralViolation)


def test_a_list_has_every_queue_and_its_policies_in_words(flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q", 1, 7))

    (listed,) = flux.ask(ListQueues())

    assert isinstance(listed, ListQueuesResponse)
    assert {queue.queue: queue.metadata for queue in listed.queues} == {"": (), "q": (("max-queue-size", "7"),)}


# --- dialects ---


def test_the_number_of_a_record_is_its_id_and_stays(broker: Broker) -> None:
    flux = HandTaskFlux(broker, CSHARP)
    stored(flux, b"a", b"b", key=3)

    assert flux.ask(Dequeue(""), NACK, Dequeue(""), NACK) == [Record(3, b"a", 1), OK, Record(3, b"b", 2), OK]
    assert flux.ask(Dequeue("")) == [Record(3, b"a", 1)]


def test_legacy_removes_with_the_delivery_in_one_entry(broker: Broker, flux: HandTaskFlux, client: Client) -> None:
    stored(flux, b"a")
    legacy = HandTaskFlux(broker, LEGACY)
    last = broker.raft_log.core.log.last_index

    broker.log_disk.held = True
    assert legacy.ask(Dequeue("")) == []
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert legacy.take() == [Record(0, b"a")]
    assert broker.raft_log.core.log.last_index == last + 1
    figures = client.figures("")
    assert (figures["delivered"], figures["acked"], figures["leased"], figures["size"]) == (1, 1, 0, 0)
    assert Ack.__struct_fields__[-2] == "delivered"


def test_legacy_takes_nothing_that_is_not_durable(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a")
    legacy = HandTaskFlux(broker, LEGACY)
    broker.log_disk.held = True
    legacy.ask(Dequeue(""))

    broker.crash_and_restart()

    assert HandTaskFlux(broker).ask(Dequeue("")) == [Record(0, b"a")]


# --- bounds ---


def test_who_does_not_read_is_not_handed_more(broker: Broker, flux: HandTaskFlux) -> None:
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


def test_what_awaits_an_ack_is_counted_as_kept(flux: HandTaskFlux) -> None:
    flux.ask(Enqueue("", 1, bytes(500)))
    assert flux.door.kept_bytes > 500

    flux.ask(ACK)

    assert flux.door.kept_bytes == 0


def test_quiet_is_allowed_only_to_who_waits_for_an_answer(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(Dequeue("", 600_000))
    flux.be_quiet()
    assert not flux.door.ended

    stored(HandTaskFlux(broker), b"a")
    flux.be_quiet()

    assert flux.door.ended.startswith("dropped")


def test_a_wrong_packet_gives_the_record_back_and_closes(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a")
    held(flux)

    (answer,) = flux.ask(ListQueues())

    assert isinstance(answer, ErrorResponse)
    assert flux.door.ended.startswith("closed")
    assert HandTaskFlux(broker).ask(Count("")) == [CountResponse(1)]


def test_a_list_shows_the_moment_at_which_it_was_asked_for(flux: HandTaskFlux) -> None:
    stored(flux, b"a")

    (listed, _) = flux.ask(ListQueues(), Dequeue(""))

    assert isinstance(listed, ListQueuesResponse)
    assert [queue.count for queue in listed.queues] == [1]


# --- a broker that stops ---


def test_while_the_broker_stops_nothing_is_begun_and_what_is_held_is_settled(
    broker: Broker, flux: HandTaskFlux
) -> None:
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


def test_a_client_of_a_cluster_is_sent_to_the_node_that_leads_next(broker: Broker) -> None:
    nodes = ClusterMetadataResponse(("a:1", "b:1"), leader=1, responder=0)
    flux = HandTaskFlux(broker, nodes=lambda: nodes)

    flux.send_away()

    assert flux.ask(Count("")) == [NotLeader(1)]
