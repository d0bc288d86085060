"""Configuration of the documentation site: `make site` builds it from docs/ and the docstrings."""

from __future__ import annotations

import re
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import json_tables  # noqa: E402

import torchx.scheduling.base  # noqa: E402
from torchx.specs import CfgVal, Role  # noqa: E402
from torchx.version import __version__  # noqa: E402

# imported there for types only; Sphinx needs them to resolve annotations such as Role
vars(torchx.scheduling.base).update(CfgVal=CfgVal, Role=Role)

project = "torchx"
author = "The authors of torchx"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["demo", "pictures"]
html_theme = "furo"
html_title = f"torchx {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
# quotes and dashes stay as written, so that they can be copied
smartquotes = False

# the pages are read as files too: links to headings, images in HTML
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "html_image"]

# either of two names for a class in an annotation is correct
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
# a field that the docstring of its class describes appears once
napoleon_use_ivar = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# the copy button copies commands without their prompt and output
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def skip_foreign(app: Any, what: str, name: str, item: object, skip: bool, options: Any) -> bool | None:
    """Returns True for members that a documented module imports from other packages."""
    home = getattr(item, "__module__", None) or ""
    return True if what == "module" and home and not home.startswith("torchx") else None


LINKS = {
    "](docs/": "](",
    "](examples/server_clients/primes.py)": "](gallery)",
    "](examples/ssh_scheduler)": "](architecture.md#a-scheduler-of-your-own)",
    "](benchmarks/RESULTS.md)": "](measured)",
    "](CHANGELOG.md)": "](changelog)",
    "](CONTRIBUTING.md)": "](contributing)",
    "](SECURITY.md)": "](security)",
}
"""Links of README.md, CONTRIBUTING.md and CHANGELOG.md, and the pages of the site that replace them."""


def included_file(app: Any, docname: str, source: list[str]) -> None:
    """Replaces the comment at the start of a page by the file that it names, with the links of the site.

    The page of JSON output gets its tables.
    """
    if docname == "outputs":
        source[0] += f"\n{json_tables.generated()}"
    named = re.match(r"<!-- text: (\S+) -->", source[0])
    if named is None:
        return
    text = (ROOT / named[1]).read_text(encoding="utf-8")
    for link, page in LINKS.items():
        text = text.replace(link, page)
    source[0] = text + source[0][named.end() :]


BACK = re.compile(r'<a class="viewcode-back" href="([^"#]*)#([^"]*)">.*?</a>')
"""A link from a source to its documentation."""


def corrected_links(app: Any, error: Exception | None) -> None:
    """Corrects the links of sources, of which Sphinx expects all names to be documented in one module."""
    if error is not None:
        return
    for page in Path(app.outdir).glob("_modules/**/*.html"):
        before = page.read_text(encoding="utf-8")
        text = BACK.sub(partial(_corrected, page), before)
        if text != before:
            page.write_text(text, encoding="utf-8")


@cache
def _anchors(page: Path) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))


def _corrected(page: Path, link: re.Match[str]) -> str:
    """Returns a link to the documentation with the anchor that exists; an empty text without one."""
    anchors = _anchors((page.parent / link[1]).resolve())
    if link[2] in anchors:
        return link[0]
    parts = link[2].split(".")
    names = (".".join(parts[start:]) for start in range(1, len(parts)))
    found = [anchor for name in names for anchor in anchors if anchor.endswith(f".{name}")]
    if found:
        return link[0].replace(f"#{link[2]}", f"#{found[0]}")
    return ""


def setup(app: Any) -> None:
    """Connects the functions above to Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("source-read", included_file)
    app.connect("build-finished", corrected_links)
