"""The command line: what people type.  One file for each group of verbs; nothing here knows a queue rule."""

from wakeq.cli.entry import main

__all__ = ["main"]
