"""Logs: formats each event as one line, for people or as a JSON object for programs.

    a record --> one line, with control characters from peers escaped --> standard error

If standard error is systemd's journal, a line for people begins with its priority in place of the time.

Text from a client can never begin a line of its own or control a terminal.  A traceback, which only a bug leaves, is
part of the JSON object, or lines that begin with a bar.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

import msgspec

TRACE_PREFIX = "  | "
# The priorities of syslog.
PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class StderrHandler(logging.StreamHandler[TextIO]):
    """The handler that `log_to_stderr` installs, and may change later."""


def log_to_stderr(level: str, format_: str) -> None:
    """Log from this level on in a format, `console` or `json`; a program that has configured logging keeps its own.

    Another call changes the handler that the first one installed.
    """
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler, StderrHandler)]
    if root.handlers and not ours:
        return
    for handler in ours or [StderrHandler(sys.stderr)]:
        handler.setFormatter(_line_for(format_, handler.stream))
        root.addHandler(handler)
    root.setLevel(level.upper())


def _line_for(format_: str, stream: TextIO) -> logging.Formatter:
    if format_ == "json":
        return JsonLine()
    return JournalLine() if is_journal(stream, os.environ) else ConsoleLine()


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the stream leads to the journal of systemd (systemd.exec(5))."""
    named = environment.get("JOURNAL_STREAM")
    if not named:
        return False
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        # The stream has no file.
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


class ConsoleLine(logging.Formatter):
    """A record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.beginning(record)}{record.name}: {plain(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n{self.margin(record)}{TRACE_PREFIX}{plain(part)}" for part in trace.splitlines())
        return line

    def beginning(self, record: logging.LogRecord) -> str:
        """Return the time and the level, with which the line begins."""
        return f"{_moment(record)} {record.levelname} "

    def margin(self, record: logging.LogRecord) -> str:
        """Return the text with which each line of a traceback begins."""
        return ""


class JournalLine(ConsoleLine):
    """A line for the journal of systemd, which adds the time itself and stores each line apart (sd-daemon(3))."""

    def beginning(self, record: logging.LogRecord) -> str:
        """Return the priority, with which the line begins."""
        return self.margin(record)

    def margin(self, record: logging.LogRecord) -> str:
        """Return the priority, which every line of a traceback repeats."""
        return f"<{PRIORITIES.get(record.levelno, PRIORITIES[logging.INFO])}>"


class JsonLine(logging.Formatter):
    """A record as one line of JSON; `fields` are attributes of the record to include."""

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
        return plain_json(facts)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _encodable(text: str) -> str:
    """Escape surrogates, which file names that are not UTF-8 contain."""
    return text.encode(errors="backslashreplace").decode()


def plain(text: str) -> str:
    """Return the text in one line, with control characters (escape sequences, newlines) escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plain_json(value: object) -> str:
    """Return the value as one line of JSON without control characters; a program reads the same text."""
    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    r"""Escape a character as JSON does: \u and four digits, twice for characters beyond 16 bits."""
    digits = char.encode("utf-16-be").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))
