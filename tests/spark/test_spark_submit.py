"""Under spark-submit the master that it names is used, by programs and by verbs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from wakeq.client.bulk import BulkClient

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.long]
PROGRAM = Path(__file__).parents[1] / "helpers" / "programs" / "spark_submitted.py"
DEADLINE_S = 600.0  # it starts a virtual machine of its own, and the machine may have much else to do


@pytest.mark.usefixtures("needs_spark")
def test_spark_submit_decides_about_the_master(tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    around = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_UDS_MODE": "true", "SPARK_LOCAL_IP": "127.0.0.1"}
    with BrokerProcess(tmp_path / "data") as broker:
        BulkClient(broker.address).publish_many("q", ["a", "b"])

        done = subprocess.run(
            [submit, "--master", "local[3]", PROGRAM, broker.address],
            capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | around, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    of_verb, of_user = json.loads(done.stdout.splitlines()[-1])
    assert of_verb == {"master": "local[3]", "count": 2}
    assert of_user == {"master": "local[3]", "count": 2, "is_used": True}
