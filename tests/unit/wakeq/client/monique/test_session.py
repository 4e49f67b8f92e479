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

from wakeq.client.monique.posts import Post, error_of, make, read_post, result_of
from wakeq.client.monique.session import INBOX_MAX, Answer, Session, split_url
from wakeq.client.monique.websocket import WebSocket
from wakeq.client.session import NotReady, WrongProtocol
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
from wakeq.protocol.wire.monique.codec import FRAME_BYTES_MAX, decode, encode
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
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX, ids_as_bytes
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.websocket import BINARY, frame

# As in the document, id and pid are bytes.
PRINTED = (
    b"config:example_calculator:CunulYa0vipgCQ3KSTmXwt67Qn0=::0000-0000-0000-websocket-tester",
    bytes.fromhex(
        "89aa637265617465645f6174cf00000163cc2a922fa763726561746f72bf303030302d303030302d303030302d776562"
        "736f636b65742d746573746572a464617461c4267b226669727374223a362c227365636f6e64223a352e302c22616374"
        "696f6e223a222f227d0aa8656e636f64696e67a44a534f4eaa657870697265735f617400a26964c41c43756e756c5961"
        "30766970674351334b53546d5877743637516e303da3706964c400a473706563b26578616d706c655f63616c63756c61"
        "746f72a474797065a6636f6e666967"
    ),
)


# --- WebSocket ---


def accepting_server(request: bytes) -> tuple[ServerProtocol, bytes]:
    """Return a server that has accepted this handshake, and the bytes of its acceptance."""
    server = ServerProtocol()
    server.receive_data(request)
    (handshake_request,) = server.events_received()
    server.send_response(server.accept(handshake_request))  # type: ignore[arg-type]
    return server, b"".join(server.data_to_send())


def handshake() -> tuple[WebSocket, ServerProtocol, bytes]:
    """Return a connection, its server, and the server's acceptance, which the connection has not received yet."""
    socket = WebSocket("host:1", "/monique", {})
    return socket, *accepting_server(socket.bytes_to_send())


def frames_received(server: ServerProtocol, data: bytes) -> list[tuple[Opcode, bytes]]:
    """Return the frames that a server reads from these bytes."""
    server.receive_data(data)
    return [(event.opcode, bytes(event.data)) for event in server.events_received()]  # type: ignore[union-attr]


@given(st.lists(st.binary(max_size=300) | st.just(b"x" * 70_000), max_size=5), st.integers(1, 40))
def test_messages_survive_any_cut_of_the_stream(messages: list[bytes], step: int) -> None:
    socket, _, acceptance = handshake()
    wire = acceptance + b"".join(frame(BINARY, message) for message in messages)

    step = max(step, len(wire) // 500)
    got = [one for at in range(0, len(wire), step) for one in socket.receive(wire[at : at + step])]

    assert got == messages


@given(st.binary(max_size=200))
def test_garbage_raises_a_wakeq_error_or_nothing(data: bytes) -> None:
    for is_accepted in (False, True):
        socket, _, acceptance = handshake()
        with suppress(Disconnected, BrokerUnreachable, Unauthorized):
            socket.receive(acceptance * is_accepted + data)


def test_fragments_around_a_ping_become_one_message() -> None:
    socket, server, acceptance = handshake()

    got = socket.receive(acceptance + b"\x02\x02ab" + b"\x89\x01p" + b"\x00\x01c" + b"\x80\x01d")

    assert got == [b"abcd"]
    assert frames_received(server, socket.bytes_to_send()) == [(Opcode.PONG, b"p")]


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        # An extension that was not negotiated.
        (b"\xc2\x00", "no server sends"),
        # Masked.
        (b"\x82\x80mask", "no server sends"),
        # A continuation without a beginning.
        (b"\x80\x00", "unexpected continuation"),
        # A new message inside of another one.
        (b"\x02\x00\x82\x00", "expected a continuation"),
        (b"\x82\x7f" + bytes([0, 0, 0, 1, 0, 0, 0, 0]), f"limit .*{FRAME_BYTES_MAX}"),
        (b"\x88\x00", r"no reason \(1005\)"),
        (b"\x88\x07" + (1008).to_bytes(2, "big") + b"slow!", r"slow! \(1008\)"),
    ],
)
def test_forbidden_frames_end_the_connection(wire: bytes, words: str) -> None:
    socket, _, acceptance = handshake()

    with pytest.raises(Disconnected, match=words):
        socket.receive(acceptance + wire)


def refused(status: str, code: str) -> bytes:
    """Return the answer of wakeq to a handshake that it refuses."""
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
        # The acceptance of another handshake.
        (handshake()[2], WrongProtocol, "did not answer our handshake .*Sec-WebSocket-Accept"),
        (b'{"cmd":"nok"}\r\n\r\n', WrongProtocol, "^host:1 does not speak HTTP; MoniQue is at the HTTP port"),
        (b"x" * 100_000, WrongProtocol, "^host:1 does not speak HTTP; MoniQue is at the HTTP port"),
    ],
)
def test_refused_handshake_raises_the_reason(answer: bytes, error: type[Exception], words: str) -> None:
    def receive(step: int) -> None:
        socket, _, _ = handshake()
        for at in range(0, len(answer), step):
            socket.receive(answer[at : at + step])

    # The error does not depend on how the stream is cut.
    for step in (7, 100_000):
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


class Conversation:
    """A session and its server; the test passes the bytes between them."""

    def __init__(self) -> None:
        self.session = Session("/monique", cookies={"id": "me"})
        self._server = ServerProtocol()

    def connect(self) -> list[Answer]:
        self.session.connected("host:1")
        request = self.session.bytes_to_send()
        assert b"GET /monique HTTP/1.1\r\n" in request
        assert b"Cookie: id=me\r\n" in request
        self._server, acceptance = accepting_server(request)
        return self.session.receive(acceptance)

    def sent(self) -> list[Command | Bad]:
        """Return the commands that the client has sent since the last call."""
        frames = frames_received(self._server, self.session.bytes_to_send())
        assert all(opcode is Opcode.BINARY for opcode, _ in frames)
        return decode([payload for _, payload in frames])

    def answer(self, *replies: Reply) -> list[Answer]:
        return self.session.receive(b"".join(frame(BINARY, payload) for payload in encode(replies)))


@pytest.fixture
def conversation() -> Conversation:
    made = Conversation()
    made.connect()
    return made


def pushed(post: Post) -> PushedFromMq:
    return PushedFromMq(Tagged(post.packed, post.tag.text))


def test_answers_find_their_commands_in_order(conversation: Conversation) -> None:
    session = conversation.session
    post = make("a_b", 1, type="data")
    first, second, third = session.ping(5), session.subscribe([("a_b", "data")]), session.push(post)

    assert conversation.sent() == [
        Ping(5),
        Subscribe((Subscription("a_b", "data"),)),
        PushToMq(Tagged(post.packed, post.tag.text)),
    ]
    answers = conversation.answer(Pong(5), Subscribed(()), pushed(post), Error("no"))

    assert [answer.ticket for answer in answers] == [first, second, third]
    assert isinstance(answers[2].outcome, Refused)
    assert list(session.inbox) == [post]


def test_answer_to_abandoned_command_is_skipped(conversation: Conversation) -> None:
    first, second = conversation.session.ping(1), conversation.session.ping(2)
    conversation.session.abandon(first)

    assert [answer.ticket for answer in conversation.answer(Pong(1), Pong(2))] == [second]
    with pytest.raises(WrongProtocol, match="an answer to no command"):
        conversation.answer(Pong(3))


def test_new_connection_restates_subscriptions_and_repeats_commands(conversation: Conversation) -> None:
    session = conversation.session
    session.subscribe([("a_b", "data"), ("c_d", "*")])
    conversation.answer(Subscribed(()))
    session.unsubscribe([("c_d", "*")])
    conversation.answer(Unsubscribed(()))
    push, ping = session.push(make("a_b", 1)), session.ping(5)
    conversation.sent()

    (lost,) = session.disconnected()
    later = session.push(make("a_b", 2))

    assert (lost.ticket, type(lost.outcome)) == (push, OutcomeUnknown)
    assert conversation.connect() == []
    again = conversation.sent()
    assert again[:2] == [Subscribe((Subscription("a_b", "data"),)), Ping(5)]
    assert isinstance(again[2], PushToMq)
    answers = conversation.answer(Subscribed(()), Pong(5), PushedToMq("t"))
    assert [answer.ticket for answer in answers] == [ping, later]


def test_refused_subscription_is_not_restated(conversation: Conversation) -> None:
    session = conversation.session
    session.subscribe([("a_b", "data")])
    conversation.answer(Subscribed(()))
    session.subscribe([("a_b", "data"), ("too_long", "*")])
    session.expect_answer(make("sum_it", 1))
    conversation.answer(Error("no"), Error("no"))
    conversation.sent()

    session.disconnected()
    conversation.connect()

    assert conversation.sent() == [Subscribe((Subscription("a_b", "data"),))]
    # The subscription is asked for again.
    assert session.expect_answer(make("sum_it", 1)) is not None


def test_refused_subscription_is_kept_if_a_later_command_succeeds(conversation: Conversation) -> None:
    session = conversation.session
    session.subscribe([("a_b", "data"), ("too_long", "*")])
    session.subscribe([("a_b", "data")])
    conversation.answer(Error("no"), Subscribed(()))
    conversation.sent()

    session.disconnected()
    conversation.connect()

    assert conversation.sent() == [Subscribe((Subscription("a_b", "data"),))]


def test_subscription_refused_twice_is_not_restated(conversation: Conversation) -> None:
    session = conversation.session
    for _ in range(2):
        session.subscribe([("too_long", "*")])
    conversation.answer(Error("no"), Error("no"))
    conversation.sent()

    session.disconnected()
    conversation.connect()

    assert conversation.sent() == []


def test_unconfirmed_subscription_is_sent_once_and_apart(conversation: Conversation) -> None:
    session = conversation.session
    session.subscribe([("a_b", "data")])
    conversation.answer(Subscribed(()))
    session.subscribe([("c_d", "data")])
    conversation.sent()

    session.disconnected()
    conversation.connect()

    commands = conversation.sent()
    assert commands == [Subscribe((Subscription("a_b", "data"),)), Subscribe((Subscription("c_d", "data"),))]
    conversation.answer(Subscribed(()), Error("no"), pushed(make("c_d", 1, type="data")))
    assert not session.inbox


def test_subscription_that_cannot_be_encoded_is_refused_alone(conversation: Conversation) -> None:
    session = conversation.session
    with pytest.raises(BadField, match="UTF-8"):
        session.subscribe([("\udcff", "*")])
    with pytest.raises(BadField, match="UTF-8"):
        session.unsubscribe([("a_b", "\udcff")])
    with pytest.raises(TooLarge, match="16777216"):
        # The message may be encrypted.
        session.push(Post(read_tag("data:a_b:1::me"), bytes(MESSAGE_BYTES_MAX + 1)))

    ticket = session.ping(1)

    assert conversation.sent() == [Ping(1)]
    assert [answer.ticket for answer in conversation.answer(Pong(1))] == [ticket]


def test_unsent_message_is_not_in_doubt_after_a_lost_connection(conversation: Conversation) -> None:
    conversation.session.disconnected()
    ticket = conversation.session.push(make("a_b", 1))

    assert conversation.session.disconnected() == []
    conversation.connect()

    assert [answer.ticket for answer in conversation.answer(PushedToMq("t"))] == [ticket]


def test_answer_to_a_task_stays_out_of_the_inbox(conversation: Conversation) -> None:
    session = conversation.session
    task, other = make("sum_it", 1), make("sum_it", 2)
    assert session.expect_answer(task) is not None
    # The subscription exists already.
    assert session.expect_answer(other) is None
    conversation.sent()
    conversation.answer(Subscribed(()))

    conversation.answer(
        pushed(result_of(make("sum_it", 3), 3)), pushed(result_of(task, 1)), pushed(error_of(other, 500, "no"))
    )

    assert session.awaited[task.id] is not None
    assert session.awaited[other.id].value() == {"code": 500, "message": "no"}  # type: ignore[union-attr]
    assert not session.inbox
    session.subscribe([("*", "result")])
    conversation.answer(Subscribed(()), pushed(result_of(make("sum_it", 3), 3)))
    assert len(session.inbox) == 1
    session.unsubscribe([("sum_it", "result")])
    # The subscription is still needed for answers.
    assert conversation.sent()[-1] == Unsubscribe(())


def test_full_inbox_is_reported(conversation: Conversation) -> None:
    conversation.session.subscribe([("*", "*")])
    conversation.answer(Subscribed(()))
    post = pushed(make("a_b", 1))

    conversation.answer(*[post] * INBOX_MAX)

    assert conversation.session.is_full


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
        # What WAKEQ_HTTP may be.
        ("http://host:1/", ("host:1", "/monique", False)),
        ("https://a:1/, https://b", ("a:1,b:8080", "/monique", True)),
    ],
)
def test_address_is_split_into_hosts_path_and_tls(address: str, expected: tuple[str, str, bool]) -> None:
    assert split_url(address) == expected


def test_address_with_other_scheme_is_refused() -> None:
    with pytest.raises(BadSettings, match="ws://HOST:PORT"):
        split_url("ftp://host:1/")


# --- posts ---


@pytest.mark.parametrize("encoding", ["JSON", "MessagePack"])
def test_post_is_packed_once_and_read_back(encoding: str) -> None:
    task = make("sum_it", {"a": [1, 2]}, encoding=encoding, creator="me", expires_in_s=5)  # type: ignore[arg-type]

    read = read_post(task.frames)

    assert (read.value(), read.spec, read.type, read.creator, read.pid) == ({"a": [1, 2]}, "sum_it", "config", "me", "")
    message = read.message()
    assert message.expires_at_ms == message.created_at_ms + 5000
    result = result_of(read, b"raw")
    assert (result.data, result.pid, result.answers(task), result.answers(result)) == (b"raw", task.id, True, False)
    error = error_of(task, ErrorCode.INPUT, "what?")
    assert (error.value(), error.answers(task)) == ({"code": 502, "message": "what?"}, True)


def test_post_that_cannot_be_sent_or_read_raises_an_error() -> None:
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


def test_messagepack_value_is_read_to_the_nanosecond_and_can_be_sent_on() -> None:
    at, key = msgpack.Timestamp(1_528_138_732, 123_456_789), msgspec.msgpack.Ext(5, b"\xaa")
    data = msgpack.packb({"at": at, "key": msgpack.ExtType(5, b"\xaa"), "raw": b"x", 7: "seven"})
    strange = make("a_b", data, encoding="MessagePack")

    value = strange.value()

    assert value == {"at": at, "key": key, "raw": b"x", 7: "seven"}
    assert make("a_b", value, encoding="MessagePack").data == data


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xd7\xff" + b"\xff" * 8, b"\xa1\xff"])
def test_malformed_messagepack_value_is_refused(data: bytes) -> None:
    with pytest.raises(BadEncoding, match=r"data:a_b:.* cannot be read as MessagePack"):
        make("a_b", data, type="data", encoding="MessagePack").value()


def test_example_with_ids_as_bytes_is_answered_with_texts() -> None:
    task = read_post(PRINTED)

    answer = result_of(task, {"answer": 1})

    assert ids_as_bytes(task.packed) == ["id", "pid"]
    assert (task.message().id, answer.pid, answer.message().pid) == (task.id, task.id, task.id)
    assert ids_as_bytes(answer.packed) == []
    assert answer.answers(task)
