"""Lines of the log: one for each event, whatever is in it."""

import json
import logging
import sys

import pytest

from wakeq.logs import ConsoleLine, JsonLine

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
