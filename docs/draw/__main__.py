"""Make the pictures of the repository again: `make pictures`.

    docs/pictures/*.dot, bench/results, a broker under load --> docs/pictures

Needs Graphviz (`dot`) and Chromium.  A picture that is too large for a page is an error.
"""

import sys
from pathlib import Path

from docs.draw.diagrams import draw_diagram
from docs.draw.plots import draw_badge, draw_bars, jobs_a_second
from docs.draw.screens import take_screenshots

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
JOBS = ROOT / "bench" / "results" / "2026-11-18-W7-W7B.md"
BADGES = {"python": "3.11 or newer", "license": "Apache 2.0", "typed": "mypy, pyright", "status": "beta"}
PICTURE_BYTES_MAX = 300_000


def main() -> None:
    """Make them all."""
    made = [path for text in sorted(PICTURES.glob("*.dot")) for path in draw_diagram(text)]
    made += draw_bars(
        "Empty jobs a second, one worker of eight threads",
        "2 cores for all; published in batches of 100 where a library has them; wakeq syncs, the others use Redis.",
        jobs_a_second(JOBS),
        PICTURES / "jobs-a-second.svg",
    )
    made += [draw_badge(name, word, PICTURES / f"badge-{name}.svg") for name, word in BADGES.items()]
    made += take_screenshots(PICTURES)
    for path in made:
        size = path.stat().st_size
        sys.stdout.write(f"{path.relative_to(ROOT)}: {size:,} bytes\n")
        if size > PICTURE_BYTES_MAX:
            raise SystemExit(f"{path.name} is larger than {PICTURE_BYTES_MAX:,} bytes")


if __name__ == "__main__":
    main()
