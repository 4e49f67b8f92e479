"""Entries about very many messages: they are applied in steps, and only their own queue waits."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import Flushed, Tick
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.sessions.operator import Question
from wakeq.protocol.queue.orders import Stats
from wakeq.storage.state.store import MESSAGES

Q = "q"
MANY = [str(number) for number in range(9)]

pytestmark = pytest.mark.usefixtures("small_steps")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what each queue does: apply entries, take a step, handle mail."""
    seen: list[str] = []

    def note(name: str) -> None:
        sound = getattr(QueueProcess, name)

        def noted(process: QueueProcess, *given: Any) -> Any:
            is_held = process.steps is not None and name == "on_receive"
            result = sound(process, *given)
            seen.append(f"{process.name} {'holds mail' if is_held else name}")
            return result

        monkeypatch.setattr(QueueProcess, name, noted)

    for name in ("apply", "step", "on_receive"):
        note(name)
    return seen


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return a list for what is to be done between the first two steps."""
    meanwhile: list[Callable[[], None]] = []
    step = QueueProcess.step

    def busy(process: QueueProcess) -> None:
        while meanwhile:
            meanwhile.pop()()
        step(process)

    monkeypatch.setattr(QueueProcess, "step", busy)
    return meanwhile


def test_other_queue_applies_between_the_steps_of_a_long_publish(
    broker: Broker, client: Client, seen: list[str]
) -> None:
    client.send({"cmd": "PUB", "qname": "long", "messages": MANY}, {"cmd": "PUB", "qname": "other", "message": "m"})
    replies = client.take()

    assert [reply["cmd"] for reply in replies] == ["ok", "ok"]
    assert seen.index("long apply") < seen.index("other apply") < seen.index("long step")
    assert seen.count("long step") > 4


def test_messages_of_a_long_publish_are_ready_together_and_in_their_order(
    broker: Broker, client: Client, worker: Client, seen: list[str]
) -> None:
    worker.ask({"cmd": "FET", "qname": Q, "wait": 50, "count": 9, "cmd_id": 1})

    client.call("PUB", Q, messages=MANY)
    (reply,) = worker.take()

    assert [message["msg"] for message in reply["messages"]] == MANY
    broker.check(Q)


def test_mail_for_a_queue_waits_for_the_last_step(
    broker: Broker, client: Client, seen: list[str], meanwhile: list[Callable[[], None]]
) -> None:
    client.publish(Q, "first")
    other = broker.client()
    meanwhile.append(lambda: other.send({"cmd": "FET", "qname": Q}, {"cmd": "STATS", "qname": Q}))

    client.call("PUB", Q, messages=MANY)
    fetched, stats = other.take()

    assert f"{Q} holds mail" in seen
    assert fetched["msg"] == "first"
    assert stats["stats"]["ready"] == 1 + len(MANY), "not some of them"


def test_mail_between_the_steps_of_one_of_two_long_publishes_is_handled_behind_both(
    broker: Broker, client: Client, meanwhile: list[Callable[[], None]]
) -> None:
    client.publish(Q, "first")
    other = broker.client()
    meanwhile.append(lambda: other.send({"cmd": "FET", "qname": Q}, {"cmd": "STATS", "qname": Q}))

    client.ask(*[{"cmd": "PUB", "qname": Q, "messages": MANY}] * 2)
    fetched, stats = other.take()

    assert fetched["msg"] == "first"
    assert stats["stats"]["ready"] == 1 + 2 * len(MANY)


def test_mail_that_waited_for_the_last_step_is_handled_in_its_order(
    broker: Broker, client: Client, meanwhile: list[Callable[[], None]]
) -> None:
    client.publish(Q, "first")
    told: list[int] = []

    class Asker(Question):
        def tell(self, answer: Any) -> None:
            told.append(askers.index(self))

    askers = [Asker(broker.runtime) for _ in range(3)]
    meanwhile.append(lambda: [broker.queue(Q).tell(Stats(asker, Q)) for asker in askers])

    client.call("PUB", Q, messages=MANY)

    assert told == [0, 1, 2]


def test_flush_that_is_due_begins_behind_the_last_step(
    broker: Broker, client: Client, seen: list[str], meanwhile: list[Callable[[], None]]
) -> None:
    meanwhile.append(lambda: broker.queues.tell(Tick("flush")))

    client.call("PUB", Q, messages=MANY)

    assert broker.queues.flushed_index == broker.queues.applied[0]
    assert broker.files.store.stats().records[MESSAGES] == len(MANY)
    first, last = seen.index(f"{Q} step"), len(seen) - 1 - seen[::-1].index(f"{Q} step")
    assert seen.index(f"{Q} on_receive", first) > last, "it is asked for its changes behind its last step"


@pytest.mark.parametrize("steps_before", [1, 2, 3])
def test_queue_that_crashes_between_two_steps_is_rebuilt_and_answers(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, steps_before: int
) -> None:
    client.publish(Q, "first")
    step, left = QueueProcess.step, [steps_before]

    def fragile(process: QueueProcess) -> None:
        left[0] -= 1
        if not left[0]:
            raise ZeroDivisionError("in the middle")
        step(process)

    monkeypatch.setattr(QueueProcess, "step", fragile)
    replies = client.ask({"cmd": "PUB", "qname": Q, "messages": MANY}, {"cmd": "PUB", "qname": Q, "message": "last"})

    assert [reply["cmd"] for reply in replies] == ["ok", "ok"]
    assert [client.fetch(Q)["msg"] for _ in range(11)] == ["first", *MANY, "last"]
    assert client.finds_nothing(Q)


def test_clean_stop_between_two_steps_writes_all_of_the_entry(
    broker: Broker, client: Client, meanwhile: list[Callable[[], None]]
) -> None:
    ready: list[int] = []
    queues = broker.queues
    meanwhile.append(lambda: queues.flush_now(lambda: ready.append(queues.flushed_index)))

    client.call("PUB", Q, messages=MANY)
    broker.settle()

    assert ready == [queues.applied[0]]
    assert broker.files.store.stats().records[MESSAGES] == len(MANY)


def test_very_many_entries_that_may_take_steps_are_applied_in_one_call(broker: Broker, client: Client) -> None:
    stashes = [f"s{number}" for number in range(1_200)]

    replies = client.ask(*[{"cmd": "STASH", "qname": Q, "stash": name, "messages": ["m"]} for name in stashes])

    assert {reply["cmd"] for reply in replies} == {"okrows"}, "each of them within one write"
    assert client.call("UNSTASH", Q, writer="w", epoch=1, stashes=[(name, 1) for name in stashes])["rows"] == 1_200


def test_mail_that_waited_for_the_last_step_is_handled_in_the_order_in_which_it_came(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q, "first")
    step, handle, told, handled = QueueProcess.step, QueueProcess.on_receive, list[Flushed](), list[Any]()

    def busy(process: QueueProcess) -> None:
        told.append(Flushed(len(told)))
        process.tell(told[-1])
        step(process)

    def noted(process: QueueProcess, message: Any) -> None:
        if process.steps is None and message in told:
            handled.append(message)
        handle(process, message)

    monkeypatch.setattr(QueueProcess, "step", busy)
    monkeypatch.setattr(QueueProcess, "on_receive", noted)
    client.call("PUB", Q, messages=MANY)

    assert len(told) > 2
    assert handled == told
