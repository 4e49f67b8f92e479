"""`wakeq cluster try`: it prints the addresses of the nodes, and the command that restarts a dead one."""

import socket
import subprocess
import threading
from pathlib import Path

import pytest

from wakeq.cli.broker import cluster
from wakeq.cli.broker.cluster import ReadyNodes, _secret, check_peer_ports, peers_of, show, taken_port
from wakeq.protocol.errors import CannotListen
from wakeq.storage.credentials import read_secret


@pytest.mark.parametrize(
    ("is_stopping", "last"),
    [(False, "node 2 ended with status 0; restart it with: echo 'wakeq ready'"), (True, "")],
)
def test_node_that_ends_alone_is_reported_with_its_command(
    is_stopping: bool, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = threading.Event()
    if is_stopping:
        stopping.set()

    with subprocess.Popen(["echo", "wakeq ready"], stdout=subprocess.PIPE, text=True) as node:
        show(2, node, stopping, ReadyNodes())

    assert capsys.readouterr().out == "\n".join(["node 2: wakeq ready", last]).rstrip() + "\n"


@pytest.mark.parametrize(
    ("last_act", "ended"), [("exit 65", "ended with status 65"), ("kill -9 $$", "was killed by signal 9")]
)
def test_restart_command_of_a_node_has_its_former_ports(
    last_act: str, ended: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"echo wakeq ready worker=127.0.0.1:1001 http=127.0.0.1:1002 taskflux=127.0.0.1:1003; {last_act}"
    ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0", "--set", "x=0"]

    with subprocess.Popen(["sh", "-c", script, *ports], stdout=subprocess.PIPE, text=True) as node:
        show(1, node, threading.Event(), ReadyNodes())

    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"node 1 {ended}; restart it with: sh -c ")
    assert said.endswith(" --worker-port 1001 --http-port 1002 --taskflux-port 1003 --set x=0")


def test_addresses_are_printed_once_after_the_last_node_is_ready() -> None:
    ready = ReadyNodes()

    said = [
        ready.receive_line(2, "wakeq ready worker=h:3 http=h:6 taskflux=h:9\n"),
        ready.receive_line(0, "INFO wakeq.node: up\n"),
        ready.receive_line(0, "wakeq ready worker=h:1 http=h:4 taskflux=h:7\n"),
        ready.receive_line(1, "wakeq ready worker=h:2 http=h:5 taskflux=h:8\n"),
        ready.receive_line(1, "INFO wakeq.raft_log: leads\n"),
    ]

    export = "export WAKEQ_BROKER=h:1,h:2,h:3 WAKEQ_HTTP=h:4,h:5,h:6 WAKEQ_TASKFLUX=h:7,h:8,h:9"
    assert said == [None, None, None, export, None]


def test_trial_cluster_keeps_its_secret(tmp_path: Path) -> None:
    setting = _secret(tmp_path)
    name, _, path = setting.partition("=")
    secret = read_secret(Path(path))

    assert name == "cluster.secret_file"
    assert (_secret(tmp_path), read_secret(Path(path))) == (setting, secret)


def test_trial_cluster_keeps_the_addresses_of_its_nodes(tmp_path: Path) -> None:
    peers = peers_of(tmp_path, free_ports=True)

    assert "127.0.0.1:2603" not in peers
    assert [peers_of(tmp_path, free_ports=free_ports) for free_ports in (True, False)] == [peers, peers]


def test_port_of_another_program_is_found_before_nodes_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(cluster, "PORTS_APART", 0)
        for name in ("WORKER_PORT", "HTTP_PORT", "TASKFLUX_PORT", "PEER_PORT"):
            monkeypatch.setattr(cluster, name, port)

        assert taken_port() == port


def test_address_that_the_nodes_have_kept_and_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"

        with pytest.raises(CannotListen, match=f"^{address}, the address of node 0 of .*; stop the program there"):
            check_peer_ports(tmp_path, f"{address},{address}")

    check_peer_ports(tmp_path, address)
