"""The worker in JavaScript, with the packages that its lock file names, against a real broker."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient
from tests.helpers.programs.started import Started, eventually

HERE = Path(__file__).parents[3] / "examples" / "javascript"
INSTALL_S_MAX = 120


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its packages."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)} on this machine")
    folder = tmp_path_factory.mktemp("javascript") / "example"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    if "code ENOTFOUND" in ran.stderr or "code ECONNREFUSED" in ran.stderr or "code ETIMEDOUT" in ran.stderr:
        pytest.skip(f"npm reaches no registry: {ran.stderr.strip()[:200]}")
    assert ran.returncode == 0, ran.stderr
    return folder


def test_javascript_worker_works_sleeps_and_is_woken(installed: Path, broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    host, port = broker.http_address
    client.ask("PUB", "emails", message="first")

    with Started(["node", "worker.js", f"ws://{host}:{port}/connect", "emails"], cwd=installed) as worker:
        assert worker.line() == "sent first"
        eventually(lambda: figure(client, "sleepers") == 1, "it sleeps")
        client.ask("PUB", "emails", message="second")
        assert worker.line() == "sent second"
        client.ask("PUB", "emails", message="third")
        assert worker.line() == "sent third"
        eventually(lambda: figure(client, "acked") == 3, "all three are acknowledged")


def test_javascript_worker_reconnects_to_its_broker(installed: Path, broker: BrokerProcess, connect: Connect) -> None:
    host, port = broker.http_address
    broker.extra_args = ("--http-port", str(port))
    with Started(["node", "worker.js", f"ws://{host}:{port}/connect", "emails"], cwd=installed) as worker:
        client = connect(broker)
        client.ask("PUB", "emails", message="before")
        assert worker.line() == "sent before"
        eventually(lambda: figure(client, "acked") == 1, "it is acknowledged")

        broker.restart()
        connect(broker).ask("PUB", "emails", message="after")

        assert worker.line() == "sent after"


def figure(client: LineClient, name: str) -> int:
    """A number that the broker tells of the queue."""
    number: int = client.ask("STATS", "emails")["stats"][name]
    return number
