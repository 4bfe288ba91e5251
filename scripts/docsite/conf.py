"""The settings of Sphinx for the site of the documentation; make docs runs it.

The source is the whole tree, so that the links of the pages hold as they are. docs/README.md is the first page, and its
sections are those of the sidebar.
"""

import json
import re
import subprocess
from pathlib import Path

import furo

HERE = Path(__file__).parent


def described():
    """Returns the version that make release would use, or dev without Git."""
    git = subprocess.run(["git", "describe", "--tags", "--always"], cwd=HERE, capture_output=True, text=True, check=False)
    return git.stdout.strip() or "dev"


project = "Muster"
version = release = described()
html_title = f"Muster {version}"
html_logo = html_favicon = str(HERE / "logo.svg")
copyright = ""
html_show_copyright = html_show_sphinx = html_copy_source = False

extensions = ["myst_parser"]
smartquotes = False  # --flag is no dash
suppress_warnings = ["misc.highlighting_failure"]  # of code that is not whole
myst_heading_anchors = 4  # as GitHub makes them
highlight_language = "none"  # of blocks without a language
html_theme = "furo"
html_static_path = [str(HERE / "site.css"), str(HERE / "copy.js")]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]

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
    if doc in ("docs/reference/settings", "docs/reference/site-definition"):
        source[0] = "---\ntocdepth: 1\n---\n" + source[0]  # sections, without a hundred keys
    if doc == "docs/reference/api":
        source[0] += operations()
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


def operations():
    """Returns the operations of openapi.json as tables, by tag."""
    spec = json.loads((HERE / "../../docs/reference/openapi.json").read_text())

    def resolve(schema):
        return spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema

    def fields(operation):
        names = [p["name"] + ("" if p.get("required") else "?") for p in operation.get("parameters", []) if p["in"] == "query"]
        for body in operation.get("requestBody", {}).get("content", {}).values():
            schema = resolve(body.get("schema", {}))
            names += [n + ("" if n in schema.get("required", []) else "?") for n in schema.get("properties", {})]
        return " ".join(f"`{n}`" for n in dict.fromkeys(names) if n != "$schema")

    sections = {}
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            row = [f"`{method.upper()} {path}`", operation["summary"], ", ".join(operation.get("x-role") or []), fields(operation)]
            sections.setdefault(operation["tags"][0], []).append("| " + " | ".join(row) + " |\n")
    text = "\n## Operations\n\nQuery parameters and fields of the body; `?` marks optional ones.\n"
    for tag in sorted(sections):
        text += f"\n### {tag.capitalize()}\n\n| Operation | | Role | Fields |\n|---|---|---|---|\n" + "".join(sections[tag])
    return text


def landing(app, exception):
    """Writes the first page with the version."""
    if not exception:
        page = (HERE / "index.html").read_text()
        Path(app.outdir, "index.html").write_text(page.replace("{{version}}", version))


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
    app.connect("build-finished", landing)
    app.connect("build-finished", from_debian)
    if "import Gumshoe" in (Path(furo.__file__).parent / "theme/furo/static/scripts/furo.js").read_text():
        app.add_js_file("scripts/gumshoe-patched.js", priority=100)
