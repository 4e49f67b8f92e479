"""Tokens as the broker knows them: patterns, rights, expiry."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.access import Book, Grant, Right, check_pattern, check_token_name, digest_of
from wakeq.protocol.errors import BadField, BadName

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def grant(*queues: str, rights: tuple[Right, ...] = (Right.FETCH,), end: datetime | None = None) -> Grant:
    return Grant("web", digest_of("secret").hex(), queues, rights, NOON, end)


@pytest.mark.parametrize(
    ("pattern", "queue", "matches"),
    [
        ("emails", "emails", True),
        ("emails", "emails.dead", False),
        ("emails", "email", False),
        ("emails*", "emails", True),
        ("emails*", "emails.dead", True),
        ("emails*", "email", False),
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "emails", False),
    ],
)
def test_pattern_is_a_name_or_the_beginning_of_names(pattern: str, queue: str, matches: bool) -> None:
    assert grant(pattern).allows(Right.FETCH, queue) is matches


def test_right_includes_no_other() -> None:
    for right in Right:
        only = grant("*", rights=(right,))

        assert [other for other in Right if only.allows(other, "q")] == [right]


@pytest.mark.parametrize(
    ("pattern", "prefix", "covers"),
    [("*", "", True), ("a*", "", False), ("a*", "a", True), ("a*", "ab", True), ("ab*", "a", False), ("a", "a", False)],
)
def test_queues_of_a_prefix_are_covered_only_by_a_pattern_for_all_of_them(
    pattern: str, prefix: str, covers: bool
) -> None:
    assert grant(pattern).allows_all(Right.FETCH, prefix) is covers


@given(pattern=st.text("ab*", max_size=4), prefix=st.text("ab", max_size=3), rest=st.text("ab", max_size=3))
def test_pattern_that_covers_a_prefix_allows_every_name_with_that_prefix(pattern: str, prefix: str, rest: str) -> None:
    if "*" not in pattern[:-1] and grant(pattern).allows_all(Right.FETCH, prefix):
        assert grant(pattern).allows(Right.FETCH, prefix + rest)


def test_token_is_found_until_the_moment_it_expires() -> None:
    book = Book([grant("*", end=NOON)])

    assert book.find(digest_of("secret"), NOON_MS - 1) is not None
    assert book.find(digest_of("secret"), NOON_MS) is None
    assert book.next_end_ms(NOON_MS - 1) == NOON_MS
    assert book.next_end_ms(NOON_MS) == math.inf


def test_token_is_found_only_by_its_exact_text() -> None:
    book = Book([grant("*")])

    for other in ("", "secret ", "Secret", digest_of("secret").hex(), "\ud800"):
        assert book.find(digest_of(other), NOON_MS) is None
    assert Book().find(bytes(32), NOON_MS) is None  # what stands for "unknown" is nobody's


@pytest.mark.parametrize("pattern", ["a*b", "**", "*a", "a b", "é", "a" * 256])
def test_malformed_pattern_is_refused(pattern: str) -> None:
    with pytest.raises((BadField, BadName)):
        check_pattern(pattern)


@pytest.mark.parametrize("name", ["", "a b", "a\n", "../x", "x" * 65, "é"])
def test_malformed_token_name_is_refused(name: str) -> None:
    with pytest.raises(BadField):
        check_token_name(name)
