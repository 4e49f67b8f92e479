"""Plots of kept results, and badges, drawn as SVG.

    bench/results/*.md --> rows of a table --> jobs-a-second.svg, jobs-a-second-dark.svg
    name, word --> badge-NAME.svg

The figures come from the file that docs/compare.md names; nothing is written here by hand.
"""

import re
from pathlib import Path

from docs.draw.diagrams import DARK, FONT, LIGHT

# As they write their names themselves.
NAMES = {"celery": "Celery", "rq": "RQ"}
WIDTH, BAR, GAP, LEFT, RIGHT, TOP = 760, 26, 12, 110, 110, 56


def jobs_a_second(results: Path) -> list[tuple[str, int]]:
    """Return the job libraries of the first table of W7 with what they reached."""
    table = results.read_text(encoding="utf-8").split("### W7:", 1)[1].split("| bar", 1)[0]
    rows = re.findall(r"^\| (\w+) +\| +([\d,]+) \|", table, re.MULTILINE)
    return [(NAMES.get(name, name), int(rate.replace(",", ""))) for name, rate in rows]


def draw_bars(title: str, below: str, rows: list[tuple[str, int]], path: Path) -> list[Path]:
    """Draw a bar for each row, for light and for dark pages; return what was written."""
    drawn = []
    for suffix, colours in (("", LIGHT), ("-dark", DARK)):
        most, height = max(value for _, value in rows), TOP + len(rows) * (BAR + GAP) + 26
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'{FONT} role="img" aria-label="{title}">',
            f'<text x="0" y="22" font-size="17" font-weight="600" fill="{colours["ink"]}">{title}</text>',
        ]
        for place, (name, value) in enumerate(rows):
            y, length = TOP - 10 + place * (BAR + GAP), max(2.0, (WIDTH - LEFT - RIGHT) * value / most)
            colour = colours["accent"] if place == 0 else colours["line"]
            middle, text = y + BAR / 2 + 5, f'font-size="14" fill="{colours["ink"]}"'
            parts += [
                f'<text x="{LEFT - 12}" y="{middle}" text-anchor="end" {text}>{name}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="4" fill="{colour}"/>',
                f'<text x="{LEFT + length + 8:.1f}" y="{middle}" {text}>{value:,}</text>',
            ]
        parts.append(f'<text x="0" y="{height - 6}" font-size="12" fill="{colours["soft"]}">{below}</text></svg>')
        written = path.with_name(f"{path.stem}{suffix}.svg")
        written.write_text("\n".join(parts) + "\n", encoding="utf-8")
        drawn.append(written)
    return drawn


def draw_badge(name: str, word: str, path: Path) -> Path:
    """Draw a badge as they stand at the head of many pages; it has its own colours for light and for dark."""
    # Of a sans-serif font at this size.
    left, right = (round(6.6 * len(text)) + 16 for text in (name, word))
    style = f'{FONT} font-size="11" text-anchor="middle" fill="#fff"'
    about = f'role="img" aria-label="{name}: {word}"'
    path.write_text(
        f'''<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" {about}>
<clipPath id="c"><rect width="{left + right}" height="20" rx="4"/></clipPath>
<g clip-path="url(#c)"><rect width="{left}" height="20" fill="#57606a"/>
<rect x="{left}" width="{right}" height="20" fill="{LIGHT["accent"]}"/></g>
<g {style}><text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{word}</text></g>
</svg>
''',
        encoding="utf-8",
    )
    return path
