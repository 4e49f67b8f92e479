"""The examples of MoniQue, and its verbs, each against a real broker: over WebSocket, over ZeroMQ, and through both."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.monique.component import config_json
from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import Started, eventually

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "monique.md"
SUM = '{"first": 6, "second": 5.0, "action": "/"}'


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("monique")
    config = config_json(folder / "config.json", example_calculator=port)
    broker = BrokerProcess(folder / "data", "--config-file", str(config))
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture
def config(broker: BrokerProcess, port: int, tmp_path: Path) -> Path:
    """Return a config.json with the ports that the broker really has, as a component reads it."""

    def layered(end: str) -> dict[str, object]:
        host, _, comport = broker.addresses[f"scheduler-{end}"].rpartition(":")
        techport = broker.addresses[f"technical-{end}"].rpartition(":")[2]
        return {"host": host, "comport": int(comport), "techport": int(techport)}

    host, _, websocket_port = broker.addresses["monique"].rpartition(":")
    deploy = {
        "scheduler-in": layered("in"),
        "scheduler-out": layered("out"),
        "controller": {"host": "127.0.0.1"},
        "websocket": {"host": host, "port": int(websocket_port)},
    }
    path = tmp_path / "config.json"
    params = {"example_calculator": {"creator": "me", "port": port}}
    path.write_text(json.dumps({"deploy": {"monique": deploy}, "params": params}))
    return path


def started(*arguments: str) -> Started:
    return Started([sys.executable, *arguments], cwd=ROOT)


def wakeq(*arguments: str, cwd: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wakeq", "monique", *arguments]
    return subprocess.run(command, cwd=cwd, input=typed, capture_output=True, text=True, timeout=30)


def asked(config: Path) -> dict[str, float]:
    """Ask for a sum as a person does, in the directory of config.json."""
    (config.parent / "sum.json").write_text(SUM)
    done = wakeq("push", "example_calculator", "config", "JSON", "sum.json", "--wait", "20", cwd=config.parent)
    assert done.returncode == 0, done.stderr
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def test_calculator_answers_over_websocket(broker: BrokerProcess, config: Path) -> None:
    with started("examples/monique/calculator.py", broker.addresses["http"]) as calculator:
        assert calculator.line().startswith("ready")

        assert asked(config) == {"answer": 1.2}


def test_calculator_over_zeromq_answers_a_client_over_websocket(config: Path) -> None:
    with started("-m", "examples.monique.calculator_zeromq", str(config)) as calculator:
        assert calculator.line().startswith("ready")

        assert asked(config) == {"answer": 1.2}


@pytest.mark.parametrize("content", ['{"first": 1, "second": 0, "action": "/"}', "# no JSON at all"])
def test_calculator_answers_bad_input_with_an_error(broker: BrokerProcess, config: Path, content: str) -> None:
    (config.parent / "no.json").write_text(content)
    with started("examples/monique/calculator.py", broker.addresses["http"]) as calculator:
        calculator.line()

        done = wakeq("push", "example_calculator", "config", "JSON", "no.json", "--wait", "20", cwd=config.parent)

    assert json.loads(done.stdout)["code"] == 502


def test_radio_is_heard_on_both_sides_from_either_side(broker: BrokerProcess, config: Path) -> None:
    server = f"--server={broker.addresses['http']}"
    with (
        started("examples/monique/radio.py", "listen", server) as listener,
        started("examples/monique/radio_zeromq.py", "listen", str(config)) as zmq_listener,
    ):
        assert listener.line().startswith("listening")
        assert zmq_listener.line().startswith("listening")

        with started("examples/monique/radio.py", "play", server, "one") as radio:
            assert radio.end() == 0, radio.errors
        with started("examples/monique/radio_zeromq.py", "play", str(config), "two") as radio:
            assert radio.end() == 0, radio.errors

        for who in (listener, zmq_listener):
            assert [who.line(), who.line()] == ["heard one", "heard two"]


def test_interactive_tester_behaves_like_the_original(config: Path) -> None:
    (config.parent / "sum.json").write_text(SUM)
    typed = "help\nsubscribe * config\nping\npush example_sum config JSON sum.json\nnonsense\npush a b c d\nquit\n"

    done = wakeq("tester", cwd=config.parent, typed=typed)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(SUM)
    for words in ("pushed config:example_sum:", "answered after", "no command nonsense", "b is not one of"):
        assert words in done.stderr


def test_listen_command_prints_messages_or_says_that_none_came(config: Path) -> None:
    nothing = wakeq("listen", "a_b", "data", "--wait", "0.2", cwd=config.parent)

    assert (nothing.returncode, nothing.stdout) == (3, "")
    with Started(
        [sys.executable, "-m", "wakeq", "monique", "-f", str(config), "listen", "a_b", "--limit", "1", "--json"],
        cwd=ROOT,
    ) as listener:
        eventually(lambda: "listening" in listener.errors, "it listens")
        (config.parent / "x.json").write_text('{"x":1}')
        assert wakeq("push", "a_b", "data", "JSON", "x.json", cwd=config.parent).returncode == 0
        heard = json.loads(listener.line())
    assert (heard["encoding"], heard["data"]) == ("JSON", '{"x":1}')
    assert heard["tag"].startswith("data:a_b:")


def test_monique_guide_shows_what_happens(
    start_broker: StartBroker, broker: BrokerProcess, config: Path, tmp_path: Path
) -> None:
    hello, calculations = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "hello.py").write_text(hello.replace("127.0.0.1:8080", broker.addresses["http"]))
    (tmp_path / "calculations.py").write_text(calculations)

    with started(str(tmp_path / "hello.py")) as program:
        assert program.line() == "{'song': 'one'}"
        assert program.end() == 0, program.errors

    keeper = start_broker("--set", "monique.routes=example_calculator=calculations")
    (tmp_path / "sum.json").write_text(SUM)
    ask = ("push", "example_calculator", "config", "JSON", "sum.json", "--wait", "20")
    environment = {"WAKEQ_BROKER": keeper.addresses["worker"]}
    with Started([sys.executable, str(tmp_path / "calculations.py")], environment=environment):
        done = wakeq("--address", keeper.addresses["http"], *ask, cwd=tmp_path)
    assert json.loads(done.stdout) == {"answer": 11.0}
