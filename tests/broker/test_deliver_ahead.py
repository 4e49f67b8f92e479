"""How far ahead of its log a fast queue hands out: not while anything has waited for its commit for AHEAD_MS."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.taskflux.by_hand import HandTaskFlux
from wakeq.actors.log.writer import Cut
from wakeq.actors.mail import Throttle
from wakeq.actors.queue.fetching import AHEAD_MS
from wakeq.protocol.wire.taskflux.commands import Dequeue, Record

Q = "q"
WITHIN_S = (AHEAD_MS - 1) / 1000
LONGER_S = (AHEAD_MS + 30) / 1000  # a delivery alone begins its write 20 ms later


def hang(broker: Broker) -> None:
    broker.log_disk.held = True


def end_hang(broker: Broker) -> None:
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()


@pytest.mark.parametrize(("passed_s", "at_once"), [(WITHIN_S, ["msg"]), (LONGER_S, [])])
def test_fetch_while_a_sync_hangs_is_answered_from_memory_for_100_ms_only(
    broker: Broker, client: Client, worker: Client, passed_s: float, at_once: list[str]
) -> None:
    client.publish(Q)
    hang(broker)
    client.send({"cmd": "PUB", "qname": Q, "message": "is being written"})
    broker.settle()
    broker.advance(passed_s)

    worker.send({"cmd": "FET", "qname": Q})
    words = worker.words()
    end_hang(broker)

    assert words == at_once
    assert words + worker.words() == ["msg"]


def test_fetch_waits_for_the_commit_of_deliveries_older_than_100_ms(
    broker: Broker, client: Client, worker: Client
) -> None:
    for _ in range(3):
        client.publish(Q)
    hang(broker)

    worker.fetch(Q)
    broker.advance(WITHIN_S)
    worker.fetch(Q)
    broker.advance(LONGER_S - WITHIN_S)
    worker.send({"cmd": "FET", "qname": Q})

    assert worker.words() == []
    end_hang(broker)
    assert worker.words() == ["msg"]


def test_fetch_while_old_segments_are_being_removed_for_too_long_waits_for_that(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q)
    hang(broker)
    broker.raft_log.tell(Cut(1))
    broker.settle()
    broker.advance(LONGER_S)

    worker.send({"cmd": "FET", "qname": Q})

    assert worker.words() == []
    end_hang(broker)
    assert worker.words() == ["msg"]


def test_fetch_is_answered_from_memory_again_once_the_disk_has_answered(
    broker: Broker, client: Client, worker: Client
) -> None:
    for _ in range(2):
        client.publish(Q)
    hang(broker)
    worker.fetch(Q)
    broker.advance(10)
    end_hang(broker)

    hang(broker)

    assert worker.fetch(Q)["msg"] == "hi"


def test_fetch_of_a_busy_queue_is_answered_from_memory_however_long_it_has_been_busy(
    broker: Broker, client: Client, worker: Client
) -> None:
    """What waits is always young: the disk answers, and there is always more."""
    for _ in range(20):
        client.publish(Q)
    hang(broker)
    for _ in range(20):
        client.send({"cmd": "PUB", "qname": Q, "message": "m"})
        broker.settle()
        broker.advance(WITHIN_S / 2)
        assert worker.fetch(Q)
        assert broker.log_disk.waiting == 1
        broker.log_disk.complete(1)
        broker.settle()
        assert broker.raft_log.pending.items, "the next write is under way"


def test_fetch_while_proposals_are_parked_is_answered_from_memory_for_100_ms_only(
    broker: Broker, client: Client, worker: Client
) -> None:
    for _ in range(4):
        client.publish(Q)
    broker.raft_log.tell(Throttle(True))

    worker.fetch(Q)
    broker.advance(WITHIN_S)
    worker.fetch(Q)
    broker.advance(LONGER_S - WITHIN_S)
    worker.send({"cmd": "FET", "qname": Q})
    assert worker.words() == []

    hang(broker)
    broker.raft_log.tell(Throttle(False))
    broker.settle()
    worker.send({"cmd": "FET", "qname": Q})
    assert worker.words() == [], "what was parked is being written, and is as old as it is"
    end_hang(broker)
    assert worker.words() == ["msg", "msg"]


def test_proposal_parked_twice_is_as_old_as_the_first_time(broker: Broker, client: Client, worker: Client) -> None:
    for _ in range(4):
        client.publish(Q)
    broker.raft_log.tell(Throttle(True))
    worker.fetch(Q)
    broker.advance(WITHIN_S)
    hang(broker)
    broker.raft_log.tell(Throttle(False))
    broker.settle()
    broker.raft_log.tell(Throttle(True))
    worker.fetch(Q)
    broker.advance(LONGER_S - WITHIN_S)

    worker.send({"cmd": "FET", "qname": Q})

    assert worker.words() == []


def test_waiting_fetch_gets_a_message_due_during_a_hang_only_after_the_hang(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q, delay=1)
    worker.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.settle()
    hang(broker)
    client.send({"cmd": "PUB", "qname": "other", "message": "is being written"})
    broker.settle()
    broker.advance(2)
    assert worker.words() == []

    end_hang(broker)

    assert worker.words() == ["msg"]


def test_dequeue_while_a_sync_hangs_waits_for_the_commit(broker: Broker, client: Client, flux: HandTaskFlux) -> None:
    client.publish(Q)
    hang(broker)
    client.send({"cmd": "PUB", "qname": Q, "message": "is being written"})
    broker.settle()
    broker.advance(LONGER_S)

    assert flux.ask(Dequeue(Q)) == []
    end_hang(broker)
    assert flux.take() == [Record(0, b"hi")]


def test_broker_killed_during_a_hanging_sync_has_forgotten_deliveries_of_100_ms_only(
    broker: Broker, client: Client, worker: Client
) -> None:
    for _ in range(200):
        client.publish(Q)
    given_ms: dict[str, int] = {}

    def fetch() -> None:
        worker.send({"cmd": "FET", "qname": Q})
        given_ms.update({reply["uid"]: broker.now_ms() for reply in worker.take()})

    for _ in range(20):
        fetch()
        broker.advance(0.03)
    hang(broker)
    hung_ms = broker.now_ms()
    for _ in range(100):
        broker.advance(0.03)
        fetch()

    broker.crash_and_restart()
    again = {delivery["uid"] for delivery in broker.client().call("FET", Q, count=1000)["messages"]}
    forgotten = [given_ms[uid] - hung_ms for uid in again & set(given_ms)]

    assert forgotten, "or there was nothing to be seen"
    assert max(forgotten) - min(forgotten) <= AHEAD_MS
    assert min(forgotten) >= -AHEAD_MS


# Several nodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["the others are silent", "its own disk hangs", "one of the others is silent"])
def test_fetch_at_a_leader_is_answered_from_memory_while_a_majority_and_its_own_disk_answer(
    cluster: HandCluster, leader: HandNode, what: str
) -> None:
    client, worker = leader.client(), leader.client()
    client.publish(Q)
    cluster.advance(0.1)
    match what:
        case "the others are silent":
            cluster.isolate(leader)
        case "its own disk hangs":
            leader.log_disk.held = True
        case _:
            cluster.isolate(cluster.others(leader)[0])
    client.send({"cmd": "PUB", "qname": "other", "message": "m"})
    cluster.settle()
    cluster.advance(LONGER_S)

    worker.send({"cmd": "FET", "qname": Q})
    words = worker.words()
    cluster.heal()
    leader.log_disk.held = False
    leader.log_disk.complete()
    cluster.advance(0.2)

    assert words == (["msg"] if what == "one of the others is silent" else [])
    assert words + worker.words() == ["msg"]
