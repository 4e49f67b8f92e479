"""The MoniQue client without a socket: the WebSocket handshake and frames, answers in order, connections that end."""

import json
import subprocess
import sys
from contextlib import suppress

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode
from websockets.server import ServerProtocol

from wakeq.client.core.session import NotReady, WrongProtocol
from wakeq.client.monique.posts import Post, error_of, make, read_post, result_of
from wakeq.client.monique.session import INBOX_MAX, Answer, Session, split_url
from wakeq.client.monique.websocket import WebSocket
from wakeq.protocol.errors import (
    BadField,
    BadSettings,
    BrokerUnreachable,
    Disconnected,
    Forbidden,
    OutcomeUnknown,
    Refused,
    TooLarge,
    Unauthorized,
)
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
from wakeq.protocol.wire.monique.errors import BadEncoding, BadMessage, BadTransfer, ErrorCode
from wakeq.protocol.wire.monique.exchange import Subscription
from wakeq.protocol.wire.monique.frames import FRAME_BYTES_MAX, decode, encode
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX, ids_as_bytes
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.websocket import BINARY, frame

PRINTED = (
    b"config:example_calculator:CunulYa0vipgCQ3KSTmXwt67Qn0=::0000-0000-0000-websocket-tester",
    bytes.fromhex(
        "89aa637265617465645f6174cf00000163cc2a922fa763726561746f72bf303030302d303030302d303030302d776562"
        "736f636b65742d746573746572a464617461c4267b226669727374223a362c227365636f6e64223a352e302c22616374"
        "696f6e223a222f227d0aa8656e636f64696e67a44a534f4eaa657870697265735f617400a26964c41c43756e756c5961"
        "30766970674351334b53546d5877743637516e303da3706964c400a473706563b26578616d706c655f63616c63756c61"
        "746f72a474797065a6636f6e666967"
    ),
)  # as in the document: id and pid are bytes


# --- WebSocket ---


def agreeing(request: bytes) -> tuple[ServerProtocol, bytes]:
    """Return a server that has agreed to this handshake, and what it answered."""
    server = ServerProtocol()
    server.receive_data(request)
    (asked,) = server.events_received()
    server.send_response(server.accept(asked))  # type: ignore[arg-type]
    return server, b"".join(server.data_to_send())


def opened() -> tuple[WebSocket, ServerProtocol, bytes]:
    """Return a connection, its server, and the server's agreement, which the connection has not received yet."""
    socket = WebSocket("host:1", "/monique", {})
    return socket, *agreeing(socket.bytes_to_send())


def said_to(server: ServerProtocol, data: bytes) -> list[tuple[Opcode, bytes]]:
    """Return the frames that a server finds in these bytes."""
    server.receive_data(data)
    return [(event.opcode, bytes(event.data)) for event in server.events_received()]  # type: ignore[union-attr]


@given(st.lists(st.binary(max_size=300) | st.just(b"x" * 70_000), max_size=5), st.integers(1, 40))
def test_messages_survive_any_cut_of_the_stream(messages: list[bytes], step: int) -> None:
    socket, _, agreed = opened()
    wire = agreed + b"".join(frame(BINARY, message) for message in messages)

    step = max(step, len(wire) // 500)
    got = [one for at in range(0, len(wire), step) for one in socket.receive(wire[at : at + step])]

    assert got == messages


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_ours_or_nothing(data: bytes) -> None:
    for is_begun in (False, True):
        socket, _, agreed = opened()
        with suppress(Disconnected, BrokerUnreachable, Unauthorized):
            socket.receive(agreed * is_begun + data)


def test_fragments_are_one_message_also_around_a_ping() -> None:
    socket, server, agreed = opened()

    got = socket.receive(agreed + b"\x02\x02ab" + b"\x89\x01p" + b"\x00\x01c" + b"\x80\x01d")

    assert got == [b"abcd"]
    assert said_to(server, socket.bytes_to_send()) == [(Opcode.PONG, b"p")]


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"\xc2\x00", "no server sends"),  # an extension that nobody asked for
        (b"\x82\x80mask", "no server sends"),
        (b"\x80\x00", "unexpected continuation"),
        (b"\x02\x00\x82\x00", "expected a continuation"),  # begins anew in the middle
        (b"\x82\x7f" + bytes([0, 0, 0, 1, 0, 0, 0, 0]), f"limit .*{FRAME_BYTES_MAX}"),
        (b"\x88\x00", r"no reason \(1005\)"),
        (b"\x88\x07" + (1008).to_bytes(2, "big") + b"slow!", r"slow! \(1008\)"),
    ],
)
def test_what_no_server_may_say_ends_it(wire: bytes, words: str) -> None:
    socket, _, agreed = opened()

    with pytest.raises(Disconnected, match=words):
        socket.receive(agreed + wire)


def refused(status: str, code: str) -> bytes:
    """Return what wakeq answers to a handshake that it does not agree to."""
    body = json.dumps({"err": code, "detail": "the token is not for this", "more": "x" * 300})
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 503 Away\r\nContent-Length: 12\r\n\r\nnode 2 leads", BrokerUnreachable, "node 2 leads"),
        (b"HTTP/1.1 503 Soon\r\nRetry-After: 1\r\nContent-Length: 9\r\n\r\ntry again", NotReady, "try again"),
        (b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\n{"err":1}', Unauthorized, "requires a token"),
        (refused("401 Unauthorized", "UNAUTHORIZED"), Unauthorized, "^the token is not for this$"),
        (refused("403 Forbidden", "FORBIDDEN"), Forbidden, "^the token is not for this$"),
        (refused("503 Service Unavailable", "NOT_LEADER"), BrokerUnreachable, "the token is not for this"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", BrokerUnreachable, "404 Not Found"),
        (b"HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: other\r\n\r\n", WrongProtocol, "did not answer our handshake"),
        (opened()[2], WrongProtocol, "did not answer our handshake .*Sec-WebSocket-Accept"),  # it is of another one
        (b'{"cmd":"nok"}\r\n\r\n', WrongProtocol, "as an HTTP server"),
        (b"x" * 100_000, WrongProtocol, "as an HTTP server"),
    ],
)
def test_a_server_that_does_not_agree_is_said(answer: bytes, error: type[Exception], words: str) -> None:
    def receive(step: int) -> None:
        socket, _, _ = opened()
        for at in range(0, len(answer), step):
            socket.receive(answer[at : at + step])

    for step in (7, 100_000):  # whatever the cut, there is one error
        with pytest.raises(error, match=words):
            receive(step)


def test_address_with_a_fragment_is_refused() -> None:
    with pytest.raises(BadSettings, match="fragment"):
        WebSocket("host:1", "/monique#here", {})


def test_client_without_the_package_names_the_extra() -> None:
    code = """
import sys
sys.modules["websockets"] = None
import wakeq.monique
wakeq.monique.make("a_b", 1)
try:
    wakeq.monique.MoniqueClient("127.0.0.1:1")
except wakeq.errors.NotInstalled as error:
    print(error)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "a MoniQue client needs the package websockets; pip install 'wakeq[monique]'\n"


# --- the session, and a server of it ---


class Line:
    """A session and its server, with the bytes between them in our hands."""

    def __init__(self) -> None:
        self.session = Session("/monique", cookies={"id": "me"})
        self._server = ServerProtocol()

    def connect(self) -> list[Answer]:
        self.session.connected("host:1")
        request = self.session.bytes_to_send()
        assert b"GET /monique HTTP/1.1\r\n" in request
        assert b"Cookie: id=me\r\n" in request
        self._server, agreed = agreeing(request)
        return self.session.receive(agreed)

    def said(self) -> list[Command | Bad]:
        """What the client said since."""
        frames = said_to(self._server, self.session.bytes_to_send())
        assert all(opcode is Opcode.BINARY for opcode, _ in frames)
        return decode([payload for _, payload in frames])

    def answer(self, *replies: Reply) -> list[Answer]:
        return self.session.receive(b"".join(frame(BINARY, payload) for payload in encode(replies)))


@pytest.fixture
def line() -> Line:
    made = Line()
    made.connect()
    return made


def pushed(post: Post) -> PushedFromMq:
    return PushedFromMq(Tagged(post.packed, post.tag.text))


def test_answers_find_their_questions_in_the_order_of_asking(line: Line) -> None:
    session = line.session
    post = make("a_b", 1, type="data")
    first, second, third = session.ping(5), session.subscribe([("a_b", "data")]), session.push(post)

    assert line.said() == [
        Ping(5),
        Subscribe((Subscription("a_b", "data"),)),
        PushToMq(Tagged(post.packed, post.tag.text)),
    ]
    answers = line.answer(Pong(5), Subscribed(()), pushed(post), Error("no"))

    assert [answer.ticket for answer in answers] == [first, second, third]
    assert isinstance(answers[2].outcome, Refused)
    assert list(session.inbox) == [post]


def test_an_answer_that_nobody_waits_for_any_more_is_passed_over(line: Line) -> None:
    first, second = line.session.ping(1), line.session.ping(2)
    line.session.abandon(first)

    assert [answer.ticket for answer in line.answer(Pong(1), Pong(2))] == [second]
    with pytest.raises(WrongProtocol, match="an answer to no command"):
        line.answer(Pong(3))


def test_a_new_connection_begins_with_the_subscriptions_and_repeats_what_does_no_harm(line: Line) -> None:
    session = line.session
    session.subscribe([("a_b", "data"), ("c_d", "*")])
    line.answer(Subscribed(()))
    session.unsubscribe([("c_d", "*")])
    line.answer(Unsubscribed(()))
    push, ping = session.push(make("a_b", 1)), session.ping(5)
    line.said()

    (lost,) = session.disconnected()
    later = session.push(make("a_b", 2))

    assert (lost.ticket, type(lost.outcome)) == (push, OutcomeUnknown)
    assert line.connect() == []
    again = line.said()
    assert again[:2] == [Subscribe((Subscription("a_b", "data"),)), Ping(5)]
    assert isinstance(again[2], PushToMq)
    answers = line.answer(Subscribed(()), Pong(5), PushedToMq("t"))
    assert [answer.ticket for answer in answers] == [ping, later]


def test_what_the_server_refused_is_not_wanted_of_the_next_connection(line: Line) -> None:
    session = line.session
    session.subscribe([("a_b", "data")])
    line.answer(Subscribed(()))
    session.subscribe([("a_b", "data"), ("too_long", "*")])
    session.expect_answer(make("sum_it", 1))
    line.answer(Error("no"), Error("no"))
    line.said()

    session.disconnected()
    line.connect()

    assert line.said() == [Subscribe((Subscription("a_b", "data"),))]
    assert session.expect_answer(make("sum_it", 1)) is not None  # so it is asked for again


def test_what_was_refused_together_with_something_else_is_wanted_if_it_was_asked_for_again(line: Line) -> None:
    session = line.session
    session.subscribe([("a_b", "data"), ("too_long", "*")])
    session.subscribe([("a_b", "data")])
    line.answer(Error("no"), Subscribed(()))
    line.said()

    session.disconnected()
    line.connect()

    assert line.said() == [Subscribe((Subscription("a_b", "data"),))]


def test_what_was_refused_twice_is_not_wanted(line: Line) -> None:
    session = line.session
    for _ in range(2):
        session.subscribe([("too_long", "*")])
    line.answer(Error("no"), Error("no"))
    line.said()

    session.disconnected()
    line.connect()

    assert line.said() == []


def test_what_the_server_has_not_agreed_to_is_said_once_and_apart(line: Line) -> None:
    session = line.session
    session.subscribe([("a_b", "data")])
    line.answer(Subscribed(()))
    session.subscribe([("c_d", "data")])
    line.said()

    session.disconnected()
    line.connect()

    said = line.said()
    assert said == [Subscribe((Subscription("a_b", "data"),)), Subscribe((Subscription("c_d", "data"),))]
    line.answer(Subscribed(()), Error("no"), pushed(make("c_d", 1, type="data")))
    assert not session.inbox


def test_what_cannot_be_said_is_raised_and_nothing_else_suffers(line: Line) -> None:
    session = line.session
    with pytest.raises(BadField, match="UTF-8"):
        session.subscribe([("\udcff", "*")])
    with pytest.raises(BadField, match="UTF-8"):
        session.unsubscribe([("a_b", "\udcff")])
    with pytest.raises(TooLarge, match="16777216"):
        session.push(Post(read_tag("data:a_b:1::me"), bytes(MESSAGE_BYTES_MAX + 1)))  # encrypted, perhaps

    ticket = session.ping(1)

    assert line.said() == [Ping(1)]
    assert [answer.ticket for answer in line.answer(Pong(1))] == [ticket]


def test_what_was_not_said_when_the_connection_ended_is_not_in_doubt(line: Line) -> None:
    line.session.disconnected()
    ticket = line.session.push(make("a_b", 1))

    assert line.session.disconnected() == []
    line.connect()

    assert [answer.ticket for answer in line.answer(PushedToMq("t"))] == [ticket]


def test_the_answer_to_a_task_is_kept_apart_from_what_the_program_listens_to(line: Line) -> None:
    session = line.session
    task, other = make("sum_it", 1), make("sum_it", 2)
    assert session.expect_answer(task) is not None
    assert session.expect_answer(other) is None  # it is subscribed by now
    line.said()
    line.answer(Subscribed(()))

    line.answer(pushed(result_of(make("sum_it", 3), 3)), pushed(result_of(task, 1)), pushed(error_of(other, 500, "no")))

    assert session.awaited[task.id] is not None
    assert session.awaited[other.id].value() == {"code": 500, "message": "no"}  # type: ignore[union-attr]
    assert not session.inbox
    session.subscribe([("*", "result")])
    line.answer(Subscribed(()), pushed(result_of(make("sum_it", 3), 3)))
    assert len(session.inbox) == 1
    session.unsubscribe([("sum_it", "result")])
    assert line.said()[-1] == Unsubscribe(())  # the answers to come need it


def test_the_inbox_says_when_it_is_full(line: Line) -> None:
    line.session.subscribe([("*", "*")])
    line.answer(Subscribed(()))
    post = pushed(make("a_b", 1))

    line.answer(*[post] * INBOX_MAX)

    assert line.session.is_full


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("host:1", ("host:1", "/monique", False)),
        ("host", ("host:8080", "/monique", False)),
        ("[::1]", ("[::1]:8080", "/monique", False)),
        ("a:1, b:2", ("a:1,b:2", "/monique", False)),
        ("ws://host:9160/", ("host:9160", "/", False)),
        ("ws://host:9160", ("host:9160", "/", False)),
        ("ws://host/x/y", ("host:8080", "/x/y", False)),
        ("wss://host/x/y", ("host:8080", "/x/y", True)),
    ],
)
def test_addresses_are_split(address: str, expected: tuple[str, str, bool]) -> None:
    assert split_url(address) == expected


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(BadSettings, match="ws://HOST:PORT"):
        split_url("http://host:1/")


# --- posts ---


@pytest.mark.parametrize("encoding", ["JSON", "MessagePack"])
def test_a_post_is_packed_once_and_read_by_anybody(encoding: str) -> None:
    task = make("sum_it", {"a": [1, 2]}, encoding=encoding, creator="me", expires_in_s=5)  # type: ignore[arg-type]

    read = read_post(task.frames)

    assert (read.value(), read.spec, read.type, read.creator, read.pid) == ({"a": [1, 2]}, "sum_it", "config", "me", "")
    message = read.message()
    assert message.expires_at_ms == message.created_at_ms + 5000
    result = result_of(read, b"raw")
    assert (result.data, result.pid, result.answers(task), result.answers(result)) == (b"raw", task.id, True, False)
    error = error_of(task, ErrorCode.INPUT, "what?")
    assert (error.value(), error.answers(task)) == ({"code": 502, "message": "what?"}, True)


def test_what_cannot_be_sent_or_read_is_said() -> None:
    with pytest.raises(BadMessage, match="spec must be"):
        make("A B", 1)
    with pytest.raises(BadMessage, match="no tag"):
        make("a_b", 1, creator="a:b")
    with pytest.raises(BadField, match="MessagePack"):
        make("a_b", object(), encoding="MessagePack")
    with pytest.raises(BadTransfer):
        read_post([b"one"])
    with pytest.raises(BadEncoding, match="cannot be read as JSON"):
        make("a_b", b"{").value()


def test_value_in_messagepack_is_read_to_the_nanosecond_and_may_be_sent_on() -> None:
    at, key = msgpack.Timestamp(1_528_138_732, 123_456_789), msgspec.msgpack.Ext(5, b"\xaa")
    data = msgpack.packb({"at": at, "key": msgpack.ExtType(5, b"\xaa"), "raw": b"x", 7: "seven"})
    strange = make("a_b", data, encoding="MessagePack")

    value = strange.value()

    assert value == {"at": at, "key": key, "raw": b"x", 7: "seven"}
    assert make("a_b", value, encoding="MessagePack").data == data


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xd7\xff" + b"\xff" * 8, b"\xa1\xff"])
def test_value_that_is_no_good_messagepack_is_refused(data: bytes) -> None:
    with pytest.raises(BadEncoding, match=r"data:a_b:.* cannot be read as MessagePack"):
        make("a_b", data, type="data", encoding="MessagePack").value()


def test_example_of_the_document_whose_ids_are_bytes_is_answered_with_texts() -> None:
    task = read_post(PRINTED)

    answer = result_of(task, {"answer": 1})

    assert ids_as_bytes(task.packed) == ["id", "pid"]
    assert (task.message().id, answer.pid, answer.message().pid) == (task.id, task.id, task.id)
    assert ids_as_bytes(answer.packed) == []
    assert answer.answers(task)
