"""What the command line prints: tables and colour for people at a terminal, plain text and JSON for programs.

Colour and table frames only on a terminal without NO_COLOR; whatever came from a peer is shown without its
control characters, so that a queue's name or a body cannot write to the terminal.  JSON spells them as escapes, on a
pipe too; a body on a pipe is passed on to the byte.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wakeq.config.logs import plain as plain
from wakeq.config.logs import plain_json as plain_json

if TYPE_CHECKING:
    from rich.table import Table

Row = Sequence[object]
WORD_CHARS_MAX = 20  # up to here a cell is never broken
COLUMNS_APART = 2  # and as much at both edges together


def say(text: str) -> None:
    """One line on standard error, in the name of wakeq; over a line of progress, if there is one."""
    show_progress("")
    click.echo(f"wakeq: {plain(text)}", err=True)


def show_progress(text: str) -> None:
    """One line on standard error that is written over, where somebody is looking; an empty text leaves nothing."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def print_json(value: object) -> None:
    """One JSON value on one line, so that what is printed repeatedly is JSON lines."""
    click.echo(plain_json(value))


def print_line(text: str) -> None:
    """One line on standard output of which a peer said something."""
    click.echo(plain(text))


def print_body(body: bytes) -> None:
    """A body to standard output, as it is; on a terminal line by line, without what a terminal would obey."""
    if sys.stdout.isatty():
        text = body.decode(errors="backslashreplace")
        sys.stdout.write("".join(char if char in "\n\t" else plain(char) for char in text))
    else:
        sys.stdout.buffer.write(body)
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table for people; on a pipe the same as tab-separated lines, without the heads' decoration."""
    shown = [[plain(cell(value)) for value in row] for row in rows]
    if not sys.stdout.isatty():
        click.echo("\n".join("\t".join(row) for row in [list(columns), *shown]))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.markup import escape

    table, needed = frame(), 0
    for number, column in enumerate(columns):
        cells = [row[number] for row in shown]
        is_number = bool(cells) and all(one.lstrip("-").isdigit() for one in cells)
        span = max(map(cell_len, [column, *cells]))
        is_word = span <= WORD_CHARS_MAX  # a uid, a count: of no use in pieces
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_word)
        needed += min(span, WORD_CHARS_MAX) + COLUMNS_APART
    for row in shown:
        table.add_row(*map(escape, row))
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.width = max(console.width, needed)  # what is longer the terminal breaks
    console.print(table)


def frame(*, expand: bool = False) -> "Table":
    """The table that all verbs show on a terminal, still empty."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True, pad_edge=False, expand=expand)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, what is nested under dotted names."""
    print_table(("name", "value"), flat(facts))


def flat(facts: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """`{"a": {"b": 1}}` as `a.b 1`."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flat(item, f"{prefix}{name}[{number}].")
        else:
            yield prefix + name, value


def moment(ms: int) -> str:
    """A moment in the local time zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)
