"""The broker's history and its queues as data frames, for analysis and for moving many messages at once.

    journal/    the history of a broker as a table, from its directory or its HTTP port; needs pyarrow, not Spark
    lake/       the history as Parquet files, in a folder or an object store
    report/     what a broker did, as a page, and how many workers it will need
    stream/     queues as data frames: Spark's data source `wakeq`
    load/       rows of files, or messages of a lake, published once each
    discovery/  modules by which Spark finds the data sources

Begin with journal/table.py, lake/archiving.py and stream/source.py.  cluster.py makes the data sources known in a
session, and checks the executors of a cluster; options.py checks what data sources are given; spark.py has the session
of Spark for one command, java.py the Java for it.  The commands of `wakeq pipeline` call this room; it sees the client
and the protocol, never the server.  Modules that need Spark are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wakeq.pipeline.cluster import check, register
    from wakeq.pipeline.stream.settling import autoack

__all__ = ["autoack", "check", "register"]

HOMES = {
    "autoack": "wakeq.pipeline.stream.settling",
    "check": "wakeq.pipeline.cluster",
    "register": "wakeq.pipeline.cluster",
}


# A type checker that saw this function would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in HOMES:
            return getattr(import_module(HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
