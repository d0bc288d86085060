"""Checks the components of a file, a folder or a name, by the rules of the linter."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from torchx.discovery.find.locate import locate_source
from torchx.discovery.model import LinterMessage, LintReport
from torchx.discovery.source.component_source import SourceFile, open_source, read_source
from torchx.discovery.source.linter import named, problems
from torchx.discovery.source.outline import Outline, components


def lint(target: str) -> LintReport:
    """Checks components; imports and runs nothing.

    Args:
        target: a file, ``FILE:FUNCTION``, a folder (all files below it), or a component or module by its
            dotted name.

    Raises:
        ComponentNotFoundException: the file, module or function does not exist.
    """
    path, name = locate_source(target)
    if path.is_dir():
        files, read = (_python_files(path), _read_if_possible)
    else:
        files, read = ([path], open_source)
    messages: list[LinterMessage] = []
    checked = 0
    for file in files:
        source = read(file)
        if isinstance(source, LinterMessage):
            messages.append(source)
            checked += 1
            continue
        if name:
            found = [named(source, name)]
        else:
            found = _once(components(source))
        checked += len(found)
        for each in found:
            messages += problems(each, source)
    return LintReport(tuple(sorted(messages, key=lambda m: (m.path, m.line, m.char))), checked)


def _once(found: Iterable[Outline]) -> list[Outline]:
    """Drops the second names (``ddp = torchrun``) of components."""
    first: dict[ast.AST, Outline] = {}
    for each in found:
        first.setdefault(each.node, each)
    return list(first.values())


def _python_files(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        above = path.relative_to(folder).parts[:-1]
        # skips dangling links, such as the locks of editors, and pipes
        if not any(part.startswith((".", "__")) for part in above) and path.is_file():
            found.append(path)
    return found


def _read_if_possible(path: Path) -> SourceFile | LinterMessage:
    """Reads one file of several; an unreadable file becomes a problem in the report."""
    try:
        return read_source(path)
    except OSError as error:
        return LinterMessage("", f"cannot be read: {error.strerror}", 1, 1, path=str(path))
