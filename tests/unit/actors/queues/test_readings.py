"""Readings: which queues a reader has read in a batch."""

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.staging import publish, read, stage
from wakeq.actors.queues.readings import Readings


def test_queues_of_a_reader_are_those_it_has_read_in_this_batch_by_name() -> None:
    readings = Readings()
    readings.note("b", {"r": 2, "other": 1})
    readings.note("a", {"r": 2})
    readings.note("old", {"r": 1})

    assert readings.queues_of("r", 2) == ["a", "b"]
    assert readings.queues_of("other", 2) == []


def test_queue_without_readers_any_more_is_forgotten() -> None:
    readings = Readings()
    readings.note("q", {"r": 2})

    readings.note("q", {})

    assert readings.queues_of("r", 2) == []


def readings_of(broker: Broker) -> list[str]:
    return broker.queue("q").services.readings.queues_of("r", 3)


def test_reading_is_known_again_after_a_restart_whether_it_was_flushed_or_not(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 1)
    read(client, 1, reader="r", batch=3)
    before = readings_of(broker)

    broker.crash_and_restart()
    from_the_log = readings_of(broker)
    broker.advance(0.1)
    broker.flush()
    broker.crash_and_restart()

    assert before == from_the_log == readings_of(broker) == ["q"]


def test_reading_is_forgotten_when_its_queue_is_emptied(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 1)
    read(client, 1, reader="r", batch=3)

    client.call("PURGE", "q")

    assert readings_of(broker) == []


def test_reading_is_forgotten_with_its_source_and_not_with_its_process(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 1)
    read(client, 1, reader="r", batch=3)
    client.call("RELEASE", "q", source="s")

    broker.queue("q").tell("nothing that a queue knows")
    broker.settle()
    after_a_crash = readings_of(broker)
    broker.advance(31 * 86_400)
    client.call("UNSTASH", "q", writer="another", epoch=1, stashes=[])

    assert after_a_crash == ["q"]
    assert readings_of(broker) == []
