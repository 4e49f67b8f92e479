"""The pictures of the repository: each is shown somewhere, small, has words for who cannot see it, and is up to date.

Only those that are made of texts and results are made again here: they must be what lies there.
"""

import re
import shutil
from pathlib import Path

import pytest

from docs.draw.__main__ import JOBS, PICTURE_BYTES_MAX, PICTURES, ROOT
from docs.draw.diagrams import draw_diagram
from docs.draw.plots import jobs_a_second

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
SHOWN = re.compile(r'!\[([^\]]*)\]\(([^)\s]+)\)|<img alt="([^"]*)" src="([^"]+)"|(?:srcset)="([^"]+)"')
MADE = sorted(path for path in PICTURES.iterdir() if path.suffix in (".png", ".svg"))


def shown() -> list[tuple[Path, str, str | None]]:
    """Every picture that a page shows: the page, the path as it stands there, its words; a source has none."""
    return [
        (page, found[2] or found[4] or found[5], found[1] if found[2] else found[3])
        for page in PAGES
        for found in SHOWN.finditer(page.read_text(encoding="utf-8"))
    ]


def test_picture_that_a_page_shows_exists_and_has_words() -> None:
    pictures = shown()

    assert len(pictures) > len(MADE) / 2
    for page, path, words in pictures:
        assert (page.parent / path).is_file(), f"{page.name}: {path}"
        assert words is None or len(words) > 4, f"{page.name}: {path} has no words for who cannot see it"


def test_pictures_are_all_shown_and_small() -> None:
    there = {(page.parent / path).resolve() for page, path, _ in shown()}

    for path in MADE:
        assert path in there, f"no page shows {path.name}"
        assert path.stat().st_size <= PICTURE_BYTES_MAX, path.name


def test_plot_of_the_front_page_has_the_kept_figures() -> None:
    drawn, front = (PICTURES / "jobs-a-second.svg").read_text(encoding="utf-8"), (ROOT / "README.md").read_text("utf-8")

    rows = jobs_a_second(JOBS)

    assert len(rows) == 5
    for _, rate in rows:
        assert f">{rate:,}<" in drawn
        assert f"{rate:,}" in front
    assert JOBS.name in (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz on this machine (Debian: graphviz)")
def test_diagrams_say_what_their_texts_say(tmp_path: Path) -> None:
    for text in PICTURES.glob("*.dot"):
        for path in draw_diagram(Path(shutil.copy(text, tmp_path))):
            # Widths hang on the fonts of the machine, words do not.
            words = re.compile(r"<text[^>]*>([^<]*)</text>")
            kept = (PICTURES / path.name).read_text(encoding="utf-8")
            assert words.findall(path.read_text(encoding="utf-8")) == words.findall(kept), f"make pictures: {path.name}"
