"""Security: where a door may be opened, which files are exposed, and how suppressed log lines are counted."""

from pathlib import Path

import pytest
from freezegun import freeze_time

from wakeq.config.settings import Auth, Cluster, Settings, Tls
from wakeq.node.doctor import examine
from wakeq.node.security import Security, may_listen, shared_key
from wakeq.protocol.errors import BadSettings

TOKENS = Auth(required=True)
CERTIFICATE = Tls(cert_file=Path("cert.pem"), key_file=Path("key.pem"))


@pytest.mark.parametrize(
    ("settings", "host", "is_guarded", "expected"),
    [
        (Settings(), "127.0.0.1", False, True),
        (Settings(), "0.0.0.0", True, False),
        (Settings(), "", True, False),
        (Settings(auth=TOKENS), "0.0.0.0", True, False),
        (Settings(tls=CERTIFICATE), "0.0.0.0", True, False),
        (Settings(auth=TOKENS, tls=CERTIFICATE), "0.0.0.0", True, True),
        (Settings(auth=TOKENS, tls=CERTIFICATE), "0.0.0.0", False, False),
        (Settings(auth=TOKENS, tls=CERTIFICATE), "*", False, False),
        (Settings(insecure=True), "0.0.0.0", False, True),
    ],
)
def test_doors_open_to_other_machines_need_tokens_and_tls_or_insecure(
    settings: Settings, host: str, is_guarded: bool, expected: bool
) -> None:
    assert may_listen(settings, host, is_guarded=is_guarded) is expected


@pytest.mark.parametrize("auth", [Auth(), TOKENS])
def test_suppressed_log_lines_are_counted_at_the_next_tick(
    auth: Auth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with freeze_time("2026-11-18 12:00:00") as clock:
        security = Security(Settings(data_dir=tmp_path, auth=auth), lambda: 0)
        caplog.clear()
        for number in range(50):
            security.admission.expelled(f"10.0.0.{number}", "it does not read its answers")
        clock.tick(1)
        security.tick()

    assert caplog.messages == [
        "10.0.0.0 was disconnected: it does not read its answers",
        "10.0.0.49 was disconnected: it does not read its answers, and 48 others since 2026-11-18 12:00:00 UTC",
    ]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o703])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_path_writable_by_everybody_is_refused_and_bad(tmp_path: Path, mode: int, kind: str) -> None:
    settings = Settings(data_dir=tmp_path, auth=TOKENS)
    settings.tokens_path.write_text('{"version": 1, "tokens": []}')
    exposed = tmp_path if kind == "directory" else settings.tokens_path
    exposed.chmod(mode)

    with pytest.raises(BadSettings, match=f"^{exposed} is writable by all users"):
        Security(settings, lambda: 0)
    assert [one.level for one in examine(settings) if "writable by all users" in one.text] == ["bad"]


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2775])
def test_path_writable_by_its_group_only_is_accepted(tmp_path: Path, mode: int) -> None:
    settings = Settings(data_dir=tmp_path, auth=TOKENS)
    settings.tokens_path.write_text('{"version": 1, "tokens": []}')
    tmp_path.chmod(mode)
    settings.tokens_path.chmod(mode & 0o666)

    assert Security(settings, lambda: 0).gate is not None


def test_exposed_directory_of_an_insecure_broker_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o777)

    Security(Settings(data_dir=tmp_path, insecure=True), lambda: 0)

    assert caplog.messages[0].startswith(f"{tmp_path} is writable by all users")


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o606])
def test_cluster_secret_open_to_everybody_is_refused(tmp_path: Path, mode: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    secret.chmod(mode)
    cluster = Cluster(node=0, peers="127.0.0.1:1,127.0.0.1:2", secret_file=secret)

    with pytest.raises(BadSettings, match=f"^{secret} is (read|writ)able by all users"):
        Security(Settings(data_dir=tmp_path, cluster=cluster), lambda: 0)
    insecure = Settings(data_dir=tmp_path, cluster=cluster, insecure=True)
    assert Security(insecure, lambda: 0).cluster_secret == b"x" * 32


def test_token_file_opened_to_everybody_is_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(data_dir=tmp_path, auth=TOKENS)
    security = Security(settings, lambda: 0)
    settings.tokens_path.write_text('{"version": 1, "tokens": []}')
    settings.tokens_path.chmod(0o666)
    caplog.clear()

    security.tick()

    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the old ones stay valid" in caplog.text


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_key_readable_by_everybody_is_a_warning(tmp_path: Path, mode: int, warns: bool) -> None:
    key = tmp_path / "key.pem"
    key.touch()
    key.chmod(mode)

    assert bool(shared_key(Settings(tls=Tls(cert_file=key, key_file=key)))) is warns
