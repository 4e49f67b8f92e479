"""Proves the types of the public face with two checkers: what they must refuse, and that they refuse nothing else."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = re.compile(r"# error\b")
MYPY_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<what>.*)$")
EXAMPLES = sorted(file for file in HERE.glob("*.py") if not file.name.startswith("test_"))


def marked(file: Path) -> set[int]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if MARK.search(line)}


def mypy_errors(file: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [found for line in said.stdout.splitlines() if (found := MYPY_LINE.match(line))]
    assert said.returncode in (0, 1), said.stdout + said.stderr
    return {int(one["line"]): one["what"] for one in found if (ROOT / one["file"]).resolve() == file}


def pyright_errors(file: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        diagnostics = json.loads(said.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        if shutil.which("node") is None and "nodeenv" in said.stderr:
            pytest.skip("pyright runs on node, which is not installed here, and it could not download one")
        pytest.fail(f"pyright did not run:\n{said.stdout}{said.stderr}")
    return {one["range"]["start"]["line"] + 1: one["message"] for one in diagnostics if one["severity"] == "error"}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
@pytest.mark.parametrize("checker", [mypy_errors, pyright_errors])
def test_checker_refuses_exactly_the_marked_lines(checker: Callable[[Path], dict[int, str]], file: Path) -> None:
    errors = checker(file)

    unexpected = {line: what for line, what in errors.items() if line not in marked(file)}
    missed = marked(file) - errors.keys()
    assert not unexpected
    assert not missed
    assert marked(file), "a file that expects no error proves little"
