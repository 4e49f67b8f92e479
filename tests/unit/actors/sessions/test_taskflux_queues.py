"""TaskFluxSession and what a queue refuses: queues that are not there, limits, policies, and the list."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.taskflux.by_hand import PAYLOAD_BYTES_MAX, HandTaskFlux, error, stored
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    OK,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ErrorCode,
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    PayloadSizeViolation,
    QueueSizeViolation,
)


@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_commands_other_than_create_queue_create_no_queue(flux: HandTaskFlux, client: Client, wait_ms: int) -> None:
    for packets in ([Dequeue("q", wait_ms)], [Count("q")], [DeleteQueue("q")]):
        assert error(ErrorCode.NO_QUEUE, flux.ask(*packets))
    assert error(ErrorCode.NO_QUEUE, flux.ask(Enqueue("q", 1, b"a"), ACK)[1:])

    assert client.call("STATS", "q")["err"] == "Q_NOT_FOUND"


def test_queue_that_only_workers_wait_for_does_not_exist(flux: HandTaskFlux, client: Client) -> None:
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


def test_payload_above_the_limit_of_the_node_is_never_stored(broker: Broker, flux: HandTaskFlux) -> None:
    large = bytes(PAYLOAD_BYTES_MAX + 1)

    assert flux.ask(Enqueue("", 1, large), ACK, Count("")) == [
        OK, PayloadSizeViolation(PAYLOAD_BYTES_MAX), CountResponse(0),
    ]  # fmt: skip
    broker.crash_and_restart()
    assert HandTaskFlux(broker).ask(Count("")) == [CountResponse(0)]


def test_enqueue_on_a_full_disk_is_answered_with_an_unknown_error(broker: Broker, flux: HandTaskFlux) -> None:
    broker.disk_full(True)

    assert error(ErrorCode.UNKNOWN, flux.ask(Enqueue("", 1, b"a"), ACK)[1:])


def test_limit_of_bytes_is_a_general_violation(flux: HandTaskFlux, client: Client) -> None:
    client.call("CREATE", "q", max_bytes=3)

    (_, answer) = flux.ask(Enqueue("q", 1, b"abcd"), ACK)

    assert isinstance(answer, GeneralViolation)


def test_list_has_every_queue_and_its_policies_in_words(flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q", 1, 7))

    (listed,) = flux.ask(ListQueues())

    assert isinstance(listed, ListQueuesResponse)
    assert {queue.queue: queue.metadata for queue in listed.queues} == {"": (), "q": (("max-queue-size", "7"),)}


def test_list_shows_the_moment_at_which_it_was_asked_for(flux: HandTaskFlux) -> None:
    stored(flux, b"a")

    (listed, _) = flux.ask(ListQueues(), Dequeue(""))

    assert isinstance(listed, ListQueuesResponse)
    assert [queue.count for queue in listed.queues] == [1]
