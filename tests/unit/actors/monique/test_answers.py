"""Answers on a broker by hand: what workers say goes out as messages of MoniQue, or is a dead letter."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.monique.by_hand import push, subscribe
from tests.helpers.monique.place import TASK, TIMEOUT_S, Place
from wakeq.actors.monique.answers import FIRST_AFTER_MS
from wakeq.actors.monique.exchange import _HANDLERS as HANDLERS
from wakeq.actors.monique.exchange import FamilyEnded
from wakeq.actors.monique.mail import Relayed
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.monique.messages import ID_CHARS


def test_answer_on_the_queue_goes_out_and_is_gone(place: Place, worker: Client) -> None:
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
    ids = {tag.split(":")[2] for tag in tags}
    assert [len(id) for id in ids] == [ID_CHARS] * 3, "each has one of its own"
    assert worker.figures("monique.answers")["size"] == 0


def test_answers_wait_until_lost_clients_can_have_connected_again(broker: Broker, place: Place, worker: Client) -> None:
    worker.publish("monique.answers", "1", headers={"monique-tag": "config:sum_it:t1::me"})
    place.begin_answers()
    broker.advance(FIRST_AFTER_MS / 1000 - 1)
    client = place.client()
    client.ask(subscribe("* *"))
    assert (client.pushed(), worker.figures("monique.answers")["ready"]) == ([], 1)

    broker.advance(1)

    assert len(client.pushed()) == 1
    assert worker.figures("monique.answers")["size"] == 0


def test_answer_in_the_mail_of_a_deposed_leader_does_not_go_out(broker: Broker, place: Place, worker: Client) -> None:
    client = place.client()
    client.ask(subscribe("* *"))
    place.withdrawal = Refusal("NOT_LEADER", "node 2 leads; connect to it")
    worker.publish("monique.answers", "1", headers={"monique-tag": "config:sum_it:t1::me"})
    place.serve_answers()
    assert (client.pushed(), worker.figures("monique.answers")["ready"]) == ([], 1)

    place.withdrawal = None  # it was a silence of the others, and this node leads on
    broker.advance(2)

    assert len(client.pushed()) == 1


@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_answer_that_the_exchange_has_not_passed_on_stays(
    broker: Broker, place: Place, worker: Client, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def fails(*_: Any) -> None:
        raise FamilyEnded("a bug")

    place.serve_answers()
    if how == "failed":
        monkeypatch.setitem(HANDLERS, Relayed, fails)
    else:
        monkeypatch.setitem(HANDLERS, Relayed, lambda exchange, _: exchange.stop())
    worker.send({"cmd": "PUB", "qname": "monique.answers", "message": "1", "headers": {"monique-tag": "config:a:1::m"}})
    broker.settle()

    assert not place.exchange.alive
    worker.take()
    figures = worker.figures("monique.answers")
    assert (figures["acked"], figures["ready"]) == (0, 1)


def test_message_that_is_no_answer_becomes_a_dead_letter(place: Place, worker: Client) -> None:
    place.serve_answers()
    tag = "config:sum_it:t1::me"
    worker.publish("monique.answers", "no headers")
    worker.publish("monique.answers", "bad tag", headers={"monique-tag": "config:sum_it"})
    worker.publish("monique.answers", "bad type", headers={"monique-tag": tag, "monique-type": "answer"})
    worker.publish("monique.answers", "bad creator", headers={"monique-tag": tag, "monique-creator": "a:b"})

    dead = [worker.fetch("monique.answers.dead")["msg"] for _ in range(4)]

    assert dead == ["no headers", "bad tag", "bad type", "bad creator"]


def test_answer_that_goes_out_twice_has_one_id(broker: Broker, place: Place, worker: Client) -> None:
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
