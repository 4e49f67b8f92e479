"""`wakeq monique`: which server it uses.  tests/e2e/doors/test_monique_client.py runs its commands."""

from pathlib import Path

import pytest

from tests.helpers.monique.component import config_json
from wakeq.cli import main
from wakeq.cli.monique import MoniqueServer
from wakeq.protocol.errors import Disconnected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the addresses of the servers that the commands use, in an empty directory and environment."""
    addresses: list[str] = []

    def connect(server: MoniqueServer) -> None:
        addresses.append(server.address)
        raise Disconnected("there is no server")

    monkeypatch.setattr(MoniqueServer, "connect", connect)
    monkeypatch.chdir(tmp_path)
    for name in ("WAKEQ_BROKER", "WAKEQ_HTTP"):
        monkeypatch.delenv(name, raising=False)
    return addresses


def test_server_is_the_one_that_was_named_most_specifically(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main(["monique", "listen"])
    main(["--broker", "prod", "monique", "listen"])
    main(["--http", "h:1", "monique", "listen"])
    main(["--http", "h:1", "monique", "--address", "m:2", "listen"])
    monkeypatch.setenv("WAKEQ_HTTP", "http://h:3")
    main(["monique", "listen"])

    assert asked == ["127.0.0.1:8080", "prod:8080", "h:1", "m:2", "http://h:3"]


def test_config_json_counts_unless_the_http_port_was_named(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config_json(tmp_path / "config.json")

    main(["monique", "listen"])
    main(["--http", "h:1", "monique", "listen"])
    main(["--http", "h:1", "monique", "-f", "config.json", "listen"])

    assert asked == ["ws://127.0.0.1:0/", "h:1", "ws://127.0.0.1:0/"]


def test_unknown_http_port_is_refused_with_advice(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--broker", "b:1", "monique", "listen"]) == 2

    assert "the HTTP port of b:1 is unknown; pass --http b:PORT" in capsys.readouterr().err
    assert asked == []
