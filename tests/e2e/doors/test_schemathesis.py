"""Schemathesis makes requests from the OpenAPI document; the document describes every answer of the broker."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess

BESIDE = Path(sys.executable).parent / "schemathesis"
TOOL = str(BESIDE) if BESIDE.exists() else shutil.which("schemathesis")
ENDLESS = "/api/v1/events"
# What fits the schema may be refused all the same: a moment that is over, a policy that there is not.
SAID_OTHERWISE = "positive_data_acceptance"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(TOOL is None, reason="schemathesis is not installed; `make install` installs it"),
]


def test_answers_of_the_http_api_match_its_document(broker: BrokerProcess, tmp_path: Path) -> None:
    assert TOOL is not None
    host, port = broker.http_address
    arguments = ["run", f"http://{host}:{port}/api/v1/openapi.json", "--exclude-path", ENDLESS]
    arguments += ["--exclude-checks", SAID_OTHERWISE, "--max-examples", "10", "--no-color", "--seed", "1"]

    done = subprocess.run([TOOL, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr
    assert broker.running
    assert "Traceback" not in broker.stderr
