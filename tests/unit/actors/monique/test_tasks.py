"""Tasks on a broker by hand: what is kept on its queue, what is said of it, and what is killed."""

import json
from functools import partial
from typing import Any

import msgpack
import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.loops.recorder import Recorder
from tests.helpers.monique.by_hand import push, subscribe, transfer
from tests.helpers.monique.place import BODY_BYTES_MAX, TASK, Place, kinds
from wakeq.actors.mail import Answered, Pressure, Propose, ReplyByMail
from wakeq.actors.monique import tasks as monique_tasks
from wakeq.actors.monique.mail import Cancel, Relayed
from wakeq.actors.monique.queue_user import ANSWER_MS_MAX, PAGE, Looked, QueueUser
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.sessions.operator_mail import Page
from wakeq.protocol.log.entries import Draft, Publish
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.monique.commands import Error, PushedFromMq, PushedToMq
from wakeq.protocol.wire.monique.tasks import TAG


def test_task_is_acknowledged_and_passed_on_when_it_is_on_disk(broker: Broker, place: Place, worker: Client) -> None:
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


def test_own_task_reaches_its_subscriber_before_the_answer(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))

    assert kinds(client.ask(push(TASK, id="t1"))) == [PushedFromMq, PushedToMq]


def test_answers_stay_in_order_although_a_task_takes_longer(place: Place) -> None:
    client = place.client()
    first, second, third = push("data a_b", id="1"), push(TASK, id="2"), push("data a_b", id="3")

    replies = client.ask(first, second, third)

    assert [reply.data for reply in replies if isinstance(reply, PushedToMq)] == [
        first.data.tag,
        second.data.tag,
        third.data.tag,
    ]


def test_messages_other_than_tasks_are_not_kept(place: Place, worker: Client) -> None:
    client = place.client()

    client.ask(push("result sum_it"), push("error sum_it"), push("data sum_it"), push("config other_it"))

    assert worker.call("FET", "sums")["err"] == "Q_NOT_FOUND"


def test_expired_task_is_not_delivered(broker: Broker, place: Place, worker: Client) -> None:
    client = place.client()
    now_ms = broker.now_ms()

    assert kinds(client.ask(push(TASK, expires_at=now_ms + 5_000), push(TASK, expires_at=now_ms - 1))) == [
        PushedToMq,
        PushedToMq,
    ]

    assert worker.figures("sums")["size"] == 1
    broker.advance(6)
    assert worker.finds_nothing("sums")


def test_task_that_wants_to_be_answered_in_a_thousand_years_is_kept_for_as_long_as_any(place: Place) -> None:
    assert kinds(place.client().ask(push(TASK, expires_at=2**63))) == [PushedToMq]


def test_unreadable_task_is_kept_packed(place: Place, worker: Client) -> None:
    made = push(TASK)
    client = place.client()

    client.ask(type(made)(type(made.data)(b"\x00encrypted\xff", made.data.tag)))

    task = worker.fetch("sums")
    assert (task["enc"], "monique-encoding" in task["headers"]) == ("b64", False)


def test_task_that_its_queue_refuses_is_refused_and_not_passed_on(broker: Broker, place: Place, worker: Client) -> None:
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


def test_component_whose_task_is_refused_hears_nothing_and_the_log_says_it(
    place: Place, worker: Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker.call("CREATE", "sums", max_size=0)

    place.relay(TASK, id="t1")

    assert "the task 't1' is not kept: QUEUE_FULL" in caplog.text


def test_task_id_with_a_line_break_makes_no_line_in_the_log(
    place: Place, worker: Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker.call("CREATE", "sums", max_size=0)

    place.relay(TASK, id="t1\nINFO wakeq all is well \x1b[2J")

    assert "is not kept" in caplog.text
    assert not [line for line in caplog.text.splitlines() if line.startswith("INFO wakeq all")]
    assert "\x1b" not in caplog.text


# --- kills ---


def test_kill_takes_a_task_off_its_queue_wherever_it_is(place: Place, worker: Client) -> None:
    client = place.client()
    client.ask(push(TASK, id="t1"), push(TASK, id="t2"), push(TASK, id="t3"))
    worker.fetch("sums")

    place.kill("t2")
    place.kill("t1")
    place.kill("unknown")

    assert worker.figures("sums")["size"] == 1
    assert json.dumps(worker.fetch("sums")["headers"]).find(":t3:") > 0


def test_kill_that_overtakes_its_task_still_takes_it_off(broker: Broker, place: Place, worker: Client) -> None:
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


def test_kill_that_comes_in_one_read_with_its_task_takes_it_off(place: Place, worker: Client) -> None:
    client = place.client()
    place.kill("unknown")  # from now on it is known that nothing is on the queue
    kill = push("config kill", data=b'{"task_id":"t1"}')

    replies = client.ask(push(TASK, id="t1"), kill)

    assert kinds(replies) == [PushedToMq, PushedToMq]
    assert worker.figures("sums")["size"] == 0


def with_a_task_of_before(broker: Broker) -> Place:
    """Return a place that knows nothing yet of the task `t1`, which an earlier leader took."""
    before = Place(broker)
    before.client().ask(push(TASK, id="t1"))
    return before.succeeded()


def test_tasks_of_an_earlier_leader_are_found_among_many_others(broker: Broker, worker: Client) -> None:
    before = Place(broker)
    for number in range(3 * PAGE):
        worker.publish("sums", str(number))
        before.client().ask(push(TASK, id=f"t{number}"))
    place = before.succeeded()

    place.kill("t7")
    place.kill(f"t{3 * PAGE - 1}")
    place.kill("unknown")

    assert worker.figures("sums")["size"] == 2 * 3 * PAGE - 2


def test_kill_finds_every_copy_of_a_task_that_was_pushed_again(place: Place, worker: Client) -> None:
    client = place.client()
    for task_id in ("t1", "t2", "t1", "t1"):
        client.ask(push(TASK, id=task_id))

    place.kill("t1")

    assert worker.figures("sums")["size"] == 1
    assert place.counters.tasks["killed"] == 3


def test_kill_finds_a_task_although_there_are_more_than_can_be_remembered(
    place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monique_tasks, "KNOWN_MAX", 10)
    client = place.client()
    place.kill("unknown")  # all is known from now on, and forgotten again
    client.ask(*[push(TASK, id=f"t{number}") for number in range(30)])

    for number in (0, 15, 29, 3):
        place.kill(f"t{number}")

    assert worker.figures("sums")["size"] == 26
    assert len(place.tasks._known) <= 10


def test_kill_beyond_the_bound_is_dropped_and_logged(
    place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monique_tasks, "CANCELS_MAX", 2)
    monkeypatch.setattr(QueueUser, "_look_at", lambda *_, **__: None)  # nobody answers

    for number in range(4):
        place.kill(f"t{number}")  # the first is looked for, two wait

    assert place.counters.dropped["kill"] == 1
    assert "2 kills wait already" in caplog.text


def test_kill_finds_a_task_although_its_queue_cannot_be_asked_at_first(
    broker: Broker, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = with_a_task_of_before(broker)
    refusal: Refusal | None = Refusal("NO_QUORUM", "too few of the other nodes answer")
    monkeypatch.setattr(QueueProcess, "refusal", lambda _: refusal)

    place.kill("t1")
    refusal = None
    assert worker.figures("sums")["size"] == 1
    broker.advance(2)

    assert worker.figures("sums")["size"] == 0


def test_page_that_never_comes_is_asked_for_again_and_an_unrequested_one_is_ignored(
    broker: Broker, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = with_a_task_of_before(broker), QueueUser._look_at
    tasks = place.tasks
    tasks.tell(Answered(partial(tasks._looked, Looked("sums", 0)), Page([], 0, 0)))
    monkeypatch.setattr(QueueUser, "_look_at", lambda *_: None)

    place.kill("t1")
    tasks.tell(Answered(partial(tasks._looked, Looked("sums", 7)), Page([], 0, 0)))
    monkeypatch.setattr(QueueUser, "_look_at", asked)
    broker.advance(ANSWER_MS_MAX / 1000 + 1)

    assert worker.figures("sums")["size"] == 0


def test_kills_search_the_queue_once_when_all_its_tasks_are_known(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    asked = QueueUser._look_at
    monkeypatch.setattr(
        QueueUser, "_look_at", lambda self, queue, *about: looks.append(queue) or asked(self, queue, *about)
    )
    place.client().ask(push(TASK, id="t1"))

    for task_id in ("unknown", "nobody's", "t1", "neither"):
        place.kill(task_id)

    assert looks == ["sums"]


def test_messages_of_an_old_release_are_passed_over_however_many_there_are(
    broker: Broker, place: Place, worker: Client
) -> None:
    headers = msgpack.packb({TAG: "config:sum_it:old::me"})
    drafts = [Draft(b"old", headers=headers, alias=f"old-{number}") for number in range(PAGE + 1)]
    broker.raft_log.tell(Propose([Proposal(Publish("sums", drafts), None)]))
    broker.settle()
    place.tasks.tell(Cancel("old"))
    broker.settle()

    place.client().ask(push(TASK, id="t1"))
    place.kill("t1")

    assert worker.figures("sums")["size"] == PAGE + 1


def test_component_that_has_a_killed_task_need_not_answer(place: Place, worker: Client) -> None:
    bridge = place.bridge()
    place.client().ask(push(TASK, id="t1"), push(TASK, id="t2"))
    assert place.port.ids() == ["t1"]

    place.kill("t1")

    assert place.port.ids() == ["t2"]
    assert worker.figures("sums")["acked"] == 1
    assert bridge.alive
    assert (place.counters.tasks["killed"], place.counters.tasks["answered"]) == (1, 0)


def test_kill_holds_also_if_its_task_is_pushed_again_before_it_is_kept(
    broker: Broker, place: Place, worker: Client
) -> None:
    place.kill("none")  # it knows behind that what there is
    broker.log_disk.held = True
    client = place.client()
    client.say(push(TASK, id="t1"))
    broker.settle()
    place.kill("t1")
    client.say(push(TASK, id="t1"))
    broker.settle()

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert (worker.figures("sums")["size"], place.counters.tasks["killed"]) == (0, 2)
    client.ask(push(TASK, id="t1"))
    assert worker.figures("sums")["size"] == 1, "the kill is over"


@pytest.mark.parametrize("bound", ["UNDER_WAY_MAX", "UNDER_WAY_BYTES_MAX"])
def test_tasks_with_one_id_count_as_often_as_they_come(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    size = len(transfer(TASK, id="t1").tag.text) + len(transfer(TASK, id="t1").message)
    monkeypatch.setattr(monique_tasks, bound, 3 if bound == "UNDER_WAY_MAX" else 3 * size)
    broker.log_disk.held = True

    client = place.client()
    client.ask(*[push(TASK, id="t1")] * 5)
    refused = place.counters.tasks["refused"]
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    client.ask(push(TASK, id="t1"))

    assert (refused, worker.figures("sums")["size"]) == (2, 4)


def test_tasks_beyond_a_bound_are_refused_while_the_disk_hangs(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monique_tasks, "UNDER_WAY_MAX", 3)
    broker.log_disk.held = True
    client = place.client()
    client.say(*[push(TASK, id=f"t{number}") for number in range(3)])
    broker.settle()

    client.say(push(TASK, id="one too many"))
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert kinds(client.take()) == [PushedToMq, PushedToMq, PushedToMq, Error]
    assert kinds(client.ask(push(TASK, id="again"))) == [PushedToMq]
    assert worker.figures("sums")["size"] == 4


def test_components_are_not_read_on_while_too_much_is_on_its_way_to_the_disk(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would not hear that their task is refused; so they wait, and what they have sent is kept."""
    monkeypatch.setattr(monique_tasks, "UNDER_WAY_MAX", 4)
    port = broker.runtime.spawn(Recorder)
    may_read_on: list[tuple[str, ...]] = []
    broker.log_disk.held = True

    def read(*task_ids: str) -> None:
        transfers = [transfer(TASK, id=task_id) for task_id in task_ids]
        asker: ReplyByMail[None] = ReplyByMail(port, lambda _: may_read_on.append(task_ids))
        place.exchange.tell(Relayed(transfers, asker))
        broker.settle()
        hear()

    def hear() -> None:
        while port.got:
            port.got.pop(0).deliver()

    read("t1")
    read("t2", "t3", "t4", "t5", "t6")
    read("t7")

    assert may_read_on == [("t1",)]
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    hear()
    assert may_read_on == [("t1",), ("t2", "t3", "t4", "t5", "t6"), ("t7",)]
    assert worker.figures("sums")["size"] == 7


def test_queue_that_crashes_and_reports_its_tasks_again_causes_no_second_answer(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, crashes = QueueProcess.apply, [True]

    def apply_and_crash(process: QueueProcess, items: Any) -> None:
        apply(process, items)
        if any(type(item.entry) is Publish for item in items) and crashes:
            crashes.pop()
            raise ZeroDivisionError("after everything was done")

    monkeypatch.setattr(QueueProcess, "apply", apply_and_crash)
    client = place.client()

    replies = client.ask(push(TASK, id="t1"))
    broker.settle()

    assert not crashes
    assert kinds(replies + client.take()) == [PushedToMq]
    assert kinds(client.ask(push(TASK, id="t2"))) == [PushedToMq]
    assert worker.figures("sums")["size"] == 2
