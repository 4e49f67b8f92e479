"""Logs: one line for each event, for people or as a JSON object for programs.

    a record --> one line; control characters of whatever came from a peer are spelt out --> standard error

Where standard error is systemd's journal, a line for people begins with how grave it is, in the place of the moment.

Nothing that a client sends can begin a line of its own, or write to a terminal.  A traceback, which only a bug leaves,
is in the same JSON object, or in lines that begin with a bar.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

import msgspec

TRACE_PREFIX = "  | "
GRAVITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}  # of syslog


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
        handler.setFormatter(_line_for(format_, handler.stream))
        root.addHandler(handler)
    root.setLevel(level.upper())


def _line_for(format_: str, stream: TextIO) -> logging.Formatter:
    if format_ == "json":
        return JsonLine()
    return JournalLine() if is_journal(stream, os.environ) else ConsoleLine()


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether what is written to the stream goes to the journal of systemd (systemd.exec(5))."""
    named = environment.get("JOURNAL_STREAM")
    if not named:
        return False
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # it is no file
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
        """Say when it was, and how grave it is."""
        return f"{_moment(record)} {record.levelname} "

    def margin(self, record: logging.LogRecord) -> str:
        """Return what each line of a traceback begins with."""
        return ""


class JournalLine(ConsoleLine):
    """The same for the journal of systemd, which knows the moment, and keeps each line apart (sd-daemon(3))."""

    def beginning(self, record: logging.LogRecord) -> str:
        """Say how grave it is."""
        return self.margin(record)

    def margin(self, record: logging.LogRecord) -> str:
        """Say it of each line."""
        return f"<{GRAVITIES.get(record.levelno, GRAVITIES[logging.INFO])}>"


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
        return plain_json(facts)


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


def plain_json(value: object) -> str:
    """Return the value as one line of JSON that no terminal obeys: its programs read the same text as before."""
    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    r"""Spell a character as JSON does within its texts, where alone such characters are: \u and four digits, twice."""
    digits = char.encode("utf-16-be").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))
