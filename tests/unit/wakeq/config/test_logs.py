"""Log lines: one for each event, whatever text is in it."""

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from wakeq.config.logs import ConsoleLine, JournalLine, JsonLine, is_journal

# A file name that is not UTF-8, as Python represents it.
NAME = b"/data/\xff".decode(errors="surrogateescape")


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    exc_info = None
    if error is not None:
        try:
            raise error
        except Exception:
            exc_info = sys.exc_info()
    return logging.LogRecord("wakeq.node", logging.INFO, "x.py", 1, message, None, exc_info)


@pytest.mark.parametrize("message", ["two\nlines", "\x1b[2J", NAME])
def test_record_is_formatted_as_one_printable_line(message: str) -> None:
    for line in (ConsoleLine().format(record(message)), JsonLine().format(record(message))):
        line.encode()
        assert line.isprintable()


def test_json_line_contains_the_message_and_its_fields() -> None:
    decoded = json.loads(JsonLine(fields=["task"]).format(record("größer\n" + NAME, OSError(NAME))))

    assert decoded["message"] == "größer\n/data/\\udcff"
    assert decoded["error"].endswith("OSError: /data/\\udcff")
    assert (decoded["level"], decoded["logger"], decoded["task"]) == ("info", "wakeq.node", "-")


def test_journal_line_begins_with_its_priority() -> None:
    slow = record("the disk is slow")
    slow.levelno, slow.levelname = logging.WARNING, "WARNING"

    # The journal adds the time itself.
    assert JournalLine().format(slow) == "<4>wakeq.node: the disk is slow"
    lines = JournalLine().format(record("a bug", ValueError("x"))).splitlines()
    assert len(lines) > 2
    assert all(line.startswith("<6>") for line in lines)


@pytest.mark.parametrize("change", [0, 1])
def test_stream_counts_as_the_journal_only_if_systemd_names_it(tmp_path: Path, change: int) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        named = f"{status.st_dev}:{status.st_ino + change}"

        assert is_journal(stream, {"JOURNAL_STREAM": named}) is (not change)
        assert not is_journal(stream, {})
        assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": named})
