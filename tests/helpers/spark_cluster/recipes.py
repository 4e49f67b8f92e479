"""Recipes of docs/guide/pipeline-cluster.md: its blocks of code, and its commands with names of this machine.

    heading --> the commands for the driver's machine and those below it, without those that install something
            --> `sh` in a folder of their own

What is run is what the page says, in a shell that knows nothing of Spark; only names change, and what would be
downloaded is there already.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "pipeline-cluster.md"
# These commands would download something, or need minutes.
INSTALLS = re.compile(r"^(python3 -m venv|\S*pip install|\S*venv-pack)\b")
RUN_S = 300.0
# The commands below it come before those of each recipe.
DRIVER = "The machine of the driver"
# Under these names the driver would find Spark without the page.
OF_SPARK = ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def program_of_page() -> str:
    """Return job.py."""
    (program,) = re.findall(r"^```python\n(# job\.py.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(program)


def secured_program(names: Mapping[str, str]) -> str:
    """Return job.py with the options that log in, which the page has by themselves."""
    (options,) = re.findall(r"^secured = .*$", PAGE.read_text(), re.MULTILINE)
    before, after = program_of_page().split("\nfound = ")
    after = replaced(after, {"broker=broker": "**secured", '.option("broker", broker)': ".options(**secured)"})
    return replaced(f"{before}\n{options}", names) + "\nfound = " + after


def replaced(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names; each must occur."""
    for name, other in names.items():
        assert name in text, f"{name} is not on the page"
        text = text.replace(name, other)
    return text


def commands_below(heading: str) -> list[str]:
    """Return the commands of one recipe that are run."""
    below = PAGE.read_text().split(f"\n## {heading}\n")[1]
    commands = below.split("```console\n")[1].split("```")[0].splitlines()
    return [command[2:] for command in commands if not INSTALLS.match(command[2:])]


def run_recipe(
    heading: str,
    folder: Path,
    names: Mapping[str, str],
    environment: Mapping[str, str],
    secured: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the commands of a recipe where job.py is, with other names."""
    (folder / "job.py").write_text(secured_program(secured) if secured else program_of_page())
    script = replaced("\n".join([*commands_below(DRIVER), *commands_below(heading)]), names)
    return subprocess.run(
        ["/bin/sh", "-e", "-c", script],
        cwd=folder,
        env={name: value for name, value in environment.items() if name not in OF_SPARK} | {"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
