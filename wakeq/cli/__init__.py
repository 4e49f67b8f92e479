"""cli: the command line.  entry.py has the group of all commands; each folder holds the commands of one subject.

This module is what the installed program imports, so it loads nothing itself: a Ctrl-C while the commands are loaded,
which takes a tenth of a second, must not print a traceback.  Nothing here knows a rule of queues.
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
