"""A component file as text: its functions, imports and names, read without importing anything."""

from __future__ import annotations

import ast
import io
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from torchx.discovery.model import LinterMessage
from torchx.discovery.source.places import shown
from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.machine.files import FilePath

with lazy_imports:
    import tokenize

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class SourceFile:
    """A Python file, parsed.

    Attributes:
        path: where it is.
        text: its content.
        tree: its syntax tree.
    """

    path: str
    text: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements of the module, those within ``if``, ``try`` and ``with`` too."""
        return list(_flat(self.tree.body))

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """The functions and classes of the module by name; of two with one name the last counts."""
        found: dict[str, Definition] = {}
        for statement in self.statements:
            if isinstance(statement, Definition):
                found[statement.name] = statement
            elif (alias := _alias(statement)) and alias[1] in found:
                found[alias[0]] = found[alias[1]]
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """The full name of each imported name: ``{"Opt": "typing.Optional"}``."""
        return dict(_imported(self.statements))

    @cached_property
    def has_star_import(self) -> bool:
        """Whether names may come from a ``from x import *``."""
        return "*" in self.imports

    @cached_property
    def typing_only(self) -> frozenset[str]:
        """The names that are there for a type checker alone (``if TYPE_CHECKING:``)."""
        guarded: list[ast.stmt] = []
        for statement in self.statements:
            if (
                isinstance(statement, ast.If)
                and dotted(statement.test, self.imports) == "typing.TYPE_CHECKING"
            ):
                guarded += _flat(statement.body)
        always = _defined(s for s in self.statements if s not in guarded)
        return frozenset(name for name, _ in _imported(guarded) if name not in always)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that the module defines."""
        return frozenset(_defined(self.statements))

    def column(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        """Returns the column of a node in characters, from 1."""
        line = ""
        if self.text:
            line = self.text.split("\n")[node.lineno - 1]
        return len(line.encode()[: node.col_offset].decode(errors="replace")) + 1

    def message(self, name: str, description: str, node: ast.expr | ast.stmt | ast.arg) -> LinterMessage:
        """Returns a problem at a node."""
        return LinterMessage(name, description, node.lineno, self.column(node), path=self.path)


def read_source(path: FilePath) -> SourceFile | LinterMessage:
    """Parses a Python file.

    Returns:
        The parsed file, or the problem that prevents parsing.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read()
    where = os.fspath(path)
    try:
        with warnings.catch_warnings():  # an invalid escape in a user's file is not our concern
            warnings.simplefilter("ignore")
            tree = ast.parse(data, filename=where)
    except SyntaxError as error:
        line, char = error.lineno or 1, error.offset or 1
        return LinterMessage("", f"is not valid Python: {error.msg}", line, char, path=where)
    except (ValueError, RecursionError) as error:
        return LinterMessage("", f"is not valid Python: {error}", 1, 1, path=where)
    return SourceFile(where, _decoded(data), tree)


def open_source(path: FilePath) -> SourceFile | LinterMessage:
    """Parses a Python file as :func:`read_source` does.

    Raises:
        StateError: the file cannot be read.
    """
    try:
        return read_source(path)
    except OSError as error:
        raise StateError(f"{shown(path)} cannot be read: {error.strerror}") from error


def _decoded(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def dotted(node: ast.expr | None, imports: dict[str, str]) -> str:
    """Returns the full name of an expression; empty if it is not a plain name.

    >>> dotted(ast.parse("t.Optional", mode="eval").body, {"t": "typing"})
    'typing.Optional'
    """
    if isinstance(node, ast.Name):
        return imports.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, imports)
        if base:
            return f"{base}.{node.attr}"
        return ""
    return ""


def names_appdef(node: ast.expr | None, imports: dict[str, str]) -> bool:
    """Returns True if an annotation is ``AppDef``, imported in any way, quoted or not."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value.strip(), mode="eval").body
        except SyntaxError:
            return False
    spelled = ""
    if isinstance(node, ast.Attribute):
        spelled = node.attr
    return spelled == "AppDef" or dotted(node, imports).rpartition(".")[2] == "AppDef"


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, Definition):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _flat(handler.body)


def _alias(statement: ast.stmt) -> tuple[str, str] | None:
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
        target = statement.targets[0]
        if len(statement.targets) == 1 and isinstance(target, ast.Name):
            return target.id, statement.value.id
    return None


def _defined(statements: Iterable[ast.stmt]) -> set[str]:
    """Returns the names that statements define, except within nested blocks."""
    every = list(statements)
    found = {name for name, _ in _imported(every)}
    for statement in every:
        if isinstance(statement, Definition):
            found.add(statement.name)
        else:
            within = {id(n) for inner in getattr(statement, "body", []) for n in ast.walk(inner)}
            stores = (n for n in ast.walk(statement) if isinstance(n, ast.Name) and id(n) not in within)
            found.update(n.id for n in stores if isinstance(n.ctx, ast.Store))
        if type(statement).__name__ == "TypeAlias":  # `type X = ...`, from Python 3.12 on
            found.add(statement.name.id)  # type: ignore[attr-defined]  # unknown to 3.10
    return found


def _imported(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        if isinstance(statement, ast.Import):
            for name in statement.names:
                top = name.name.partition(".")[0]
                yield (name.asname, name.name) if name.asname else (top, top)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for name in statement.names:
                yield name.asname or name.name, f"{module}.{name.name}"
