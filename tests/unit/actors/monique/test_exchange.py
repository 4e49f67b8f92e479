"""MoniqueExchange and its connections: who hears what, in which order, what is filtered, and what a kill does."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.helpers.monique.by_hand import HandMonique, push, subscribe, transfer
from tests.helpers.monique.exchange_place import Place
from wakeq.actors.monique.components import Components, Layers, Taken
from wakeq.actors.monique.controller import Controller
from wakeq.actors.monique.exchange import Rules
from wakeq.actors.monique.mail import Relayed, Technical
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.door import IN_FLIGHT_MAX, Received
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.protocol.wire.monique.commands import (
    Bad,
    Error,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Subscribe,
    Subscribed,
    Tagged,
    Unsubscribe,
)
from wakeq.protocol.wire.monique.errors import BadFrame
from wakeq.protocol.wire.monique.exchange import SUBSCRIPTIONS_MAX, Subscription

IDS = json.loads((Path(__file__).parents[3] / "vectors" / "monique_ids.json").read_text())["transfers"]


@pytest.fixture
def place() -> Place:
    return Place()


def kinds(replies: list[Any]) -> list[type]:
    return [type(reply) for reply in replies]


# --- who hears what ---


def test_answers_come_in_order_and_pushed_messages_before_the_answer_to_their_push(place: Place) -> None:
    client = place.client()

    replies = client.ask(Ping(1), subscribe("* *"), push("data a_b"), Bad(BadFrame("no")), Ping(2))

    assert kinds(replies) == [Pong, PushedFromMq, Subscribed, PushedToMq, Error, Pong]


def test_pushed_message_comes_before_the_answer_to_its_push_though_more_was_received_meanwhile(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))

    client.process.on_receive(Received([push("data a_b")], 100))  # a turn of the session, and none of the exchange
    replies = client.ask(Ping(1))

    assert kinds(replies) == [PushedFromMq, PushedToMq, Pong]


def test_commands_that_come_together_are_done_one_after_the_other(place: Place) -> None:
    client = place.client()
    one, two, three = (push("data a_b", id=name) for name in "123")

    replies = client.ask(one, subscribe("a_b data"), two, Unsubscribe((Subscription("a_b", "data"),)), three)

    assert [reply.data.tag for reply in replies if isinstance(reply, PushedFromMq)] == [two.data.tag]


def test_message_comes_once_to_each_subscriber_and_to_no_other_client(place: Place) -> None:
    twice, by_type, other, none = (place.client() for _ in range(4))
    twice.ask(subscribe("a_b data", "* *", "a_b *"))
    by_type.ask(subscribe("* data"))
    other.ask(subscribe("a_b result", "a_* *"))

    pushed = push("data a_b")
    assert kinds(none.ask(pushed)) == [PushedToMq]

    assert twice.pushed() == by_type.pushed() == [pushed.data.tag]
    assert other.pushed() == none.pushed() == []


def test_subscribers_of_a_message_share_one_frame(place: Place) -> None:
    clients = [place.client() for _ in range(3)]
    for client in clients:
        client.ask(subscribe("* *"))

    place.client().ask(push("data a_b", data=b"x" * 70_000))

    frames = [client.door.frames for client in clients if client.take() is not None]
    assert frames[0][0] is frames[1][0] is frames[2][0]


def test_subscriber_that_has_gone_is_forgotten(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))
    client.close()

    place.client().ask(push("data a_b"))

    assert client.door.sent == []
    assert not client.process.alive
    assert place.exchange._exchange.subscribers("a_b", "data") == []


def test_subscriptions_beyond_the_limit_are_refused(place: Place) -> None:
    client = place.client()
    many = Subscribe(tuple(Subscription(str(number), "data") for number in range(SUBSCRIPTIONS_MAX)))
    assert kinds(client.ask(many)) == [Subscribed]

    (refusal,) = client.ask(subscribe("a_b data"))

    assert isinstance(refusal, Error)
    assert f"at most {SUBSCRIPTIONS_MAX}" in refusal.error
    assert kinds(client.ask(push("data a_b"))) == [PushedToMq]


def test_push_with_a_bad_tag_is_refused_and_goes_nowhere(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))

    (refusal,) = client.ask(PushToMq(Tagged(b"x", "Config:a_b:1::me")))

    assert isinstance(refusal, Error)
    assert "the type in front" in refusal.error


def test_reading_pauses_while_too_much_is_under_way(place: Place) -> None:
    client = place.client()
    client.say(*[push("data a_b")] * (IN_FLIGHT_MAX + 1))
    client.process.on_receive(client.process._mail.popleft())  # type: ignore[union-attr]
    assert client.door.paused

    client.take()

    assert not client.door.paused


def test_connections_of_a_failed_exchange_are_told_to_connect_again(place: Place) -> None:
    client = place.client()
    place.exchange.tell("nothing that it knows")

    client.take()

    assert "connect again" in client.door.closed


# --- what is allowed ---


def test_specs_that_are_not_allowed_are_acknowledged_and_dropped_in_silence() -> None:
    place = Place(Rules(frozenset(("a_b", "error"))))
    client = place.client()
    client.ask(subscribe("* *"))

    replies = client.ask(push("data a_b"), push("data c_d"))

    assert kinds(replies) == [PushedFromMq, PushedToMq, PushedToMq]


def test_error_that_tells_of_a_kill_is_not_filtered() -> None:
    place = Place(Rules(frozenset(("a_b",))))
    client = place.client()
    client.ask(subscribe("error error"))

    place.exchange.tell(Technical([kill_of("t1")]))

    assert [tag.split(":")[3] for tag in client.pushed()] == ["t1"]


# --- kills, and the technical layer ---


def kill_of(task_id: str) -> Any:
    return transfer("config kill", data=json.dumps({"task_id": task_id}).encode())


class Nobody:
    """A controller's port without components."""

    def can_take(self, component: int, /) -> bool:
        return False

    def send(self, component: int, frames: Any, /) -> bool:
        return False


class Frames:
    """A PUB socket that keeps what it was told."""

    def __init__(self, heard: list[Any]) -> None:
        self._heard = heard

    def publish(self, transfers: Any, /) -> None:
        self._heard += [tuple(frames) for frames in transfers]


class Written:
    """A PUB socket that writes down, with its layer, what it was told; both layers write into one list."""

    def __init__(self, layer: str, written: list[tuple[str, str]]) -> None:
        self._layer, self._written = layer, written

    def publish(self, transfers: Any, /) -> None:
        self._written += [(self._layer, frames[0].decode().split(":")[1]) for frames in transfers]


def with_components(place: Place, *, checks: bool = True) -> tuple[Process, list[tuple[str, str]]]:
    written: list[tuple[str, str]] = []
    layers = Layers(Written("communication", written), Written("technical", written))
    components = place.runtime.spawn(Components, layers, place.exchange, place.counters, checks=checks)
    place.settle()
    return components, written


def taken(*transfers: Any, is_technical: bool = False, passed_on: Callable[[], object] = list) -> Taken:
    """What a port has read."""
    return Taken(transfers, passed_on, is_technical)


def test_kill_is_told_on_the_communication_layer_and_then_relayed(place: Place) -> None:
    components, written = with_components(place)

    components.tell(taken(kill_of("t1").frames, is_technical=True))
    place.settle()

    assert written == [("communication", "error"), ("technical", "kill")]


def test_kill_by_websocket_is_one_too(place: Place) -> None:
    _, written = with_components(place)
    client = place.client()

    replies = client.ask(push("config kill", data=b'{"task_id":"t1"}'), push("config kill", data=b'{"task":"t1"}'))

    assert kinds(replies) == [PushedToMq, Error]
    assert written == [("communication", "error"), ("technical", "kill"), ("communication", "kill")]


def test_kill_by_websocket_that_components_would_die_of_is_refused(place: Place) -> None:
    """Its id is a number."""
    _, written = with_components(place)
    kill = kill_of("t1")
    bad = msgpack.packb(msgpack.unpackb(kill.message) | {"id": 5})

    (refusal,) = place.client().ask(PushToMq(Tagged(bad, kill.tag.text)))

    assert isinstance(refusal, Error)
    assert written == []


def test_kill_that_cannot_be_used_is_neither_told_nor_relayed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    components, written = with_components(place)
    monitoring = transfer("data monitoring")

    components.tell(taken(transfer("config kill", data=b"no JSON").frames, monitoring.frames, is_technical=True))
    place.settle()

    assert written == [("technical", "monitoring")]
    assert "dropped (101)" in caplog.text


@pytest.mark.parametrize("checks", [True, False])
def test_components_get_only_messages_they_survive_on_the_technical_layer(place: Place, checks: bool) -> None:
    """A field too many crashes a component and an unreadable message reaches none; an id as bytes is allowed."""
    components, written = with_components(place, checks=checks)
    good = transfer("data monitoring")
    old, more = (msgpack.packb(msgpack.unpackb(good.message) | other) for other in ({"id": b"bytes"}, {"later": 1}))

    tag = good.tag.text.encode()
    components.tell(taken([tag, old], [tag, more], [tag, b"encrypted"], good.frames, is_technical=True))
    place.settle()

    assert written == [("technical", "monitoring")] * (2 if checks else 3)


@pytest.mark.parametrize(
    ("checks", "heard", "answers"), [(True, [], [Error]), (False, ["secret_plan"], [PushedFromMq, PushedToMq])]
)
def test_unreadable_message_goes_to_components_only_without_checks(
    place: Place, checks: bool, heard: list[str], answers: list[type]
) -> None:
    """A message that a check would drop is refused to its sender and reaches no subscriber."""
    _, written = with_components(place, checks=checks)
    client = place.client()
    client.ask(subscribe("* *"))

    replies = client.ask(PushToMq(Tagged(b"encrypted", "data:secret_plan:1::me")))

    assert kinds(replies) == answers
    assert [spec for _, spec in written] == heard


def test_unreadable_message_is_passed_on_where_no_component_hears_it(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))

    replies = client.ask(PushToMq(Tagged(b"encrypted", "data:secret_plan:1::me")))

    assert kinds(replies) == [PushedFromMq, PushedToMq]


def test_message_that_a_controller_would_drop_is_refused_alone_and_in_its_place(place: Place) -> None:
    controller = place.runtime.spawn(Controller, "a_b", Nobody(), place.exchange, place.counters, checks=True)
    client = place.client()

    replies = client.ask(
        push("config a_b"), PushToMq(Tagged(b"encrypted", "config:a_b:1::me")), PushToMq(Tagged(b"x", "data:a_b:1::me"))
    )

    assert controller.alive
    assert kinds(replies) == [PushedToMq, Error, PushedToMq]
    assert place.counters.dropped["to_controller"] == 0


@pytest.mark.parametrize("vector", IDS, ids=lambda vector: vector["name"])
def test_ids_as_text_and_as_bytes_reach_components_byte_by_byte(place: Place, vector: dict[str, Any]) -> None:
    """The document's own examples have them as bytes."""
    heard: list[Any] = []
    layers = Layers(Frames(heard), Frames(heard))
    place.runtime.spawn(Components, layers, place.exchange, place.counters, checks=True)
    tag, packed = (bytes.fromhex(frame) for frame in vector["frames_hex"])

    replies = place.client().ask(PushToMq(Tagged(packed, tag)))

    assert kinds(replies) == [PushedToMq]
    assert heard == [(tag, packed)]


def test_flood_of_bad_transfers_is_one_line_of_the_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    components, _ = with_components(place)

    components.tell(taken(*[[b"one frame"]] * 1000))
    place.settle()

    assert len(caplog.records) == 1
    assert place.counters.dropped["from_component"] == 1000
    since = datetime.fromtimestamp(place.now_ms / 1000, UTC)
    place.now_ms += 3_600_000
    components.tell(taken([b"one frame"]))
    place.settle()
    assert f"and 999 others since {since:%Y-%m-%d %H:%M:%S} UTC" in caplog.records[1].message


@pytest.mark.parametrize("is_technical", [False, True])
def test_port_is_told_once_its_transfers_have_been_passed_on(place: Place, is_technical: bool) -> None:
    """Otherwise transfers that arrive faster would pile up in the mail of the processes that pass them on."""
    components, written = with_components(place)
    seen: list[int] = []

    for transfers in ([transfer("data a_b").frames], [[b"no transfer"]]):
        components.tell(taken(*transfers, is_technical=is_technical, passed_on=lambda: seen.append(len(written))))
        assert not seen[1:]
        place.settle()

    assert seen == [1, 1]


# --- what an operator sees ---


def test_connection_describes_itself_to_an_operator(place: Place) -> None:
    question = Question(place.runtime)
    client = HandMonique(place.runtime, place.exchange, place.settle, place.counters, worker=7)
    client.ask(subscribe("a_b *", "* data"))

    client.process.tell(Describe(question))
    place.settle()

    shown = {"id": 7, "door": "monique", "peer": "test", "in_flight": 0, "subscriptions": 2, "queues": []}
    assert question.get() == shown | {"since_ms": 0}
    assert place.exchange.subscriptions == 2
    client.close()
    assert place.exchange.subscriptions == 0


def test_messages_are_counted_by_their_source_and_for_each_subscriber(place: Place) -> None:
    components, _ = with_components(place)
    clients = [place.client() for _ in range(2)]
    for client in clients:
        client.ask(subscribe("* data"))

    clients[0].ask(push("data a_b"), push("result a_b"))
    components.tell(taken(transfer("data a_b").frames, [b"no transfer"]))
    place.settle()

    assert place.counters.taken == {"websocket": 2, "zeromq": 1, "queue": 0}
    assert place.counters.pushed == 4


def test_messages_are_passed_on_unchanged(place: Place) -> None:
    client = place.client()
    client.ask(subscribe("* *"))
    sent = transfer("data a_b", other="field")

    place.exchange.tell(Relayed([sent]))

    (reply,) = client.take()
    assert isinstance(reply, PushedFromMq)
    assert reply.data == Tagged(sent.message, sent.tag.text)
    assert msgpack.unpackb(reply.data.message)["other"] == "field"
