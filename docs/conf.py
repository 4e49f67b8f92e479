"""The documentation as a site: what Sphinx needs to know to make HTML of the Markdown pages.

In go README.md, CONTRIBUTING.md, CHANGELOG.md and the pages below docs/, as they are; `make docs` has the site in
docs/_build/html, where every page lies as it does in the repository, so that the links between them stay what they
are.  Nothing here may ask the network, neither the build nor a page that is read.
"""

import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
TOP = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs"}

# The sidebar, by what a reader came for (https://diataxis.fr); paths begin at docs/, as in its index.md.
# A page that is missing here is a warning, and so an error of `make docs`.
CONTENTS = {
    "Tutorial": ["First steps <../README>", "guide/first-worker"],
    "How-to": [
        "guide/modules",
        "guide/hooks",
        "guide/retries",
        "guide/web",
        "guide/testing",
        "guide/pipeline",
        "guide/pipeline-cluster",
        "guide/monique",
        "guide/deployment",
        "guide/migrate",
        "operations/deploy",
        "operations/cluster",
        "operations/kubernetes",
        "operations/security",
        "operations/when",
        "operations/monitoring",
        "operations/admin",
        "operations/backup",
        "../CONTRIBUTING",
    ],
    "Reference": [
        "glossary",
        "python",
        "reference/cli",
        "reference/settings",
        "reference/http",
        "reference/metrics",
        "reference/errors",
        "reference/exit-codes",
        "protocols/worker",
        "protocols/taskflux",
        "protocols/monique",
        "protocols/peer",
        "files",
        "../CHANGELOG",
    ],
    "Explanation": [
        "concepts",
        "guarantees",
        "compare",
        "tour",
        "internals/rounds",
        "internals/flow",
        "internals/runtime",
        "internals/clock",
        "internals/staging",
        "internals/worker",
        "internals/recovery",
        "internals/raft",
        "internals/storage",
        "decisions/README",
        "dependencies",
    ],
}

project = "wakeq"
html_title = "wakeq"
root_doc = "docs/index"
extensions = ["myst_parser"]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in TOP] + ["docs/_build"]
highlight_language = "none"  # a block that names no language is a session, a table or a drawing
myst_heading_anchors = 6  # links to headings are those of a repository browser

html_theme = "furo"
html_extra_path = ["site"]  # index.html, which leads on to docs/index.html
html_copy_source = False
html_show_copyright = False
html_use_index = False  # an index of what code defines, of which there is nothing here


def setup(app: Sphinx) -> None:
    """Let the pages have their sidebar and no link to what the site lacks; called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("doctree-read", unlink_what_stays_outside)
    app.connect("build-finished", copy_pictures)


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the sidebar to the pages that have one: written into them, a repository browser would show it as code."""
    if page == root_doc:
        source[0] += "".join(toctree(caption, pages) for caption, pages in CONTENTS.items())
    if page == "docs/decisions/README":
        source[0] += toctree("Decisions", ["0*"])
    if page == "docs/tour":
        source[0] += toctree("Ways", ["tour/*"])


def toctree(caption: str, pages: list[str]) -> str:
    """The directive that makes one part of the sidebar."""
    listed = "\n".join(pages)
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{listed}\n```\n"


def unlink_what_stays_outside(app: Sphinx, tree: nodes.document) -> None:
    """Leave the text alone of a link to a folder, or to a page that is no page of the site.

    Any other file of the repository needs nothing: MyST puts a copy of it into the site.  What does not exist at all
    keeps its link, and so becomes a warning.
    """
    for link in list(tree.findall(pending_xref)):
        if link.get("refdomain") == "doc":
            page = link["reftarget"]
            outside = page not in app.env.found_docs and (ROOT / f"{page}.md").is_file()
        else:
            outside = (ROOT / app.env.docname).parent.joinpath(link["reftarget"]).is_dir()
        if outside:
            link.replace_self(link.children)


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Put the pictures where they lie in the repository: Sphinx does not see what stands in `<picture>`."""
    if error is None:
        place = Path("docs", "pictures")
        shutil.copytree(ROOT / place, app.outdir / place, ignore=shutil.ignore_patterns("*.dot"), dirs_exist_ok=True)
