"""Output: tables and colour for people at a terminal, plain text and JSON for programs.

Colour and table frames appear only on a terminal without NO_COLOR.  Text from a peer is shown without its control
characters, so that the name of a queue or a body cannot control the terminal; JSON escapes them, on a pipe too.  A body
on a pipe is passed on unchanged.
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
# A cell up to this width is never broken.
WORD_CHARS_MAX = 20
# How a table shows the default queue, which has no name.
NO_NAME = '""'
# Between two columns, and at both edges together.
COLUMNS_APART = 2


def say(text: str) -> None:
    """Print one line on standard error, in the name of wakeq."""
    click.echo(f"wakeq: {plain(text)}", err=True)


def print_json(value: object) -> None:
    """Print a JSON value on one line, so that repeated output is JSON lines."""
    click.echo(plain_json(value))


def print_line(text: str) -> None:
    """Print one line that may contain text from a peer."""
    click.echo(plain(text))


def print_body(body: bytes) -> None:
    """Print a body unchanged; on a terminal line by line, without control characters."""
    if sys.stdout.isatty():
        text = body.decode(errors="backslashreplace")
        sys.stdout.write("".join(char if char in "\n\t" else plain(char) for char in text))
    else:
        sys.stdout.buffer.write(body)
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Row], *, nothing: str = "") -> None:
    """Print a table for people, or tab-separated lines on a pipe.

    If there is no row, say `nothing` on standard error; then people see no heading.
    """
    shown = [[plain(cell(value)) for value in row] for row in rows]
    if nothing and not shown:
        say(nothing)
        if sys.stdout.isatty():
            return
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
        # A uid or a count is useless in pieces.
        is_word = span <= WORD_CHARS_MAX
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_word)
        needed += min(span, WORD_CHARS_MAX) + COLUMNS_APART
    for row in shown:
        table.add_row(*map(escape, row))
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    # The terminal breaks longer lines.
    console.width = max(console.width, needed)
    console.print(table)


def frame(*, expand: bool = False) -> "Table":
    """Return the empty table that all commands show on a terminal."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True, pad_edge=False, expand=expand)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values; nested ones get dotted names."""
    print_table(("name", "value"), flat(facts))


def flat(facts: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield `{"a": {"b": 1}}` as `a.b 1`."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flat(item, f"{prefix}{name}[{number}].")
        else:
            yield prefix + name, value


def counted(count: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def moment(ms: int) -> str:
    """Return a moment in the local time zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def cell(value: object) -> str:
    """Return a value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)
