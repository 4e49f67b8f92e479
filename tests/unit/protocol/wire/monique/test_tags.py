"""Tags: five fields and a known type, from text or bytes; anything else is refused with what is wrong with it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.wire.monique.errors import BadTag
from wakeq.protocol.wire.monique.tags import TAG_BYTES_MAX, TYPES, Tag, read_tag, unwrapped

FIELDS = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=50)
TAGS = st.builds(Tag, st.sampled_from(sorted(TYPES)), FIELDS, FIELDS, FIELDS, FIELDS)


@given(TAGS)
def test_tag_survives_as_text_and_as_bytes(tag: Tag) -> None:
    assert read_tag(tag.text) == tag
    assert read_tag(tag.text.encode()) == tag
    assert read_tag(tag.text).text == tag.text


@given(st.binary(max_size=80) | st.text(max_size=40) | st.text(":config", max_size=12))
def test_garbage_is_a_tag_with_five_fields_or_refused(raw: bytes | str) -> None:
    try:
        tag = read_tag(raw)
    except BadTag:
        return

    assert tag.type in TYPES
    assert tag.text.count(":") == 4
    assert raw in (tag.text, tag.text.encode())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("", "tag '' has 1 fields, it must have 5: type:spec:id:pid:creator"),
        ("config:a_b:id:creator", "has 4 fields"),
        ("config:a_b:id:::creator", "has 6 fields"),
        ("Config:a_b:id::creator", "must be config, result, error or data, in lower case"),
        ("conf:a_b:id::creator", "'conf:a_b:id::creator': the type in front"),
        ("*:a_b:id::creator", "the type in front"),
        (b"config:\xff:::", "the tag is not UTF-8 at byte 7"),
        (b"\xc4\x0econfig:a_b:i::c", "the tag is not UTF-8 at byte 0; it is sent as text, not as MessagePack"),
        ("data:" + "é" * 2045 + ":::", "the tag has 4098 bytes, at most 4096 are accepted"),
        ("config:" + "a" * TAG_BYTES_MAX + ":::", f"at most {TAG_BYTES_MAX} are accepted"),
    ],
)
def test_bad_tag_is_refused_in_plain_words(raw: str | bytes, text: str) -> None:
    with pytest.raises(BadTag, match=re.escape(text)) as refused:
        read_tag(raw)

    assert refused.value.number == 201
    assert len(str(refused.value)) < 200


def test_tag_of_just_the_limit_is_taken() -> None:
    longest = "data:" + "a" * (TAG_BYTES_MAX - 8) + ":::"

    assert read_tag(longest).text == longest
    assert read_tag(longest.encode()).text == longest


def test_peers_text_is_never_shown_unescaped_or_whole() -> None:
    with pytest.raises(BadTag) as refused:
        read_tag("\n\x1b[31m" + "é" * 500)

    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


@given(TAGS)
def test_wrapped_tag_is_unwrapped_once_and_a_plain_one_stays(tag: Tag) -> None:
    raw = tag.text.encode()
    wrapped = (b"\xc4" + bytes((len(raw),)) if len(raw) < 256 else b"\xc5" + len(raw).to_bytes(2, "big")) + raw

    assert unwrapped(wrapped) == raw
    assert unwrapped(raw) == raw


@pytest.mark.parametrize("raw", [b"", b"\xc4", b"\xc5", b"\xc4\x02a", b"\xc4\x00a", b"\xc5\x00", b"\xc4\x01ab"])
def test_tag_that_only_looks_wrapped_stays_as_it_is(raw: bytes) -> None:
    assert unwrapped(raw) == raw
