"""Logs of a worker on the command line: to standard error, lines for people or JSON objects for programs.

    --log-level, --log-json  -->  the root logger

A program that has configured logging keeps its own.
"""

import logging
import sys

import click

from wakeq.config.logs import ConsoleLine, JsonLine

LEVELS = ("debug", "info", "warning", "error")


def log_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags of `log_to_stderr`."""
    level = click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True)
    return level(click.option("--log-json", is_flag=True, help="Log JSON objects, one per line.")(command))


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Log from this level on, unless there is a handler already."""
    from wakeq.worker import LogContext

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogContext())
    handler.setFormatter(JsonLine(("queue", "uid", "delivery")) if as_json else ConsoleLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])
