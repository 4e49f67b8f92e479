"""Cells into tables: markdown that reads well in a terminal too.  Text in, text out; no file and no clock."""

import re
from collections.abc import Mapping, Sequence

from bench.bars import BARS, OURS, YARDSTICK, Bar, Rounds, judge, middle, ratio
from bench.workloads.workload import Column, Workload

Cells = Mapping[str, Rounds]  # the rounds of each peer
NOTHING = "-"
NUMBER = re.compile(r"-|-?[\d,]+(\.\d+)?")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table with aligned columns: words to the left, numbers to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    worded = [any(not NUMBER.fullmatch(row[at]) for row in rows) for at in range(len(head))]

    def joined(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if words else cell.rjust(width)
            for cell, width, words in zip(row, widths, worded, strict=True)
        ]
        return f"| {' | '.join(cells)} |"

    rules = [f"{'-' * (width + 1)}{'-' if words else ':'}" for width, words in zip(widths, worded, strict=True)]
    return "\n".join([joined(head), f"|{'|'.join(rules)}|", *map(joined, rows)])


def shown(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def figures_table(workload: Workload, cells: Cells) -> str:
    """One row for each peer; compared figures have their ratio to the yardstick at the end."""
    columns = [
        column for column in workload.columns if any(middle(cells[peer], column.figure) is not None for peer in cells)
    ]
    compared = [column for column in columns if column.compared and YARDSTICK in cells]
    head = [
        "peer",
        *(column.title for column in columns),
        *(f"x {YARDSTICK}: {column.title}" for column in compared),
    ]
    return table(head, [_row(peer, cells, columns, compared) for peer in cells])


def _row(peer: str, cells: Cells, columns: list[Column], compared: list[Column]) -> list[str]:
    figures = (shown(middle(cells[peer], column.figure), column.form) for column in columns)
    ratios = (shown(ratio(cells[peer], cells[YARDSTICK], column.figure), ".2f") for column in compared)
    return [peer, *figures, *ratios]


def bars_table(workload: Workload, cells: Cells) -> str:
    """The bars of wakeq here, and the reached values.  Nothing when there is no bar, or no wakeq in this
    run."""
    bars = [bar for bar in BARS if bar.workload == workload.name]
    if not bars or OURS not in cells:
        return ""
    return table(["bar", "asked", "reached", "verdict"], [_bar_row(bar, cells) for bar in bars])


def _bar_row(bar: Bar, cells: Cells) -> list[str]:
    reached, verdict = judge(bar, cells)
    asked = f"{'at most' if bar.at_most else 'at least'} {bar.value:,g}"
    words = bar.words if bar.against is None else f"{bar.words}, times {bar.against}"
    return [words, f"{asked} (aim)" if bar.aim else asked, shown(reached, ",.2f"), verdict.value]


def section(workload: Workload, cells: Cells, rounds: int) -> str:
    several = f", median of {rounds} rounds" if rounds > 1 and workload.repeats else ""
    parts = [
        f"### {workload.name}: {workload.title}{several}",
        figures_table(workload, cells),
        bars_table(workload, cells),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
