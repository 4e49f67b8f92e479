"""Check the documentation: links resolve, every page can be reached, Python blocks compile, generated pages are fresh.

Reads every Markdown page of the repository; prints one line for each fault and ends with 1 if there is one.
What the README shows is run by tests/e2e/newcomer/test_readme.py, not here.  Never asks the network.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reference_pages import pages

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def main() -> int:
    """Check every page."""
    documents = [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/README.md"), *(ROOT / "docs").rglob("*.md")]
    faults = [fault for page in documents for fault in (*broken_links(page), *broken_python(page))]
    faults += [*lost_pages(documents), *stale_pages(ROOT / "docs" / "reference"), *stale_tour()]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    sys.stdout.write(f"{len(documents)} pages, {len(faults)} faults\n")
    return 1 if faults else 0


def broken_links(page: Path) -> Iterator[str]:
    """Links to files or headings that do not exist."""
    for target, there, anchor in links_of(page):
        if not there.exists():
            yield f"{page.relative_to(ROOT)}: {target} does not exist"
        elif anchor and anchor not in anchors(there):
            yield f"{page.relative_to(ROOT)}: {target} has no such heading"


def links_of(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link to something in this repository, with the file and the heading that it means."""
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield target, (page.parent / path).resolve() if path else page, anchor


def lost_pages(documents: list[Path]) -> Iterator[str]:
    """Pages that nobody finds who begins with the README."""
    found, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in found:
            found.add(page)
            left += [there for _, there, _ in links_of(page) if there.suffix == ".md" and there.exists()]
    for page in documents:
        if page not in found:
            yield f"{page.relative_to(ROOT)}: no page that can be reached from README.md links to it"


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings are linked."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose)}


def broken_python(page: Path) -> Iterator[str]:
    """Python blocks that no interpreter would take."""
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            try:
                compile(block, page.name, "exec")
            except SyntaxError as error:
                yield f"{page.relative_to(ROOT)}: python block: {error}"


def stale_pages(folder: Path) -> Iterator[str]:
    """Generated pages that are not what the code says now."""
    for name, text in pages().items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            yield f"docs/reference/{name} is out of date; run `make reference`"


def stale_tour() -> Iterator[str]:
    """Pages of the tour that are not the way that commands go now; in a process whose clocks stand still."""
    command = [sys.executable, "-m", "bench.tour", "--check"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        sys.stdout.write(done.stdout)
    else:
        yield from done.stdout.splitlines() or [f"{' '.join(command[1:])} ended with status {done.returncode}"]


if __name__ == "__main__":
    sys.exit(main())
