"""Diagrams: pictures that are written as text in the language of Graphviz.

docs/pictures/NAME.dot, with names of colours --> dot --> NAME.svg, NAME-dark.svg
"""

import re
import subprocess
from pathlib import Path
from string import Template

# The same names for both, so that a text says `$ink`.
LIGHT = {
    "ink": "#1f2328", "soft": "#59636e", "line": "#818b98", "box": "#f6f8fa", "edge": "#d1d9e0",
    "accent": "#0969da", "tint": "#ddf4ff", "good": "#1a7f37", "goodtint": "#dafbe1", "bad": "#d1242f",
    "badtint": "#ffebe9",
}  # fmt: skip
DARK = {
    "ink": "#f0f6fc", "soft": "#9198a1", "line": "#656c76", "box": "#151b23", "edge": "#3d444d",
    "accent": "#4493f8", "tint": "#121d2f", "good": "#3fb950", "goodtint": "#12261e", "bad": "#f85149",
    "badtint": "#25171c",
}  # fmt: skip
# Of all diagrams: a text only says what is special.
DEFAULTS = """
  bgcolor="transparent" fontname="Helvetica" fontsize=12 fontcolor="$ink" pad=0.15 nodesep=0.35 ranksep=0.55
  node [shape=box style="rounded,filled" fontname="Helvetica" fontsize=12 margin="0.18,0.1" height=0.4]
  node [fontcolor="$ink" color="$edge" fillcolor="$box"]
  edge [fontname="Helvetica" fontsize=10.5 fontcolor="$soft" color="$line" arrowsize=0.7]
"""
# Graphviz names the fonts of PostScript; a browser knows what its system has.
FONT = 'font-family="ui-sans-serif,system-ui,Helvetica,Arial,sans-serif"'


def draw_diagram(text: Path) -> list[Path]:
    """Draw a text for light and for dark pages; return what was written."""
    drawn = []
    for suffix, colours in (("", LIGHT), ("-dark", DARK)):
        source = text.read_text(encoding="utf-8").replace("{", "{" + DEFAULTS, 1)
        made = subprocess.run(
            ["dot", "-Tsvg"], input=Template(source).substitute(colours), capture_output=True, text=True, check=True
        ).stdout
        # What a comment or a title says would be shown as a tooltip.
        made = re.sub(
            r"<!--.*?-->\n?|<title>.*?</title>\n?|<\?xml.*?\?>\n?|<!DOCTYPE.*?>\n?", "", made, flags=re.DOTALL
        )
        path = text.with_name(f"{text.stem}{suffix}.svg")
        path.write_text(re.sub(r'font-family="[^"]*"', FONT, made), encoding="utf-8")
        drawn.append(path)
    return drawn
