"""Logs: one line for each event, for people or as a JSON object for programs.

    a record --> one line; control characters of whatever came from a peer are spelt out --> standard error

Nothing that a client sends can begin a line of its own, or write to a terminal.  A traceback, which only a bug leaves,
is in the same JSON object, or in lines that begin with a bar.
"""

import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

import msgspec

TRACE_PREFIX = "  | "


class StderrHandler(logging.StreamHandler[TextIO]):
    """What `log_to_stderr` has set up, and may change."""


def log_to_stderr(level: str, format_: str) -> None:
    """Log from this level on in this format, `console` or `json`; a program that logs already keeps what it has.

    Called again, it changes what it has set up itself.
    """
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler, StderrHandler)]
    if root.handlers and not ours:
        return
    for handler in ours or [StderrHandler(sys.stderr)]:
        handler.setFormatter(JsonLine() if format_ == "json" else ConsoleLine())
        root.addHandler(handler)
    root.setLevel(level.upper())


class ConsoleLine(logging.Formatter):
    """A record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname} {record.name}: {plain(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n{TRACE_PREFIX}{plain(part)}" for part in trace.splitlines())
        return line


class JsonLine(logging.Formatter):
    """A record as one line of JSON; `fields` are attributes of the record that are told too."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _encodable(record.getMessage()),
            **{name: getattr(record, name, "-") for name in self._fields},
        }
        if record.exc_info:
            facts["error"] = _encodable(self.formatException(record.exc_info))
        return msgspec.json.encode(facts).decode()


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _encodable(text: str) -> str:
    """Return the text with half characters, as names of files that are no UTF-8 have them, spelt out."""
    return text.encode(errors="backslashreplace").decode()


def plain(text: str) -> str:
    """Return the text in one line, with control characters (escape sequences, newlines) spelt out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
