"""Operating a broker from the command line: look, pause, move, release, ask why; and the broker's log."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.monique.component import config_json
from tests.helpers.network.certificates import Authority
from tests.helpers.programs.started import eventually
from wakeq.cli import main
from wakeq.client import Client
from wakeq.client.admin import AdminClient
from wakeq.monique import MoniqueClient

Run = Callable[..., tuple[int, str, str]]
DOCKERFILE = Path(__file__).parents[3] / "deploy" / "Dockerfile"


def at(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@pytest.fixture
def run(shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command line against the broker of this file: status, output, errors."""

    def run_one(*arguments: object) -> tuple[int, str, str]:
        broker = shared_broker
        where = ["--broker", at(broker.worker_address), "--http", at(broker.http_address)]
        capsys.readouterr()
        status = main([*where, *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run_one


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Any:
    with Client(at(shared_broker.worker_address)) as made:
        yield made


def test_queue_is_paused_and_resumed(run: Run, client: Client) -> None:
    client.publish("pause", b"1")

    assert run("queue", "pause", "pause", "--for", "100")[:2][0] == 0
    assert client.fetch("pause") is None
    status, out, _ = run("why", "pause", client.peek("pause")[0]["uid"])
    assert (status, out.splitlines()[0].partition(" until")[0]) == (0, "paused: the queue is paused")
    assert run("queue", "resume", "pause")[0] == 0
    assert client.fetch("pause") is not None
    status, _, said = run("queue", "pause", "nowhere")
    assert (status, said) == (1, "wakeq: this queue does not exist; publish to it or create it first\n")


def test_why_shows_earlier_failures_of_a_message(run: Run, client: Client) -> None:
    told = []
    uid = client.publish("failing", "x")

    for error in ("busy", "away"):
        message = client.fetch("failing")
        assert message is not None
        message.nack(0, error=error)
        told.append(run("why", "failing", uid)[1].splitlines()[-1])

    assert told == [
        "failed_before: it failed before: nacked once; the last error: busy",
        "failed_before: it failed before: nacked 2 times; the last error: away",
    ]


def test_bench_uses_a_queue_of_its_own_and_removes_it(run: Run) -> None:
    status, out, _ = run("bench", "--messages", 30, "--batch", 10, "--connections", 2, "--json")
    too_large, _, said = run("bench", "--messages", 1, "--bytes", 1_500_000)

    steps = json.loads(out)["steps"]
    assert status == 0
    assert [step["messages"] for step in steps] == [30] * 4
    assert all(step["per_second"] > 0 and step["p50_ms"] <= step["p99_ms"] for step in steps)
    assert (too_large, "limit is 1048576" in said) == (1, True)
    assert "wakeq-bench" not in run("queue", "list")[1]


def test_messages_are_selected_shown_moved_and_deleted(run: Run, client: Client) -> None:
    for number in range(10):
        client.publish("pick", f"m{number}", priority=number, headers={"tenant": "ab"[number % 2]})

    dry = run("queue", "move", "pick", "elsewhere", "--where", "priority<4", "--dry-run")
    no = run("queue", "move", "pick", "elsewhere", "--where", "priority<4")
    yes = run("queue", "move", "pick", "elsewhere", "--where", "priority<4", "--yes")
    purged = run("queue", "purge", "pick", "--where", "header.tenant=a", "--limit", 2, "--yes", "--json")
    wrong = run("queue", "purge", "pick", "--where", "colour=red", "--yes")

    assert dry[0] == 0
    assert len(dry[1].splitlines()) == 5
    assert "4 of 10 examined messages match" in dry[2]
    assert (no[0], "pass --yes" in no[2]) == (2, True)
    assert yes[1] == "moved from queue pick: 4\n"
    assert json.loads(purged[1])["done"] == 2
    assert wrong[0] == 1
    assert "there is no field colour" in wrong[2]
    assert (client.stats("elsewhere")["size"], client.stats("pick")["size"]) == (4, 4)


def test_move_of_more_messages_than_one_call_holds_moves_all(run: Run, client: Client) -> None:
    client.publish_many("many", ["m"] * 2_500)

    assert run("queue", "move", "many", "many2", "--yes")[1] == "moved from queue many: 2500\n"
    assert run("queue", "move", "many2", "many", "--limit", 1_200, "--yes")[1] == "moved from queue many2: 1200\n"


def test_delayed_messages_are_released_and_dead_letters_redriven(run: Run, client: Client) -> None:
    client.create_queue("work", max_deliveries=1)
    uid = client.publish("work", b"later", delay=1_000)

    assert run("queue", "requeue", "work", "--uid", uid, "--yes")[1] == "made ready in queue work: 1\n"
    message = client.fetch("work")
    assert message is not None
    message.nack(error="boom")
    assert "dead letter" in run("why", "work", uid)[1]
    assert run("queue", "redrive", "work.dead", "--where", "header.wakeq-error=other", "--yes")[1].endswith(": 0\n")
    assert run("queue", "redrive", "work.dead", "--where", "error=boom", "--yes")[1].endswith(": 1\n")
    assert client.fetch("work") is not None


def test_leases_and_connections_are_listed_and_ended(run: Run, client: Client) -> None:
    uid = client.publish("held", b"1")
    assert client.fetch("held") is not None

    listed = json.loads(run("leases", "list", "held", "--json")[1])["leases"]
    assert [lease["uid"] for lease in listed] == [uid]
    assert run("leases", "release", "held", uid, "--yes")[:2] == (0, "released: 1\n")
    assert run("leases", "release", "held", uid, "--yes")[0] == 3
    client.subscribe("held")
    rows = json.loads(run("connections", "list", "--json")[1])["connections"]
    (mine,) = [row for row in rows if row["queues"] == ["held"]]
    assert run("connections", "close", mine["id"], "--yes")[0] == 0
    assert run("connections", "close", 99_999, "--yes")[0] == 1


def test_worker_is_listed_with_what_it_has(run: Run, client: Client) -> None:
    uid = client.publish("worked", b"1")
    assert client.fetch("worked") is not None

    workers = json.loads(run("workers", "--json")[1])["workers"]
    (mine,) = [row for row in workers if any(one["queue"] == "worked" for one in row["busy"])]
    status, shown, _ = run("workers")

    assert (mine["host"], mine["pid"]) == (socket.gethostname(), os.getpid())
    assert set(mine["versions"]) == {"wakeq", "python"}
    assert [one["uid"] for one in mine["busy"]] == [uid]
    assert (status, str(os.getpid()) in shown.split()) == (0, True)


def test_monique_connection_is_listed_and_ended(run: Run, shared_broker: BrokerProcess) -> None:
    def rows() -> dict[int, dict[str, Any]]:
        listed = json.loads(run("connections", "list", "--json")[1])["connections"]
        return {row["id"]: row for row in listed if row["door"] == "monique"}

    with MoniqueClient(at(shared_broker.http_address)) as monique:
        monique.subscribe(("a_b", "*"), ("*", "data"))
        ((mine, row),) = rows().items()
        assert (row["subscriptions"], row["in_flight"], row["peer"].rpartition(":")[0]) == (2, 0, "127.0.0.1")

        assert run("connections", "close", mine, "--yes")[0] == 0
        eventually(lambda: mine not in rows(), "it is closed")
        monique.ping()

        ((other, row),) = rows().items()
        assert (other == mine, row["subscriptions"]) == (False, 2)


def test_top_shows_what_happens(run: Run, client: Client) -> None:
    client.publish_many("busy", ["m"] * 7)

    status, out, _ = run("top", "bus", "--json")

    facts = json.loads(out)
    assert status == 0
    assert [(row["queue"], row["ready"]) for row in facts["queues"]] == [("busy", 7)]
    assert facts["node"]["role"] == "leader"
    assert run("top", "--once")[1].splitlines()[0].split("\t")[0] == "queue"


def test_unreachable_broker_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--http", "127.0.0.1:1", "why", "q", "u"]) == 69
    assert "no broker answers at 127.0.0.1:1 (Connection refused); start it with" in capsys.readouterr().err
    assert main(["--http", "ftp://x", "why", "q", "u"]) == 78


def test_first_serving_address_of_several_is_asked(shared_broker: BrokerProcess, client: Client) -> None:
    client.publish("several", b"1")

    assert main(["--http", f"127.0.0.1:1,{at(shared_broker.http_address)}", "queue", "pause", "several"]) == 0


def test_doctor_checks_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]

    status = main(["doctor", "--json", "--data-dir", str(tmp_path / "data"), *ports])

    findings = json.loads(capsys.readouterr().out)["findings"]
    assert status == 0, findings
    assert {finding["what"] for finding in findings} == {
        "versions", "ports", "data", "disk", "files", "memory", "clock",
    }  # fmt: skip
    assert not (tmp_path / "data").exists()
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_what_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data" / "consensus").mkdir(parents=True)
    (tmp_path / "data" / "consensus" / "raft.log").write_bytes(b"?")

    assert main(["doctor", "--json", "--data-dir", str(tmp_path / "data")]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["what"] for finding in findings if finding["level"] == "bad"] == ["directory"]


def test_doctor_checks_the_ports_of_the_monique_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*arguments: str) -> list[dict[str, str]]:
        ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
        main(["doctor", "--json", "--data-dir", str(tmp_path / "data"), *ports, "-f", str(config), *arguments])
        return [one for one in json.loads(capsys.readouterr().out)["findings"] if "monique" in one["text"].lower()]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_json(tmp_path / "config.json", a_b=port)
        said = found()
    assert [one["level"] for one in said] == ["good"] * 5 + ["note"]
    assert f"MoniQue's controller of a_b {port} on 127.0.0.1" in said[-1]["text"]

    config.write_text(config.read_text().replace("127.0.0.1", "*"))
    assert [one["level"] for one in found() if "other machines reach" in one["text"]] == ["bad"]
    assert {one["level"] for one in found("--insecure")} == {"good"}
    config.write_text("{")
    assert [one["level"] for one in found()] == ["bad"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_WAKEQ_COMPLETE" in capsys.readouterr().out


def test_bash_completes_the_name_of_a_queue(shared_broker: BrokerProcess, client: Client) -> None:
    client.publish("completed-by-tab", b"1")

    asked = {"COMP_WORDS": "wakeq pub complete", "COMP_CWORD": "2", "_WAKEQ_COMPLETE": "bash_complete"}
    broker = {"WAKEQ_BROKER": at(shared_broker.worker_address)}
    found = subprocess.run(
        [sys.executable, "-m", "wakeq"], env=os.environ | asked | broker, capture_output=True, text=True, check=True
    )

    assert (found.stdout, found.stderr) == ("plain,completed-by-tab\n", "")


def test_doctor_reports_missing_tokens_and_bad_tls_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
    missing = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]

    assert main(["doctor", "--json", "--data-dir", str(tmp_path), *ports, "--auth", "--insecure"]) == 0
    noted = json.loads(capsys.readouterr().out)["findings"]
    assert main(["doctor", "--json", "--data-dir", str(tmp_path), *ports, *missing]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]

    notes = [one["text"] for one in noted if (one["level"], one["what"]) == ("note", "security")]
    assert ["contains no token" in notes[0], notes[1].startswith("insecure:"), len(notes)] == [True, True, 2]
    assert [one["what"] for one in found if one["level"] == "bad"] == ["security"]


# The log ----------------------------------------------------------------------------------------------------------


def test_json_log_has_a_line_for_each_event_that_no_client_can_forge(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "logging.format=json")
    with Client(at(broker.worker_address)) as client:
        client.publish("jobs", b"1")
        client.create_queue("short-lived")
        client.delete_queue("short-lived")
    evil = 'x"}\n{"level": "error", "message": "forged'
    where = ["--http", at(broker.http_address)]

    assert main([*where, "queue", "pause", "jobs"]) == 0
    assert main([*where, "queue", "purge", "jobs", "--where", f"body~{evil}", "--yes"]) == 0
    assert main([*where, "why", evil, evil]) == 1
    broker.terminate()

    lines = [json.loads(line) for line in broker.stderr.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    said = [line["message"] for line in lines]
    assert any("is up" in text for text in said)
    assert any("/api/v1/queue/pause?queue=jobs" in text for text in said)
    assert [text.split()[1:] for text in said if text.endswith(" short-lived")] == [
        ["CREATE", "short-lived"], ["DROP", "short-lived"],
    ]  # fmt: skip
    assert sum("forged" in text for text in said) == 1
    assert all(line["level"] == "info" for line in lines if "forged" in line["message"])


def test_text_log_has_no_line_that_a_client_began(start_broker: StartBroker) -> None:
    broker = start_broker()
    main(["--http", at(broker.http_address), "queue", "purge", "", "--where", "body~\nERROR forged\x1b[31m", "--yes"])
    broker.terminate()

    assert "forged" in broker.stderr
    assert not any(line.startswith("ERROR") for line in broker.stderr.splitlines())
    assert "\x1b" not in broker.stderr


def test_sighup_changes_log_settings_and_metrics(start_broker: StartBroker, tmp_path: Path) -> None:
    config = tmp_path / "wakeq.toml"
    config.write_text('[logging]\nlevel = "error"\n')
    broker = start_broker("--config", str(config))
    series = 'wakeq_queue_bytes{queue="jobs"}'
    with Client(at(broker.worker_address)) as client:
        client.publish("jobs", b"1")
    assert broker.stderr == ""
    with AdminClient(at(broker.http_address)) as operator:
        assert series in operator.text("/metrics")

        config.write_text('[logging]\nformat = "json"\n[metrics]\nqueues_max = 0\n')
        broker.send_signal(signal.SIGHUP)

        eventually(lambda: "reloaded" in broker.stderr, "the broker logs that it has reloaded them")
        assert json.loads(broker.stderr)["logger"] == "wakeq.node"
        assert series not in operator.text("/metrics")


# The image ---------------------------------------------------------------------------------------------------------


def is_healthy(**environment: object) -> bool:
    """Return whether the image's health check passes in this environment."""
    instruction = re.search(r"^HEALTHCHECK .*\\\n *CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert instruction is not None
    program, *arguments = json.loads(instruction[1])
    command = {"python": [sys.executable], "wakeq": [sys.executable, "-m", "wakeq"]}[program]
    given = {name: str(value) for name, value in environment.items()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WAKEQ_")}
    return subprocess.run([*command, *arguments], env=inherited | given, capture_output=True).returncode == 0


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
def test_image_health_check_asks_the_configured_port_and_no_proxy(
    start_broker: StartBroker, tmp_path: Path, is_secured: bool
) -> None:
    config = tmp_path / "wakeq.toml"
    if is_secured:
        pair = Authority(tmp_path).issue("broker")
        config.write_text(f'[tls]\ncert_file = "{pair.cert}"\nkey_file = "{pair.key}"\n')
    else:
        config.write_text("")
    broker = start_broker("--config", str(config), "--host", "127.0.0.2")
    where = {"WAKEQ_CONFIG": config, "WAKEQ_HTTP_PORT": broker.http_address[1]}
    no_proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": "http://[::1]:1"}

    assert is_healthy(**where, **no_proxy, WAKEQ_HOST="127.0.0.2")
    assert not is_healthy(**where, WAKEQ_HOST="127.0.0.3")
    assert "no TLS with" not in broker.stderr

    broker.send_signal(signal.SIGSTOP)
    assert not is_healthy(**where, WAKEQ_HOST="127.0.0.2")


def test_image_health_check_finds_a_broker_on_all_addresses(start_broker: StartBroker) -> None:
    broker = start_broker("--host", "0.0.0.0", "--insecure")

    assert is_healthy(WAKEQ_HOST="0.0.0.0", WAKEQ_HTTP_PORT=broker.http_address[1], WAKEQ_INSECURE="true")
