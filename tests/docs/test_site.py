"""The documentation site: it builds without a warning, and every public name is in it."""

from __future__ import annotations

import html
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import browser
import pytest

from docs.pages import ROOT
from torchx_cli.schemas.outputs import OUTPUTS

# one process: the site is built once, which may take minutes beside other work
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("site"), pytest.mark.timeout(600)]

MODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built with warnings as errors."""
    lacking = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: pip install 'torchx-cli[dev]'")
    folder = tmp_path_factory.mktemp("site")
    # without the lists of names beside the pages of modules, which take a third of the time
    args = ["-q", "-W", "--keep-going", "-D", "toc_object_entries=0", "-b", "html", str(ROOT / "docs")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *args, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def documented_modules() -> list[str]:
    return [
        name
        for page in sorted((ROOT / "docs" / "api").glob("*.rst"))
        for name in MODULE.findall(page.read_text(encoding="utf-8"))
    ]


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yields the names of `__all__`, or else the names a module defines or re-exports as `X as X`."""
    if hasattr(module, "__all__"):
        yield from ((name, getattr(module, name)) for name in module.__all__)
        return
    text = inspect.getsource(module)
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__qualname__")
        if not name.startswith("_") and (own or re.search(rf"\bimport {name} as {name}\b", text)):
            yield name, value


def test_every_public_name_is_on_the_site(site: Path) -> None:
    # four lines of text, then a compressed one for each name: the inventory of Sphinx, version 2
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    documented = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}
    missing = []
    for module_name in documented_modules():
        for name, value in public_names(importlib.import_module(module_name)):
            home = f"{getattr(value, '__module__', module_name)}.{getattr(value, '__qualname__', name)}"
            if not {f"{module_name}.{name}", home} & documented and not has_documented_alias(
                value, documented
            ):
                missing.append(f"{module_name}.{name}")
    assert not missing, " ".join(missing)


def has_documented_alias(value: object, documented: set[str]) -> bool:
    """Returns True if another name of the same object is on the site."""
    for full in documented:
        module, _, name = full.rpartition(".")
        if module in sys.modules and vars(sys.modules[module]).get(name) is value:
            return True
    return False


def test_every_page_can_be_reached_from_the_front_page(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")} | {p.stem for p in (ROOT / "docs").glob("*.rst")}
    assert not [page for page in pages - {"index"} if f'href="{page}.html' not in front]


def test_the_site_has_the_output_of_every_command(site: Path) -> None:
    titles = re.findall(r"<h2>([^<]*)<", (site / "outputs.html").read_text(encoding="utf-8"))
    assert {name for title in titles for name in title.split(", ")} >= {*OUTPUTS, "Errors"}


def test_every_link_within_the_site_has_its_target(site: Path) -> None:
    pages = {page.resolve(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {
        page: {"", *map(html.unescape, re.findall(r'\bid="([^"]+)"', text))} for page, text in pages.items()
    }
    dead = []
    for page, text in pages.items():
        for link in re.findall(r'href="([^":]*#[^"]*)"', text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if html.unescape(anchor) not in anchors.get(target, ()):
                dead.append(f"{page.relative_to(site.resolve())}: {link}")
    assert not dead, "\n".join(dead)


def test_quotes_are_as_written(site: Path) -> None:
    for page in (*site.glob("*.html"), *site.glob("api/*.html")):
        found = re.findall(r".{20}[“”‘’].{20}", page.read_text(encoding="utf-8"))
        assert not found, f"{page.name}: {found}"


@pytest.mark.skipif(browser.program() is None, reason="needs Chromium: apt install chromium")
def test_pages_fit_a_phone(site: Path) -> None:
    """Long lines, tables and pictures scroll in their place; the page does not."""
    for name in ("index", "commands", "debugging", "outputs", "compatibility"):
        with browser.browser() as page:
            page.open(site / f"{name}.html")
            page.resize(390, 900)
            assert page.evaluate("document.documentElement.scrollWidth") == 390, name
            widths = page.evaluate("[...document.querySelectorAll('article p > img')].map(i => i.width)")
            assert all(width > 600 for width in widths), f"{name}: the text of a picture is too small"
            broken = "[...document.querySelectorAll('code .pre')].filter(word => /^-/.test(word.innerText)"
            broken += " && word.offsetHeight > 30).map(word => word.innerText)"
            assert page.evaluate(broken) == [], f"{name}: flags of two lines"
            tables = "[...document.querySelectorAll('.table-wrapper')]"
            shadows = page.evaluate(f"{tables}.map(table => getComputedStyle(table).backgroundImage)")
            assert all("gradient" in shadow for shadow in shadows), f"{name}: hidden columns are not marked"


def test_an_interrupted_build_leaves_no_half_pages(tmp_path: Path) -> None:
    """The first build is killed while it writes; as Sphinx, the second keeps a page newer than its source."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(
        "#!/bin/bash\nfolder=${@: -1}; mkdir -p $folder; [ -e $folder/index.html ] && exit\n"
        "if [ -e again ]; then echo whole > $folder/index.html; exit; fi\n"
        "echo half > $folder/index.html; touch again; kill -KILL $$\n"
    )
    python.chmod(0o755)
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "venv-docs", "site", "BIN=bin"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == f"the start page: {tmp_path / 'site' / 'index.html'}"
    assert (tmp_path / "site" / "index.html").read_text() == "whole\n"


def test_the_site_can_be_searched(site: Path) -> None:
    assert '"supervisor":' in (site / "searchindex.js").read_text(encoding="utf-8")
