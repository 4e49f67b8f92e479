"""The site that `make docs` makes: every page has its place, every link leads somewhere, and no other host is asked.

The site is made in a temporary directory, by the very command of the Makefile but for the two folders.
"""

import re
import runpy
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CONTENTS: dict[str, list[str]] = runpy.run_path(str(DOCS / "conf.py"))["CONTENTS"]
TITLED = re.compile(r".*<(.*)>")
COMMAND = re.compile(r"-m (sphinx .*) -d docs/_build/doctrees \. docs/_build/html$", re.MULTILINE)
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
LOADED_BY_STYLE = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import")


class Page(HTMLParser):
    """What a page links to, what it loads to be shown, and the names of its places."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.places.add(named.get("id", ""))
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag in LOADED and LOADED[tag] in named:
            self.loads.append(named[LOADED[tag]])


@cache
def page_of(path: Path) -> Page:
    return Page(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that was made just now."""
    folder = tmp_path_factory.mktemp("site")
    command = COMMAND.search((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert command is not None, "the Makefile does not make the site as this test knows it"
    made = subprocess.run(
        [sys.executable, "-m", *command[1].split(), "-d", str(folder / "doctrees"), ".", str(folder / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return folder / "html"


def listed_pages() -> list[Path]:
    """The pages in the sidebar, as paths below the repository."""
    entries = [TITLED.sub(r"\1", entry) for part in CONTENTS.values() for entry in part]
    return [(DOCS / f"{entry}.md").resolve().relative_to(ROOT) for entry in entries]


def pages_below() -> list[Path]:
    """The pages that stand below another one: decisions, and the ways of the tour."""
    return [page.relative_to(ROOT) for pattern in ("decisions/0*.md", "tour/*.md") for page in DOCS.glob(pattern)]


def is_outside(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def reached_from(start: Path) -> set[Path]:
    """The pages that one finds who begins there and clicks."""
    found, left = set[Path](), [start]
    while left:
        page = left.pop()
        if page not in found and page.suffix == ".html" and page.exists():
            found.add(page)
            inside = [link for link in page_of(page).links if not is_outside(link)]
            left += [(page.parent / unquote(urldefrag(link).url)).resolve() for link in inside if urldefrag(link).url]
    return found


def broken_links(page: Path) -> list[str]:
    """Links of this page to files or places that are not there."""
    broken = []
    for link in (link for link in page_of(page).links if not is_outside(link)):
        url, place = urldefrag(link)
        there = (page.parent / unquote(url)).resolve() if url else page
        if not there.is_file() or (there.suffix == ".html" and unquote(place) not in page_of(there).places):
            broken.append(f"{page.name}: {link}")
    return broken


def test_every_page_stands_in_the_sidebar_once() -> None:
    pages = {page.relative_to(ROOT) for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))}

    listed = listed_pages()

    assert sorted(listed) == sorted(pages - {Path("docs/index.md"), *pages_below()})


def test_sidebar_has_the_four_kinds_of_documentation() -> None:
    assert list(CONTENTS) == ["Tutorial", "How-to", "Reference", "Explanation"]


@pytest.mark.long
def test_every_page_of_the_site_is_found_by_who_begins_at_its_index(site: Path) -> None:
    pages = {site / page.with_suffix(".html") for page in (*listed_pages(), *pages_below())}

    found = reached_from(site / "docs" / "index.html")

    assert pages <= found


@pytest.mark.long
def test_site_opens_at_the_page_of_contents(site: Path) -> None:
    assert page_of(site / "index.html").links == ["docs/index.html"]
    assert (site / "docs" / "index.html").is_file()


@pytest.mark.long
def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    broken = [fault for page in reached_from(site / "docs" / "index.html") for fault in broken_links(page)]

    assert broken == []


@pytest.mark.long
def test_pages_of_the_site_request_no_other_host(site: Path) -> None:
    loads = {load for page in site.rglob("*.html") for load in page_of(page).loads}
    styles = {path.name for path in site.rglob("*.css") if LOADED_BY_STYLE.search(path.read_text(encoding="utf-8"))}

    assert loads
    assert [load for load in loads if is_outside(load)] == []
    assert styles == set()
