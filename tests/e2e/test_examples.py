"""Every example is run, against a real broker, as its docstring says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect
from tests.helpers.broker_process import BrokerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


def address_of(broker: BrokerProcess) -> str:
    host, port = broker.worker_address
    return f"{host}:{port}"


def started(name: str, *arguments: str, broker: BrokerProcess) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=os.environ | {"WAKEQ_BROKER": address_of(broker)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", ["worker.py", "sleeper.py"])
def test_a_worker_does_what_was_there_and_is_woken_for_what_comes(
    broker: BrokerProcess, connect: Connect, name: str
) -> None:
    client = connect(broker)
    client.ask("PUB", "emails", message="first")
    arguments = ("emails",) if name == "worker.py" else (address_of(broker), "emails")

    with started(name, *arguments, broker=broker) as worker:
        assert worker.stdout is not None
        first = worker.stdout.readline()
        client.ask("PUB", "emails", message="second")
        second = worker.stdout.readline()
        worker.kill()

    assert [first.split()[-1], second.split()[-1]] == ["first", "second"]


def test_a_follow_up_is_published_with_the_acknowledgement(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    client.ask("PUB", "orders", message='{"number": 7}')

    with started("follow_up.py", "orders", "invoices", broker=broker) as step:
        assert step.wait(20) == 0

    assert client.ask("FET", "orders")["cmd"] == "nomsg"
    assert client.ask("FET", "invoices")["msg"] == '{"invoice for":{"number":7}}'
