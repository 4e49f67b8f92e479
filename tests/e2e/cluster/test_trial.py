"""`wakeq cluster try` as an operator runs it: beside another broker, and until Ctrl-C."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

STARTED_S_MAX = 120


@pytest.fixture
def _taken_port() -> Iterator[None]:
    """Take one of the default ports, unless another program on this machine has it already."""
    with socket.socket() as other:
        with suppress(OSError):
            other.bind(("127.0.0.1", 2621))
            other.listen()
        yield


@pytest.mark.usefixtures("_taken_port")
def test_trial_cluster_beside_another_broker_takes_free_ports_and_ends_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wakeq", "cluster", "try", "--data-dir", str(tmp_path / "cluster")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as trial:
        assert trial.stdout is not None
        # A cluster that does not start ends the test, too.
        giving_up = threading.Timer(STARTED_S_MAX, trial.terminate)
        giving_up.start()
        try:
            lines = [trial.stdout.readline()]
            while lines[-1] and "export " not in lines[-1]:
                lines.append(trial.stdout.readline())
            exports = shlex.split(lines[-1].partition("export ")[2])
            where = dict(one.split("=", 1) for one in exports)
            ping = [sys.executable, "-m", "wakeq", "ping", "--wait", str(STARTED_S_MAX)]
            subprocess.run(ping, env=os.environ | where, check=True, capture_output=True)

            trial.send_signal(signal.SIGINT)
            lines += trial.stdout.readlines()
            status = trial.wait()
        finally:
            giving_up.cancel()
            # Its nodes end with it.
            trial.terminate()

    assert "in use, so the nodes use free ports; they are shown" in lines[0]
    assert sorted(where) == ["WAKEQ_BROKER", "WAKEQ_HTTP", "WAKEQ_TASKFLUX"]
    assert not {"2601", "2611", "2621"} & {address.rpartition(":")[2] for address in where["WAKEQ_BROKER"].split(",")}
    assert status == 0
    assert [line for line in lines if "WARNING" in line or "ERROR" in line] == []
