"""The source of a named component with everything it needs from its module."""

from __future__ import annotations

import ast

from torchx.discovery.find.catalogue import component_sources
from torchx.discovery.find.locate import find_listed, not_found
from torchx.discovery.model import LinterMessage
from torchx.discovery.source.component_source import Definition, SourceFile, read_source


def builtin_source(name: str) -> str:
    """Returns the source of a named component, with the imports and helpers that it uses.

    Args:
        name: ``utils.echo``.

    Raises:
        ComponentNotFoundException: no component has this name.
    """
    found = find_listed(name, component_sources())
    if found is None:
        raise not_found(name)
    provider, module, function = found
    source = read_source(dict(provider.modules())[module])
    if isinstance(source, LinterMessage):
        raise not_found(name)
    return _excerpt(source, function)


def _excerpt(source: SourceFile, function: str) -> str:
    needed = _needed(source, function)
    future: list[str] = []
    imports: list[str] = []
    rest: list[str] = []
    for statement in source.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if kept := _kept(statement, needed):
                (future if kept.startswith("from __future__") else imports).append(kept)
        elif _defined(statement) & needed:
            rest.append(_text(source, statement))
    head = "\n\n".join("\n".join(each) for each in (future, imports) if each)
    return "\n\n\n".join(part for part in (head, *rest) if part) + "\n"


def _needed(source: SourceFile, function: str) -> set[str]:
    """Returns all names of the module that a function uses, directly or indirectly."""
    by_name: dict[str, list[ast.stmt]] = {}
    for statement in source.tree.body:
        for name in _defined(statement):
            by_name.setdefault(name, []).append(statement)
    needed: set[str] = set()
    ahead = [function]
    while ahead:
        name = ahead.pop()
        if name in needed:
            continue
        needed.add(name)
        for statement in by_name.get(name, []):
            ahead += _used(statement)
    return needed


def _used(statement: ast.stmt) -> set[str]:
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)  # may be a quoted annotation
    return found


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Definition):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return set()
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _kept(statement: ast.Import | ast.ImportFrom, needed: set[str]) -> str:
    """Returns an import reduced to the needed names; empty if none is needed."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return ast.unparse(statement)
    names = [n for n in statement.names if (n.asname or n.name.partition(".")[0]) in needed or n.name == "*"]
    if not names:
        return ""
    if isinstance(statement, ast.Import):
        return ast.unparse(ast.Import(names))
    return ast.unparse(ast.ImportFrom(statement.module, names, statement.level))


def _text(source: SourceFile, statement: ast.stmt) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    return "\n".join(source.text.split("\n")[first - 1 : statement.end_lineno])
