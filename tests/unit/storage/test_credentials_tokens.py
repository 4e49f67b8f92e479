"""TokenFile: it is read completely or refused, and changed by one process at a time."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.protocol.errors import BadSettings
from wakeq.storage.credentials import TokenFile

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
GOOD = (
    '{"version":1,"tokens":[{"name":"a","sha256":"' + digest_of("secret").hex() + '","queues":["*"],'
    '"rights":["fetch"],"created_at":"2026-06-01T12:00:00Z","expires_at":null}]}'
)


def grant(name: str) -> Grant:
    return Grant(name, digest_of(name).hex(), ("*", "a"), (Right.PUBLISH, Right.ADMIN), NOON, NOON)


def test_changed_grants_are_read(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "new" / "tokens.json")

    file.change(lambda grants: [*grants, grant("a")])
    file.change(lambda grants: [*grants, grant("b")])

    assert TokenFile(file.path).read() == [grant("a"), grant("b")]


def test_file_is_private_and_contains_no_token(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")

    file.change(lambda grants: [*grants, Grant("a", digest_of("wakeq_s3cret").hex(), ("*",), (), NOON)])

    assert file.path.stat().st_mode & 0o777 == 0o600
    assert b"s3cret" not in file.path.read_bytes()


def test_change_is_reported_until_it_is_read(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    assert file.read() == []
    assert not file.has_changed()

    TokenFile(file.path).change(lambda grants: [grant("a")])
    assert file.has_changed()

    assert file.read() == [grant("a")]
    assert not file.has_changed()
    file.path.unlink()
    assert file.has_changed()


def test_failed_change_leaves_the_file(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.change(lambda grants: [grant("a")])

    with pytest.raises(ZeroDivisionError):
        file.change(lambda grants: [grant(str(1 // 0))])

    assert file.read() == [grant("a")]


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
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
def test_invalid_file_is_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)

    with pytest.raises(BadSettings) as refusal:
        TokenFile(path).read()

    assert str(path) in str(refusal.value)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_valid_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(GOOD)

    assert [found.name for found in TokenFile(path).read()] == ["a"]


def test_world_writable_file_is_not_changed(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.change(lambda grants: [grant("a")])
    file.path.chmod(0o666)

    with pytest.raises(BadSettings, match="every user of this machine may change them"):
        file.change(lambda grants: [])

    assert file.read() == [grant("a")]
