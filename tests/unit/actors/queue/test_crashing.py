"""Crashing: whoever gets a message from the log after a crash of its queue is told nothing else before."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.queue import crashing, outgoing, process
from wakeq.protocol.queue import orders

Q = "q"


@pytest.fixture
def crash_behind_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the queue crash once, when the log is to have a strict delivery and its fetch is not done with yet."""
    propose, bugs = outgoing.propose_delivered, [ZeroDivisionError("a bug")]

    def propose_and_crash(*arguments: Any) -> None:
        propose(*arguments)
        if bugs:
            raise bugs.pop()

    monkeypatch.setattr(outgoing, "propose_delivered", propose_and_crash)


@pytest.mark.usefixtures("crash_behind_delivery")
def test_waiting_fetch_whose_strict_delivery_is_in_the_log_gets_it_after_a_crash(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.call("CREATE", Q, lease="strict")
    worker.send({"cmd": "FET", "qname": Q, "wait": 5})
    broker.settle()

    client.publish(Q, "hi")
    broker.settle()

    assert [reply.get("msg", reply["cmd"]) for reply in worker.take()] == ["hi"]


@pytest.mark.parametrize("fields", [{}, {"wait": 5}], ids=["at once", "waiting"])
@pytest.mark.usefixtures("crash_behind_delivery")
def test_fetch_whose_body_was_read_gets_its_strict_delivery_after_a_crash(
    broker: Broker, client: Client, worker: Client, fields: dict[str, int]
) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q, "hi")
    broker.flush()
    broker.queue(Q).bodies.flushed(lambda count: [], 0)  # so that it has to be read
    worker.send({"cmd": "FET", "qname": Q, **fields})
    broker.settle()

    assert [reply.get("msg", reply["cmd"]) for reply in worker.take()] == ["hi"]


def test_mail_that_wants_an_answer_gets_one_when_its_queue_crashes() -> None:
    # These are filed with the queue, or wait in a slot, and are refused there.
    elsewhere = {orders.Propose, orders.Fetch, orders.EndWait, orders.PublishRead}
    asking = {kind for kind in process._HANDLERS if "asker" in getattr(kind, "__struct_fields__", ())}

    assert asking - elsewhere == set(crashing.WANTS_ANSWER)
