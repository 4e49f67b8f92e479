"""The worker protocol's codec: golden frames, what real clients send, extensions, replies."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.clients.decoded import one, refusal
from wakeq.protocol.errors import BadJson, NotLeader, QueueNotFound
from wakeq.protocol.wire.worker.codec import (
    Ack,
    Awk,
    Bad,
    Command,
    Content,
    Create,
    Del,
    Delivery,
    Fet,
    Hello,
    Item,
    Msg,
    Msgs,
    Nack,
    Nok,
    Nomsg,
    Ok,
    Okack,
    Okslp,
    Oksub,
    Peek,
    Ping,
    Pub,
    Sub,
    Touch,
    Update,
    body_of,
    bytes_of,
    contents_of,
    decode,
    decode_replies,
    encode,
    encode_commands,
    encode_frames,
    followup_content,
    nok,
    policies_of,
    text_of,
)

VECTORS = json.loads((Path(__file__).parents[4] / "vectors" / "worker.json").read_text())
CLIENT_FRAMES = [frame for frame in VECTORS["frames"] if frame["direction"] == "client->server"]
SERVER_FRAMES = [frame for frame in VECTORS["frames"] if frame["direction"] == "server->client"]


# --- golden frames ---


@pytest.mark.parametrize("frame", CLIENT_FRAMES, ids=lambda frame: frame["name"])
def test_golden_frame_of_a_client_is_obeyed_or_refused_as_it_must(frame: dict[str, str]) -> None:
    command = one(frame["text"])

    assert isinstance(command, Bad) == (frame["note"] == "nok")


@pytest.mark.parametrize("frame", SERVER_FRAMES, ids=lambda frame: frame["name"])
def test_golden_frame_of_the_server_is_read_and_written_the_same(frame: dict[str, str]) -> None:
    replies = decode_replies(frame["text"].encode() + b"\n")

    assert encode(replies) == frame["text"].encode() + b"\n"


@pytest.mark.parametrize("step", [step for session in VECTORS["sessions"] for step in session["steps"]])
def test_steps_of_the_golden_sessions_are_understood(step: dict[str, Any]) -> None:
    line = json.dumps(step["message"]).encode() + b"\n"

    if step["direction"] == "client->server":
        assert not isinstance(decode(line)[0], Bad)
    else:
        assert len(decode_replies(line)) == 1


# --- what real clients send ---


def test_javascript_clients_publish_is_a_message_that_never_expires() -> None:
    pub = one('{"qname":"test1","msg":"hi","cmd":"PUB","delay":0,"expires":0}')

    assert pub == Pub("test1", msg="hi")
    assert contents_of(pub) == [Content(b"hi")]


def test_message_wins_over_msg() -> None:
    assert body_of(one('{"cmd":"PUB","qname":"q","msg":"loses","message":"wins"}')) == b"wins"


def test_empty_message_is_a_message() -> None:
    assert body_of(one('{"cmd":"PUB","qname":"","message":""}')) == b""


def test_unknown_fields_are_ignored_at_every_level() -> None:
    assert one('{"cmd":"FET","qname":"q","later":{"a":[1]}}') == Fet("q")
    assert one('{"cmd":"PUB","qname":"q","messages":[{"msg":"a","later":1}]}').messages == [Item(msg="a")]
    assert one('{"cmd":"CREATE","qname":"q","retry":{"later":1}}').retry.backoff == "fixed"


def test_last_of_duplicate_keys_wins() -> None:
    assert one('{"cmd":"FET","qname":"a","qname":"b"}') == Fet("b")
    assert one('{"cmd":"FET","qname":"a","cmd":"SUB"}') == Sub("a")


def test_null_stands_for_an_optional_field_that_has_no_value() -> None:
    assert one('{"cmd":"PUB","qname":"q","message":"a","timeout":null,"headers":null}') == Pub("q", "a")


def test_carriage_returns_and_blank_lines_between_commands_are_no_commands() -> None:
    lines = b'\r\n{"cmd":"PING"}\r\n\n   \n{"cmd":"FET","qname":"q"}\r\n'

    assert decode(lines) == [Ping(), Fet("q")]


def test_object_over_two_lines_is_two_bad_lines_however_it_arrives() -> None:
    together = decode(b'{"cmd":\n"PING"}\n')
    apart = decode(b'{"cmd":\n') + decode(b'"PING"}\n')

    assert [type(command) for command in together] == [type(command) for command in apart] == [Bad, Bad]


def test_line_with_two_objects_is_refused() -> None:
    good, bad = decode(b'{"cmd":"PING"}\n{"cmd":"PING"}{"cmd":"PING"}\n')

    assert good == Ping()
    assert isinstance(bad, Bad)


def test_bad_line_does_not_hurt_its_neighbours() -> None:
    lines = b'{"cmd":"PUB","qname":"q","msg":"1"}\nrubbish\n{"cmd":"PUB","qname":"q","msg":"2"}\n'

    first, bad, second = decode(lines)

    assert (first, second) == (Pub("q", msg="1"), Pub("q", msg="2"))
    assert isinstance(bad, Bad)


@pytest.mark.parametrize("named", [Fet, partial(Pub, message="a"), partial(Ack, uid="u"), Sub])
def test_bad_queue_name_does_not_hurt_its_neighbours(named: Callable[[str], Command]) -> None:
    first, bad, second = decode(encode_commands([named("q"), named("q q"), named("q")]))

    assert first == second == named("q")
    assert isinstance(bad, Bad)
    assert bad.error.code == "BAD_NAME"


# --- cmd_id ---


@pytest.mark.parametrize("value", ['"a"', "5", "-1", "1.5", "true", "null", '""', str(2**63 - 1)])
def test_cmd_id_comes_back_as_it_was(value: str) -> None:
    command = one('{"cmd":"FET","qname":"q","cmd_id":' + value + "}")

    assert encode([Nomsg("q", cmd_id=command.cmd_id)]).decode() == (
        '{"cmd":"nomsg","qname":"q","cmd_id":' + value + "}\n"
    )


def test_cmd_id_comes_back_from_a_command_that_was_refused() -> None:
    for text in (
        '{"cmd":"PUB","cmd_id":7}',
        '{"cmd":"?","cmd_id":7}',
        '{"cmd":"FET","qname":" ","cmd_id":7}',
    ):
        assert one(text).cmd_id == 7


def test_reply_to_a_command_without_cmd_id_has_none() -> None:
    assert encode([Okslp("q", cmd_id=one('{"cmd":"ISLP","qname":"q"}').cmd_id)]) == (b'{"cmd":"okslp","qname":"q"}\n')


# --- extensions ---


def test_items_of_a_batch_take_missing_fields_from_the_publish() -> None:
    pub = one(
        '{"cmd":"PUB","qname":"q","delay":5,"priority":-20,"headers":{"a":"b"},'
        '"messages":["x",{"msg":"y","delay":0,"priority":20,"timeout":30}]}'
    )

    assert contents_of(pub) == [
        Content(b"x", None, 5, 0, -20, {"a": "b"}),
        Content(b"y", 30, 0, 0, 20, {"a": "b"}),
    ]


def test_bodies_in_base64_come_in_as_bytes() -> None:
    assert body_of(one('{"cmd":"PUB","qname":"q","msg":"/wA=","enc":"b64"}')) == b"\xff\0"
    batch = one('{"cmd":"PUB","qname":"q","messages":["/wA=",{"msg":"YQ=="}],"enc":"b64"}')
    assert [content.body for content in contents_of(batch)] == [b"\xff\0", b"a"]


def test_bytes_that_are_no_text_go_out_as_base64_and_come_back() -> None:
    msg, enc = text_of(b"\xff\0")

    (line,) = encode_frames([Msg("q", "u", 0, msg, enc)])
    (reply,) = decode_replies(line)

    assert b'"enc":"b64"' in line
    assert isinstance(reply, Msg)
    assert bytes_of(reply) == b"\xff\0"


def test_del_is_an_ack() -> None:
    command = one('{"cmd":"DEL","qname":"q","uid":"u","lease":"1:2"}')

    assert isinstance(command, Ack)
    assert command == Del("q", "u", "1:2")


def test_ack_may_publish() -> None:
    ack = one('{"cmd":"ACK","qname":"q","uid":"u","publish":[{"qname":"p","message":"m","delay":3}]}')

    assert [(part.qname, followup_content(part)) for part in ack.publish] == [("p", Content(b"m", delay=3))]


def test_nack_of_several_takes_a_lease_for_each() -> None:
    assert one('{"cmd":"NACK","qname":"q","uids":["a","b"],"leases":["1:1",null],"delay":5}') == Nack(
        "q", uids=["a", "b"], leases=["1:1", None], delay=5
    )
    assert one('{"cmd":"TOUCH","qname":"q","uid":"a","timeout":60}') == Touch("q", "a", timeout=60)


def test_long_error_of_a_nack_is_cut_not_refused() -> None:
    nack = one(json.dumps({"cmd": "NACK", "qname": "q", "uid": "u", "error": "e" * 5000}))

    assert nack.error == "e" * 1000


def test_nack_may_be_no_failure_or_for_good() -> None:
    assert one('{"cmd":"NACK","qname":"q","uid":"u","failed":false,"delay":3}') == Nack("q", "u", delay=3, failed=False)
    assert one('{"cmd":"NACK","qname":"q","uid":"u","dead":true,"error":"e"}') == Nack("q", "u", error="e", dead=True)
    assert one('{"cmd":"NACK","qname":"q","uid":"u","failed":true,"dead":false}') == Nack("q", "u")
    assert encode_commands([Nack("q", "u")]) == b'{"cmd":"NACK","qname":"q","uid":"u"}\n'


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ('"dead":true,"delay":0', "give delay or dead, not both"),
        ('"dead":true,"failed":false', "give dead or failed false, not both"),
        ('"exhausted":true', "exhausted is the reason"),
        ('"dead":null', "dead must be true or false, not null"),
        ('"failed":"no"', "failed must be true or false, not text"),
    ],
)
def test_nack_that_contradicts_itself_is_refused(fields: str, why: str) -> None:
    code, detail = refusal(f'{{"cmd":"NACK","qname":"q","uid":"u",{fields}}}')

    assert code == "BAD_FIELD"
    assert detail.startswith(why)


def test_update_tells_apart_unchanged_and_back_to_default() -> None:
    update = one('{"cmd":"UPDATE","qname":"q","max_size":null,"wake":"ready","dead_letter":""}')

    assert isinstance(update, Update)
    assert policies_of(update) == {"max_size": None, "wake": "ready", "dead_letter": ""}


def test_create_takes_every_policy() -> None:
    given = {
        "max_size": 10, "max_bytes": 1000, "max_message_size": 100, "priority_min": -20, "priority_max": 20,
        "structure": "QA", "timeout": 30, "max_deliveries": 5, "dead_letter": "q.dead", "wake": "all",
        "lease": "strict", "on_disconnect": "release",
    }  # fmt: skip
    retry = {"backoff": "exponential", "base": 1, "max": 60.5, "jitter": 0.1}

    create = one(json.dumps({"cmd": "CREATE", "qname": "q", "retry": retry, **given}))

    assert isinstance(create, Create)
    policies = policies_of(create)
    assert (policies["retry"].backoff, policies["retry"].max) == ("exponential", 60.5)
    assert {name: policies[name] for name in given} == given


def test_defaults_of_the_small_commands() -> None:
    assert one('{"cmd":"PEEK","qname":"q"}') == Peek("q", 10, "ready")
    assert one('{"cmd":"FET","qname":"q"}') == Fet("q", None, 0.0)
    assert one('{"cmd":"HELLO"}') == Hello()
    assert one('{"cmd":"LIST"}').prefix == ""
    assert one('{"cmd":"STATS"}').qname is None


# --- replies ---


def test_error_count_is_always_in_a_message() -> None:
    assert encode([Msgs("q", [Delivery("u", 0, "a")])]) == (
        b'{"cmd":"msgs","qname":"q","messages":[{"uid":"u","error_count":0,"msg":"a"}]}\n'
    )


def test_failures_are_encoded_only_when_they_are_given() -> None:
    assert encode([Msg("q", "u", 2, "a", failures=0), Msgs("q", [Delivery("u", 2, "a", failures=1)])]) == (
        b'{"cmd":"msg","qname":"q","uid":"u","error_count":2,"msg":"a","failures":0}\n'
        b'{"cmd":"msgs","qname":"q","messages":[{"uid":"u","error_count":2,"msg":"a","failures":1}]}\n'
    )


def test_known_is_encoded_only_when_it_is_false() -> None:
    assert encode([Okack(uid="u", qname=""), Okack(uid="u", qname="", known=False)]) == (
        b'{"cmd":"okack","uid":"u","qname":""}\n{"cmd":"okack","uid":"u","qname":"","known":false}\n'
    )


def test_refusal_becomes_a_nok_with_its_code_and_where_to_go() -> None:
    elsewhere = NotLeader("not the leader")
    elsewhere.leader = "10.0.0.2:2601"  # type: ignore[attr-defined]

    assert nok(QueueNotFound()) == Nok("Q_NOT_FOUND")
    assert nok(elsewhere, cmd_id=1) == Nok("NOT_LEADER", "not the leader", "10.0.0.2:2601", cmd_id=1)


def test_reader_accepts_an_error_count_in_quotes_and_replies_it_does_not_know() -> None:
    lines = (
        b'{"cmd":"msg","qname":"q","uid":"u","error_count":"2","msg":"a","later":1}\n'
        b'{"cmd":"later"}\n{"cmd":"awk","qname":"q"}\n'
    )

    assert decode_replies(lines) == [Msg("q", "u", 2, "a"), Awk("q")]


def test_reader_refuses_a_line_that_is_no_reply() -> None:
    for line in (b"rubbish\n", b'{"cmd":"msg"}\n', b"[1]\n"):
        with pytest.raises(BadJson):
            decode_replies(line)


def test_replies_are_lines_in_one_write() -> None:
    assert encode([Ok("q", "u"), Oksub("q")]) == (b'{"cmd":"ok","qname":"q","uid":"u"}\n{"cmd":"oksub","qname":"q"}\n')
