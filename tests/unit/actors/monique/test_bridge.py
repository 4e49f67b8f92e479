"""Bridge on a broker by hand: which component gets which task, and what ends it."""

from functools import partial

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.monique.by_hand import push, transfer
from tests.helpers.monique.place import TASK, TIMEOUT_S, Place, failures_of
from wakeq.actors.mail import Answered
from wakeq.actors.monique import bridge as monique_bridge
from wakeq.actors.monique.mail import Parcel, Pushed, Relayed
from wakeq.actors.monique.queue_user import ANSWER_MS_MAX, PAGE, Looked, QueueUser
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.sessions.operator_mail import Page
from wakeq.protocol.queue.outcomes import Refusal


def test_task_goes_to_a_component_and_is_gone_when_it_is_answered(place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1", data=b'{"a":1}', expires_at=2**62))

    (task,) = place.port.sent
    assert (task["id"], task["data"], task["expires_at"]) == ("t1", b'{"a":1}', 2**62)
    assert worker.figures("sums")["leased"] == 1
    place.relay("result sum_it", id="r", pid="t1")

    assert worker.figures("sums")["acked"] == 1


@pytest.mark.parametrize("answer", ["error sum_it", "error error"])
def test_error_is_an_answer_too(place: Place, worker: Client, answer: str) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.relay(answer, id="r", pid="t1")

    assert worker.figures("sums")["acked"] == 1


def test_task_is_counted_as_answered_or_as_killed_whatever_the_error_looks_like(place: Place) -> None:
    place.bridge(2)
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"))

    place.relay("error error", id="r", pid="t1", data=b'{"code":300,"message":"no such operation"}')
    place.kill("t2")

    assert (place.counters.tasks["answered"], place.counters.tasks["killed"]) == (1, 1)


def test_message_that_does_not_answer_a_task_leaves_it_leased(place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.relay("result sum_it", id="r", pid="t2")
    place.relay("data sum_it", id="r", pid="t1")
    place.relay("result other_it", id="r", pid="t1")

    assert worker.figures("sums")["leased"] == 1


def test_tasks_are_leased_up_to_the_number_of_components(place: Place, worker: Client) -> None:
    bridge = place.bridge(2)
    place.client().ask(*[push(TASK, id=f"t{number}") for number in range(5)])

    assert place.port.ids() == ["t0", "t1"]
    place.relay("result sum_it", pid="t1", id="r")
    assert place.port.ids() == ["t2"]
    place.connect(bridge, 1, 2, 3)
    assert place.port.ids() == ["t3"]
    assert worker.figures("sums")["leased"] == 3


def test_task_that_is_not_answered_goes_to_another_component(broker: Broker, place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))
    assert place.port.ids() == ["t1"]

    broker.advance(TIMEOUT_S + 1)

    assert place.port.ids() == ["t1"]
    place.relay("result sum_it", pid="t1", id="r")
    assert worker.figures("sums")["acked"] == 1


def test_component_that_left_a_task_unanswered_gets_the_next_one_only_if_no_other_can(
    broker: Broker, place: Place, worker: Client
) -> None:
    worker.call("CREATE", "sums", max_deliveries=1)
    place.bridge(2)
    client = place.client()
    client.ask(push(TASK, id="t1"))
    broker.advance(TIMEOUT_S - 1)
    client.ask(push(TASK, id="t2"))
    broker.advance(2)
    assert place.port.has == {1: ["t1"], 2: ["t2"]}
    assert worker.figures("sums.dead")["size"] == 1
    place.relay("result sum_it", pid="t2", id="r")

    client.ask(push(TASK, id="t3"))
    client.ask(push(TASK, id="t4"))

    assert place.port.has == {1: ["t1", "t4"], 2: ["t2", "t3"]}
    place.relay("result sum_it", pid="t4", id="r")
    client.ask(push(TASK, id="t5"), push(TASK, id="t6"))
    assert place.port.has == {1: ["t1", "t4", "t5"], 2: ["t2", "t3"]}


def test_late_answer_counts(broker: Broker, place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))
    place.port.is_full = True
    broker.advance(TIMEOUT_S + 1)
    place.connect(bridge, 1)

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1
    place.port.is_full = False
    place.connect(bridge, 1)
    assert place.port.ids() == ["t1"]
    broker.advance(TIMEOUT_S + 1)
    assert worker.figures("sums")["size"] == 0


def test_late_answer_counts_also_if_a_worker_has_the_task_by_then(broker: Broker, place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))
    worker.send({"cmd": "FET", "qname": "sums", "wait": 100})
    broker.advance(TIMEOUT_S + 1)
    assert worker.take()[0]["cmd"] == "msg"

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1


def test_tasks_of_the_last_component_are_released_when_it_has_gone(place: Place, worker: Client) -> None:
    bridge = place.bridge(2)
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"), push(TASK, id="t3"))

    place.connect(bridge)

    assert worker.figures("sums")["leased"] == 0
    assert [failures_of(worker.fetch("sums")) for _ in range(3)] == [0, 1, 1]


def test_task_of_a_component_that_goes_away_is_given_to_another_one_at_once(place: Place, worker: Client) -> None:
    bridge = place.bridge(3)
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"))
    assert place.port.has == {1: ["t1"], 2: ["t2"]}

    place.connect(bridge, 1, 3)

    assert place.port.has == {1: ["t1"], 2: ["t2"], 3: ["t2"]}
    place.relay("result sum_it", pid="t2", id="r")
    place.relay("result sum_it", pid="t1", id="r")
    assert worker.figures("sums")["acked"] == 2
    assert place.counters.tasks == {"kept": 2, "refused": 0, "given": 3, "returned": 1, "answered": 2, "killed": 0}


def test_task_that_crashes_components_is_retried_by_the_policy_and_becomes_a_dead_letter(
    broker: Broker, place: Place, worker: Client
) -> None:
    worker.call("CREATE", "sums", retry={"backoff": "fixed", "base": 10}, max_deliveries=2)
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))
    place.connect(bridge, 2)
    assert place.port.has == {1: ["t1"]}

    broker.advance(11)
    assert place.port.has == {1: ["t1"], 2: ["t1"]}
    place.connect(bridge, 3)

    assert worker.fetch("sums.dead")["headers"]["wakeq-reason"] == "disconnect"


def test_component_with_a_task_gets_no_other_one_before_it_has_answered(place: Place) -> None:
    bridge = place.bridge(2)
    client = place.client()
    client.ask(push(TASK, id="t1"))
    place.relay("result sum_it", pid="t1", id="r")
    client.ask(push(TASK, id="t2"), push(TASK, id="t3"), push(TASK, id="t4"))
    assert place.port.has == {1: ["t1", "t3"], 2: ["t2"]}

    place.relay("result sum_it", pid="t3", id="r")

    assert place.port.has == {1: ["t1", "t3", "t4"], 2: ["t2"]}
    assert bridge.out == 2


def test_task_that_was_pushed_twice_is_done_with_when_it_is_answered_once(place: Place, worker: Client) -> None:
    place.bridge(2)
    client = place.client()
    client.ask(push(TASK, id="t1"))
    client.ask(push(TASK, id="t1"))
    assert place.port.has == {1: ["t1"], 2: ["t1"]}

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 2


@pytest.mark.parametrize("by", ["leader", "crash"])
def test_task_delivered_by_an_earlier_bridge_is_acknowledged_when_it_is_answered(
    broker: Broker, worker: Client, by: str
) -> None:
    place = Place(broker)
    for number in range(2 * PAGE):  # others have messages of this queue too
        worker.publish("sums", str(number))
        worker.fetch("sums")
    place.bridge(1)
    place.client().ask(push(TASK, id="t1"))
    assert place.port.ids() == ["t1"]
    if by == "leader":
        place.exchange.stop()
        broker.settle()
    else:
        broker.advance(1)  # that it was given out is on disk by then
        broker.crash_and_restart()
        worker = broker.client()

    place = Place(broker)
    place.bridge(0)
    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["leased"] == 2 * PAGE


@pytest.mark.parametrize("trouble", ["refused", "lost", "answered twice"])
def test_task_delivered_by_an_earlier_bridge_is_found_although_the_queue_has_trouble(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))
    place.exchange.stop()
    broker.settle()
    place, asked = Place(broker), QueueUser._look_at
    if trouble == "refused":
        refusal: Refusal | None = Refusal("NO_QUORUM", "too few of the other nodes answer")
        monkeypatch.setattr(QueueProcess, "refusal", lambda _: refusal)
    elif trouble == "lost":
        monkeypatch.setattr(QueueUser, "_look_at", lambda *_, **__: None)

    bridge = place.bridge(0)
    if trouble == "answered twice":
        again = place.new_bridge()
        again.tell(Answered(partial(again._looked, Looked("sums", 7)), Page([], 0, 0)))
        bridge.stop()
    refusal = None
    monkeypatch.setattr(QueueUser, "_look_at", asked)
    broker.advance(ANSWER_MS_MAX / 1000 + 1)
    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1


def test_queue_that_is_not_there_has_nothing_that_was_given_out(place: Place) -> None:
    assert place.bridge()._looked_behind is None


def test_answer_that_comes_before_the_bridge_knows_its_deliveries_counts(place: Place, worker: Client) -> None:
    bridge = place.bridge(1)
    place.client().ask(push(TASK, id="t1"))
    bridge.stop()
    place.broker.settle()

    place.exchange.tell(Relayed([transfer("result sum_it", pid="t1", id="r")]))
    next_one = place.new_bridge()
    next_one.on_receive(Pushed([Parcel(transfer("result sum_it", pid="t1", id="r"))]))
    place.broker.settle()

    assert worker.figures("sums")["acked"] == 1


def test_answer_that_comes_behind_the_end_of_its_component_counts(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.connect(bridge)
    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1
    place.port.ids()
    place.connect(bridge, 1)
    assert place.port.ids() == []


def test_late_tasks_are_remembered_up_to_a_bound(place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monique_bridge, "LATE_MAX", 2)
    bridge = place.bridge(3)
    place.client().ask(*[push(TASK, id=f"t{number}") for number in range(3)])

    place.connect(bridge)
    for number in range(3):
        place.relay("result sum_it", pid=f"t{number}", id=f"r{number}")

    assert worker.figures("sums")["acked"] == 2
