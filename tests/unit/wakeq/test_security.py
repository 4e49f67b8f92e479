"""Security: where a door may be opened, by what is behind it and by what protects it."""

from pathlib import Path

import pytest

from wakeq.security import may_listen
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
