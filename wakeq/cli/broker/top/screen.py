"""TopScreen: what `wakeq top` shows, and what its keys change.

    keys --> TopScreen --> what to draw, for a terminal of this size

It owns the order, the filter and the place in the list.  It reads no key and writes nothing itself.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from wakeq.cli.broker.top.measure import COLUMNS, Measure, Row, span
from wakeq.cli.output import COLUMNS_APART, frame, plain

# The letter that sorts by a column; it is underlined in the heading.
LETTERS = {
    "u": "queue", "r": "ready", "d": "delayed", "l": "leased", "i": "in/s", "n": "done/s", "b": "back/s",
    "o": "oldest", "w": "workers", "s": "state",
}  # fmt: skip
# What the broker calls these orders; it sends the first queues of an order, if there are many.
ORDERS = {
    "queue": "name", "ready": "ready", "delayed": "delayed", "leased": "leased", "in/s": "published",
    "done/s": "acknowledged", "oldest": "oldest", "workers": "workers", "state": "attention",
}  # fmt: skip
# Sorted from A to Z at first; the others have the largest first.
TEXTS = ("queue", "state")
# The columns that a narrow screen drops, in this order.
DROPPED_FIRST = ("workers", "delayed", "back/s", "state", "oldest", "done/s", "in/s")
NAME_CHARS_MIN = 12
FILTER_CHARS_MAX = 200
# Lines of the screen that are not queues: facts, count, the heading with its frame, the footer.
OTHER_LINES = 7
UP, DOWN = "\N{BLACK UP-POINTING SMALL TRIANGLE}", "\N{BLACK DOWN-POINTING SMALL TRIANGLE}"
STYLES = {"paused": "yellow", "no worker": "yellow", "dead letters": "red"}
HELP = "←→ or letter: sort   v: reverse   f: fullest first   /: filter   ↑↓: scroll   space: hold   q: quit"
FILTER_HELP = "type a part of the name   enter: keep the filter   esc: remove it"


class TopScreen:
    """The state of the screen."""

    def __init__(self) -> None:
        # The column that decides the order; None: the fullest first, as the broker sends them.
        self._column: str | None = None
        self._is_reversed = False
        # Only queues whose name contains this.
        self._filter = ""
        # Whether keys go to the filter.
        self._is_typing = False
        # How many queues are above the first that is shown.
        self._above = 0
        # How many lines there were for queues when it was last drawn.
        self._lines = 1
        # Whether new readings are left out.
        self.is_held = False

    def press(self, key: str) -> bool:
        """Do what a key stands for; return False if it ends the command."""
        if self._is_typing:
            self._type(key)
            return True
        match key:
            case "q":
                return False
            case "/":
                self._is_typing = True
            case "escape":
                self._filter, self._above = "", 0
            case "left" | "right":
                at = -1 if self._column is None else COLUMNS.index(self._column)
                step = 1 if key == "right" else -1
                # Before the first and after the last column is the order of the broker.
                at = (at + 1 + step) % (len(COLUMNS) + 1) - 1
                self._column, self._is_reversed, self._above = None if at < 0 else COLUMNS[at], False, 0
            case "v":
                self._is_reversed = not self._is_reversed
            case "f":
                self._column, self._is_reversed, self._above = None, False, 0
            case "up" | "down" | "page up" | "page down" | "home" | "end":
                self._scroll(key)
            case " ":
                self.is_held = not self.is_held
            case _ if key in LETTERS:
                self._is_reversed = self._column == LETTERS[key] and not self._is_reversed
                self._column, self._above = LETTERS[key], 0
        return True

    def _type(self, key: str) -> None:
        match key:
            case "enter":
                self._is_typing = False
            case "escape":
                self._is_typing, self._filter = False, ""
            case "backspace":
                self._filter = self._filter[:-1]
            case _ if len(key) == 1 and key.isprintable() and len(self._filter) < FILTER_CHARS_MAX:
                self._filter += key
        self._above = 0

    def _scroll(self, key: str) -> None:
        """Move in the list; `draw` keeps it within the list."""
        steps = {"up": -1, "down": 1, "page up": -self._lines, "page down": self._lines}
        if key in steps:
            self._above = max(0, self._above + steps[key])
        else:
            self._above = 0 if key == "home" else 1 << 30

    def wishes(self) -> dict[str, str]:
        """Return which queues the broker should send: those that the filter lets through, in the order chosen."""
        sort = ORDERS.get(self._column or "", "messages")
        # Names rise at first, and all else falls.
        ascending = (sort == "name") != self._is_reversed and sort != "attention"
        return {"sort": sort, "ascending": str(ascending).lower()} | (
            {"contains": self._filter} if self._filter else {}
        )

    def chosen(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that match the filter, in the order that was chosen."""
        wanted = self._filter.lower()
        found = [row for row in rows if wanted in row["queue"].lower()]
        if self._column is None:
            return found[::-1] if self._is_reversed else found
        column = self._column
        if column in TEXTS:
            # Queues without a state come last, whatever the direction.
            ordered = sorted((row for row in found if row[column]), key=lambda row: row[column].lower())
            return (ordered[::-1] if self._is_reversed else ordered) + [row for row in found if not row[column]]
        return sorted(found, key=lambda row: row[column] or 0, reverse=not self._is_reversed)

    def draw(self, measure: Measure, width: int, height: int) -> RenderableType:
        """Return what to show in a terminal of this size."""
        rows = self.chosen(measure.rows())
        self._lines = max(1, height - OTHER_LINES)
        self._above = max(0, min(self._above, len(rows) - self._lines))
        facts = measure.facts()
        if facts["role"] == "leader" and len(measure.last["cluster"].get("members", ())) < 2:
            del facts["role"], facts["term"]
        top = Text("   ".join(f"{name} {value}" for name, value in facts.items()), no_wrap=True, overflow="ellipsis")
        shown = rows[self._above : self._above + self._lines]
        return Group(top, self._about(measure, len(rows), len(shown)), self._table(shown, width), self._footer())

    def _about(self, measure: Measure, found: int, shown: int) -> Text:
        """Return the line about the list: an error, or which queues are shown."""
        if measure.last["error"]:
            return Text(plain(measure.last["error"]), style="red", no_wrap=True, overflow="ellipsis")
        sent, total = len(measure.last["queues"]), measure.last["queues_found"]
        part = f"{self._above + 1} to {self._above + shown} of " if shown < found else ""
        words = [f"{part}{found} queues"]
        if self._filter:
            words.append(f"whose name contains {plain(self._filter)}")
        if sent < total:
            words.append(f"(the first {sent} of {total})")
        if self.is_held:
            words.append("- held; space goes on")
        return Text(" ".join(words), style="dim", no_wrap=True, overflow="ellipsis")

    def _footer(self) -> Text:
        if self._is_typing:
            return Text(f"/{plain(self._filter)}▏  {FILTER_HELP}", no_wrap=True, overflow="ellipsis")
        return Text(HELP, style="dim", no_wrap=True, overflow="ellipsis")

    def _table(self, rows: Sequence[Row], width: int) -> Table:
        """Return a table with as many columns as fit: a value is shown whole or not at all."""
        heads = {name: self._heading(name) for name in COLUMNS}
        cells = [{name: plain(cell(row, name)) for name in COLUMNS} for row in rows]
        spans = {name: max([len(heads[name]), *(len(row[name]) for row in cells)]) for name in COLUMNS}
        spans["queue"] = min(spans["queue"], NAME_CHARS_MIN)
        names = list(COLUMNS)
        for name in DROPPED_FIRST:
            if sum(spans[one] + COLUMNS_APART for one in names) > width:
                names.remove(name)
        spans["queue"] += width - sum(spans[one] + COLUMNS_APART for one in names)
        table = frame(expand=True)
        for name in names:
            table.add_column(
                heads[name],
                justify="left" if name in TEXTS else "right",
                overflow="ellipsis",
                no_wrap=True,
                width=spans[name],
            )
        for row in cells:
            table.add_row(*(escape(row[name]) for name in names), style=STYLES.get(row["state"], ""))
        return table

    def _heading(self, name: str) -> Text:
        """Return a heading with its letter underlined, and an arrow if it decides the order."""
        heading = Text(name)
        letter = next(letter for letter, column in LETTERS.items() if column == name)
        heading.stylize("underline", name.index(letter), name.index(letter) + 1)
        if name == self._column:
            rises = (name in TEXTS) != self._is_reversed
            heading.append(UP if rises else DOWN)
        return heading


def cell(row: Row, column: str) -> str:
    """Return a cell as text."""
    value: Any = row[column]
    return span(value) if column == "oldest" else str(value)
