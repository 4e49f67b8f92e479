"""The command line.  It sees every room and knows no rule of queues.

Begin with entry.py, the group of all commands, which lists the module of each; common.py (addresses, confirmation, exit
statuses) and output.py (tables, JSON) are shared by all.  messages.py and queues.py have what users call most, over the
worker protocol; operating.py has what goes over the HTTP API; `broker/` runs and keeps a broker, `worker/` runs
workers; pipeline.py, taskflux.py and monique.py have a group of commands each; report.py has the report and the
forecast, and spark.py what a command under Spark needs.

This module is what the installed program imports, so it loads nothing itself: a Ctrl-C while a command is loaded must
not print a traceback.
"""

from collections.abc import Sequence

__all__ = ["main"]

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        from wakeq.cli import entry
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return entry.main(arguments)
