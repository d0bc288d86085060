"""The source files of this project and their imports; shared by the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "torchx.components": ROOT / "components",
    "torchx.schedulers": ROOT / "schedulers",
    "torchx": ROOT / "torchx",
    "torchx_cli": ROOT / "torchx_cli",
}
"""The folder of each package; the links in torchx/ are not followed."""


@dataclass(frozen=True)
class Import:
    """One import of a module of this project.

    Attributes:
        line: its line.
        target: the imported module.
        at_load: True if it runs when its file is loaded: it is neither in a function nor under
            ``if TYPE_CHECKING`` nor under ``with lazy_imports``.
    """

    line: int
    target: str
    at_load: bool


@cache
def modules() -> dict[str, Path]:
    """Returns all modules of this project by name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("").parts
            if inside[0] in ("components", "schedulers") and package == "torchx":
                continue  # through the link
            name = ".".join((package, *inside)).removesuffix(".__init__")
            found[name] = path
    return found


def all_files() -> list[Path]:
    """Returns every Python file of this project, except for test inputs that are broken on purpose."""
    found = set(modules().values())
    for folder in ("tests", "examples", "benchmarks"):
        found |= set((ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "museum" not in path.parts and "resources" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """Returns the parsed source of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of the parsed source of a file, as :func:`ast.walk` finds them."""
    return tuple(ast.walk(tree_of(path)))


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """Returns all imports of this project's modules by a module, also in functions and for types."""
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_imports(tree_of(path).body, package, at_load=True))


def all_imported(module: str) -> Iterator[tuple[int, str]]:
    """Yields line and name of all imports of a module, also from other projects."""
    for node in nodes_of(modules()[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def _imports(body: list[ast.stmt], package: str, *, at_load: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _named(alias.name, node.lineno, at_load)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node, package, at_load)
        else:
            later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            lazy = isinstance(node, ast.With) and "lazy_imports" in ast.dump(node.items[0])
            for name in ("body", "orelse", "finalbody"):
                now = at_load and not later and not lazy and not (types and name == "body")
                yield from _imports(getattr(node, name, []), package, at_load=now)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _imports(part.body, package, at_load=at_load and not later)


def _from(node: ast.ImportFrom, package: str, at_load: bool) -> Iterator[Import]:
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
    for alias in node.names:
        whole = f"{base}.{alias.name}"
        yield from _named(whole if whole in modules() else base, node.lineno, at_load)


def _named(name: str, line: int, at_load: bool) -> Iterator[Import]:
    if name.split(".")[0] in ("torchx", "torchx_cli"):
        yield Import(line, name, at_load)
