"""`wakeq taskflux`: which server it uses, and its list.  tests/e2e/doors/test_taskflux_client.py runs its commands."""

import pytest

from wakeq.cli import main
from wakeq.cli.taskflux import TaskFluxServer
from wakeq.client.taskflux.requests import QueueInfo


class FakeServer:
    """A server with these queues, instead of a connection."""

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def list(self) -> dict[str, QueueInfo]:
        return {"": QueueInfo(0, {}), "jobs": QueueInfo(2, {})}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses of the servers that the commands use."""
    addresses: list[str] = []

    def connect(server: TaskFluxServer) -> FakeServer:
        addresses.append(server.address)
        return FakeServer()

    monkeypatch.setattr(TaskFluxServer, "connect", connect)
    for name in ("WAKEQ_BROKER", "WAKEQ_TASKFLUX"):
        monkeypatch.delenv(name, raising=False)
    return addresses


def test_server_is_the_one_that_was_named_most_specifically(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    main(["taskflux", "list"])
    main(["--broker", "prod", "taskflux", "list"])
    monkeypatch.setenv("WAKEQ_TASKFLUX", "t:1")
    main(["--broker", "b:7", "taskflux", "list"])
    main(["taskflux", "--address", "u:2", "list"])

    assert asked == ["127.0.0.1:2602", "prod:2602", "t:1", "u:2"]


def test_default_queue_is_listed_as_two_quotes(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["taskflux", "list"])

    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["queue", '""', "jobs"]
