"""A body as people read it."""

import msgspec
import pytest

from wakeq.http.api.readable import HEX_BYTES_MAX, TEXT_BYTES_MAX, readable


@pytest.mark.parametrize(
    ("body", "name", "text"),
    [
        (b'{"a":1.50,"b":[1]}', "json", '{\n  "a": 1.50,\n  "b": [\n    1\n  ]\n}'),
        (b"12345678901234567890123", "json", "12345678901234567890123"),
        ("grüß\n".encode(), "text", "grüß\n"),
        (b"", "text", ""),
        (msgspec.msgpack.encode({"n": 1, "raw": b"\xff\x00"}), "messagepack", '{\n  "n": 1,\n  "raw": "ff 00"\n}'),
        (msgspec.msgpack.encode({1: "ü"}), "messagepack", '{\n  "1": "ü"\n}'),
        (b"\x00\x01A", "binary", "00000000  00 01 41                                         ..A"),
        (b"\x81", "binary", None),
        (b"\x1b[2J", "binary", None),
        (b"\xc1" * 40, "binary", None),
    ],
)
def test_body_is_shown_as_what_it_is(body: bytes, name: str, text: str | None) -> None:
    found = readable(body)

    assert (found.format, found.size, found.is_cut) == (name, len(body), False)
    assert text is None or found.text == text


def test_long_bodies_are_cut_between_two_characters() -> None:
    text, binary = readable("ü".encode() * TEXT_BYTES_MAX), readable(b"\xff" * (HEX_BYTES_MAX + 1))

    assert (text.format, len(text.text), text.is_cut) == ("text", TEXT_BYTES_MAX // 2, True)
    assert (binary.format, binary.is_cut) == ("binary", True)


@pytest.mark.parametrize("make", [lambda: b"[" * 100_000, lambda: b"\x91" * 100_000], ids=["json", "messagepack"])
def test_body_that_is_nested_too_deeply_is_shown_as_bytes(make: object) -> None:
    assert readable(make()).format in ("text", "binary")  # type: ignore[operator]
