"""Flushes that nobody can put off, and what every queue keeps in memory after them, also one at rest."""

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from wakeq.actors.mail import Tick
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.bodies import CACHED_BYTES_MAX, KEPT_BYTES, Bodies, share_of

IN_FLIGHT = 8
FOLLOW_UPS = 200


def test_checkpoint_is_not_delayed_by_clients_that_acknowledge_with_follow_ups_without_pause(
    broker: Broker, client: Client
) -> None:
    uids = [client.publish("from", str(place)) for place in range(FOLLOW_UPS)]
    broker.flush()
    before = broker.queues.flusher.count
    flushes: list[int] = []

    def step() -> Json:
        return {"cmd": "ACK", "qname": "from", "uid": uids.pop(), "publish": [{"qname": "to", "message": "next"}]}

    def never_stops(client: Client) -> None:
        def go_on(_: Json) -> None:
            flushes.append(broker.queues.flusher.count - before)
            if len(flushes) == 3 * IN_FLIGHT:
                broker.queues.tell(Tick("flush"))
            if uids:
                client.send(step())

        client.door.told = go_on
        client.send(*[step() for _ in range(IN_FLIGHT)])

    for _ in range(3):
        never_stops(broker.client())
    broker.settle()

    assert len(flushes) == FOLLOW_UPS
    assert flushes[FOLLOW_UPS // 2] == 1
    assert broker.queue("to").ledger.columns.living == FOLLOW_UPS


def test_queue_at_rest_drops_bodies_when_its_share_shrinks(broker: Broker, client: Client) -> None:
    body = "x" * 9_600
    client.call("PUB", "idle", messages=[body] * (CACHED_BYTES_MAX // 10_000 + 50))
    broker.flush()
    at_first = len(broker.queue("idle").bodies)

    for place in range(62):  # with the default queue there are 64
        client.publish(f"q{place}")
    broker.flush()

    assert at_first == CACHED_BYTES_MAX // (KEPT_BYTES + len(body))
    assert len(broker.queue("idle").bodies) == share_of(64) // (KEPT_BYTES + len(body))
    assert len(client.call("FET", "idle", count=40)["messages"]) == 40


def test_queue_at_rest_drops_bodies_when_a_share_that_had_grown_shrinks(broker: Broker, client: Client) -> None:
    body = "x" * 9_600
    names = [f"q{place}" for place in range(62)]  # with the default queue and the one at rest there are 64
    for name in names:
        client.publish(name)
    broker.flush()
    for name in names:
        client.call("DROP", name)
    broker.flush()
    client.call("PUB", "idle", messages=[body] * (CACHED_BYTES_MAX // 10_000 + 50))
    broker.flush()
    at_first = len(broker.queue("idle").bodies)

    for name in names:
        client.publish(name)
    broker.flush()

    assert at_first == CACHED_BYTES_MAX // (KEPT_BYTES + len(body))
    assert len(broker.queue("idle").bodies) == share_of(64) // (KEPT_BYTES + len(body))


def test_full_queue_is_scanned_again_when_its_share_shrinks_much() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 11), [Draft(b"")] * 10, 5)
    bodies.collect()

    kept = []
    for count in (8, 5, 3):
        bodies.flushed(lambda _: range(1, 11), bytes_max=count * KEPT_BYTES)
        kept.append(len(bodies))

    assert kept == [8, 8, 3]
