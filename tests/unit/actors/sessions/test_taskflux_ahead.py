"""TaskFluxSession where a delivery removes at once: acknowledged ahead, or in the legacy dialect."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.taskflux.by_hand import HandTaskFlux, stored
from wakeq.actors.mail import Propose
from wakeq.protocol.log.entries import ANY_TOKEN, Ack
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    OK,
    BusinessError,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import LEGACY, SPEC, Dialect


def test_acknowledgement_ahead_shares_the_entry_of_its_delivery(
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


def test_record_acknowledged_ahead_is_back_after_a_crash_before_it_is_durable(
    broker: Broker, flux: HandTaskFlux
) -> None:
    stored(flux, b"a", b"b")
    broker.log_disk.held = True
    assert flux.ask(*[Dequeue(""), ACK] * 2) == []

    broker.crash_and_restart()

    again = HandTaskFlux(broker)
    assert again.ask(Dequeue(""), NACK, Count("")) == [Record(0, b"a"), OK, CountResponse(2)]


def test_record_acknowledged_ahead_by_a_lost_connection_stays_removed(broker: Broker, flux: HandTaskFlux) -> None:
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
def test_record_removed_by_another_client_is_alone_missing_among_records_taken_together(
    broker: Broker, flux: HandTaskFlux, client: Client, dialect: Dialect
) -> None:
    uids = [client.publish("", body) for body in "abc"]
    taker = HandTaskFlux(broker, dialect)
    pair = [Dequeue("")] if dialect is LEGACY else [Dequeue(""), ACK]

    broker.log_disk.held = True
    second = Ack("", broker.queue("").ledger.id, [parse(uids[1])[1]], [ANY_TOKEN])
    broker.raft_log.tell(Propose([Proposal(second, None)]))  # is in the log first, and its queue hears of it too late
    taker.say(*pair * 3)
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    records = [answer for answer in taker.take() if isinstance(answer, Record)]

    assert records == [Record(0, b"a"), Record(0, b"c")]
    assert flux.ask(Count("")) == [CountResponse(0)]
    broker.check("")


def test_dequeues_of_a_queue_deleted_meanwhile_are_each_refused(broker: Broker, flux: HandTaskFlux) -> None:
    flux.ask(CreateQueue("q"))
    stored(flux, b"a", b"b", queue="q")
    deleter = HandTaskFlux(broker)

    broker.log_disk.held = True
    deleter.say(DeleteQueue("q"))  # is in the log first
    broker.settle()
    flux.say(*[Dequeue("q", 5000), ACK] * 2)
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [type(answer) for answer in flux.take()] == [BusinessError] * 2
    assert deleter.take() == [OK]


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


def test_legacy_takes_nothing_that_is_not_durable(broker: Broker, flux: HandTaskFlux) -> None:
    stored(flux, b"a")
    legacy = HandTaskFlux(broker, LEGACY)
    broker.log_disk.held = True
    legacy.ask(Dequeue(""))

    broker.crash_and_restart()

    assert HandTaskFlux(broker).ask(Dequeue("")) == [Record(0, b"a")]
