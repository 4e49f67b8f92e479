"""Looking: which messages of a queue connections have, and since when."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.queue import looking
from wakeq.actors.queue.looking import WORK_SHOWN_MAX
from wakeq.actors.sessions.operator_mail import Held
from wakeq.protocol.queue.outcomes import Refusal

Q = "q"


def held(broker: Broker, *workers: Client) -> dict[int, tuple[int, list[str]]]:
    """Ask which messages these connections have; return the count and the uids shown of each."""
    numbers = frozenset(worker.process.number for worker in workers)
    work, _ = broker.operate(Q, lambda me: Held(me, Q, numbers))
    return {worker: (count, [one.uid for one in rows]) for worker, (count, rows) in work.items()}


def test_connection_has_what_was_delivered_to_it_and_not_acknowledged(broker: Broker, client: Client) -> None:
    first, second, idle = broker.client(), broker.client(), broker.client()
    uids = [client.publish(Q) for _ in range(4)]
    for worker in (first, second, first):
        worker.fetch(Q)

    both = held(broker, first, second, idle)
    first.call("ACK", Q, uid=uids[0])

    assert both == {first.process.number: (2, [uids[0], uids[2]]), second.process.number: (1, [uids[1]])}
    assert held(broker, first) == {first.process.number: (1, [uids[2]])}
    assert held(broker, idle) == {}


def test_moments_are_those_of_the_delivery_and_of_the_end_of_the_lease(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, timeout=30)
    broker.advance(7)
    lease, begun_ms = client.fetch(Q)["lease"], broker.now_ms()
    broker.advance(10)
    client.call("TOUCH", Q, uid=uid, lease=lease)

    found, _ = broker.operate(Q, lambda me: Held(me, Q, frozenset({client.process.number})))

    ((_, (work,)),) = found.values()
    assert abs(work.since_ms - begun_ms) < 100
    assert abs(work.until_ms - begun_ms - 40_000) < 200


def test_messages_of_one_connection_are_counted_and_the_oldest_are_shown(broker: Broker, client: Client) -> None:
    count = WORK_SHOWN_MAX + 5
    uids = client.call("PUB", Q, messages=["m"] * count)["uids"]
    client.call("FET", Q, count=count)

    assert held(broker, client) == {client.process.number: (count, uids[:WORK_SHOWN_MAX])}


@pytest.mark.parametrize(("seen_max", "is_complete"), [(4, True), (3, False)])
def test_answer_says_whether_it_counted_every_leased_message(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, seen_max: int, is_complete: bool
) -> None:
    monkeypatch.setattr(looking, "LEASES_SEEN_MAX", seen_max)
    client.call("PUB", Q, messages=["m"] * 4)
    client.call("FET", Q, count=4)
    number = client.process.number

    work, was_complete = broker.operate(Q, lambda me: Held(me, Q, frozenset({number})))

    assert (work[number][0], was_complete) == (seen_max, is_complete)


def test_delivery_of_an_earlier_leader_has_no_connection(broker: Broker, client: Client) -> None:
    client.publish(Q)
    client.fetch(Q)
    number = client.process.number

    broker.advance(1)
    broker.crash_and_restart()

    assert broker.operate(Q, lambda me: Held(me, Q, frozenset({number, 1}))) == ({}, True)


def test_queue_that_does_not_exist_refuses(broker: Broker) -> None:
    answer = broker.operate(Q, lambda me: Held(me, Q, frozenset({1})))

    assert isinstance(answer, Refusal)
    assert answer.code == "Q_NOT_FOUND"
