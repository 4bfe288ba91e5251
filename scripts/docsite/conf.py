"""The settings of Sphinx for the site of the documentation; make docs runs it.

The source is the whole tree, so that the links of the pages hold as they are. docs/README.md is the first page, and its
sections are those of the sidebar.
"""

import re
from pathlib import Path

import furo

project = "Muster"
html_title = "Muster"
copyright = ""
html_show_copyright = html_show_sphinx = html_copy_source = False

extensions = ["myst_parser"]
smartquotes = False  # --flag is no dash
suppress_warnings = ["misc.highlighting_failure"]  # of code that is not whole
myst_heading_anchors = 4  # as GitHub makes them
html_theme = "furo"
html_extra_path = ["index.html"]

root_doc = "docs/README"
include_patterns = [
    "docs/**",
    "examples/README.md",
    "examples/agents/README.md",
    "sites/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]

BESIDE = ["../examples/README", "../CONTRIBUTING", "../SECURITY", "../CHANGELOG"]


def prepare(app, doc, source):
    """Adds what Sphinx calls a table of contents to the first page: the pages that its lists name, by section. And leaves
    pages out of the search."""
    if doc in ("CHANGELOG", "CONTRIBUTING"):  # their "release" would come before what a search for "lease" wants
        source[0] = "---\nnosearch: true\n---\n" + source[0]
    if doc != root_doc:
        return
    tree = []
    for section in re.split(r"^## ", source[0], flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        pages = re.findall(r"^\* \[[^\]]*\]\(([^)#]*)\.md\)", text, flags=re.M)
        tree.append((title, pages))
    tree.append(("Beside the documentation", BESIDE))
    for title, pages in tree:
        source[0] += "\n```{toctree}\n:hidden:\n:caption: %s\n\n%s\n```\n" % (title, "\n".join(pages))


def from_debian(app, exception):
    """Debian's package of the theme has a module as a plain script, and a style sheet of the server: both work nowhere."""
    if exception:
        return
    static = Path(app.outdir, "_static")
    script, style = static / "scripts/furo.js", static / "styles/furo.css"
    script.write_text(re.sub(r"^import Gumshoe .*", "", script.read_text()))
    normalize = Path("/usr/share/javascript/normalize.css/normalize.min.css")
    if normalize.exists():
        style.write_text(re.sub(r"^@import url\(/javascript/.*", lambda _: normalize.read_text(), style.read_text()))


def setup(app):
    app.connect("source-read", prepare)
    app.connect("build-finished", from_debian)
    if "import Gumshoe" in (Path(furo.__file__).parent / "theme/furo/static/scripts/furo.js").read_text():
        app.add_js_file("scripts/gumshoe-patched.js", priority=100)
