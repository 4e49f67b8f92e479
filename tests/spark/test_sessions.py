"""The session of a verb: under spark-submit its master is used, and an interrupt leaves no virtual machine behind."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.started import eventually
from wakeq.client.bulk import BulkClient

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.usefixtures("needs_spark")]
PROGRAMS = Path(__file__).parents[1] / "helpers" / "programs"
DEADLINE_S = 600.0  # it starts a virtual machine of its own, and the machine may have much else to do


def test_spark_submit_decides_about_the_master(tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    around = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_UDS_MODE": "true", "SPARK_LOCAL_IP": "127.0.0.1"}
    with BrokerProcess(tmp_path / "data") as broker:
        BulkClient(broker.address).publish_many("q", ["a", "b"])

        done = subprocess.run(
            [submit, "--master", "local[3]", PROGRAMS / "spark_submitted.py", broker.address],
            capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | around, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    of_verb, of_user = json.loads(done.stdout.splitlines()[-1])
    assert of_verb == {"master": "local[3]", "count": 2}
    assert of_user == {"master": "local[3]", "count": 2, "is_used": True}


def has_begun(words: str, group: int) -> bool:
    """Whether a process of the group has these words in its command."""
    for process in Path("/proc").glob("[0-9]*"):
        # A process may have ended meanwhile.
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if words in command and os.getpgid(int(process.name)) == group:
                return True
    return False


@pytest.mark.parametrize("words", ["/spark-class", "org.apache.spark.deploy.SparkSubmit"])
def test_interrupt_during_the_start_of_spark_leaves_no_virtual_machine(words: str) -> None:
    command, pipe = [sys.executable, str(PROGRAMS / "spark_verb.py")], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    eventually(lambda: has_begun(words, process.pid), words)
    os.killpg(process.pid, signal.SIGINT)
    # The virtual machine has these pipes, too: this waits for its end.
    said, complaint = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, said) == (130, "")
    assert "Traceback" not in complaint


def test_interrupt_of_a_job_prints_no_traceback() -> None:
    command, pipe = [sys.executable, str(PROGRAMS / "spark_verb.py")], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert process.stdout is not None

    assert process.stdout.readline() == "started\n"
    os.killpg(process.pid, signal.SIGINT)
    _said, complaint = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, complaint[-3000:]
    assert "Traceback" not in complaint
