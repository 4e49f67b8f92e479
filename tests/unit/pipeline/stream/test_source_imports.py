"""What a process imports that only plans or commits: Spark starts many of these, and each pays for its imports."""

import subprocess
import sys

import pytest

PLANS = """
import sys
from contextlib import suppress
from types import SimpleNamespace
from wakeq.pipeline.stream.source import QueueSource
from wakeq.protocol.errors import BrokerUnreachable
text = SimpleNamespace(simpleString=lambda: "string")
schema = SimpleNamespace(fields=[SimpleNamespace(name="body", dataType=text)])
source = QueueSource({"queue": "q", "broker": "127.0.0.1:1"})
source.schema()
source.streamWriter(schema, False)
with suppress(BrokerUnreachable):
    source.writer(schema, False)
text.simpleString = lambda: "binary"
source.reader(schema)
source.streamReader(schema).initialOffset()
print(sorted({"pyarrow", "numpy", "pandas", "ssl", "asyncio"}.intersection(sys.modules)))
"""


@pytest.mark.spark
def test_planner_and_commit_import_no_arrow() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    heavy = subprocess.run([sys.executable, "-c", "import pyspark.sql.datasource, pyspark.sql.streaming.datasource\n"
                            "import sys; print(sorted({'ssl', 'asyncio', 'pyarrow'}.intersection(sys.modules)))"],
                           capture_output=True, text=True, check=True)  # fmt: skip

    done = subprocess.run([sys.executable, "-c", PLANS], capture_output=True, text=True, check=True)

    assert done.stdout == heavy.stdout, "no more than pyspark itself"
