"""Pages of the tour: the text of the ways that were seen, and whether a way has become longer.

    kinds, ways --> a page for each kind, and the table in docs/tour.md      that table before --> the longer ways

Text in, text out; only the first line of each source's docstring is read from files.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from bench.report import table
from bench.tour.recorder import ROOT, Mark, Step, Way
from bench.tour.ways import KINDS, Kind, Ways

BEGIN, END = "<!-- ways: made by `make tour` -->", "<!-- end of ways -->"
ROW = re.compile(r"^\| \[.*?\]\(tour/(\w+)\.md\) *\| *(\d+) \| *(\d+) \| *(\d+) \| *(\d+) \|", re.MULTILINE)
CYCLE = ("pub", "fet", "ack")
TOUR = ROOT / "docs" / "tour.md"  # the pages of the kinds are in a folder beside it


@dataclass(frozen=True, slots=True)
class Bar:
    """How long a way may be one day; the table shows it beside the way of today."""

    calls: int
    files: int

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.files} files"


BARS = {name: Bar(calls=90, files=24) for name in CYCLE}
CYCLE_CALLS_MAX = 250


# A page for each kind ------------------------------------------------------------------------------------------------


def page_of(kind: Kind, way: Way) -> str:
    """Return the page of one kind."""
    return (
        f"# {kind.title}\n\n"
        "<!-- Made by `make tour`; what is changed here is lost. -->\n\n"
        f"{kind.text}\n\n"
        f"{way.calls} calls of {len(way.functions)} functions in {len(way.files)} files, {way.turns} turns "
        "([how they are counted](../tour.md#how-a-way-is-counted)).\n\n"
        f"## Files\n\n{files_of(way)}\n\n"
        f"## Calls\n\n```\n{calls_of(way)}\n```\n"
    )


def files_of(way: Way) -> str:
    """The files in the order in which they are entered, each with the first line of its docstring."""
    rows = [[f"`{file}`", str(way.calls_by_file[file]), head_of(file)] for file in way.files]
    return table(["File", "Calls", "What it is"], rows)


@cache
def head_of(file: str) -> str:
    """Return the first sentence of a file's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("|", "\\|")


def calls_of(way: Way) -> str:
    """The calls as a tree; a function has its file beside it where it is called first."""
    lines: list[tuple[str, str]] = []
    known: set[object] = set()
    for step, times in folded(way.steps):
        if isinstance(step, Mark):
            lines += [("", ""), (f"-- {step.text}", "")]
            continue
        name = f"{'  ' * step.depth}{step.function.name}{f' x{times}' if times > 1 else ''}"
        lines.append((name, "" if step.function in known else step.function.file))
        known.add(step.function)
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:{width}}{file}".rstrip() for name, file in lines).strip("\n")


def folded(steps: Iterable[Step]) -> list[tuple[Step, int]]:
    """Calls that follow each other and are alike in one, with their number."""
    return [(step, len(list(alike))) for step, alike in groupby(steps)]


# The table of all -----------------------------------------------------------------------------------------------------


def table_of(ways: Ways) -> str:
    """All ways, with their bounds."""
    rows = [
        row_of(f"[{kind.title}](tour/{kind.name}.md)", [ways[kind.name]], str(BARS.get(kind.name, "")))
        for kind in KINDS
    ]
    rows.append(row_of("PUB, FET and ACK together", [ways[name] for name in CYCLE], f"{CYCLE_CALLS_MAX} calls"))
    return table(["Way", "Calls", "Functions", "Files", "Turns", "At most"], rows)


def row_of(title: str, ways: list[Way], bar: str) -> list[str]:
    functions = {function for way in ways for function in way.functions}
    files = {file for way in ways for file in way.files}
    calls, turns = sum(way.calls for way in ways), sum(way.turns for way in ways)
    return [title, *map(str, (calls, len(functions), len(files), turns)), bar]


def with_table(tour: str, ways: Ways) -> str:
    """The text of docs/tour.md with the table between its marks made anew."""
    before, rest = tour.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table_of(ways)}\n\n{END}{after}"


def pages(tour: str, ways: Ways) -> Mapping[Path, str]:
    """All pages by path, made of the ways and of docs/tour.md as it is."""
    made = {TOUR.with_suffix("") / f"{kind.name}.md": page_of(kind, ways[kind.name]) for kind in KINDS}
    return made | {TOUR: with_table(tour, ways)}


def longer_ways(tour: str, ways: Ways) -> list[str]:
    """A sentence for each way that has more calls or files than docs/tour.md says."""
    found = []
    for name, calls, _functions, files, _turns in ROW.findall(tour):
        if name in ways:
            way = ways[name]
            for what, was, now in (("calls", int(calls), way.calls), ("files", int(files), len(way.files))):
                if now > was:
                    found.append(f"{name} takes {now} {what}, and took {was}")
    return found


# What `python -m bench calls lone` shows ------------------------------------------------------------------------------


def cycle_by_file(ways: Ways) -> str:
    """The calls of one lone PUB, FET and ACK, a line for each file."""
    counts = [ways[name].calls_by_file for name in CYCLE]
    total = sum(counts[1:], counts[0])
    rows = [[file, *(str(count[file]) for count in counts), str(calls)] for file, calls in total.most_common()]
    rows.append(["all", *(str(count.total()) for count in counts), str(total.total())])
    return table(["file", *(name.upper() for name in CYCLE), "cycle"], rows)
