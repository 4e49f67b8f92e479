"""Tasks, Bridge and Answers on a real broker by hand: what is kept, who gets it, what ends it, and what is killed."""

import json
from typing import Any

import msgpack
import pytest

from tests.helpers.broker import Broker, Client
from tests.helpers.monique_by_hand import HandMonique, push, subscribe, transfer
from wakeq.actors import monique_tasks
from wakeq.actors.messages import Pressure, Propose, Refusal
from wakeq.actors.monique_answers import Answers
from wakeq.actors.monique_bridge import Bridge
from wakeq.actors.monique_exchange import MoniqueExchange, Rules
from wakeq.actors.monique_messages import Cancel, Changed, Parcel, Pushed, Relayed, Technical
from wakeq.actors.monique_queues import PAGE, QueueServices
from wakeq.actors.monique_tally import Tally
from wakeq.actors.monique_tasks import Tasks
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import Draft, Publish
from wakeq.protocol.wire.monique.commands import Error, PushedFromMq, PushedToMq
from wakeq.protocol.wire.monique.tasks import TAG

TIMEOUT_S = 60.0
BODY_BYTES_MAX = 10_000
TASK = "config sum_it"


class Push:
    """A port with components that never refuse, unless `is_full`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.has: dict[int, list[str]] = {}  # the ids of the tasks that each component ever got
        self.is_full = False

    def send(self, component: int, frames: Any, /) -> bool:
        if self.is_full:
            return False
        self.sent.append(msgpack.unpackb(frames[1]))
        self.has.setdefault(component, []).append(self.sent[-1]["id"])
        return True

    def ids(self) -> list[str]:
        """Those of the tasks that were sent since."""
        sent, self.sent = self.sent, []
        return [task["id"] for task in sent]


class Place:
    """A broker by hand with an exchange that has a route."""

    def __init__(self, broker: Broker, *, defaults: Policies | None = None) -> None:
        self.broker = broker
        workers = iter(range(100, 1_000))
        self.services = QueueServices(
            broker.raft_log,
            broker.queues,
            broker.timers,
            broker.now_ms,
            lambda: next(workers),
            broker.queues.exists,
            defaults,
            BODY_BYTES_MAX,
        )
        runtime = broker.runtime
        self.tally = Tally(broker.now_ms)
        self.tasks = runtime.spawn(Tasks, self.services, ["sums"], self.tally)
        self.exchange = runtime.spawn(
            MoniqueExchange, Rules(routes={"sum_it": "sums"}), self.tasks, broker.now_ms, self.tally
        )
        self.port = Push()

    def serve_answers(self) -> None:
        """Have answers on the queue passed on."""
        self.broker.runtime.spawn(Answers, "monique.answers", "wakeq", self.exchange, self.services, self.tally)
        self.broker.settle()

    def client(self) -> HandMonique:
        return HandMonique(self.broker.runtime, self.exchange, self.broker.settle, self.tally)

    def bridge(self, components: int = 1) -> Bridge:
        made = self.broker.runtime.spawn(
            Bridge, "sum_it", "sums", self.port, self.exchange, self.services, self.tally, checks=True
        )
        self.connect(made, *range(1, components + 1))
        return made

    def connect(self, bridge: Bridge, *components: int) -> None:
        """Let these components be connected."""
        bridge.tell(Changed(components))
        self.broker.settle()

    def relay(self, what: str, **fields: Any) -> None:
        """Let a component send this."""
        self.exchange.tell(Relayed([transfer(what, **fields)]))
        self.broker.settle()

    def kill(self, task_id: str) -> None:
        data = json.dumps({"task_id": task_id}).encode()
        self.exchange.tell(Technical([transfer("config kill", data=data)]))
        self.broker.settle()


@pytest.fixture
def place(broker: Broker) -> Place:
    return Place(broker)


def kinds(replies: list[Any]) -> list[type]:
    return [type(reply) for reply in replies]


def failures_of(message: dict[str, Any]) -> int:
    """How many deliveries failed; not said if all of them did."""
    failures: int = message.get("failures", message["error_count"])
    return failures


# --- keeping ---


def test_a_task_is_acknowledged_and_passed_on_when_it_is_on_disk(broker: Broker, place: Place, worker: Client) -> None:
    watcher, client = place.client(), place.client()
    watcher.ask(subscribe("* *"))
    broker.log_disk.held = True

    assert client.ask(push(TASK, id="t1", data=b'{"a":1}')) == []
    assert watcher.take() == []
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert kinds(client.take()) == [PushedToMq]
    assert kinds(watcher.take()) == [PushedFromMq]
    task = worker.fetch("sums")
    assert task["msg"] == '{"a":1}'
    assert task["headers"]["monique-tag"] == f"{TASK.replace(' ', ':')}:t1::component"


def test_answers_stay_in_order_although_a_task_takes_longer(place: Place) -> None:
    client = place.client()
    first, second, third = push("data a_b", id="1"), push(TASK, id="2"), push("data a_b", id="3")

    replies = client.ask(first, second, third)

    assert [reply.data for reply in replies if isinstance(reply, PushedToMq)] == [
        first.data.tag,
        second.data.tag,
        third.data.tag,
    ]


def test_only_tasks_are_kept(place: Place, worker: Client) -> None:
    client = place.client()

    client.ask(push("result sum_it"), push("error sum_it"), push("data sum_it"), push("config other_it"))

    assert worker.call("FET", "sums")["err"] == "Q_NOT_FOUND"


def test_a_task_that_expires_is_not_handed_out_any_more(broker: Broker, place: Place, worker: Client) -> None:
    client = place.client()
    now_ms = broker.now_ms()

    assert kinds(client.ask(push(TASK, expires_at=now_ms + 5_000), push(TASK, expires_at=now_ms - 1))) == [
        PushedToMq,
        PushedToMq,
    ]

    assert worker.figures("sums")["size"] == 1
    broker.advance(6)
    assert worker.finds_nothing("sums")


def test_a_task_that_wants_to_be_answered_in_a_thousand_years_is_kept_for_as_long_as_any(place: Place) -> None:
    assert kinds(place.client().ask(push(TASK, expires_at=2**63))) == [PushedToMq]


def test_what_cannot_be_read_is_kept_packed(place: Place, worker: Client) -> None:
    made = push(TASK)
    client = place.client()

    client.ask(type(made)(type(made.data)(b"\x00encrypted\xff", made.data.tag)))

    task = worker.fetch("sums")
    assert (task["enc"], "monique-encoding" in task["headers"]) == ("b64", False)


def test_a_task_that_its_queue_refuses_is_refused_and_not_passed_on(
    broker: Broker, place: Place, worker: Client
) -> None:
    worker.call("CREATE", "sums", max_size=1)
    client = place.client()
    client.ask(subscribe("* *"))

    replies = client.ask(push(TASK, id="1"), push(TASK, id="2"), push(TASK, id="3", data=b"x" * BODY_BYTES_MAX * 2))
    broker.raft_log.tell(Pressure(Refusal("DISK_FULL", "no room")))
    replies += client.ask(push(TASK, id="4"))

    assert sorted(reply.error.partition(":")[0] for reply in replies if isinstance(reply, Error)) == [
        "DISK_FULL",
        "QUEUE_FULL",
        f"a task of {BODY_BYTES_MAX * 2} bytes, a queue takes {BODY_BYTES_MAX}; raise message_bytes_max",
    ]
    assert sum(isinstance(reply, PushedFromMq) for reply in replies) == 1


def test_a_component_whose_task_is_refused_hears_nothing_and_the_log_says_it(
    place: Place, worker: Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker.call("CREATE", "sums", max_size=0)

    place.relay(TASK, id="t1")

    assert "the task 't1' is not kept: QUEUE_FULL" in caplog.text


def test_what_a_task_calls_itself_makes_no_line_in_the_log(
    place: Place, worker: Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker.call("CREATE", "sums", max_size=0)

    place.relay(TASK, id="t1\nINFO wakeq all is well \x1b[2J")

    assert "is not kept" in caplog.text
    assert not [line for line in caplog.text.splitlines() if line.startswith("INFO wakeq all")]
    assert "\x1b" not in caplog.text


def test_a_queue_that_is_made_by_a_task_has_the_policies_of_the_settings(broker: Broker, worker: Client) -> None:
    place = Place(broker, defaults=Policies(max_deliveries=3))

    place.client().ask(push(TASK))

    assert worker.figures("sums")["policies"]["max_deliveries"] == 3


# --- the bridge ---


def test_a_task_goes_to_a_component_and_is_gone_when_it_is_answered(place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1", data=b'{"a":1}', expires_at=2**62))

    (task,) = place.port.sent
    assert (task["id"], task["data"], task["expires_at"]) == ("t1", b'{"a":1}', 2**62)
    assert worker.figures("sums")["leased"] == 1
    place.relay("result sum_it", id="r", pid="t1")

    assert worker.figures("sums")["acked"] == 1


@pytest.mark.parametrize("answer", ["error sum_it", "error error"])
def test_an_error_is_an_answer_too(place: Place, worker: Client, answer: str) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.relay(answer, id="r", pid="t1")

    assert worker.figures("sums")["acked"] == 1


def test_what_is_no_answer_to_it_leaves_a_task_where_it_is(place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.relay("result sum_it", id="r", pid="t2")
    place.relay("data sum_it", id="r", pid="t1")
    place.relay("result other_it", id="r", pid="t1")

    assert worker.figures("sums")["leased"] == 1


def test_as_many_tasks_are_out_as_there_are_components(place: Place, worker: Client) -> None:
    bridge = place.bridge(2)
    place.client().ask(*[push(TASK, id=f"t{number}") for number in range(5)])

    assert place.port.ids() == ["t0", "t1"]
    place.relay("result sum_it", pid="t1", id="r")
    assert place.port.ids() == ["t2"]
    place.connect(bridge, 1, 2, 3)
    assert place.port.ids() == ["t3"]
    assert worker.figures("sums")["leased"] == 3


def test_a_task_that_is_not_answered_goes_to_another_component(broker: Broker, place: Place, worker: Client) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))
    assert place.port.ids() == ["t1"]

    broker.advance(TIMEOUT_S + 1)

    assert place.port.ids() == ["t1"]
    place.relay("result sum_it", pid="t1", id="r")
    assert worker.figures("sums")["acked"] == 1


def test_a_late_answer_counts(broker: Broker, place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))
    place.port.is_full = True
    broker.advance(TIMEOUT_S + 1)
    place.connect(bridge, 1)

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1
    place.port.is_full = False
    place.connect(bridge, 1)
    broker.advance(TIMEOUT_S + 1)
    assert worker.figures("sums")["size"] == 0


def test_a_late_answer_counts_also_if_a_worker_has_the_task_by_then(
    broker: Broker, place: Place, worker: Client
) -> None:
    place.bridge()
    place.client().ask(push(TASK, id="t1"))
    worker.send({"cmd": "FET", "qname": "sums", "wait": 100})
    broker.advance(TIMEOUT_S + 1)
    assert worker.take()[0]["cmd"] == "msg"

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1


def test_when_the_last_component_has_gone_its_tasks_are_there_for_others(place: Place, worker: Client) -> None:
    bridge = place.bridge(2)
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"), push(TASK, id="t3"))

    place.connect(bridge)

    assert worker.figures("sums")["leased"] == 0
    assert [failures_of(worker.fetch("sums")) for _ in range(3)] == [0, 1, 1]


def test_the_task_of_a_component_that_goes_away_is_given_to_another_one_at_once(place: Place, worker: Client) -> None:
    bridge = place.bridge(3)
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"))
    assert place.port.has == {1: ["t1"], 2: ["t2"]}

    place.connect(bridge, 1, 3)

    assert place.port.has == {1: ["t1"], 2: ["t2"], 3: ["t2"]}
    place.relay("result sum_it", pid="t2", id="r")
    place.relay("result sum_it", pid="t1", id="r")
    assert worker.figures("sums")["acked"] == 2
    assert place.tally.tasks == {"kept": 2, "refused": 0, "given": 3, "returned": 1, "answered": 2, "killed": 0}


def test_a_task_of_which_components_die_comes_as_late_as_the_queue_says_and_is_a_dead_letter_in_the_end(
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


def test_a_component_with_a_task_gets_no_other_one_before_it_has_answered(place: Place) -> None:
    bridge = place.bridge(2)
    client = place.client()
    client.ask(push(TASK, id="t1"))
    place.relay("result sum_it", pid="t1", id="r")
    client.ask(push(TASK, id="t2"), push(TASK, id="t3"), push(TASK, id="t4"))
    assert place.port.has == {1: ["t1", "t3"], 2: ["t2"]}

    place.relay("result sum_it", pid="t3", id="r")

    assert place.port.has == {1: ["t1", "t3", "t4"], 2: ["t2"]}
    assert bridge.out == 2


def test_a_task_that_was_pushed_twice_is_done_with_when_it_is_answered_once(place: Place, worker: Client) -> None:
    place.bridge(2)
    client = place.client()
    client.ask(push(TASK, id="t1"))
    client.ask(push(TASK, id="t1"))
    assert place.port.has == {1: ["t1"], 2: ["t1"]}

    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 2


@pytest.mark.parametrize("by", ["leader", "crash"])
def test_what_was_given_out_before_is_done_with_when_it_is_answered(broker: Broker, worker: Client, by: str) -> None:
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


def test_an_answer_that_comes_before_it_is_known_what_was_given_out_counts(place: Place, worker: Client) -> None:
    bridge = place.bridge(1)
    place.client().ask(push(TASK, id="t1"))
    bridge.stop()
    place.broker.settle()

    place.exchange.tell(Relayed([transfer("result sum_it", pid="t1", id="r")]))
    next_one = place.broker.runtime.spawn(
        Bridge, "sum_it", "sums", place.port, place.exchange, place.services, place.tally, checks=True
    )
    next_one.on_receive(Pushed([Parcel(transfer("result sum_it", pid="t1", id="r"))]))
    place.broker.settle()

    assert worker.figures("sums")["acked"] == 1


def test_an_answer_that_comes_behind_the_end_of_its_component_counts(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"))

    place.connect(bridge)
    place.relay("result sum_it", pid="t1", id="r")

    assert worker.figures("sums")["acked"] == 1
    place.port.ids()
    place.connect(bridge, 1)
    assert place.port.ids() == []


def test_nothing_is_fetched_while_there_is_no_component(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.connect(bridge)

    place.client().ask(push(TASK, id="t1"))

    assert worker.figures("sums")["ready"] == 1
    assert place.port.ids() == []


def test_a_task_that_a_component_would_die_of_is_a_dead_letter(place: Place, worker: Client) -> None:
    place.bridge()
    made = push(TASK)
    place.client().ask(type(made)(type(made.data)(b"encrypted", made.data.tag)))
    worker.publish("sums", "no task at all")

    dead = [worker.fetch("sums.dead"), worker.fetch("sums.dead")]

    assert "not one with the nine fields" in dead[0]["headers"]["wakeq-error"]
    assert "it has no header monique-tag" in dead[1]["headers"]["wakeq-error"]
    assert place.port.ids() == []


@pytest.mark.parametrize("tag", ["config:other_it:t1::me", "result:sum_it:t1::me"])
def test_what_is_no_task_of_these_components_is_a_dead_letter(place: Place, worker: Client, tag: str) -> None:
    place.bridge()

    worker.publish("sums", "[1, 2]", headers={"monique-tag": tag, "monique-encoding": "JSON"})

    assert "is no task of sum_it" in worker.fetch("sums.dead")["headers"]["wakeq-error"]
    assert place.port.ids() == []


def test_what_is_in_hand_when_the_bridge_ends_goes_back(broker: Broker, place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.port.is_full = True
    place.client().ask(push(TASK, id="t1"))
    assert worker.figures("sums")["leased"] == 1

    place.exchange.stop()
    broker.settle()

    assert not bridge.alive
    assert failures_of(worker.fetch("sums")) == 0


# --- answers of workers ---


def test_an_answer_on_the_queue_goes_out_and_is_gone(place: Place, worker: Client) -> None:
    place.serve_answers()
    client = place.client()
    client.ask(subscribe("sum_it *"), push(TASK, id="t1"))
    task = worker.fetch("sums")

    headers = task["headers"]
    publish = [
        {"qname": "monique.answers", "message": "1", "headers": headers},
        {"qname": "monique.answers", "message": "2", "headers": headers | {"monique-type": "error"}},
        {"qname": "monique.answers", "message": "3", "headers": headers | {"monique-creator": "me"}},
    ]
    worker.call("ACK", "sums", uid=task["uid"], lease=task["lease"], publish=publish)

    tags = client.pushed()
    assert [tag.split(":")[:2] + tag.split(":")[3:] for tag in tags] == [
        ["result", "sum_it", "t1", "wakeq"],
        ["error", "sum_it", "t1", "wakeq"],
        ["result", "sum_it", "t1", "me"],
    ]
    assert worker.figures("monique.answers")["size"] == 0


def test_what_is_no_answer_is_a_dead_letter(place: Place, worker: Client) -> None:
    place.serve_answers()
    tag = "config:sum_it:t1::me"
    worker.publish("monique.answers", "no headers")
    worker.publish("monique.answers", "bad tag", headers={"monique-tag": "config:sum_it"})
    worker.publish("monique.answers", "bad type", headers={"monique-tag": tag, "monique-type": "answer"})
    worker.publish("monique.answers", "bad creator", headers={"monique-tag": tag, "monique-creator": "a:b"})

    dead = [worker.fetch("monique.answers.dead")["msg"] for _ in range(4)]

    assert dead == ["no headers", "bad tag", "bad type", "bad creator"]


def test_an_answer_that_goes_out_twice_has_one_id(broker: Broker, place: Place, worker: Client) -> None:
    client = place.client()
    client.ask(subscribe("* *"))
    place.serve_answers()
    broker.log_disk.held = True
    worker.send({"cmd": "PUB", "qname": "monique.answers", "message": "1", "headers": {"monique-tag": "config:a:1::m"}})
    broker.settle()
    broker.log_disk.complete()  # the answer; that it is done with never reaches the disk
    first = client.pushed()

    broker.crash_and_restart()
    place = Place(broker)
    client = place.client()
    client.ask(subscribe("* *"))
    place.serve_answers()
    broker.advance(TIMEOUT_S + 1)

    assert client.pushed() == first != []


# --- kills ---


def test_a_kill_takes_a_task_off_its_queue_wherever_it_is(place: Place, worker: Client) -> None:
    client = place.client()
    client.ask(push(TASK, id="t1"), push(TASK, id="t2"), push(TASK, id="t3"))
    worker.fetch("sums")

    place.kill("t2")
    place.kill("t1")
    place.kill("unknown")

    assert worker.figures("sums")["size"] == 1
    assert json.dumps(worker.fetch("sums")["headers"]).find(":t3:") > 0


def test_a_kill_that_overtakes_its_task_still_takes_it_off(broker: Broker, place: Place, worker: Client) -> None:
    client = place.client()
    broker.log_disk.held = True
    client.say(push(TASK, id="t1"))
    broker.settle()

    place.kill("t1")
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert kinds(client.take()) == [PushedToMq]
    assert worker.figures("sums")["size"] == 0


def test_tasks_of_an_earlier_leader_are_found_among_many_others(broker: Broker, worker: Client) -> None:
    before = Place(broker)
    for number in range(3 * PAGE):
        worker.publish("sums", str(number))
        before.client().ask(push(TASK, id=f"t{number}"))
    before.exchange.stop()
    broker.settle()
    place = Place(broker)

    place.kill("t7")
    place.kill(f"t{3 * PAGE - 1}")
    place.kill("unknown")

    assert worker.figures("sums")["size"] == 2 * 3 * PAGE - 2


def test_a_kill_finds_every_copy_of_a_task_that_was_pushed_again(place: Place, worker: Client) -> None:
    client = place.client()
    for task_id in ("t1", "t2", "t1", "t1"):
        client.ask(push(TASK, id=task_id))

    place.kill("t1")

    assert worker.figures("sums")["size"] == 1
    assert place.tally.tasks["killed"] == 3


def test_a_kill_finds_a_task_although_there_are_more_than_can_be_remembered(
    place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monique_tasks, "KNOWN_MAX", 10)
    client = place.client()
    place.kill("unknown")  # all is known from now on, and forgotten again
    client.ask(*[push(TASK, id=f"t{number}") for number in range(30)])

    for number in (0, 15, 29, 3):
        place.kill(f"t{number}")

    assert worker.figures("sums")["size"] == 26


def test_a_kill_finds_a_task_although_its_queue_cannot_be_asked_at_first(
    broker: Broker, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Place(broker)
    before.client().ask(push(TASK, id="t1"))
    before.exchange.stop()
    broker.settle()
    place = Place(broker)
    refusal: Refusal | None = Refusal("NO_QUORUM", "too few of the other nodes answer")
    monkeypatch.setattr(type(broker.queue("sums")), "_refusal", lambda _: refusal)

    place.kill("t1")
    refusal = None
    assert worker.figures("sums")["size"] == 1
    broker.advance(2)

    assert worker.figures("sums")["size"] == 0


def test_messages_of_an_old_release_are_passed_over_however_many_there_are(
    broker: Broker, place: Place, worker: Client
) -> None:
    headers = msgpack.packb({TAG: "config:sum_it:old::me"})
    drafts = [Draft(b"old", headers=headers, alias=f"old-{number}") for number in range(PAGE + 1)]
    broker.raft_log.tell(Propose([(Publish("sums", drafts), None)]))
    broker.settle()
    place.tasks.tell(Cancel("old"))
    broker.settle()

    place.client().ask(push(TASK, id="t1"))
    place.kill("t1")

    assert worker.figures("sums")["size"] == PAGE + 1


def test_a_component_that_has_a_killed_task_need_not_answer(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"))
    assert place.port.ids() == ["t1"]

    place.kill("t1")

    assert place.port.ids() == ["t2"]
    assert worker.figures("sums")["acked"] == 1
    assert bridge.alive
    assert (place.tally.tasks["killed"], place.tally.tasks["answered"]) == (1, 0)


def test_what_cannot_reach_the_disk_soon_is_refused_beyond_a_bound(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monique_tasks, "UNDER_WAY_MAX", 3)
    broker.log_disk.held = True
    client = place.client()
    client.say(*[push(TASK, id=f"t{number}") for number in range(3)])
    broker.settle()

    client.say(push(TASK, id="one too many"))
    place.relay(TASK, id="from a component")
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert kinds(client.take()) == [PushedToMq, PushedToMq, PushedToMq, Error]
    assert "the task 'from a component' is not kept: too many tasks" in caplog.text
    assert kinds(client.ask(push(TASK, id="again"))) == [PushedToMq]
    assert worker.figures("sums")["size"] == 4
