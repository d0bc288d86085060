"""Tests of imports inside functions, which are few and have a reason, and of lazy ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from project.sources import ROOT, modules, nodes_of, tree_of

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once

MOST = 40
HEAVY = {"docker", "kubernetes", "websocket", "torch", "hydra", "omegaconf", "pynvml", "typer"}
"""Packages that take longer to load than most commands run, and optional ones."""

REASONS = {
    "torchx.schedulers.shared.owner": "pwd is missing on Windows",
    "torchx_cli.__main__": "the package torchx may be that of another distribution",
    "torchx_cli.contexts.host": "its source runs on other machines, without torchx",
    "torchx_cli.placeholder": "the package torchx may be that of another distribution",
    "torchx.components": "a component is a user's file in form: its imports are its own",
    "torchx.scheduling.patterns": "nodes of Slurm run a copy of it, which cannot import torchx.lazy",
    "torchx.distributed": "a program of a user loads it: it must cost nothing beside PyTorch",
}
"""Modules whose functions may import other modules."""


def test_imports_inside_functions_are_few() -> None:
    assert sum(1 for name in modules() for _ in inside_functions(name)) < MOST


def test_each_import_inside_a_function_has_a_reason() -> None:
    wrong = [
        f"{modules()[name].relative_to(ROOT)}:{line}: {target}"
        for name in modules()
        if not name.startswith(tuple(REASONS))
        for line, target, function in inside_functions(name)
        if target.split(".")[0] not in HEAVY and function != "__getattr__"
    ]
    assert not wrong, "use torchx.lazy: " + "\n".join(wrong)


def test_lazy_imports_are_of_modules() -> None:
    """A function, a class or a constant would be a module without them, and fail at its first use."""
    wrong = [
        f"{path.relative_to(ROOT)}:{statement.lineno}: {statement.module}.{alias.name}"
        for path in modules().values()
        for node in nodes_of(path)
        if isinstance(node, ast.With) and "lazy_imports" in ast.dump(node.items[0])
        for statement in node.body
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("torchx")
        for alias in statement.names
        if f"{statement.module}.{alias.name}" not in modules()
    ]
    assert not wrong, "only modules can be imported by lazy_imports: " + "\n".join(wrong)


def inside_functions(module: str) -> Iterator[tuple[int, str, str]]:
    """Yields the line, the imported module and the outermost function of each import inside a function."""
    pending: list[tuple[ast.AST, str]] = [(tree_of(modules()[module]), "")]
    while pending:
        node, function = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = function or node.name
        elif function and isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, function) for alias in node.names)
        elif function and isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", function
        pending.extend((child, function) for child in ast.iter_child_nodes(node))
