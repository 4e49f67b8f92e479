"""The tour names files and functions; this proves that all of them exist.

Read are the code spans of docs/tour.md and the sources that it names.  Nothing is imported, nothing is run.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w/]+\.py")
FOLDER = re.compile(r"[\w/]+/")
CALL = re.compile(r"([A-Za-z_][\w.]*)\(\)")
CLASS = re.compile(r"[A-Z]\w*[a-z]\w*")
CONSTANT = re.compile(r"[A-Z]+(?:_[A-Z]+)+")

SPANS = sorted(set(SPAN.findall(TOUR)))
FILES = [span for span in SPANS if FILE.fullmatch(span)]
FOLDERS = [span for span in SPANS if FOLDER.fullmatch(span)]
NAMES = [span for span in SPANS if any(kind.fullmatch(span) for kind in (CALL, CLASS, CONSTANT))]


@cache
def defined() -> frozenset[str]:
    """Every name that the sources named in the tour define: functions, `Class.method`s, classes, constants."""
    names: set[str] = set()
    for path in (ROOT / name for name in FILES):
        if path.exists():
            names |= names_in(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(names)


def names_in(module: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{function.name}" for function in functions}
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_the_tour_names_exists(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_that_the_tour_names_exists(name: str) -> None:
    assert (ROOT / name).is_dir()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_tour_is_defined_in_a_file_that_it_names(name: str) -> None:
    assert name.removesuffix("()") in defined()


def test_tour_names_files_and_functions() -> None:
    calls = [name for name in NAMES if CALL.fullmatch(name)]

    assert len(FILES) > 20
    assert len(calls) > 40
