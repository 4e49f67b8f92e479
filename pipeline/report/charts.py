"""Charts as inline SVG: lines over time, bars of percentiles, a strip of hours.  Colours come from the page's style.

Pure: numbers in, markup out.  Every text that came from a broker is escaped.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 920, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 28
TICKS_X = 6
TICKS_Y = 4
# The number of colours that can be told apart.
SERIES_MAX = 6
ROW = 26
LABEL = 190
DAY_S = 86_400
MARKS_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000)
Series = Sequence[tuple[str, Sequence[float]]]


def lines(grid_s: Sequence[int], series: Series, *, unit: str, fill: bool = False) -> str:
    """Return lines over time with axes and a legend; the first series has the first colour."""
    shown = list(series)[:SERIES_MAX]
    top = nice_top(max((max(values, default=0) for _, values in shown), default=0))
    parts = [_frame(HEIGHT), _y_axis(top, unit), _x_axis(grid_s)]
    for place, (name, values) in enumerate(shown):
        points = [f"{_x(i, len(grid_s)):.1f},{_y(value, top):.1f}" for i, value in enumerate(values)]
        if fill and points:
            corners = [f"{_x(at, len(grid_s)):.1f},{_y(0, top):.1f}" for at in (0, len(points) - 1)]
            area = " ".join([corners[0], *points, corners[1]])
            parts.append(f'<polygon class="area s{place}" points="{area}"/>')
        parts.append(
            f'<polyline class="line s{place}" points="{" ".join(points)}"><title>{escape(name)}</title></polyline>'
        )
    return "".join([*parts, "</svg>", legend([name for name, _ in shown])])


def legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(f'<li><i class="s{place}"></i>{escape(name)}</li>' for place, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def spans(rows: Sequence[tuple[str, float | None, float | None, float | None]]) -> str:
    """Return for each name a bar from the median to the 99th percentile, on a logarithmic scale of seconds."""
    known = [row for row in rows if row[1] is not None]
    if not known:
        return '<p class="none">Nothing to show in this time.</p>'
    ticks = _ticks([value for row in known for value in row[1:] if value])
    height = TOP + ROW * len(known) + BOTTOM
    parts = [_frame(height), _log_axis(ticks, height)]
    for place, (name, p50, p90, p99) in enumerate(known):
        y = TOP + ROW * place + ROW / 2
        x50, x90, x99 = (_log_x(value or 0, ticks) for value in (p50, p90, p99))
        said = f"{name}: half within {duration(p50)}, 90 % within {duration(p90)}, 99 % within {duration(p99)}"
        parts.append(
            f'<g><title>{escape(said)}</title>'
            f'<text class="name" x="{LABEL - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(shortened(name))}</text>'
            f'<line class="whisker" x1="{x50:.1f}" x2="{x99:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<line class="box s0" x1="{x50:.1f}" x2="{max(x90, x50 + 1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle class="dot s0" cx="{x50:.1f}" cy="{y:.1f}" r="4"/>'
            f'<line class="end" x1="{x99:.1f}" x2="{x99:.1f}" y1="{y - 5:.1f}" y2="{y + 5:.1f}"/></g>'
        )  # fmt: skip
    return "".join([*parts, "</svg>"])


def hours(rows: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Return a strip of 24 hours for each name; the darker, the more, for each name by itself."""
    height = TOP + ROW * len(rows) + BOTTOM
    cell = (WIDTH - LABEL - RIGHT) / 24
    parts = [_frame(height)]
    for place, (name, counts) in enumerate(rows):
        y, most = TOP + ROW * place, max([*counts, 1])
        parts.append(
            f'<text class="name" x="{LABEL - 10}" y="{y + ROW / 2 + 4:.1f}" text-anchor="end">'
            f"{escape(shortened(name))}</text>"
        )
        parts += [
            f'<rect class="cell" x="{LABEL + hour * cell + 1:.1f}" y="{y + 2}" width="{cell - 2:.1f}" '
            f'height="{ROW - 4}" rx="3" fill-opacity="{0.06 + 0.94 * count / most:.3f}">'
            f"<title>{escape(name)}, {hour:02d}:00: {count:,} published</title></rect>"
            for hour, count in enumerate(counts)
        ]
    marks = [
        f'<text class="tick" x="{LABEL + (hour + 0.5) * cell:.1f}" y="{height - 8}" text-anchor="middle">'
        f"{hour:02d}</text>"
        for hour in range(0, 24, 2)
    ]
    return "".join([*parts, *marks, "</svg>"])


# Axes -------------------------------------------------------------------------------------------------------------


def nice_top(value: float) -> float:
    """Return the next number that four ticks divide nicely."""
    if value <= 0:
        return float(TICKS_Y)
    step = value / TICKS_Y
    scale = 10.0 ** math.floor(math.log10(step))
    return TICKS_Y * next(factor * scale for factor in (1, 1.5, 2, 2.5, 5, 10) if factor * scale >= step)


def number(value: float) -> str:
    """Return a number in a form for an axis."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def duration(seconds: float | None) -> str:
    """Return a duration in a form for people."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"


def shortened(name: str) -> str:
    return name if len(name) <= 26 else name[:12] + "\N{HORIZONTAL ELLIPSIS}" + name[-13:]


def _frame(height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">'


def _x(place: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * place / max(1, count - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _y_axis(top: float, unit: str) -> str:
    parts = []
    for tick in range(TICKS_Y + 1):
        value = top * tick / TICKS_Y
        y = _y(value, top)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    return "".join(parts) + f"<title>{escape(unit)}</title>"


def _x_axis(grid_s: Sequence[int]) -> str:
    if not grid_s:
        return ""
    pattern = (
        "%d %b %H:%M" if grid_s[-1] - grid_s[0] >= DAY_S else "%H:%M" if grid_s[-1] - grid_s[0] >= 600 else "%H:%M:%S"
    )
    places = sorted({round(tick * (len(grid_s) - 1) / (TICKS_X - 1)) for tick in range(TICKS_X)})
    parts = []
    for place in places:
        anchor = "start" if place == 0 else "end" if place == len(grid_s) - 1 else "middle"
        text = datetime.fromtimestamp(grid_s[place], UTC).strftime(pattern)
        x = _x(place, len(grid_s))
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
    return "".join(parts)


def _ticks(values: Sequence[float]) -> list[float]:
    """Return marks in seconds, from the last one below all values to the first one above."""
    low, high = min(values, default=0.001), max(values, default=1.0)
    first = max(0, bisect_right(MARKS_S, low) - 1)
    last = min(len(MARKS_S) - 1, bisect_left(MARKS_S, high))
    return list(MARKS_S[first : max(last, first + 1) + 1])


def _log_x(value: float, ticks: Sequence[float]) -> float:
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    exponent = min(max(math.log(max(value, ticks[0])), low), high)
    return LABEL + (WIDTH - LABEL - RIGHT - 20) * (exponent - low) / (high - low)


def _log_axis(ticks: Sequence[float], height: float) -> str:
    parts = []
    for tick in ticks:
        x = _log_x(tick, ticks)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
            f'<text class="tick" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{duration(tick)}</text>'
        )
    return "".join(parts)
