"""What the command line prints: tables and colour for people at a terminal, plain text and JSON for programs.

Colour and table frames only on a terminal without NO_COLOR; whatever came from a peer is shown without its
control characters, so that a queue's name or a body in a table cannot write to the terminal.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

import click
import msgspec

from wakeq.logs import plain as plain

Row = Sequence[object]


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
    click.echo(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table for people; on a pipe the same as tab-separated lines, without the heads' decoration."""
    shown = [[plain(cell(value)) for value in row] for row in rows]
    if not sys.stdout.isatty():
        click.echo("\n".join("\t".join(row) for row in [list(columns), *shown]))
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for number, column in enumerate(columns):
        is_number = bool(shown) and all(row[number].lstrip("-").isdigit() for row in shown)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in shown:
        table.add_row(*map(escape, row))
    Console(color_system=None if os.environ.get("NO_COLOR") else "auto").print(table)


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


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)
