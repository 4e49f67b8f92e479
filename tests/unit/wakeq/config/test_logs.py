"""Lines of the log: one for each event, whatever is in it."""

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from wakeq.config.logs import ConsoleLine, JournalLine, JsonLine, is_journal

NAME = b"/data/\xff".decode(errors="surrogateescape")  # of a file, as Python has names that are no UTF-8


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    exc_info = None
    if error is not None:
        try:
            raise error
        except Exception:
            exc_info = sys.exc_info()
    return logging.LogRecord("wakeq.node", logging.INFO, "x.py", 1, message, None, exc_info)


@pytest.mark.parametrize("message", ["two\nlines", "\x1b[2J", NAME])
def test_a_record_is_one_line_that_can_be_written(message: str) -> None:
    for line in (ConsoleLine().format(record(message)), JsonLine().format(record(message))):
        line.encode()
        assert line.isprintable()


def test_what_json_holds_is_what_was_said() -> None:
    told = json.loads(JsonLine(fields=["task"]).format(record("größer\n" + NAME, OSError(NAME))))

    assert told["message"] == "größer\n/data/\\udcff"
    assert told["error"].endswith("OSError: /data/\\udcff")
    assert (told["level"], told["logger"], told["task"]) == ("info", "wakeq.node", "-")


def test_the_journal_of_systemd_is_told_how_grave_each_line_is() -> None:
    said = record("the disk is slow")
    said.levelno, said.levelname = logging.WARNING, "WARNING"

    assert JournalLine().format(said) == "<4>wakeq.node: the disk is slow"  # it knows the moment itself
    lines = JournalLine().format(record("a bug", ValueError("x"))).splitlines()
    assert len(lines) > 2
    assert all(line.startswith("<6>") for line in lines)


@pytest.mark.parametrize("change", [0, 1])
def test_standard_error_is_the_journal_if_systemd_says_so_of_this_very_stream(tmp_path: Path, change: int) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        named = f"{status.st_dev}:{status.st_ino + change}"

        assert is_journal(stream, {"JOURNAL_STREAM": named}) is (not change)
        assert not is_journal(stream, {})
        assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": named})
