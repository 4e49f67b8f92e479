"""A MoniQue connection: what is answered, in which order, and that nothing a client says ends it."""

from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.errors import Busy
from wakeq.protocol.wire.monique.codec import decode, encode
from wakeq.protocol.wire.monique.commands import (
    Bad,
    Command,
    Error,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Reply,
    Subscribe,
    Subscribed,
    Tagged,
    Unsubscribe,
    Unsubscribed,
)
from wakeq.protocol.wire.monique.conversation import Conversation, Push
from wakeq.protocol.wire.monique.errors import BadMessage
from wakeq.protocol.wire.monique.exchange import ANY, SUBSCRIPTIONS_MAX, Exchange, Subscription, TooManySubscriptions
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.slots import Slot

TAG = "config:example_clock:i::c"
PAIRS = (Subscription("example_clock", ANY), Subscription("example_clock", ANY), Subscription(ANY, "error"))


class HandSession:
    """A session that keeps what its conversation wants done."""

    def __init__(self) -> None:
        self.is_dirty = False
        self.begun: list[Slot] = []
        self.conversation = Conversation(self)

    def note_dirty(self) -> None:
        assert not self.is_dirty, "it is flushed once"
        self.is_dirty = True

    def do(self, slots: Sequence[Slot]) -> None:
        self.begun += slots

    def receive(self, *commands: Command | Bad) -> list[Slot]:
        """Let one read bring these; return what is to be done."""
        self.conversation.receive(commands)
        begun, self.begun = self.begun, []
        return begun

    def hear(self) -> list[Reply]:
        self.is_dirty = False
        return self.conversation.take_replies()

    def finish(self, *slots: Slot) -> list[Reply]:
        """Have these done."""
        for slot in slots:
            slot.tell(None)
        return self.hear()


class Scheduler:
    """What a server makes of the conversations with its clients, in its shortest form."""

    def __init__(self, clients: str) -> None:
        self.exchange = Exchange[str]()
        self.sessions = {name: HandSession() for name in clients}
        self.received: dict[str, list[bytes]] = {name: [] for name in clients}

    def say(self, name: str, commands: list[Command | Bad]) -> list[Reply]:
        session = self.sessions[name]
        for slot in session.receive(*commands):
            slot.tell(self._do(name, slot.command))
        return session.hear()

    def _do(self, name: str, command: Any) -> TooManySubscriptions | None:
        match command:
            case Subscribe(data=subscriptions):
                try:
                    self.exchange.subscribe(name, subscriptions)
                except TooManySubscriptions as error:
                    return error
            case Unsubscribe(data=subscriptions):
                self.exchange.unsubscribe(name, subscriptions)
            case Push(tag=tag, message=message):
                for subscriber in self.exchange.subscribers(tag.spec, tag.type):
                    self.received[subscriber] += encode([PushedFromMq(Tagged(message, tag.text))])
        return None


def test_ping_is_answered_at_once_with_its_own_nanoseconds() -> None:
    session = HandSession()

    assert session.receive(Ping(1528135691016224827), Ping(2**64 - 1)) == []
    assert session.hear() == [Pong(1528135691016224827), Pong(2**64 - 1)]
    assert session.hear() == []


@pytest.mark.parametrize(
    ("command", "answer"), [(Subscribe, Subscribed), (Unsubscribe, Unsubscribed)], ids=["subscribe", "unsubscribe"]
)
@pytest.mark.parametrize("pairs", [PAIRS, ()], ids=["some", "none"])
def test_subscriptions_are_acknowledged_as_they_came_once_they_are_in_effect(
    command: Any, answer: Any, pairs: tuple[Subscription, ...]
) -> None:
    session = HandSession()

    (slot,) = session.receive(command(pairs))

    assert slot.command == command(pairs)
    assert session.hear() == []
    assert session.finish(slot) == [answer(pairs)]


@pytest.mark.parametrize("tag", [TAG, TAG.encode()], ids=["str", "bin"])
def test_push_is_acknowledged_with_its_tag_in_the_form_in_which_it_came(tag: str | bytes) -> None:
    session = HandSession()

    (slot,) = session.receive(PushToMq(Tagged(b"\x89...", tag)))

    assert slot.command == Push(read_tag(TAG), b"\x89...", tag)
    assert session.finish(slot) == [PushedToMq(tag)]


@pytest.mark.parametrize("tag", ["Config:a_b:i::c", "config:a_b", b"\xff", msgpack.packb(TAG.encode())])
def test_push_with_a_bad_tag_is_refused_and_not_passed_on(tag: str | bytes) -> None:
    session = HandSession()

    assert session.receive(PushToMq(Tagged(b"m", tag)), Ping(1)) == []

    error, pong = session.hear()
    assert isinstance(error, Error)
    assert "tag" in error.error
    assert pong == Pong(1)


def test_bad_frame_is_answered_in_its_place() -> None:
    session = HandSession()

    assert session.receive(*decode([b"\xc1", *encode([Ping(1), Pong(2)])])) == []

    assert [type(answer) for answer in session.hear()] == [Error, Pong, Error]


def test_answers_come_in_the_order_of_the_commands_whatever_is_done_first() -> None:
    session = HandSession()
    subscribe, push, late = session.receive(
        Ping(1), Subscribe(PAIRS), Ping(2), PushToMq(Tagged(b"m", TAG)), PushToMq(Tagged(b"n", TAG.encode()))
    )
    assert session.hear() == [Pong(1)]
    assert session.conversation.in_flight == 4

    assert session.finish(late, push) == []
    assert session.finish(subscribe) == [Subscribed(PAIRS), Pong(2), PushedToMq(TAG), PushedToMq(TAG.encode())]
    assert session.conversation.in_flight == 0


def test_failed_command_is_answered_with_its_error_in_its_place() -> None:
    session = HandSession()
    full, bad = session.receive(Subscribe(PAIRS), Ping(1), PushToMq(Tagged(b"m", TAG)))

    bad.tell(BadMessage("it has no id"))
    full.tell(Busy("later"))

    assert session.hear() == [Error("later"), Pong(1), Error("it has no id")]


def test_outcome_that_is_told_twice_counts_once() -> None:
    session = HandSession()
    first, _ = session.receive(PushToMq(Tagged(b"m", TAG)), PushToMq(Tagged(b"m", "data:a:i::c")))

    first.tell(None)
    first.tell(Busy("later"))

    assert session.hear() == [PushedToMq(TAG)]
    first.tell(None)
    assert session.hear() == []
    assert session.conversation.in_flight == 1


@given(st.lists(st.sampled_from("spab"), max_size=12), st.randoms())
def test_outcomes_in_any_order_give_the_answers_in_order(kinds: list[str], chance: Any) -> None:
    commands: list[Any] = [
        {"s": Subscribe(PAIRS), "p": Ping(n), "a": PushToMq(Tagged(b"m", f"data:a:{n}::c")), "b": Unsubscribe(())}[kind]
        for n, kind in enumerate(kinds)
    ]
    session = HandSession()
    slots = session.receive(*commands)
    chance.shuffle(slots)

    answers = session.hear()
    for slot in slots:
        answers += session.finish(slot)

    expected = {"s": "Subscribed", "p": "Pong", "a": "PushedToMq", "b": "Unsubscribed"}
    assert [type(answer).__name__ for answer in answers] == [expected[kind] for kind in kinds]
    assert [answer.data for answer in answers if isinstance(answer, PushedToMq)] == [
        command.data.tag for command in commands if isinstance(command, PushToMq)
    ]


# --- with an exchange ---


def test_new_client_receives_nothing_and_a_subscribed_one_its_own_pushes_too() -> None:
    scheduler = Scheduler("ab")
    push = PushToMq(Tagged(b"m", TAG))

    assert scheduler.say("a", [push]) == [PushedToMq(TAG)]
    assert scheduler.received == {"a": [], "b": []}
    replies = scheduler.say("a", [Subscribe(PAIRS), push, Unsubscribe(PAIRS), push])

    assert [type(reply).__name__ for reply in replies] == ["Subscribed", "PushedToMq", "Unsubscribed", "PushedToMq"]
    assert scheduler.received == {"a": encode([PushedFromMq(Tagged(b"m", TAG))]), "b": []}


def test_pushed_message_comes_with_its_tag_as_text_and_its_bytes_unchanged() -> None:
    scheduler = Scheduler("ab")
    scheduler.say("b", [Subscribe((Subscription(ANY, ANY),))])

    scheduler.say("a", [PushToMq(Tagged(b"\xff encrypted", TAG.encode()))])

    (frame,) = scheduler.received["b"]
    assert msgpack.unpackb(frame) == {"command": "pushed_from_mq", "data": {"message": b"\xff encrypted", "tag": TAG}}


def test_subscriptions_beyond_the_limit_are_refused_together_and_the_connection_goes_on() -> None:
    scheduler = Scheduler("a")
    scheduler.say("a", [Subscribe(tuple(Subscription(f"s{n}", ANY) for n in range(SUBSCRIPTIONS_MAX)))])

    error, pong = scheduler.say("a", [Subscribe(PAIRS), Ping(1)])

    assert isinstance(error, Error)
    assert f"at most {SUBSCRIPTIONS_MAX}" in error.error
    assert pong == Pong(1)
    assert scheduler.exchange.subscribers("example_clock", "config") == []
