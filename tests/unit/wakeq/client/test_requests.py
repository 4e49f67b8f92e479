"""Tests of requests.py: the command of each call, and how its reply is read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wakeq import errors
from wakeq.client import requests
from wakeq.client.arguments.spans import Span
from wakeq.client.message import Body, Message, Received, bytes_of_body
from wakeq.client.requests import NackOptions, PublishOptions, Request, Settled
from wakeq.client.session import WrongProtocol
from wakeq.protocol.wire.worker import codec as wire

PLAIN = PublishOptions(delay=0, timeout=None, expires=0, priority=0, headers=None, id=None)
FAILED = NackOptions(delay=None, error=None, failed=True, dead=False)


def make(queue: str, one: wire.Msg | wire.Delivery) -> Received:
    return Received(**requests.delivered_fields(queue, one))


def held(uid: str, lease: str | None = "1-1", queue: str = "q") -> Received:
    return Received(queue=queue, uid=uid, body=b"", lease=lease, delivery=1)


def sent(request: Request[Any]) -> wire.Command:
    """Return the command as the broker reads it."""
    (command,) = wire.decode(wire.encode_commands([request.command]))
    assert not isinstance(command, wire.Bad)
    return command


class Name(str):
    """A subclass of str, as libraries for translation have."""


def test_sleep_asks_to_be_woken_only_for_ready_messages() -> None:
    assert sent(requests.sleep("q")) == wire.Islp(qname="q", wake="ready")


# Bodies and durations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [("é", "é".encode()), (b"\xff", b"\xff"), ({"a": 1}, b'{"a":1}'), ([1], b"[1]"), (None, b"null")],
)
def test_body_is_sent_as_text_bytes_or_json(body: Body, expected: bytes) -> None:
    assert bytes_of_body(body) == expected
    (pub,) = [sent(requests.publish("q", body, PLAIN))]
    assert isinstance(pub, wire.Pub)
    assert wire.body_of(pub) == expected


def test_message_as_body_is_refused() -> None:
    with pytest.raises(errors.BadField, match=r"Received\(queue='q'.* is a message; publish its body"):
        bytes_of_body(held("u"))


def test_batch_may_mix_kinds_of_bodies() -> None:
    pub = sent(requests.publish_many("q", ["text", b"\xff", {"a": 1}], PLAIN))

    assert isinstance(pub, wire.Pub)
    assert pub.messages == ["text", wire.Item(message="/w==", enc="b64"), '{"a":1}']


@pytest.mark.parametrize("body", ["abc", b"abc", {"a": 1}, 5])
def test_single_body_as_batch_is_refused(body: Any) -> None:
    with pytest.raises(errors.BadField, match="is not a batch"):
        requests.list_of_bodies(body)


def test_batch_may_be_any_iterable() -> None:
    assert requests.list_of_bodies(str(number) for number in range(2)) == ["0", "1"]


def test_str_subclass_is_sent_as_text() -> None:
    options = PublishOptions(0, None, 0, 0, {Name("name"): Name("value")}, None)
    pub = sent(requests.publish("q", Name("text"), options))

    assert isinstance(pub, wire.Pub)
    assert (pub.message, pub.headers) == ("text", {"name": "value"})


@pytest.mark.parametrize(
    ("headers", "named"),
    [({"trace": 5}, "header 'trace': 5 is int"), ({5: "x"}, "header 5"), ({"t": "\ud800"}, "header 't' .* UTF-8")],
)
def test_header_that_is_not_text_is_refused_by_name(headers: Any, named: str) -> None:
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
def test_reason_of_any_type_is_sent_as_text(error: Any, text: str) -> None:
    nack = sent(requests.nack("q", ["u"], None, NackOptions(None, error, failed=True, dead=True)))

    assert isinstance(nack, wire.Nack)
    assert nack.error == text


def test_uid_that_is_not_text_is_refused_and_quoted() -> None:
    with pytest.raises(errors.BadField, match=r"Received\(queue='q'.* is not a uid"):
        requests.ack("q", [held("u")], None, ())  # type: ignore[list-item]


@pytest.mark.parametrize("then", [("orders", "body"), [("orders",)], ["ab"], [5]])
def test_malformed_follow_up_is_refused_and_quoted(then: Any) -> None:
    with pytest.raises(errors.BadField, match=r"is not a follow-up; `then` takes a list of \(queue, body\) pairs"):
        requests.ack("q", ["u"], None, then)


def test_whole_seconds_may_be_a_float() -> None:
    pub = requests.publish("q", "x", PublishOptions(5.0, 30.0, 60.0, 0, None, None)).command  # type: ignore[arg-type]

    assert isinstance(pub, wire.Pub)
    assert (pub.delay, pub.timeout, pub.expires) == (5, 30, 60)
    assert type(pub.delay) is int


@pytest.mark.parametrize(
    ("span", "sent"), [(1.5, 1.5), (timedelta(minutes=1), 60), (timedelta(milliseconds=5100), 5.1)]
)
def test_span_with_a_fraction_or_as_a_timedelta_is_sent_in_seconds(span: Span, sent: float) -> None:
    pub = requests.publish("q", "x", PublishOptions(span, span, span, 0, None, None)).command
    fet = requests.fetch("q", span, make, span).command

    assert isinstance(pub, wire.Pub)
    assert isinstance(fet, wire.Fet)
    assert (pub.delay, pub.timeout, pub.expires) == (sent, sent, sent)
    assert (fet.wait, fet.timeout) == (sent, sent)


def test_moment_in_place_of_a_delay_is_sent_as_a_delay() -> None:
    at = datetime.now(UTC) + timedelta(hours=1)

    pub = requests.publish("q", "x", PublishOptions(0, None, 0, 0, None, None, at)).command

    assert isinstance(pub, wire.Pub)
    assert 3_000 < pub.delay <= 3_600


@pytest.mark.parametrize("span", [float("nan"), float("inf"), "5", True])
def test_value_that_is_no_span_is_refused_by_name(span: Any) -> None:
    with pytest.raises(errors.BadField, match=r"delay is .* number of seconds, or a timedelta"):
        requests.publish("q", "x", PublishOptions(span, None, 0, 0, None, None))
    with pytest.raises(errors.BadField, match=r"timeout is .* number of seconds, or a timedelta"):
        requests.touch("q", ["u"], None, span)
    with pytest.raises(errors.BadField, match=r"timeout is .* number of seconds, or a timedelta"):
        requests.fetch("q", 0, make, span)
    with pytest.raises(errors.BadField, match=r"delay is .* number of seconds, or a timedelta"):
        requests.nack("q", ["u"], None, NackOptions(span, None, failed=True, dead=False))


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), "5"])
def test_invalid_wait_is_refused(span: Any) -> None:
    with pytest.raises(errors.BadField, match="wait is"):
        requests.fetch("q", span, make)


@pytest.mark.parametrize("command", [requests.fetch("q", 0.25, make, 90), requests.fetch_many("q", 5, 0.25, make, 90)])
def test_fetch_sends_its_wait_and_timeout(command: requests.Request[Any]) -> None:
    assert isinstance(command.command, wire.Fet)
    assert (command.command.wait, command.command.timeout) == (0.25, 90)


# Reading --------------------------------------------------------------------------------------------------


def test_message_has_the_fields_of_its_delivery() -> None:
    reply = wire.Msg(
        qname="q", uid="u", error_count=2, msg="/w==", enc="b64", lease="1-5", priority=-3, headers={"trace": "1"}
    )

    message = requests.fetch("q", 0, make).read(reply)

    assert message is not None
    assert (message.queue, message.uid, message.body, message.lease) == ("q", "u", b"\xff", "1-5")
    assert (message.delivery, message.failures, message.priority) == (3, 2, -3)
    assert message.headers == {"trace": "1"}
    assert not message.settled


def test_failures_are_read_when_they_differ_from_earlier_deliveries() -> None:
    reply = wire.Msgs(qname="q", messages=[wire.Delivery(uid="u", error_count=3, msg="x", failures=1)])

    (message,) = requests.fetch_many("q", 1, 0, make).read(reply)

    assert (message.delivery, message.failures) == (4, 1)


def test_empty_queue_gives_none_or_an_empty_list() -> None:
    nothing = wire.Nomsg(qname="q")

    assert requests.fetch("q", 0, make).read(nothing) is None
    assert requests.fetch_many("q", 5, 0, make).read(nothing) == []


def test_refusal_is_raised_as_its_error() -> None:
    with pytest.raises(errors.QueueFull, match="10 messages"):
        requests.publish("q", "x", PLAIN).read(wire.Nok(err="QUEUE_FULL", detail="10 messages"))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [(requests.publish("q", "x", PLAIN), wire.Pong()), (requests.publish("q", "x", PLAIN), wire.Ok())],
)
def test_reply_of_wrong_kind_raises_wrong_protocol(request_: Request[Any], reply: wire.Reply) -> None:
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
def test_ack_returns_whether_all_messages_were_known(reply: wire.Reply, known: bool) -> None:
    assert requests.ack("q", ["u"], None, ()).read(reply) is known


# Acknowledging -------------------------------------------------------------------------------------------------


def test_follow_ups_are_pairs_or_ready_made() -> None:
    ready = wire.Followup(qname="later", message="x", delay=5)

    ack = sent(requests.ack("q", ["u"], "1-1", [("audit", {"sent": "u"}), ready]))

    assert isinstance(ack, wire.Ack)
    assert ack.publish == [wire.Followup(qname="audit", message='{"sent":"u"}'), ready]


def test_ack_without_uid_or_with_one_lease_for_several_is_refused() -> None:
    with pytest.raises(errors.BadField, match="no uid"):
        requests.ack("q", [], None, ())
    with pytest.raises(errors.BadField, match="belongs to one message"):
        requests.ack("q", ["u", "v"], "1-1", ())


def test_ack_many_sends_the_lease_of_each_message() -> None:
    ack = sent(requests.ack_many([held("u", "1-1"), held("v", None)]))

    assert isinstance(ack, wire.Ack)
    assert (ack.qname, ack.uids, ack.leases) == ("q", ["u", "v"], ["1-1", None])


def test_ack_many_for_several_queues_is_refused() -> None:
    with pytest.raises(errors.BadField, match="several queues"):
        requests.ack_many([held("u"), held("v", queue="other")])


def test_ack_many_lists_done_unknown_and_stale_uids() -> None:
    messages = [held("u"), held("v"), held("w")]
    request = requests.ack_many(messages)

    all_done = request.read(wire.Okack(uids=["u", "v", "w"], qname="q"))
    one_gone = request.read(wire.Okack(uids=["u", "v", "w"], qname="q", unknown=["v"]))
    mixed = request.read(wire.Nok(err="STALE_LEASE", uids=["u"], unknown=["v"], stale=["w"]))

    assert (all_done, bool(all_done)) == (Settled(["u", "v", "w"]), True)
    assert (one_gone, bool(one_gone)) == (Settled(["u", "w"], ["v"]), False)
    assert (mixed, bool(mixed)) == (Settled(["u"], ["v"], ["w"]), False)


def test_refusal_of_all_messages_is_raised() -> None:
    with pytest.raises(errors.DiskFull):
        requests.nack_many([held("u")], FAILED).read(wire.Nok(err="DISK_FULL"))


def test_plain_nack_counts_as_failure() -> None:
    line = wire.encode_commands([requests.nack("q", ["u"], "1-1", FAILED).command])

    assert line == b'{"cmd":"NACK","qname":"q","uid":"u","lease":"1-1"}\n'


def test_nack_may_count_no_failure_or_make_a_dead_letter() -> None:
    released = requests.nack("q", ["u"], None, NackOptions(0, None, failed=False, dead=False)).command
    rejected = requests.nack("q", ["u"], None, NackOptions(None, "bad", failed=True, dead=True)).command

    assert b'"failed":false' in wire.encode_commands([released])
    assert b'"error":"bad"' in wire.encode_commands([rejected])
    assert b'"dead":true' in wire.encode_commands([rejected])


# Queues ---------------------------------------------------------------------------------------------------


def test_retry_policy_may_be_a_mapping() -> None:
    create = sent(requests.create_queue("q", {"max_size": 5, "retry": {"backoff": "exponential", "base": 1.5}}))

    assert isinstance(create, wire.Create)
    assert create.max_size == 5
    assert create.retry == wire.Retry(backoff="exponential", base=1.5)


def test_unknown_policy_or_retry_field_is_refused() -> None:
    with pytest.raises(errors.BadField, match="colour is not a policy; the policies are"):
        requests.update_queue("q", {"colour": "red"})
    with pytest.raises(errors.BadField, match=r"retry: .*; it takes backoff, base, max and jitter"):
        requests.create_queue("q", {"retry": {"base": "soon"}})


# Messages -------------------------------------------------------------------------------------------------


class RecordingClient:
    """A client that records the calls of a message."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error: errors.WakeqError | None = None

    def _record(self, name: str, named: dict[str, Any]) -> bool:
        self.calls.append((name, named))
        if self.error is not None:
            raise self.error
        return True

    def ack(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._record("ack", named)

    def nack(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._record("nack", named)

    def touch(self, _queue: str, *_uids: str, **named: Any) -> bool:
        return self._record("touch", named)


def delivered(client: RecordingClient) -> Message:
    return Message(queue="q", uid="u", body=b'{"a":1}', lease="1-1", delivery=1, client=client)


def test_with_block_acknowledges_or_nacks_after_exception() -> None:
    client = RecordingClient()

    with delivered(client):
        pass
    with pytest.raises(ValueError, match="no"), delivered(client):
        raise ValueError("no")

    assert client.calls == [
        ("ack", {"lease": "1-1", "then": ()}),
        ("nack", {"delay": None, "lease": "1-1", "error": "ValueError: no"}),
    ]


def test_with_block_that_is_interrupted_releases_message() -> None:
    client = RecordingClient()

    with pytest.raises(KeyboardInterrupt), delivered(client):
        raise KeyboardInterrupt

    assert client.calls == [("nack", {"delay": 0, "lease": "1-1", "failed": False})]


def test_with_block_respects_an_explicit_ack_or_nack() -> None:
    client = RecordingClient()

    for settle in (Message.ack, Message.nack, Message.release, lambda message: message.reject("bad")):
        with delivered(client) as message:
            settle(message)
            assert message.settled

    assert [name for name, _ in client.calls] == ["ack", "nack", "nack", "nack"]


def test_with_block_still_acknowledges_after_touch() -> None:
    client = RecordingClient()

    with delivered(client) as message:
        message.touch(60)

    assert [name for name, _ in client.calls] == ["touch", "ack"]


def test_error_of_block_is_raised_if_the_nack_fails_too() -> None:
    client = RecordingClient()
    client.error = errors.Disconnected("the connection broke")

    with pytest.raises(ValueError, match="mine") as caught, delivered(client):
        raise ValueError("mine")

    assert caught.value.__notes__ == ["the message was not returned to the queue: the connection broke"]


def test_message_reads_its_body_as_text_and_json() -> None:
    message = delivered(RecordingClient())

    assert message.text() == '{"a":1}'
    assert message.json() == {"a": 1}
    assert "client" not in repr(message)
