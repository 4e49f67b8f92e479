"""How a process of Spark reaches its broker: with which credentials, for how long, and from which machine."""

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeq.actors.sessions.access import NO_TOKEN
from wakeq.client.connection import token_source, unreachable
from wakeq.client.route import ended_before_greeting
from wakeq.pipeline.stream import broker as module
from wakeq.pipeline.stream.broker import Broker
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Busy, Disconnected, Forbidden, NoQuorum, Unauthorized

Clock = Callable[[], float]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the time, which passes only when somebody sleeps."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda span_s: now.__setitem__(0, now[0] + span_s))
    return lambda: now[0] - 100.0


class Dialled:
    """Counts the attempts to connect; the first ones fail."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures
        self.calls: list[dict[str, Any]] = []

    def __call__(self, address: str, **about: Any) -> "Dialled":
        self.calls.append({"address": address, **about})
        if self.failures:
            raise self.failures.pop(0)
        return self


def file_error() -> str:
    with pytest.raises(BadSettings) as raised:
        token_source(Path("nowhere"))()
    return str(raised.value)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> Dialled:
    made = Dialled([])
    monkeypatch.setattr(module, "BulkClient", made)
    monkeypatch.setattr(module, "_clients", {})
    return made


def test_first_connection_is_tried_until_the_broker_is_there(
    clock: Clock, dialled: Dialled, caplog: pytest.LogCaptureFixture
) -> None:
    dialled.failures = [BrokerUnreachable("nobody answers"), NoQuorum("for now"), Busy("for now")] * 5

    assert Broker("h:1", reconnect_s=120).ask(lambda client: client) is dialled
    assert len(dialled.calls) == 16
    assert caplog.messages == ["nobody answers; trying again for 120 s"], "an outage is told once"


@pytest.mark.parametrize(
    ("said", "option"),
    [
        (
            str(unreachable("h:1", OSError(111, "Connection refused"))),
            "start it with `wakeq serve`, or set option broker",
        ),
        (str(unreachable("h:1", ssl.SSLError(1, "wrong version"))), "check whether that port has TLS (option tls) and"),
        (str(ended_before_greeting(Disconnected("h:1 closed the connection"))), "does it want TLS (option tls)?"),
        (NO_TOKEN, "a token is needed here (option token, or tokenFile)"),
        (file_error(), "check option tokenFile or WAKEQ_TOKEN_FILE"),
    ],
)
def test_error_of_a_client_names_the_option_that_helps(dialled: Dialled, said: str, option: str) -> None:
    dialled.failures = [Unauthorized(said)]

    with pytest.raises(Unauthorized, match=re.escape(option)):
        Broker("h:1").ask(lambda client: client)


def test_broker_that_stays_away_ends_the_call_with_the_reason(clock: Clock, dialled: Dialled) -> None:
    dialled.failures = [BrokerUnreachable(f"attempt {number}") for number in range(1_000)]

    with pytest.raises(BrokerUnreachable, match="attempt"):
        Broker("h:1", reconnect_s=30).ask(lambda client: client)

    assert 28 <= clock() <= 30


def test_call_without_patience_fails_at_once(clock: Clock, dialled: Dialled, caplog: pytest.LogCaptureFixture) -> None:
    dialled.failures = [BrokerUnreachable("nobody answers")]

    with pytest.raises(BrokerUnreachable, match="nobody"):
        Broker("h:1").ask(lambda client: client)

    assert (clock(), caplog.messages) == (0.0, [])


def test_refusal_that_will_not_pass_is_not_tried_again(clock: Clock, dialled: Dialled) -> None:
    def ask(client: Any) -> None:
        raise Forbidden("no right to fetch from q")

    with pytest.raises(Forbidden):
        Broker("h:1", reconnect_s=120).ask(ask)

    assert clock() == 0.0


def test_process_keeps_one_connection_for_each_login(dialled: Dialled) -> None:
    one, other = Broker("h:1", token="a"), Broker("h:1", token="b")

    for broker in (one, other, one, Broker("h:1", token="a")):
        broker.client()

    assert [call["token"] for call in dialled.calls] == ["a", "b"]


@pytest.mark.parametrize(
    ("broker", "token", "tls"),
    [
        (Broker("h:1"), None, None),
        (Broker("h:1", token="t", tls="true"), "t", True),
        (Broker("h:1", token_file="/run/token", tls="/run/ca.pem"), Path("/run/token"), "/run/ca.pem"),
        (Broker("h:1", tls="system"), None, "system"),
        (Broker("h:1", tls="FALSE"), None, False),
    ],
)
def test_options_become_credentials(dialled: Dialled, broker: Broker, token: Any, tls: Any) -> None:
    broker.connect()

    assert dialled.calls == [{"address": "h:1", "token": token, "tls": tls}]


@pytest.mark.parametrize("address", ["127.0.0.1:2601", "a:1, 127.3.0.1:1", "localhost:2601", "[::1]:2601"])
def test_loopback_broker_is_refused_on_a_cluster(address: str) -> None:
    broker = Broker(address)

    for master in ("", "local", "local[4]", "local-cluster[1,1,512]"):
        broker.check_is_shared(master)
    for master in ("spark://m:7077", "yarn", "k8s://https://m:443"):
        with pytest.raises(BadSettings, match="set option broker to an address that all executors reach"):
            broker.check_is_shared(master)
        Broker("broker.example:2601,10.0.0.7:2601").check_is_shared(master)
