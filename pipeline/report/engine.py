"""Engine: what answers queries about events; the same figures come out of each.

embedded.py runs them in this process, on_spark.py in a session of Spark.
"""

from typing import Protocol

import pyarrow as pa

from wakeq.pipeline.report.events import Events
from wakeq.pipeline.report.queries import Query


class Engine(Protocol):
    """Runs queries."""

    def run(self, events: Events, *queries: Query) -> list[pa.Table]:
        """Return the answers, in the order of the queries."""
        ...
