"""What the worker protocol's codec refuses, and in which plain words."""

import json
import tracemalloc

import msgspec
import pytest

from tests.helpers.clients.decoded import one, refusal
from wakeq.protocol.errors import BY_CODE
from wakeq.protocol.wire.worker.codec import Hello
from wakeq.protocol.wire.worker.commands import Item, Recurring, Retry
from wakeq.protocol.wire.worker.refusals import LONG_BYTES, VALUES_MAX, decode_alone


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('{"cmd":', "BAD_JSON", "ends too early"),
        ("[1]", "BAD_JSON", "object"),
        ("null", "BAD_JSON", "object"),
        ('{"cmd":"FET","qname":"q","x":NaN}', "BAD_JSON", "invalid character"),
        ('{"cmd":"FET","qname":"q","x":Infinity}', "BAD_JSON", "invalid character"),
        ('{"cmd":"FET","qname":"q","x":-Infinity}', "BAD_JSON", "invalid character"),
        ('{"cmd":"FET","qname":"q","x":1e400}', "BAD_JSON", "out of range"),
        ('{"cmd":"FET","qname":"q","x":"\\ud800"}', "BAD_JSON", "not JSON"),
        ('{"cmd":"PUB","qname":"q","msg":"\\udc00 x y z"}', "BAD_JSON", "not JSON"),
        (b'{"cmd":"PUB","qname":"q","msg":"\xff"}', "BAD_JSON", "UTF-8"),
        (b'{"cmd":"FET","qname":"q","x":"\xff"}', "BAD_JSON", "UTF-8"),
        ('{"cmd":"FET","qname":"q","x":' + "[" * 32 + "]" * 32 + "}", "BAD_JSON", "deeper than 32"),
        ('{"cmd":"FET","qname":"q","x":' + "[" * 100_000, "BAD_JSON", ""),
        ('{"qname":"q"}', "BAD_COMMAND", "cmd is missing"),
        ('{"cmd":5}', "BAD_COMMAND", "cmd must be text"),
        ('{"cmd":"XYZ\\n"}', "BAD_COMMAND", "'XYZ\\n'"),
        ('{"cmd":"fet","qname":"q"}', "BAD_COMMAND", "FET"),
        ('{"cmd":"FET"}', "BAD_FIELD", "qname is missing"),
        ('{"cmd":"FET","qname":5}', "BAD_FIELD", "qname must be text, not a whole number"),
        ('{"cmd":"PUB","qname":"q"}', "BAD_FIELD", "message is missing"),
        ('{"cmd":"PUB","qname":"q","message":5}', "BAD_FIELD", "message must be text"),
        ('{"cmd":"PUB","qname":"q","message":null}', "BAD_FIELD", "message is missing"),
        ('{"cmd":"PUB","qname":"q","message":"a","messages":["b"]}', "BAD_FIELD", "not both"),
        ('{"cmd":"PUB","qname":"q","messages":[]}', "BAD_FIELD", "messages must be a list of 1"),
        ('{"cmd":"PUB","qname":"q","messages":["a",{}]}', "BAD_FIELD", "messages[1].message is missing"),
        (
            '{"cmd":"PUB","qname":"q","messages":["a",5]}',
            "BAD_FIELD",
            "messages[1] must be text or an object",
        ),
        (
            '{"cmd":"PUB","qname":"q","messages":[{"msg":"a","delay":-1}]}',
            "BAD_FIELD",
            "messages[0].delay must",
        ),
        (
            '{"cmd":"PUB","qname":"q","msg":"a","timeout":4}',
            "BAD_FIELD",
            "timeout must be a number of sec",
        ),
        ('{"cmd":"PUB","qname":"q","msg":"a","timeout":31536001}', "BAD_FIELD", "from 5 to 31536000"),
        ('{"cmd":"PUB","qname":"q","msg":"a","delay":"5"}', "BAD_FIELD", "not text"),
        (
            '{"cmd":"PUB","qname":"q","msg":"a","delay":31536000.1}',
            "BAD_FIELD",
            "delay must be a number of seconds",
        ),
        (
            '{"cmd":"PUB","qname":"q","msg":"a","timeout":4.999}',
            "BAD_FIELD",
            "timeout must be a number of seconds",
        ),
        ('{"cmd":"PUB","qname":"q","msg":"a","expires":-0.001}', "BAD_FIELD", "expires must be a number of seconds"),
        ('{"cmd":"PUB","qname":"q","msg":"a","priority":5.0}', "BAD_FIELD", "not a number with a decimal point"),
        ('{"cmd":"STAGE","qname":"q","source":"s","epoch":1,"timeout":4.5}', "BAD_FIELD", "from 5 to 86400"),
        ('{"cmd":"CREATE","qname":"q","timeout":5.5}', "BAD_FIELD", "timeout must be a whole number of seconds"),
        ('{"cmd":"PUB","qname":"q","msg":"a","delay":true}', "BAD_FIELD", "not true or false"),
        ('{"cmd":"PUB","qname":"q","msg":"a","expires":-1}', "BAD_FIELD", "expires must be"),
        ('{"cmd":"PUB","qname":"q","msg":"a","priority":9223372036854775808}', "BAD_FIELD", "64 bits"),
        ('{"cmd":"PUB","qname":"q","msg":"a","id":""}', "BAD_FIELD", "id must be text of 1 to 120"),
        ('{"cmd":"PUB","qname":"q","msg":"a","n":0}', "BAD_FIELD", "n must be"),
        ('{"cmd":"PUB","qname":"q","msg":"a","headers":{"a":1}}', "BAD_FIELD", "must be text"),
        ('{"cmd":"PUB","qname":"q","msg":"?","enc":"b64"}', "BAD_FIELD", "base64"),
        ('{"cmd":"PUB","qname":"q","msg":"a","enc":"gzip"}', "BAD_FIELD", "enc must be"),
        ('{"cmd":"PUB","qname":"q","messages":["YQ==","?"],"enc":"b64"}', "BAD_FIELD", "messages[1]"),
        (
            '{"cmd":"FET","qname":"q","count":1001}',
            "BAD_FIELD",
            "count must be a whole number from 1 to 1000",
        ),
        ('{"cmd":"FET","qname":"q","wait":3601}', "BAD_FIELD", "wait must be"),
        ('{"cmd":"FET","qname":"q","cmd_id":[]}', "BAD_FIELD", "cmd_id must be"),
        ('{"cmd":"ACK","qname":"q"}', "BAD_FIELD", "uid is missing"),
        ('{"cmd":"ACK","qname":"q","uid":"a","uids":["b"]}', "BAD_FIELD", "not both"),
        ('{"cmd":"ACK","qname":"q","uids":["a","b"],"leases":["x"]}', "BAD_FIELD", "as many"),
        ('{"cmd":"ACK","qname":"q","uid":"a","publish":[{"qname":"p"}]}', "BAD_FIELD", "publish[0].message"),
        ('{"cmd":"ACK","qname":"q","uid":"a","publish":[{"qname":" ","msg":"a"}]}', "BAD_NAME", "queue name"),
        ('{"cmd":"PEEK","qname":"q","count":101}', "BAD_FIELD", "from 1 to 100"),
        ('{"cmd":"PEEK","qname":"q","state":"x"}', "BAD_FIELD", "state must be"),
        ('{"cmd":"HELLO","session":""}', "BAD_FIELD", "session must be text of 1 to 64"),
        ('{"cmd":"CREATE","qname":"q","lease":"slow"}', "BAD_FIELD", '"fast" or "strict"'),
        ('{"cmd":"CREATE","qname":"q","dead_letter":" "}', "BAD_NAME", "queue name"),
        ('{"cmd":"CREATE","qname":"q","priority_min":2,"priority_max":1}', "BAD_FIELD", "greater than"),
        ('{"cmd":"UPDATE","qname":"q","retry":{"base":9,"max":3}}', "BAD_FIELD", "less than"),
        ('{"cmd":"SUB","qname":"' + "x" * 256 + '"}', "BAD_NAME", "at most 255"),
    ],
)
def test_refusal_names_the_field_and_its_allowed_values(text: str | bytes, code: str, words: str) -> None:
    found, detail = refusal(text)

    assert found == code
    assert words in detail
    assert "`" not in detail
    assert "$" not in detail


@pytest.mark.parametrize("line_bytes", [0, LONG_BYTES])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 5),
        ("pid", -1),
        ("host", "x" * 256),
        ("versions", "1.2"),
        ("versions", {"a": 5}),
        ("concurrency", 2_000_000),
        ("tasks", ["a", "x" * 256]),
        ("tasks", ["x"] * 1_001),
        ("schedules", [{}]),
        ("schedules", [{"name": "a", "every": 0}]),
        ("schedules", [{"name": "a", "next": "soon"}]),
        ("schedules", {"name": "a"}),
    ],
)
def test_hello_is_obeyed_without_what_does_not_fit_of_who_the_client_is(
    field: str, value: object, line_bytes: int
) -> None:
    said = {"host": "a", "tasks": ["b"], "schedules": [{"name": "c", "every": 1, "newer": 5}]}
    line = json.dumps({"cmd": "HELLO", "cmd_id": 7, "token": "t"} | said | {field: value, "x": "x" * line_bytes})

    hello = one(line)

    expected = Hello(cmd_id=7, token="t", host="a", tasks=["b"], schedules=[Recurring("c", every=1)])
    assert hello == msgspec.structs.replace(expected, **{field: None})


@pytest.mark.parametrize("line_bytes", [0, LONG_BYTES])
@pytest.mark.parametrize(("field", "value"), [("session", 5), ("session", ""), ("token", "x" * 257), ("token", ["t"])])
def test_hello_whose_session_or_token_does_not_fit_is_refused(field: str, value: object, line_bytes: int) -> None:
    line = json.dumps({"cmd": "HELLO", "name": 5, field: value, "x": "x" * line_bytes})

    code, detail = refusal(line)

    assert code == "BAD_FIELD"
    assert f"{field} must be text of 1 to" in detail


def test_long_hello_with_large_lists_for_texts_is_obeyed_without_them() -> None:
    line = json.dumps({"cmd": "HELLO", "session": "s", "name": ["x"] * LONG_BYTES, "tasks": ["x"] * LONG_BYTES})

    assert one(line) == Hello(session="s")


def test_headers_beyond_their_limits_are_refused() -> None:
    many = {str(number): "" for number in range(65)}
    heavy = {"key": "x" * 16382}  # one byte more than 16 KiB with the key
    follow_up = {"cmd": "ACK", "qname": "q", "uid": "a", "publish": [{"qname": "p", "msg": "", "headers": heavy}]}

    assert refusal(json.dumps({"cmd": "PUB", "qname": "q", "msg": "", "headers": many}))[0] == "BAD_FIELD"
    assert refusal(json.dumps({"cmd": "PUB", "qname": "q", "msg": "", "headers": heavy}))[0] == "TOO_LARGE"
    assert refusal(json.dumps(follow_up))[0] == "TOO_LARGE"


def test_codes_of_refusals_are_all_in_the_table_of_errors() -> None:
    assert {"BAD_JSON", "BAD_COMMAND", "BAD_FIELD", "BAD_NAME", "TOO_LARGE"} <= BY_CODE.keys()


# Long lines -------------------------------------------------------------------------------------------------------

MANY = "{}," * VALUES_MAX + "{}"
MANY_TEXTS = '"",' * VALUES_MAX + '""'
LETTERS = '{"qname":"q","msg":"a","headers":{}},' * VALUES_MAX + '{"qname":"q","msg":"a"}'
PUB = '{"cmd":"PUB","qname":"q"'
ACK = '{"cmd":"ACK","qname":"q"'


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[" + MANY + "]", "BAD_JSON", "object"),
        (PUB + f',"messages":[{MANY}]}}', "BAD_FIELD", "messages[0].message is missing"),
        (PUB + f',"messages":[{MANY_TEXTS}]}}', "BAD_FIELD", "messages must be a list of 1 to 10000"),
        (ACK + f',"uid":"a","publish":[{LETTERS}]}}', "BAD_FIELD", "publish must be a list of 1 to 1000"),
        (PUB + f',"timeout":[{MANY}]}}', "BAD_FIELD", "timeout must be a number"),
        (PUB + f',"msg":"a","cmd_id":[{MANY}]}}', "BAD_FIELD", "cmd_id must be"),
        (PUB + f',"messages":[{{"msg":[{MANY}]}}]}}', "BAD_FIELD", "messages[0].msg must be text"),
        (PUB + f',"messages":[[{MANY}]]}}', "BAD_FIELD", "messages[0] must be text or an object"),
        (f'{{"cmd":[{MANY}]}}', "BAD_COMMAND", "cmd"),
        (f'{{"x":[{MANY}]}}', "BAD_COMMAND", "cmd is missing"),
        (f'{{"cmd":"ACK","qname":"q","uids":[{MANY}]}}', "BAD_FIELD", "uids[0] must be text"),
        (PUB + f',"x":[{MANY}}}', "BAD_JSON", "not JSON"),
    ],
)
def test_long_line_of_many_values_is_refused_without_making_them(
    monkeypatch: pytest.MonkeyPatch, text: str, code: str, words: str
) -> None:
    made: list[int] = []
    decode = msgspec.json.decode
    monkeypatch.setattr(msgspec.json, "decode", lambda line, **how: made.append(len(line)) or decode(line, **how))

    found, detail = refusal(text)

    assert (found, words in detail) == (code, True), detail
    assert max(made, default=0) <= LONG_BYTES


@pytest.mark.parametrize(
    "extra", [f',"x":[{MANY}]', f',"x":{{"messages":[{MANY}]}}', ',"msg":"' + "," * VALUES_MAX + '"', ',"x":1']
)
def test_long_line_is_the_same_command_as_without_its_unknown_fields(extra: str) -> None:
    body = "a" * LONG_BYTES
    command = one(PUB + f',"message":"{body}","priority":3,"cmd_id":7{extra}}}')

    assert (command.message, command.priority, command.cmd_id) == (body, 3, 7)


def test_items_of_a_long_line_keep_their_known_fields() -> None:
    items = [f'{{"msg":"{number}","delay":{number},"z":[1,{{}}]}}' for number in range(9_000)]
    command = one(PUB + f',"messages":["a",{",".join(items)}],"x":[{MANY}]}}')

    assert command.messages == ["a", *(Item(msg=str(number), delay=number) for number in range(9_000))]


CROWD = f',"x":[{MANY}]'  # makes a line one that is looked at in parts


@pytest.mark.parametrize(
    ("field", "code", "words"),
    [
        ('"headers":{"a":"' + "v" * LONG_BYTES + '"}', "TOO_LARGE", "messages[0].headers have"),
        ('"headers":{"a":[' + "1," * LONG_BYTES + "1]}", "BAD_FIELD", "messages[0].headers"),
        ('"delay":[' + "1," * LONG_BYTES + "1]", "BAD_FIELD", "messages[0].delay must be a number"),
    ],
)
def test_large_field_of_an_item_in_a_long_line_is_refused_and_not_left_out(field: str, code: str, words: str) -> None:
    found, detail = refusal(PUB + f',"messages":[{{"msg":"a",{field}}}]{CROWD}}}')

    assert (found, words in detail) == (code, True), detail


def test_escaped_headers_of_an_item_in_a_long_line_are_kept() -> None:
    value = "\x01" * 12_000  # six characters each in JSON
    command = one(PUB + f',"messages":[{{"msg":"a","headers":{json.dumps({"a": value})}}}]{CROWD}}}')

    assert command.messages == [Item(msg="a", headers={"a": value})]


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(f'"{number:x}":1' for number in range(VALUES_MAX + 2)) + "}",
        PUB + "," + ",".join(f'"{number:x}":1' for number in range(VALUES_MAX + 2)) + "}",
        PUB + f',"messages":[{MANY}]}}',
        PUB + ',"messages":[{"msg":"",' + ",".join(f'"{number:x}":1' for number in range(VALUES_MAX + 2)) + "}]}",
    ],
)
def test_long_line_costs_no_memory_for_each_of_its_values(text: str) -> None:
    line = text.encode()

    tracemalloc.start()
    try:
        decode_alone(line)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 2 * len(line)


def test_retry_of_a_long_line_keeps_its_known_fields() -> None:
    command = one(f'{{"cmd":"CREATE","qname":"q","retry":{{"base":2,"y":1}}{CROWD}}}')

    assert command.retry == Retry(base=2.0)


def test_field_of_a_long_line_that_is_no_object_is_named() -> None:
    found, detail = refusal(f'{{"cmd":"CREATE","qname":"q","retry":[]{CROWD}}}')

    assert (found, detail) == ("BAD_FIELD", "retry must be an object with backoff, base, max and jitter, not a list")
