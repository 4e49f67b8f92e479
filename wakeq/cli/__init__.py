"""The command line: what people type.  One file for each group of verbs; nothing here knows a queue rule.

This is what the installed command imports, so it loads nothing itself: a Ctrl-C while the verbs are loaded, which
takes a tenth of a second, must not be a traceback.
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
