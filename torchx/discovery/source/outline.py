"""The outline of a component: its arguments and return type, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from torchx.discovery.source.component_source import Definition, SourceFile, dotted, names_appdef

BUILD = "build"
"""The method that makes a class a component."""


class Argument(NamedTuple):
    """One argument in the source.

    Attributes:
        name: its name.
        node: its syntax node.
        annotation: its annotation, or None.
        default: its default, or None.
    """

    name: str
    node: ast.arg | ast.stmt
    annotation: ast.expr | None
    default: ast.expr | None = None

    @property
    def line(self) -> int:
        """Its line."""
        return self.node.lineno

    @property
    def text(self) -> str:
        """Its source on one line: ``lr: float = 0.001``."""
        text = self.name + (f": {ast.unparse(self.annotation)}" if self.annotation else "")
        return text + (f" = {ast.unparse(self.default)}" if self.default else "")


class Outline(NamedTuple):
    """The signature of a definition.

    Attributes:
        name: its name.
        node: the function or class.
        function: the function that returns the application: itself, or the class's ``build``.
        arguments: its arguments, without ``self``; for a class those of its constructor.
        varargs: ``*args``.
        kwargs: ``**kwargs``.
    """

    name: str
    node: Definition
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    arguments: tuple[Argument, ...]
    varargs: Argument | None = None
    kwargs: Argument | None = None

    def returns_appdef(self, source: SourceFile) -> bool:
        """Returns True if its return annotation is AppDef."""
        return self.function is not None and names_appdef(self.function.returns, source.imports)

    def builds_appdef(self, source: SourceFile) -> bool:
        """Returns True if its body returns an AppDef, whatever its annotation."""
        if self.function is None:
            return False
        made = {
            target.id
            for node in _own_nodes(self.function)
            if isinstance(node, ast.Assign) and _is_appdef_call(node.value, source)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        returned = [n.value for n in _own_nodes(self.function) if isinstance(n, ast.Return)]
        return any(
            _is_appdef_call(value, source) or (isinstance(value, ast.Name) and value.id in made)
            for value in returned
        )

    @property
    def docstring(self) -> str:
        """Its docstring, cleaned; may be empty."""
        return ast.get_docstring(self.node) or ""


def outline(node: Definition, source: SourceFile, name: str | None = None) -> Outline:
    """Reads the outline of a function or a class.

    Args:
        node: the definition.
        source: the file it is from.
        name: its name, if different from the definition's own.
    """
    name = name or node.name
    if not isinstance(node, ast.ClassDef):
        return Outline(name, node, node, *_arguments(node.args))
    methods = {s.name: s for s in node.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)}
    build = methods.get(BUILD)
    if "__init__" in methods:
        given, varargs, kwargs = _arguments(methods["__init__"].args)
        return Outline(name, node, build, given[1:], varargs, kwargs)
    fields = tuple(_fields(node, source)) if _is_dataclass(node, source) else ()
    return Outline(name, node, build, fields)


def components(source: SourceFile) -> Iterator[Outline]:
    """Yields the components of a file: functions that return AppDef, classes with such a ``build()``.

    A function whose body returns an AppDef without an annotation counts too: it was meant as one. A
    name with a leading underscore is a helper.
    """
    for name, node in source.definitions.items():
        if name.startswith("_"):
            continue
        found = outline(node, source, name)
        if found.returns_appdef(source) or found.builds_appdef(source):
            yield found


def _arguments(spec: ast.arguments) -> tuple[tuple[Argument, ...], Argument | None, Argument | None]:
    plain = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults))
    pairs = [*zip(plain, [*defaults, *spec.defaults], strict=True)]
    pairs += zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    arguments = tuple(Argument(a.arg, a, a.annotation, default) for a, default in pairs)
    rest = [Argument(a.arg, a, a.annotation) if a else None for a in (spec.vararg, spec.kwarg)]
    return arguments, rest[0], rest[1]


def _fields(node: ast.ClassDef, source: SourceFile) -> Iterator[Argument]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            kind = statement.annotation
            if isinstance(kind, ast.Subscript):
                bare = kind.value
            else:
                bare = kind
            if dotted(bare, source.imports) != "typing.ClassVar":
                yield Argument(statement.target.id, statement, kind, statement.value)


def _is_dataclass(node: ast.ClassDef, source: SourceFile) -> bool:
    bare = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(dotted(d, source.imports) == "dataclasses.dataclass" for d in bare)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a function's body, without those of functions within it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(child)


def _is_appdef_call(node: ast.expr | None, source: SourceFile) -> bool:
    return isinstance(node, ast.Call) and names_appdef(node.func, source.imports)
