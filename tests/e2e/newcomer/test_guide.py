"""Pages are followed against a real broker: files are written, commands typed, outputs compared.

These are the pages of the guide, and the one for an operator with a problem.
How: tests/helpers/programs/followed_page.py.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.followed_page import FENCE, FollowedPage

ROOT = Path(__file__).parents[3]
GUIDES = ("first-worker", "modules", "hooks", "retries", "web", "deployment", "migrate")
# Below docs/.
PAGES = (*(f"guide/{name}" for name in GUIDES), "operations/when")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[FollowedPage]:
    folder = tmp_path / "page"
    folder.mkdir()
    with BrokerProcess(tmp_path / "data") as broker:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        where = {"WAKEQ_BROKER": broker.addresses["worker"], "WAKEQ_HTTP": broker.addresses["http"]}
        made = FollowedPage(folder, {**os.environ, "PATH": path, **where})
        try:
            yield made
        finally:
            made.kill()


@pytest.mark.parametrize("name", PAGES)
def test_page_commands_print_what_the_page_shows(name: str, page: FollowedPage) -> None:
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
def test_guide_files_can_all_be_run(name: str, page: FollowedPage) -> None:
    text = (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")
    for language, block in FENCE.findall(text):
        if language == "python":
            page.write(block)

    for file in sorted(page.folder.glob("*.py")):
        page.run(f"python -c 'import {file.stem}'", "")
