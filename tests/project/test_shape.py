"""The shape of the source: decisions in functions, folded expressions, knots of folders, and the size.

Each limit may only fall. `python tests/project/test_shape.py` lists the places.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from project.sources import PACKAGES, ROOT, imports_of, modules, nodes_of

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once

MOST_DECISIONS = 14
"""Of a function: branches, loops, handlers, comprehensions, operands of `and` and `or` after the first."""

LIMITS = {
    "functions with more decisions": 15,
    "conditional expressions": 987,
    "nested conditional expressions": 0,
    "fmt: skip": 11,
}

KNOTS = {
    "torchx.schedulers.docker": 0,
    "torchx.schedulers.kubernetes": 0,
    "torchx.schedulers.slurm": 0,
    "torchx.schedulers.local": 0,
    "torchx_cli": 0,
    "house": 4,
}
"""The most files and folders of a part that import each other, directly or not."""

MOST_NODES = 440_609
"""The size of the source in syntax nodes, which formatting does not change, without contexts of names."""

BESIDE = {
    "torchx_cli/contexts": (2_785, 13_415),
    "torchx_cli/features": (270, 1_400),
    "torchx/features": (340, 1_600),  # with bad_nodes
    "schedulers/gridengine": (1_370, 5_385),
    "torchx/features/bad_nodes": (260, 1_400),
    "torchx/scheduling/setup_once": (330, 1_400),
    "schedulers/shared/batch/stragglers": (290, 1_400),
    "torchx/stragglers": (800, 2_900),
    "torchx/supervisor/stragglers": (250, 950),
    "torchx_cli/nodes": (130, 650),
}
"""The lines and the sizes of folders that the rest does not need; they are limited apart."""

DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def decisions_of(function: ast.AST) -> int:
    """Returns the decisions of a function, without those of functions and classes inside it."""
    count = 0
    for node in ast.iter_child_nodes(function):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        count += decisions_of(node)
    return count


def is_nested(node: ast.IfExp) -> bool:
    return any(isinstance(other, ast.IfExp) for other in ast.walk(node) if other is not node)


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in modules().values():
        for node in nodes_of(path):
            yield path, node


@cache
def places() -> dict[str, list[str]]:
    """Returns the places of each kind that has a limit."""
    found: dict[str, list[str]] = {kind: [] for kind in LIMITS}
    for path, node in nodes():
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.IfExp):
            found["conditional expressions"].append(where)
            if is_nested(node):
                found["nested conditional expressions"].append(where)
        elif isinstance(node, FUNCTIONS) and decisions_of(node) > MOST_DECISIONS:
            found["functions with more decisions"].append(f"{where} {node.name} {decisions_of(node)}")
    for path in modules().values():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found["fmt: skip"] += [f"{path.relative_to(ROOT)}:{number}"] * line.count("# fmt: skip")
    return found


@pytest.mark.parametrize("kind", LIMITS)
def test_a_kind_does_not_spread(kind: str) -> None:
    found = places()[kind]
    assert len(found) <= LIMITS[kind], f"{len(found)} places, at most {LIMITS[kind]}:\n" + "\n".join(found)


def room_in(part: str) -> Callable[[str], str]:
    """Returns a function from a module to its file or folder in a part; an empty string if it has none."""

    def room(module: str) -> str:
        if not module.startswith(part + ".") or modules()[module].name == "__init__.py":
            return ""
        return module.removeprefix(part + ".").split(".")[0]

    return room


def room_in_house(module: str) -> str:
    """Returns the part of the project that a module belongs to; documented old names have none."""
    first, *inner = module.split(".")
    if modules()[module].name == "__init__.py" or not inner or inner[0] in ("compat", "util"):
        return ""
    if first == "torchx_cli" or inner[0] in ("schedulers", "components"):
        return f"{first}.{inner[0]}" if first == "torchx" else first
    return inner[0]


def largest_knot(room: Callable[[str], str]) -> set[str]:
    """Returns the largest set of rooms that import each other, directly or not."""
    targets: dict[str, set[str]] = {}
    for module in modules():
        if room(module):
            imported = {room(each.target) for each in imports_of(module) if each.target in modules()}
            targets.setdefault(room(module), set()).update(imported - {room(module), ""})
    reached = {start: reachable(start, targets) for start in targets}
    knots = [{other for other in reached[start] if start in reached.get(other, ())} for start in targets]
    return max(knots, key=len, default=set())


def reachable(start: str, targets: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = targets.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def room_of(part: str) -> Callable[[str], str]:
    return room_in_house if part == "house" else room_in(part)


@pytest.mark.parametrize("part", KNOTS)
def test_a_knot_does_not_grow(part: str) -> None:
    knot = largest_knot(room_of(part))
    assert len(knot) <= KNOTS[part], sorted(knot)


def size(folder: str = "") -> int:
    """Returns the size of the source, or of a folder; without it, the folders of BESIDE do not count."""
    places = (
        path.relative_to(ROOT).as_posix() for path, node in nodes() if not isinstance(node, ast.expr_context)
    )
    if folder:
        return sum(place.startswith(f"{folder}/") for place in places)
    return sum(not place.startswith(tuple(f"{each}/" for each in BESIDE)) for place in places)


def test_the_source_does_not_grow() -> None:
    assert size() <= MOST_NODES


@pytest.mark.parametrize("folder", BESIDE)
def test_a_folder_beside_does_not_grow(folder: str) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py"))
    most_lines, most_nodes = BESIDE[folder]
    assert lines <= most_lines
    assert size(folder) <= most_nodes


def test_the_packages_are_the_source() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in modules().values()}
    assert folders == {folder.relative_to(ROOT).parts[0] for folder in PACKAGES.values()}


if __name__ == "__main__":
    for kind, found in places().items():
        sys.stdout.write("\n".join((f"{kind}: {len(found)}", *(f"  {each}" for each in found), "")))
    for part in KNOTS:
        sys.stdout.write(f"{part}: {len(largest_knot(room_of(part)))}\n")
    sizes = "".join(f", {folder}: {size(folder)}" for folder in BESIDE)
    sys.stdout.write(f"size: {size()}{sizes}\n")
