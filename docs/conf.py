"""How the documentation site is made: `make site` builds it from docs/ and the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torchx.scheduling.base  # noqa: E402
from torchx.specs import CfgVal, Role  # noqa: E402
from torchx.version import __version__  # noqa: E402

# imported there for types alone: without them no page could tell which class called Role is meant
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
html_static_path: list[str] = []

# the pages are written for those who read them as files, too: headings can be linked to, images are HTML
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "html_image"]

# of two names for a class in an annotation either will do
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
# what is told of a field in the docstring of its class is told once
napoleon_use_ivar = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# what a reader pastes: commands without their prompt, and nothing of what they print
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def skip_foreign(app: Any, what: str, name: str, item: object, skip: bool, options: Any) -> bool | None:
    """Leaves out what a documented module has imported from elsewhere for its own use."""
    home = getattr(item, "__module__", None) or ""
    return True if what == "module" and home and not home.startswith("torchx") else None


FRONT_LINKS = {
    "](docs/": "](",
    "](examples/server_clients/primes.py)": "](gallery)",
    "](benchmarks/RESULTS.md)": "](measured)",
    "](CHANGELOG.md)": "](changelog)",
}
"""Links of README.md, and where they lead on the site."""


def front_page(app: Any, docname: str, source: list[str]) -> None:
    """Makes README.md the text of the first page, so that there is one of them."""
    if docname != "index":
        return
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for link, there in FRONT_LINKS.items():
        text = text.replace(link, there)
    source[0] = text + source[0].partition("-->")[2]  # what the page itself holds: the menus


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("source-read", front_page)
