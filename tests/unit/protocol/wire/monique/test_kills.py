"""What is told when a task is killed, and which kills are of no use."""

import json

import msgpack
import pytest
from msgspec.structs import replace

from wakeq.protocol.wire.monique.errors import BadEncoding, BadMessage, MoniqueError
from wakeq.protocol.wire.monique.kills import killed, task_of, tells_of_kill
from wakeq.protocol.wire.monique.messages import Message, decode_message
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.transfers import Transfer, transfer_of

KILL = Message(
    created_at_ms=5,
    creator="operator",
    data=b'{"task_id":"t1"}',
    encoding="JSON",
    expires_at_ms=9000,
    id="k",
    pid="",
    spec="kill",
    type="config",
)


def test_error_of_a_kill_names_the_task_as_parent_and_keeps_the_expiry_of_the_kill() -> None:
    told = killed(transfer_of(KILL), id="fresh", now_ms=77)

    message = decode_message(told.message)
    assert told.tag.text == "error:error:fresh:t1:operator"
    assert json.loads(message.data) == {"code": 301, "message": "task killed"}
    assert (message.encoding, message.created_at_ms, message.expires_at_ms) == ("JSON", 77, 9000)


def test_kill_from_before_ids_were_text_is_understood() -> None:
    transfer = transfer_of(KILL)
    fields = msgpack.unpackb(transfer.message) | {"id": b"k", "pid": b""}

    told = killed(Transfer(transfer.tag, msgpack.packb(fields)), id="fresh", now_ms=77)

    assert told.tag.pid == "t1"


def test_data_beside_the_task_id_of_a_kill_is_ignored() -> None:
    assert task_of(replace(KILL, data=b' {"why":["x",{"y":null}],"task_id":"t2"}\n')) == "t2"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", BadEncoding),
        (b"t1", BadEncoding),
        (b'{"task_id":"t1"', BadEncoding),
        (b'{"task_id":"\xff"}', MoniqueError),
        (b'{"x":' + b"[" * 100_000, BadEncoding),
        (b"{}", BadMessage),
        (b'{"task_id":5}', BadMessage),
        (b'{"task_id":null}', BadMessage),
        (b'{"task_id":""}', BadMessage),
        (b'["t1"]', BadMessage),
        (b'{"task_id":"a:b"}', BadMessage),
    ],
)
def test_kill_that_names_no_task_is_refused(data: bytes, kind: type[MoniqueError]) -> None:
    with pytest.raises(kind):
        killed(transfer_of(replace(KILL, data=data)), id="fresh", now_ms=77)


@pytest.mark.parametrize("packed", [b"", b"\x80", b"encrypted"])
def test_kill_that_is_no_message_is_refused(packed: bytes) -> None:
    with pytest.raises(MoniqueError):
        killed(Transfer(read_tag("config:kill:k::operator"), packed), id="fresh", now_ms=77)


def test_error_of_a_kill_is_told_from_other_errors() -> None:
    assert tells_of_kill(killed(transfer_of(KILL), id="fresh", now_ms=77))
    for data in (b'{"code":300,"message":"task killed"}', b"[301]", b"301", b"\xff", b"", b"[" * 100_000):
        assert not tells_of_kill(transfer_of(replace(KILL, spec="error", type="error", data=data)))
    assert not tells_of_kill(Transfer(read_tag("error:error:e:t1:me"), b"encrypted"))
