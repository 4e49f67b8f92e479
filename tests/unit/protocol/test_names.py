"""The one rule for queue names."""

import pytest

from wakeq.protocol.errors import BadName
from wakeq.protocol.names import NAME_BYTES_MAX, check_name


@pytest.mark.parametrize("name", ["", "q", "!", "~", "a-b_c.d/e:f", "x" * NAME_BYTES_MAX])
def test_visible_ascii_up_to_the_limit_is_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", [" ", "a b", "a\n", "\n", "\x7f", "\0", "ä", "q\u202eq", "x" * 256])
def test_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        check_name(name)


def test_refusal_of_a_name_gives_the_place_and_escapes_the_text_of_the_peer() -> None:
    with pytest.raises(BadName) as refused:
        check_name("ab\r\nfake log line")

    assert "character 3" in str(refused.value)
    assert str(refused.value).isascii()
    assert "\n" not in str(refused.value)


def test_long_bad_name_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(BadName) as refused:
        check_name("ä" * 200)

    assert len(str(refused.value)) < 300 + 10


def test_visible_characters_of_ascii_alone_are_names() -> None:
    good = {byte for byte in range(256) if _is_name(chr(byte))}

    assert good == set(range(33, 127))


def _is_name(text: str) -> bool:
    try:
        return check_name(text) == text
    except BadName:
        return False
