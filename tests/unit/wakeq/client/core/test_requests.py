"""Proves what each call says and how its reply is read (requests.py)."""

from typing import Any, cast

import pytest

from wakeq import errors
from wakeq.client.core import requests
from wakeq.client.core.requests import NackOptions, PublishOptions, Request, Settled
from wakeq.client.core.session import WrongProtocol
from wakeq.client.message import Body, Message, Received, bytes_of_body
from wakeq.protocol.wire.worker import codec as wire

PLAIN = PublishOptions(delay=0, timeout=None, expires=0, priority=0, headers=None, id=None)
FAILED = NackOptions(delay=None, error=None, failed=True, dead=False)


def make(queue: str, one: wire.Msg | wire.Delivery) -> Received:
    return Received(**requests.delivered_fields(queue, one))


def held(uid: str, lease: str | None = "1-1", queue: str = "q") -> Received:
    return Received(queue=queue, uid=uid, body=b"", lease=lease, delivery=1)


def said(request: Request[Any]) -> wire.Command:
    """The command, as the broker reads it."""
    (command,) = wire.decode(wire.encode_commands([request.command]))
    assert not isinstance(command, wire.Bad)
    return command


class Name(str):
    """A subclass, as translated texts and others are."""


def test_sleep_asks_to_be_woken_only_when_there_is_a_message() -> None:
    assert said(requests.sleep("q")) == wire.Islp(qname="q", wake="ready")


# Bodies and spans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [("é", "é".encode()), (b"\xff", b"\xff"), ({"a": 1}, b'{"a":1}'), ([1], b"[1]"), (None, b"null")],
)
def test_bodies_are_text_bytes_or_json(body: Body, expected: bytes) -> None:
    assert bytes_of_body(body) == expected
    (pub,) = [said(requests.publish("q", body, PLAIN))]
    assert isinstance(pub, wire.Pub)
    assert wire.body_of(pub) == expected


def test_a_message_is_no_body() -> None:
    with pytest.raises(errors.BadField, match=r"Received\(queue='q'.* is a message; publish its body"):
        bytes_of_body(held("u"))


def test_each_body_of_a_batch_is_said_in_its_own_way() -> None:
    pub = said(requests.publish_many("q", ["text", b"\xff", {"a": 1}], PLAIN))

    assert isinstance(pub, wire.Pub)
    assert pub.messages == ["text", wire.Item(message="/w==", enc="b64"), '{"a":1}']


@pytest.mark.parametrize("body", ["abc", b"abc", {"a": 1}, 5])
def test_one_body_is_no_batch(body: Any) -> None:
    with pytest.raises(errors.BadField, match="is not a batch"):
        requests.list_of_bodies(body)


def test_a_batch_may_be_drawn_from_anything() -> None:
    assert requests.list_of_bodies(str(number) for number in range(2)) == ["0", "1"]


def test_a_text_of_a_subclass_is_a_text() -> None:
    options = PublishOptions(0, None, 0, 0, {Name("name"): Name("value")}, None)
    pub = said(requests.publish("q", Name("text"), options))

    assert isinstance(pub, wire.Pub)
    assert (pub.message, pub.headers) == ("text", {"name": "value"})


@pytest.mark.parametrize(
    ("headers", "named"),
    [({"trace": 5}, "header 'trace': 5 is int"), ({5: "x"}, "header 5"), ({"t": "\ud800"}, "header 't' .* UTF-8")],
)
def test_a_header_that_is_no_text_is_named(headers: Any, named: str) -> None:
    with pytest.raises(errors.BadField, match=named):
        requests.publish("q", "x", PublishOptions(0, None, 0, 0, headers, None))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("as it is", "as it is"),
        (ValueError("why"), "ValueError: why"),
        ({"a": 1}, "{'a': 1}"),
        ("half \ud800", "half \\ud800"),
        ("x" * 5000, "x" * 1000),
    ],
)
def test_a_reason_of_any_kind_is_sent_as_text(error: Any, text: str) -> None:
    nack = said(requests.nack("q", ["u"], None, NackOptions(None, error, failed=True, dead=True)))

    assert isinstance(nack, wire.Nack)
    assert nack.error == text


def test_a_uid_that_is_no_text_is_shown() -> None:
    with pytest.raises(errors.BadField, match=r"Received\(queue='q'.* is not a uid"):
        requests.ack("q", [held("u")], None, ())  # type: ignore[list-item]


@pytest.mark.parametrize("then", [("orders", "body"), [("orders",)], ["ab"], [5]])
def test_what_is_no_follow_up_is_shown(then: Any) -> None:
    with pytest.raises(errors.BadField, match=r"is not a follow-up; `then` takes a list of \(queue, body\) pairs"):
        requests.ack("q", ["u"], None, then)


def test_a_whole_number_of_seconds_may_be_a_float() -> None:
    pub = requests.publish("q", "x", PublishOptions(5.0, 30.0, 60.0, 0, None, None)).command  # type: ignore[arg-type]

    assert isinstance(pub, wire.Pub)
    assert (pub.delay, pub.timeout, pub.expires) == (5, 30, 60)
    assert type(pub.delay) is int


@pytest.mark.parametrize("span", [1.5, float("nan"), float("inf"), "5", True])
def test_a_part_of_a_second_is_refused_in_plain_words(span: Any) -> None:
    with pytest.raises(errors.BadField, match=r"delay is .* whole number of seconds"):
        requests.publish("q", "x", PublishOptions(span, None, 0, 0, None, None))
    with pytest.raises(errors.BadField, match=r"timeout is .* whole number of seconds"):
        requests.touch("q", ["u"], None, span)
    with pytest.raises(errors.BadField, match=r"delay is .* whole number of seconds"):
        requests.nack("q", ["u"], None, NackOptions(span, None, failed=True, dead=False))


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), "5"])
def test_a_wait_that_is_none_is_refused(span: Any) -> None:
    with pytest.raises(errors.BadField, match="wait is"):
        requests.fetch("q", span, make)


@pytest.mark.parametrize("command", [requests.fetch("q", 0, make, 90), requests.fetch_many("q", 5, 0, make, 90)])
def test_a_fetch_may_say_for_how_long(command: requests.Request[Any]) -> None:
    assert isinstance(command.command, wire.Fet)
    assert command.command.timeout == 90


def test_a_fetch_for_a_span_that_is_none_is_refused() -> None:
    with pytest.raises(errors.BadField, match="timeout is"):
        requests.fetch("q", 0, make, cast("Any", 1.5))


def test_a_wait_may_have_a_fraction() -> None:
    fetch = requests.fetch("q", 0.25, make).command

    assert isinstance(fetch, wire.Fet)
    assert fetch.wait == 0.25


# Reading --------------------------------------------------------------------------------------------------


def test_a_message_has_what_was_delivered() -> None:
    reply = wire.Msg(
        qname="q", uid="u", error_count=2, msg="/w==", enc="b64", lease="1-5", priority=-3, headers={"trace": "1"}
    )

    message = requests.fetch("q", 0, make).read(reply)

    assert message is not None
    assert (message.queue, message.uid, message.body, message.lease) == ("q", "u", b"\xff", "1-5")
    assert (message.delivery, message.failures, message.priority) == (3, 2, -3)
    assert message.headers == {"trace": "1"}
    assert not message.settled


def test_failures_are_said_where_they_are_not_all_earlier_deliveries() -> None:
    reply = wire.Msgs(qname="q", messages=[wire.Delivery(uid="u", error_count=3, msg="x", failures=1)])

    (message,) = requests.fetch_many("q", 1, 0, make).read(reply)

    assert (message.delivery, message.failures) == (4, 1)


def test_nothing_is_none_or_an_empty_list() -> None:
    nothing = wire.Nomsg(qname="q")

    assert requests.fetch("q", 0, make).read(nothing) is None
    assert requests.fetch_many("q", 5, 0, make).read(nothing) == []


def test_a_refusal_is_raised_as_its_error() -> None:
    with pytest.raises(errors.QueueFull, match="10 messages"):
        requests.publish("q", "x", PLAIN).read(wire.Nok(err="QUEUE_FULL", detail="10 messages"))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [(requests.publish("q", "x", PLAIN), wire.Pong()), (requests.publish("q", "x", PLAIN), wire.Ok())],
)
def test_an_answer_to_something_else_is_said(request_: Request[Any], reply: wire.Reply) -> None:
    with pytest.raises(WrongProtocol, match="older than this client"):
        request_.read(reply)


@pytest.mark.parametrize(
    ("reply", "known"),
    [
        (wire.Okack(uid="u", qname="q"), True),
        (wire.Okack(uid="u", qname="q", known=False), False),
        (wire.Okack(uids=["u", "v"], qname="q", unknown=["v"]), False),
    ],
)
def test_an_acknowledgement_says_whether_all_were_known(reply: wire.Reply, known: bool) -> None:
    assert requests.ack("q", ["u"], None, ()).read(reply) is known


# Settling -------------------------------------------------------------------------------------------------


def test_follow_ups_are_pairs_or_ready_made() -> None:
    ready = wire.Followup(qname="later", message="x", delay=5)

    ack = said(requests.ack("q", ["u"], "1-1", [("audit", {"sent": "u"}), ready]))

    assert isinstance(ack, wire.Ack)
    assert ack.publish == [wire.Followup(qname="audit", message='{"sent":"u"}'), ready]


def test_no_uid_and_a_lease_for_several_are_refused() -> None:
    with pytest.raises(errors.BadField, match="no uid"):
        requests.ack("q", [], None, ())
    with pytest.raises(errors.BadField, match="belongs to one message"):
        requests.ack("q", ["u", "v"], "1-1", ())


def test_many_messages_are_settled_each_by_its_own_lease() -> None:
    ack = said(requests.ack_many([held("u", "1-1"), held("v", None)]))

    assert isinstance(ack, wire.Ack)
    assert (ack.qname, ack.uids, ack.leases) == ("q", ["u", "v"], ["1-1", None])


def test_messages_of_several_queues_are_not_settled_together() -> None:
    with pytest.raises(errors.BadField, match="several queues"):
        requests.ack_many([held("u"), held("v", queue="other")])


def test_what_became_of_many_is_told_by_uid() -> None:
    messages = [held("u"), held("v"), held("w")]
    request = requests.ack_many(messages)

    all_done = request.read(wire.Okack(uids=["u", "v", "w"], qname="q"))
    one_gone = request.read(wire.Okack(uids=["u", "v", "w"], qname="q", unknown=["v"]))
    mixed = request.read(wire.Nok(err="STALE_LEASE", uids=["u"], unknown=["v"], stale=["w"]))

    assert (all_done, bool(all_done)) == (Settled(["u", "v", "w"]), True)
    assert (one_gone, bool(one_gone)) == (Settled(["u", "w"], ["v"]), False)
    assert (mixed, bool(mixed)) == (Settled(["u"], ["v"], ["w"]), False)


def test_a_refusal_of_all_is_raised() -> None:
    with pytest.raises(errors.DiskFull):
        requests.nack_many([held("u")], FAILED).read(wire.Nok(err="DISK_FULL"))


def test_a_plain_nack_says_nothing_of_failures() -> None:
    line = wire.encode_commands([requests.nack("q", ["u"], "1-1", FAILED).command])

    assert line == b'{"cmd":"NACK","qname":"q","uid":"u","lease":"1-1"}\n'


def test_a_nack_may_be_no_failure_or_the_last_one() -> None:
    released = requests.nack("q", ["u"], None, NackOptions(0, None, failed=False, dead=False)).command
    rejected = requests.nack("q", ["u"], None, NackOptions(None, "bad", failed=True, dead=True)).command

    assert b'"failed":false' in wire.encode_commands([released])
    assert b'"error":"bad"' in wire.encode_commands([rejected])
    assert b'"dead":true' in wire.encode_commands([rejected])


# Queues ---------------------------------------------------------------------------------------------------


def test_policies_are_named_and_a_retry_is_a_mapping() -> None:
    create = said(requests.create_queue("q", {"max_size": 5, "retry": {"backoff": "exponential", "base": 1.5}}))

    assert isinstance(create, wire.Create)
    assert create.max_size == 5
    assert create.retry == wire.Retry(backoff="exponential", base=1.5)


def test_an_unknown_policy_or_retry_is_refused() -> None:
    with pytest.raises(errors.BadField, match="colour is not a policy; the policies are"):
        requests.update_queue("q", {"colour": "red"})
    with pytest.raises(errors.BadField, match=r"retry: .*; it takes backoff, base, max and jitter"):
        requests.create_queue("q", {"retry": {"base": "soon"}})


# Messages -------------------------------------------------------------------------------------------------


class Notes:
    """A settler that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error: errors.WakeqError | None = None

    def _note(self, name: str, named: dict[str, Any]) -> bool:
        self.calls.append((name, named))
        if self.error is not None:
            raise self.error
        return True

    def ack(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._note("ack", named)

    def nack(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._note("nack", named)

    def touch(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._note("touch", named)


def delivered(notes: Notes) -> Message:
    return Message(queue="q", uid="u", body=b'{"a":1}', lease="1-1", delivery=1, client=notes)


def test_a_block_acknowledges_and_gives_back_what_raised() -> None:
    notes = Notes()

    with delivered(notes):
        pass
    with pytest.raises(ValueError, match="no"), delivered(notes):
        raise ValueError("no")

    assert notes.calls == [
        ("ack", {"lease": "1-1", "then": ()}),
        ("nack", {"delay": None, "lease": "1-1", "error": "ValueError: no"}),
    ]


def test_a_block_that_was_interrupted_gives_back_without_counting_a_failure() -> None:
    notes = Notes()

    with pytest.raises(KeyboardInterrupt), delivered(notes):
        raise KeyboardInterrupt

    assert notes.calls == [("nack", {"delay": 0, "lease": "1-1", "failed": False})]


def test_what_the_block_itself_said_is_the_last_word() -> None:
    notes = Notes()

    for settle in (Message.ack, Message.nack, Message.release, lambda message: message.reject("bad")):
        with delivered(notes) as message:
            settle(message)
            assert message.settled

    assert [name for name, _ in notes.calls] == ["ack", "nack", "nack", "nack"]


def test_a_touch_is_no_last_word() -> None:
    notes = Notes()

    with delivered(notes) as message:
        message.touch(60)

    assert [name for name, _ in notes.calls] == ["touch", "ack"]


def test_an_error_of_the_block_is_not_hidden_by_one_of_giving_back() -> None:
    notes = Notes()
    notes.error = errors.Disconnected("the connection broke")

    with pytest.raises(ValueError, match="mine") as caught, delivered(notes):
        raise ValueError("mine")

    assert caught.value.__notes__ == ["the message was not returned to the queue: the connection broke"]


def test_a_message_reads_its_body() -> None:
    message = delivered(Notes())

    assert message.text() == '{"a":1}'
    assert message.json() == {"a": 1}
    assert "client" not in repr(message)
