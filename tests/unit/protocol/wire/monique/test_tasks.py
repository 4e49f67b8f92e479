"""A task on a queue and back: nothing is lost, whatever is in it; answers, and what is none."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.monique.errors import BadMessage, BadTag
from wakeq.protocol.wire.monique.messages import Message, decode_message, encode_message, tag_of
from wakeq.protocol.wire.monique.tags import Tag
from wakeq.protocol.wire.monique.tasks import (
    EXPIRES_MS_MAX,
    TAG,
    answer_of,
    draft_of,
    headers_of,
    task_transfer_of,
)
from wakeq.protocol.wire.monique.transfers import Transfer

NOW_MS = 1_528_138_732_079
TASK = Tag("config", "sum_it", "t1", "", "me")

texts = st.text(st.characters(exclude_characters=":", exclude_categories=("Cs",)), max_size=20)
messages = st.builds(
    Message,
    created_at_ms=st.integers(0, 2**64 - 1),
    creator=texts,
    data=st.binary(max_size=50),
    encoding=st.sampled_from(("JSON", "MessagePack")),
    expires_at_ms=st.just(0) | st.integers(NOW_MS + 1, 2**64 - 1),
    id=texts.filter(bool),
    pid=texts,
    spec=st.just("sum_it"),
    type=st.just("config"),
)


@given(messages)
def test_task_comes_back_as_it_was(message: Message) -> None:
    transfer = Transfer(tag_of(message), encode_message(message))

    draft = draft_of(transfer, NOW_MS)

    assert draft is not None
    back = task_transfer_of(draft.body, headers_of(draft.headers))
    assert (back.tag, decode_message(back.message)) == (transfer.tag, message)
    assert draft.body == message.data
    assert draft.expires_ms == min(max(message.expires_at_ms - NOW_MS, 0), EXPIRES_MS_MAX)


@given(st.binary(max_size=50))
def test_unreadable_task_comes_back_unchanged(packed: bytes) -> None:
    draft = draft_of(Transfer(TASK, packed), NOW_MS)

    assert draft is not None
    assert task_transfer_of(draft.body, headers_of(draft.headers)) == Transfer(TASK, packed)


@pytest.mark.parametrize(("expires_at_ms", "is_wanted"), [(NOW_MS, False), (NOW_MS - 1, False), (NOW_MS + 1, True)])
def test_expired_message_is_no_task(expires_at_ms: int, is_wanted: bool) -> None:
    message = Message(
        created_at_ms=1,
        creator="me",
        data=b"",
        encoding="JSON",
        expires_at_ms=expires_at_ms,
        id="1",
        pid="",
        spec="a_b",
        type="config",
    )

    draft = draft_of(Transfer(tag_of(message), encode_message(message)), NOW_MS)

    assert (draft is not None) is is_wanted


@given(st.binary(max_size=20), st.dictionaries(st.sampled_from((TAG, "monique-encoding", "monique-created-at")), texts))
def test_message_of_a_queue_is_a_task_or_raises_an_error_of_ours(body: bytes, headers: dict[str, str]) -> None:
    for read in (task_transfer_of, lambda *given: answer_of(*given, id="1", creator="me", now_ms=NOW_MS)):
        with suppress(WakeqError):
            read(body, headers)


def test_answer_has_the_task_as_its_parent() -> None:
    answer = answer_of(b"1", {TAG: TASK.text, "monique-encoding": "MessagePack"}, id="r", creator="w", now_ms=NOW_MS)

    assert answer.tag == Tag("result", "sum_it", "r", "t1", "w")
    message = decode_message(answer.message)
    assert (message.data, message.encoding, message.created_at_ms) == (b"1", "MessagePack", NOW_MS)


@pytest.mark.parametrize(
    ("headers", "error", "words"),
    [
        ({}, BadMessage, "no header monique-tag"),
        ({TAG: "config:a"}, BadTag, "has 2 fields"),
        ({TAG: TASK.text, "monique-type": "answer"}, BadMessage, "type must be"),
        ({TAG: TASK.text, "monique-encoding": "XML"}, BadMessage, "encoding must be"),
    ],
)
def test_message_that_is_no_answer_is_refused_with_its_reason(
    headers: dict[str, str], error: type[WakeqError], words: str
) -> None:
    with pytest.raises(error, match=words):
        answer_of(b"", headers, id="r", creator="w", now_ms=NOW_MS)


@pytest.mark.parametrize("moment", ["-1", "x", "1" * 21, "²"])
def test_malformed_moment_of_a_task_is_refused(moment: str) -> None:
    with pytest.raises(BadMessage, match="monique-created-at is not a time"):
        task_transfer_of(b"", {TAG: TASK.text, "monique-encoding": "JSON", "monique-created-at": moment})
