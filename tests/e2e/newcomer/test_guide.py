"""Pages are followed against a real broker: files are written, commands typed, outputs compared.

These are the pages of the guide, and the one for an operator with a problem.
A Python block that begins with `# name.py` is that file.  A command that ends with `&` goes on until the page is over;
what is printed below it must come.  Other commands must print what stands below them, and end with 0.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess

ROOT = Path(__file__).parents[3]
GUIDES = ("first-worker", "modules", "hooks", "retries", "web", "deployment", "migrate")
# Below docs/.
PAGES = (*(f"guide/{name}" for name in GUIDES), "operations/when")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT_S_MAX = 30


class Page:
    """A page that is being followed in a directory of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.background: list[tuple[str, subprocess.Popen[bytes], Path, str]] = []

    def write(self, block: str) -> None:
        name = re.match(r"# ([\w/]+\.py)\n", block)
        assert name, f"a block of Python has no name: {block[:60]!r}"
        file = self.folder / name[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")

    def type(self, block: str) -> None:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.endswith("&"):
                self.begin(command.removesuffix("&").strip(), shown)
            else:
                self.run(command, shown)

    def run(self, command: str, shown: str) -> None:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout) == (0, shown), f"{command}\n{ran.stderr}"

    def begin(self, command: str, shown: str) -> None:
        said = self.folder / f"said-{len(self.background)}"
        with said.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        self.background.append((command, process, said, shown))

    def end(self) -> None:
        """Background commands have printed what the page shows below them, and stop on request.

        In any order, and perhaps two lines in one: `print` of two threads may mix a line's text and its end.
        """
        for command, process, said, shown in self.background:
            expected = shown.splitlines()
            deadline_s = time.monotonic() + OUTPUT_S_MAX
            while not all(line in said.read_text() for line in expected) and time.monotonic() < deadline_s:
                assert process.poll() is None, f"{command} ended: {said.read_text()}"
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0, f"{command}: {said.read_text()}"
            missing = [line for line in expected if line not in said.read_text()]
            assert not missing, f"{command}: {said.read_text()}"

    def kill(self) -> None:
        for _command, process, _said, _shown in self.background:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    folder = tmp_path / "page"
    folder.mkdir()
    with BrokerProcess(tmp_path / "data") as broker:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        where = {"WAKEQ_BROKER": broker.addresses["worker"], "WAKEQ_HTTP": broker.addresses["http"]}
        made = Page(folder, {**os.environ, "PATH": path, **where})
        try:
            yield made
        finally:
            made.kill()


@pytest.mark.parametrize("name", PAGES)
def test_page_commands_print_what_the_page_shows(name: str, page: Page) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = FENCE.findall(text)

    for language, block in blocks:  # the files of a page may be used before they are shown
        if language == "python":
            page.write(block)
    for language, block in blocks:
        if language == "console":
            page.type(block)
    page.end()


@pytest.mark.parametrize("name", GUIDES)
def test_guide_files_can_all_be_run(name: str, page: Page) -> None:
    text = (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")
    for language, block in FENCE.findall(text):
        if language == "python":
            page.write(block)

    for file in sorted(page.folder.glob("*.py")):
        page.run(f"python -c 'import {file.stem}'", "")
