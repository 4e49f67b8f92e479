"""Tests of the pytest plugin: projects with wakeq have the fixture, and runs without it import nothing else."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import wakeq

ROOT = Path(wakeq.__file__).parents[1]
TEST_OF_A_USER = """
def test_fixture_gives_a_broker(wakeq_broker):
    wakeq_broker.publish("emails", "hi", delay=60)
    wakeq_broker.advance(60)
    assert wakeq_broker.fetch("emails").text() == "hi"

def test_fixture_gives_each_test_its_own_broker(wakeq_broker):
    assert "emails" not in [queue["qname"] for queue in wakeq_broker.queues()]
"""


def installed(folder: Path) -> Path:
    """Write the metadata that an installation would: the name and the entry points of pyproject.toml."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"[{group}]\n{name} = {target}" for group, names in entry_points.items() for name, target in names.items()]
    info = folder / "site" / "wakeq_entry_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wakeq-entry-points\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder / "site"


def run_pytest(folder: Path, tests: str) -> str:
    """Run tests as a user would and return the output of pytest."""
    (folder / "test_user.py").write_text(tests)
    environment = os.environ | {"PYTHONPATH": f"{installed(folder)}:{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_project_with_wakeq_installed_has_the_fixture(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, TEST_OF_A_USER)

    assert "2 passed" in output, output


def test_examples_of_the_guide_pass(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)

    output = run_pytest(tmp_path, "\n".join(blocks))

    tests = sum(block.count("def test_") for block in blocks)
    assert f"{tests} passed" in output, output


def test_run_without_a_broker_imports_only_the_plugin() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import wakeq.testing.pytest_plugin; "
        "print(*(set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert sorted(loaded) == ["wakeq", "wakeq.testing", "wakeq.testing.pytest_plugin"]
