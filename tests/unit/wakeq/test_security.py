"""Security: where a door may be opened, by what is behind it and what protects it; what the log hears of strangers."""

from pathlib import Path

import pytest
from freezegun import freeze_time

from wakeq.security import Security, may_listen
from wakeq.settings import Auth, Settings, Tls

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
def test_other_machines_are_let_in_where_tokens_and_tls_guard_or_somebody_says_so(
    settings: Settings, host: str, is_guarded: bool, expected: bool
) -> None:
    assert may_listen(settings, host, is_guarded=is_guarded) is expected


@pytest.mark.parametrize("auth", [Auth(), TOKENS])
def test_what_a_burst_left_out_is_said_by_the_next_look(
    auth: Auth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with freeze_time("2026-11-18 12:00:00") as clock:
        security = Security(Settings(data_dir=tmp_path, auth=auth), lambda: 0)
        caplog.clear()
        for number in range(50):
            security.admission.expelled(f"10.0.0.{number}", "it does not read its answers")
        clock.tick(1)
        security.look()

    assert caplog.messages == [
        "10.0.0.0 was disconnected: it does not read its answers",
        "10.0.0.49 was disconnected: it does not read its answers, and 48 others since 2026-11-18 12:00:00 UTC",
    ]
