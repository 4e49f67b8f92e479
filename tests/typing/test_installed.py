"""Proves that a program outside of this repository sees the types of the wakeq that is installed (Makefile)."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """\
from wakeq import Client, Worker
reveal_type(Client().publish("q", "x"))
"""


def test_installed_package_shows_its_types_to_a_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    command = [sys.executable, "-m", "mypy", "--strict", "program.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 'Revealed type is "str"' in checked.stdout, (
        f"{checked.stdout}\n`make install` installs it so that it is seen"
    )
    assert checked.returncode == 0, checked.stdout
