"""Bridge on a broker by hand: how much it fetches, what goes back to the queue, and what is a dead letter."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.monique.by_hand import push, transfer
from tests.helpers.monique.place import TASK, TIMEOUT_S, Place, failures_of
from wakeq.actors.monique.mail import Changed, Relayed, Rest
from wakeq.actors.queue.process import QueueProcess
from wakeq.protocol.queue.outcomes import Refusal


def test_bridge_without_a_component_fetches_no_task(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.connect(bridge)

    place.client().ask(push(TASK, id="t1"))

    assert (worker.figures("sums")["ready"], worker.figures("sums")["delivered"]) == (1, 0)
    assert place.port.ids() == []


def test_task_under_way_when_the_last_component_leaves_is_released(
    broker: Broker, place: Place, worker: Client
) -> None:
    worker.call("CREATE", "sums", lease="strict")  # so a delivery is on its way until it is on disk
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))
    place.relay("result sum_it", pid="t1", id="r")
    place.client().ask(push(TASK, id="t2"))
    place.connect(bridge)
    broker.log_disk.held = True

    bridge.tell(Changed([2]))
    broker.settle()
    place.connect(bridge)
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert worker.figures("sums")["ready"] == 1
    assert place.port.has == {1: ["t1", "t2"]}


def test_task_that_finds_full_components_is_released_at_once(place: Place, worker: Client) -> None:
    place.bridge()
    place.port.is_full = True  # since it was asked for
    place.client().ask(push(TASK, id="t1"))

    assert worker.figures("sums")["leased"] == 0
    assert failures_of(worker.fetch("sums")) == 0


def test_task_in_the_mail_of_a_deposed_leader_is_given_to_no_component(
    broker: Broker, place: Place, worker: Client
) -> None:
    place.bridge()
    place.withdrawal = Refusal("NOT_LEADER", "node 2 leads; connect to it")
    place.client().ask(push(TASK, id="t1"))
    broker.settle()
    assert (place.port.ids(), worker.figures("sums")["ready"]) == ([], 1)

    place.withdrawal = None  # it was a silence of the others, and this node leads on
    broker.advance(2)

    assert place.port.ids() == ["t1"]


def test_tasks_are_fetched_only_as_components_can_take_them(place: Place, worker: Client) -> None:
    place.port.full = {1, 3}
    bridge = place.bridge(3)

    place.client().ask(*[push(TASK, id=f"t{number}") for number in range(5)])
    assert place.port.has == {2: ["t0"]}
    assert worker.figures("sums")["leased"] == 1
    place.port.full = {3}
    place.connect(bridge, 1, 2, 3)

    assert place.port.has == {2: ["t0"], 1: ["t1"]}
    assert worker.figures("sums")["leased"] == 2


def test_task_that_no_component_had_is_no_dead_letter(broker: Broker, place: Place, worker: Client) -> None:
    worker.call("CREATE", "sums", max_deliveries=1)
    place.bridge()
    place.port.is_full = True
    place.client().ask(push(TASK, id="t1"))

    broker.advance(TIMEOUT_S + 1)

    assert worker.figures("sums")["size"] == 1
    assert failures_of(worker.fetch("sums")) == 0


def test_task_that_no_component_could_take_for_long_goes_to_one_component(
    broker: Broker, place: Place, worker: Client
) -> None:
    bridge = place.bridge()
    place.port.is_full = True
    place.client().ask(push(TASK, id="t1"))
    broker.advance(TIMEOUT_S + 1)

    place.port.is_full = False
    place.connect(bridge, 1, 2)

    assert place.port.has == {1: ["t1"]}
    assert (bridge.out, worker.figures("sums")["leased"]) == (1, 1)


def test_queue_that_cannot_be_asked_is_asked_again(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = place.bridge()
    client = place.client()
    client.ask(push(TASK, id="t1"))
    assert place.port.ids() == ["t1"]
    refusal: Refusal | None = Refusal("NO_QUORUM", "too few of the other nodes answer")
    monkeypatch.setattr(QueueProcess, "refusal", lambda _: refusal)
    place.relay("result sum_it", pid="t1", id="r")
    bridge.stop()
    broker.settle()
    place.bridge()

    refusal = None
    client.ask(push(TASK, id="t2"))
    broker.advance(2)

    assert place.port.ids() == ["t2"]


def test_task_that_a_component_would_die_of_is_a_dead_letter(place: Place, worker: Client) -> None:
    place.bridge()
    made = push(TASK)
    place.client().ask(type(made)(type(made.data)(b"encrypted", made.data.tag)))
    worker.publish("sums", "no task at all")

    dead = [worker.fetch("sums.dead"), worker.fetch("sums.dead")]

    assert "not one with the nine fields" in dead[0]["headers"]["wakeq-error"]
    assert "it has no header monique-tag" in dead[1]["headers"]["wakeq-error"]
    assert place.port.ids() == []


@pytest.mark.parametrize("tag", ["config:other_it:t1::me", "result:sum_it:t1::me"])
def test_message_that_is_no_task_of_the_components_becomes_a_dead_letter(
    place: Place, worker: Client, tag: str
) -> None:
    place.bridge()

    worker.publish("sums", "[1, 2]", headers={"monique-tag": tag, "monique-encoding": "JSON"})

    assert "is not a task of sum_it" in worker.fetch("sums.dead")["headers"]["wakeq-error"]
    assert place.port.ids() == []


def test_resting_bridge_delivers_no_task_and_still_takes_answers(broker: Broker, place: Place, worker: Client) -> None:
    bridge = place.bridge(2)
    place.client().ask(push(TASK, id="t1"))
    place.exchange.tell(Relayed([transfer("result sum_it", pid="t1", id="r")]))  # it was read, and is on its way

    assert worker.figures("sums")["waiting"] == 1
    bridge.tell(Rest())
    broker.settle()
    assert worker.figures("sums")["waiting"] == 0, "or the queue would still hand out to it"
    place.client().ask(push(TASK, id="t2"))
    place.connect(bridge, 1, 2, 3)
    broker.advance(1)

    assert worker.figures("sums")["acked"] == 1
    assert place.port.ids() == ["t1"]
    assert failures_of(worker.fetch("sums")) == 0


def test_task_under_way_to_a_resting_bridge_is_released(broker: Broker, place: Place, worker: Client) -> None:
    worker.call("CREATE", "sums", lease="strict")  # so a delivery is on its way until it is on disk
    bridge = place.bridge()
    place.connect(bridge)
    place.client().ask(push(TASK, id="t1"))
    broker.log_disk.held = True
    place.connect(bridge, 1)

    bridge.tell(Rest())
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert place.port.ids() == []
    assert failures_of(worker.fetch("sums")) == 0


def test_task_under_way_to_a_bridge_whose_exchange_has_ended_is_released(
    broker: Broker, place: Place, worker: Client
) -> None:
    worker.call("CREATE", "sums", lease="strict")
    bridge = place.bridge()
    place.connect(bridge)
    place.client().ask(push(TASK, id="t1"))
    broker.log_disk.held = True
    place.connect(bridge, 1)

    place.exchange.stop()
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert not bridge.alive
    assert place.port.ids() == []
    assert failures_of(worker.fetch("sums")) == 0
