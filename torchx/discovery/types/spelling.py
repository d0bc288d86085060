"""Checks the source of annotations for types that cannot be written on a command line."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from torchx.discovery.source.component_source import SourceFile, dotted
from torchx.masking.names import name_set

_MODULES = ("typing", "collections.abc")


def _in_modules(names: str, modules: Sequence[str] = _MODULES) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module in modules for name in names.split())


CONTAINERS = (
    name_set("list dict tuple set frozenset")
    | _in_modules("List Dict Tuple Set FrozenSet", ["typing"])
    | _in_modules("Sequence Iterable Collection MutableSequence Set Mapping MutableMapping")
)
_PLAIN = name_set("int float str bool None complex")
_UNWRITABLE = name_set("bytes bytearray memoryview type range slice") | _in_modules(
    "Callable Iterator Generator Awaitable Coroutine AsyncIterator Type NoReturn"
)


def faults(node: ast.expr, source: SourceFile) -> Iterator[str]:
    """Yields the problems of an annotation, each as the end of a sentence about the argument.

    Trusts names imported from other modules: their types are known after the import.
    """
    if isinstance(node, ast.Constant):
        yield from _constant(node, source)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from faults(node.left, source)
        yield from faults(node.right, source)
    elif isinstance(node, ast.Subscript):
        yield from _subscript(node, source)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _name(node, source)
    else:
        yield f"has `{ast.unparse(node)}` as its type, which is not a type"


def _constant(node: ast.Constant, source: SourceFile) -> Iterator[str]:
    if isinstance(node.value, str):
        try:
            quoted = ast.parse(node.value.strip(), mode="eval").body
        except SyntaxError:
            yield f'has "{node.value}" as its type, which is not a type'
        else:
            yield from faults(quoted, source)
    elif node.value is not None and node.value is not Ellipsis:
        yield f"has the value `{node.value!r}` as its type"


def _subscript(node: ast.Subscript, source: SourceFile) -> Iterator[str]:
    base = _typing(dotted(node.value, source.imports))
    if isinstance(node.slice, ast.Tuple):
        inner = node.slice.elts
    else:
        inner = [node.slice]
    if base in _UNWRITABLE:
        yield _unwritable(node)
    elif base == "typing.Annotated":
        yield from faults(inner[0], source)
    elif base in CONTAINERS or base in ("typing.Optional", "typing.Union"):
        yield from _undefined(node.value, source)
        for each in inner:
            yield from faults(each, source)
    else:  # Literal contains values; generic classes of other modules are unknown here
        yield from _undefined(node.value, source)


def _name(node: ast.Name | ast.Attribute, source: SourceFile) -> Iterator[str]:
    if _typing(dotted(node, source.imports)) in _UNWRITABLE:
        yield _unwritable(node)
    else:
        yield from _undefined(node, source)


def _undefined(node: ast.expr, source: SourceFile) -> Iterator[str]:
    while isinstance(node, ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Name) or node.id in _PLAIN:
        return
    if node.id in source.typing_only:
        yield f"has the type `{node.id}`, which is imported under `if TYPE_CHECKING` only; import it always"
    elif not (node.id in source.names or source.has_star_import or hasattr(builtins, node.id)):
        yield f"has the type `{node.id}`, which this file neither imports nor defines"


def _typing(name: str) -> str:
    return name.replace("typing_extensions.", "typing.", 1)


def _unwritable(node: ast.expr) -> str:
    return f"is a `{ast.unparse(node)}`, which cannot be written on a command line"
