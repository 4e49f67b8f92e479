"""The golden bytes of MoniQue: every frame, message, transfer and match of tests/vectors, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from wakeq.protocol.wire.monique.codec import decode, decode_replies, encode
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
    Unsubscribed,
)
from wakeq.protocol.wire.monique.errors import BadMessage, BadTag, BadTransfer
from wakeq.protocol.wire.monique.exchange import Exchange, Subscription
from wakeq.protocol.wire.monique.kills import killed
from wakeq.protocol.wire.monique.messages import (
    Message,
    check_for_components,
    decode_message,
    encode_message,
    ids_as_bytes,
    tag_of,
)
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.tasks import draft_of, headers_of, task_transfer_of
from wakeq.protocol.wire.monique.transfers import read_transfer, transfer_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "monique.json").read_text())
WEBSOCKET = {vector["name"]: vector for vector in VECTORS["websocket"]}
MESSAGES = [vector for vector in WEBSOCKET.values() if vector["direction"].startswith("inside")]
GOOD_FROM_CLIENT = [
    vector
    for vector in WEBSOCKET.values()
    if vector["direction"] == "client->server" and not vector["name"].startswith("bad_")
]
FROM_SERVER = [vector for vector in WEBSOCKET.values() if vector["direction"] == "server->client"]
ZEROMQ = {vector["name"]: vector for vector in VECTORS["zeromq"]}
IDS = json.loads((Path(__file__).parents[1] / "vectors" / "monique_ids.json").read_text())["transfers"]
WRAPPED_TWICE = "printed_pushed_from_mq"


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def plain(value: Any) -> Any:
    """Return a value as the vectors describe it: bytes and long integers stand there as maps."""
    match value:
        case {"bin_hex": hexed}:
            return bytes.fromhex(hexed)
        case {"int": text}:
            return int(text)
        case _:
            return value


def frame_of(decoded: dict[str, Any]) -> Any:
    """Return the frame that a vector describes."""
    if "error" in decoded:
        return Error(decoded["error"])
    data = decoded["data"]
    match decoded["command"]:
        case "ping":
            return Ping(plain(data))
        case "pong":
            return Pong(plain(data))
        case "pushed_to_mq":
            return PushedToMq(plain(data))
        case "push_to_mq":
            return PushToMq(Tagged(plain(data["message"]), plain(data["tag"])))
        case "pushed_from_mq":
            return PushedFromMq(Tagged(plain(data["message"]), plain(data["tag"])))
        case command:
            kinds = {
                "subscribe": Subscribe,
                "subscribed": Subscribed,
                "unsubscribe": Unsubscribe,
                "unsubscribed": Unsubscribed,
            }
            return kinds[command](tuple(Subscription(**pair) for pair in data))


def message_of(decoded: dict[str, Any]) -> Message:
    """Return the message that a vector describes, its ids as text."""
    fields = {name: plain(value) for name, value in decoded.items()}
    for name in ("id", "pid"):
        if isinstance(fields[name], bytes):
            fields[name] = fields[name].decode()
    return Message(created_at_ms=fields.pop("created_at"), expires_at_ms=fields.pop("expires_at"), **fields)


def frames_of(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(hexed) for hexed in vector["frames_hex"]]


def test_vectors_are_complete() -> None:
    assert {name: len(part) for name, part in VECTORS.items() if isinstance(part, list)} == {
        "websocket": 20,
        "zeromq": 7,
        "zeromq_bad": 8,
        "subscription_matching": 8,
    }


# --- frames ---


@pytest.mark.parametrize("vector", GOOD_FROM_CLIENT, ids=name_of)
def test_golden_client_frame_is_read_and_written_byte_by_byte(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["hex"])

    commands = decode([frame])

    assert commands == [frame_of(vector["decoded"])]
    assert encode(command for command in commands if not isinstance(command, Bad)) == [frame]


@pytest.mark.parametrize("vector", [v for v in FROM_SERVER if v["name"] != WRAPPED_TWICE], ids=name_of)
def test_golden_server_frame_is_read_and_written_byte_by_byte(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["hex"])

    replies = decode_replies([frame])

    assert replies == [frame_of(vector["decoded"])]
    assert encode(replies) == [frame]


def test_tag_that_is_wrapped_twice_is_read_and_never_written() -> None:
    vector = WEBSOCKET[WRAPPED_TWICE]

    (reply,) = decode_replies([bytes.fromhex(vector["hex"])])

    assert isinstance(reply, PushedFromMq)
    assert reply.data.tag == (
        "result:example_calculator:aoH9WCyq+2sFRg40WxRWByfVcBE=:VJuujbbNlNQ0d/xqCvv2E11Orw0=:0000-0000-0000-calculator"
    )
    assert reply.data.message == plain(vector["decoded"]["data"]["message"])
    assert decode_replies(encode([reply])) == [reply]
    assert b"\xc4\x6f\xc4\x6d" not in encode([reply])[0]


@pytest.mark.parametrize("vector", [v for v in WEBSOCKET.values() if v["name"].startswith("bad_")], ids=name_of)
def test_golden_bad_frame_is_refused(vector: dict[str, Any]) -> None:
    (bad,) = decode([bytes.fromhex(vector["hex"])])

    assert isinstance(bad, Bad)
    assert not bad.error.closes


def test_golden_errors_answer_their_causes() -> None:
    unknown, pong = (bytes.fromhex(WEBSOCKET[name]["hex"]) for name in ("bad_unknown_command", "printed_pong"))

    errors = [Error(str(bad.error)) for bad in decode([unknown, pong]) if isinstance(bad, Bad)]

    assert [frame.hex() for frame in encode(errors)] == [
        WEBSOCKET["error_unknown_message"]["hex"],
        WEBSOCKET["error_pong_from_client"]["hex"],
    ]


# --- messages ---


@pytest.mark.parametrize("vector", MESSAGES, ids=name_of)
def test_printed_message_is_read_with_its_old_ids_as_text(vector: dict[str, Any]) -> None:
    message = decode_message(bytes.fromhex(vector["hex"]))

    assert message == message_of(vector["decoded"])
    assert isinstance(message.id, str)
    assert decode_message(encode_message(message)) == message


def test_first_byte_as_printed_without_its_digit_is_refused() -> None:
    """The specification prints 9 for 89; as it stands the byte is a number, and the reader does not guess the digit."""
    vector = WEBSOCKET["printed_message_config"]
    assert vector["printed"].startswith("9 ")

    with pytest.raises(BadMessage):
        decode_message(b"\x09" + bytes.fromhex(vector["hex"])[1:])


@pytest.mark.parametrize("vector", ZEROMQ.values(), ids=name_of)
def test_golden_transfer_is_read_and_written(vector: dict[str, Any]) -> None:
    transfer = read_transfer(frames_of(vector))
    message = decode_message(transfer.message)

    assert list(transfer.frames) == frames_of(vector)
    assert transfer.tag == read_tag(vector["decoded"]["tag"]) == tag_of(message)
    assert message == message_of(vector["decoded"]["message"])
    check_for_components(transfer.message)


@pytest.mark.parametrize("vector", IDS, ids=name_of)
def test_message_keeps_its_form_of_ids_byte_by_byte(vector: dict[str, Any]) -> None:
    transfer = read_transfer(frames_of(vector))
    message = decode_message(transfer.message)
    old = ids_as_bytes(transfer.message)
    draft = draft_of(transfer, now_ms=0)
    assert draft is not None

    assert old == vector["ids_as_bytes"]
    assert transfer.tag == tag_of(message)
    assert encode_message(message, old) == transfer.message
    assert task_transfer_of(draft.body, headers_of(draft.headers)) == transfer
    check_for_components(transfer.message)


@pytest.mark.parametrize("vector", [v for v in ZEROMQ.values() if v["frames_hex"][1].startswith("89aa")], ids=name_of)
def test_message_with_sorted_keys_is_written_byte_by_byte(vector: dict[str, Any]) -> None:
    message = message_of(vector["decoded"]["message"])

    assert list(transfer_of(message).frames) == frames_of(vector)


def test_golden_messages_include_sorted_and_unsorted_keys() -> None:
    """Otherwise the test above would prove nothing."""
    orders = [list(vector["decoded"]["message"]) for vector in ZEROMQ.values()]

    assert 0 < sum(order == sorted(order) for order in orders) < len(orders)


@pytest.mark.parametrize("vector", VECTORS["zeromq_bad"], ids=name_of)
def test_golden_bad_transfer_is_refused_with_its_number(vector: dict[str, Any]) -> None:
    expected = BadTag if vector["expect"].endswith("201") else BadTransfer

    with pytest.raises(expected) as refused:
        read_transfer(frames_of(vector))

    assert str(int(refused.value.number)) == vector["expect"].split()[-1]


def test_golden_kill_makes_the_golden_error() -> None:
    expected = ZEROMQ["killed_error_from_scheduler"]
    fresh = message_of(expected["decoded"]["message"])

    told = killed(read_transfer(frames_of(ZEROMQ["kill"])), id=fresh.id, now_ms=fresh.created_at_ms)

    assert list(told.frames) == frames_of(expected)


# --- subscriptions ---


@pytest.mark.parametrize("vector", VECTORS["subscription_matching"], ids=lambda v: "-".join(v["subscription"].values()))
def test_golden_subscription_matches_or_not(vector: dict[str, Any]) -> None:
    exchange = Exchange[str]()
    exchange.subscribe("x", [Subscription(**vector["subscription"])])
    tag = read_tag(vector["tag"])

    assert exchange.subscribers(tag.spec, tag.type) == (["x"] if vector["matches"] else [])


def test_printed_tag_has_its_fields() -> None:
    tag = read_tag(b"config:example_calculator:CunulYa0vipgCQ3KSTmXwt67Qn0=::0000-0000-0000-websocket-tester")

    assert asdict(tag) == {
        "type": "config",
        "spec": "example_calculator",
        "id": "CunulYa0vipgCQ3KSTmXwt67Qn0=",
        "pid": "",
        "creator": "0000-0000-0000-websocket-tester",
    }
