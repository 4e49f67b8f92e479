"""The file of tokens: read whole or not at all, changed by one at a time."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.protocol.errors import BadSettings
from wakeq.storage.tokens import TokenFile

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
GOOD = (
    '{"version":1,"tokens":[{"name":"a","sha256":"' + digest_of("secret").hex() + '","queues":["*"],'
    '"rights":["fetch"],"created_at":"2026-06-01T12:00:00Z","expires_at":null}]}'
)


def grant(name: str) -> Grant:
    return Grant(name, digest_of(name).hex(), ("*", "a"), (Right.PUBLISH, Right.ADMIN), NOON, NOON)


def test_what_was_put_in_comes_out(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "new" / "tokens.json")

    file.change(lambda grants: [*grants, grant("a")])
    file.change(lambda grants: [*grants, grant("b")])

    assert TokenFile(file.path).read() == [grant("a"), grant("b")]


def test_the_file_is_nobody_elses_and_holds_no_token(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")

    file.change(lambda grants: [*grants, Grant("a", digest_of("wakeq_s3cret").hex(), ("*",), (), NOON)])

    assert file.path.stat().st_mode & 0o777 == 0o600
    assert b"s3cret" not in file.path.read_bytes()


def test_a_change_is_noticed_until_it_is_read(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    assert file.read() == []
    assert not file.has_changed()

    TokenFile(file.path).change(lambda grants: [grant("a")])
    assert file.has_changed()

    assert file.read() == [grant("a")]
    assert not file.has_changed()
    file.path.unlink()
    assert file.has_changed()


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.change(lambda grants: [grant("a")])

    with pytest.raises(ZeroDivisionError):
        file.change(lambda grants: [grant(str(1 // 0))])

    assert file.read() == [grant("a")]


def test_those_who_change_it_at_once_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    names = [f"t{number}" for number in range(8)]
    threads = [
        threading.Thread(target=TokenFile(path).change, args=(lambda grants, name=name: [*grants, grant(name)],))
        for name in names
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found.name for found in TokenFile(path).read()) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "truncated"),
        (GOOD[:-5], "truncated"),
        (GOOD.replace('"version":1', '"version":2'), "version 2"),
        (GOOD.replace('"rights"', '"wrongs"'), "wrongs"),
        (GOOD.replace('["fetch"]', '["fly"]'), "fly"),
        (GOOD.replace('["*"]', '["a*b"]'), "not a pattern"),
        (GOOD.replace(digest_of("secret").hex(), "ab"), "no SHA-256"),
        (GOOD.replace(digest_of("secret").hex(), "x" * 64), "non-hexadecimal"),
        (GOOD.replace('"expires_at":null', '"expires_at":"2026-06-01T12:00:00"'), "no time zone"),
        (GOOD.replace('"name":"a"', '"name":"a\\nb"'), "not a token name"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_whole_and_says_why(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)

    with pytest.raises(BadSettings) as refusal:
        TokenFile(path).read()

    assert str(path) in str(refusal.value)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_same_text_without_a_fault_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(GOOD)

    assert [found.name for found in TokenFile(path).read()] == ["a"]


def test_file_that_everybody_may_change_is_not_changed(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.change(lambda grants: [grant("a")])
    file.path.chmod(0o666)

    with pytest.raises(BadSettings, match="every user of this machine may change them"):
        file.change(lambda grants: [])

    assert file.read() == [grant("a")]
