"""The examples of the pipeline, and that of the README: they run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.journal.files import JournalFiles
from tests.helpers.programs.followed_page import FENCE
from wakeq import Client
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import CreateQueue, Draft, Publish

pytestmark = [pytest.mark.spark, pytest.mark.long]
NIGHTLY = Path(__file__).parents[2] / "examples" / "pipeline" / "nightly.sh"
README = Path(__file__).parents[2] / "README.md"
DEADLINE_S = 600.0  # some start a virtual machine of their own, and the machine may have much else to do


@pytest.mark.usefixtures("spark")
def test_nightly_script_archives_and_reports(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(CreateQueue("jobs", Policies()), Publish("jobs", [Draft(b"x")]))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    wakeq = tmp_path / "bin" / "wakeq"
    wakeq.parent.mkdir()
    wakeq.write_text(f'#!/bin/sh\nexec {sys.executable} -m wakeq "$@"\n')
    wakeq.chmod(0o700)

    places = [str(tmp_path / name) for name in ("data", "lake", "reports")]
    run = subprocess.run(
        [NIGHTLY, *places, "2023-11-14"], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env=os.environ | {"PATH": f"{wakeq.parent}:{os.environ['PATH']}"},
    )  # fmt: skip

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == "2 events in 1 file"
    assert (tmp_path / "reports" / "2023-11-14.html").exists()


@pytest.mark.usefixtures("spark")
def test_readme_example_moves_messages_between_queues(tmp_path: Path) -> None:
    """It finds this broker by an option: the session's processes have the environment with which it began."""
    blocks = [block for _, block in FENCE.findall(README.read_text(encoding="utf-8"))]
    (program,) = [block for block in blocks if block.startswith("# uppercase.py")]

    with BrokerProcess(tmp_path / "data") as broker:
        address = broker.addresses["worker"]
        here = program.replace('format("wakeq")', f'format("wakeq").option("broker", "{address}")')
        here = here.replace('"checkpoint"', repr(str(tmp_path / "checkpoint")))
        with Client(address) as client:
            client.publish("orders", "two cups of tea")
            exec(compile(here, "uppercase.py", "exec"), {})
            message = client.fetch("shouted")

    assert message is not None
    assert message.text() == "TWO CUPS OF TEA"
