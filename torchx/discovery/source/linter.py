"""The linter: finds all problems of components in their source."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence

from torchx.discovery.errors import ComponentNotFoundException
from torchx.discovery.model import LinterMessage
from torchx.discovery.source.component_source import SourceFile, dotted
from torchx.discovery.source.outline import Argument, Outline, components, outline
from torchx.discovery.source.places import shown
from torchx.suggestions import did_you_mean

_CONSTANTS = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Annotation -> the types of a default that fit it."""

_GUESSES = {bool: "bool", int: "int", float: "float", str: "str"}


def named(source: SourceFile, name: str) -> Outline:
    """Returns the outline of one definition of a file.

    Raises:
        ComponentNotFoundException: the file does not define this name.
    """
    node = source.definitions.get(name)
    if node is None:
        raise no_such_function(source, name)
    return outline(node, source, name)


def no_such_function(source: SourceFile, name: str) -> ComponentNotFoundException:
    """Returns the error for a name that a file does not define."""
    known = [each.name for each in components(source)]
    there = "no function in it returns AppDef"
    if known:
        there = f"components in it: {', '.join(known)}"
    return ComponentNotFoundException(
        f"no component `{name}` in {shown(source.path)}", hint=did_you_mean(name, known, there)
    )


def problems(found: Outline, source: SourceFile) -> list[LinterMessage]:
    """Returns all problems of one component, in source order.

    For a function that was not meant as a component, only that it does not return AppDef.
    """
    messages = [*return_problems(found, source)]
    if found.function is None or found.returns_appdef(source) or found.builds_appdef(source):
        messages += argument_problems(found, source)
    return sorted(messages, key=lambda m: (m.line, m.char))


def argument_problems(found: Outline, source: SourceFile) -> Iterator[LinterMessage]:
    """Yields the problems of a component's arguments."""
    every = [*found.arguments, *([found.varargs] if found.varargs else [])]
    for argument in every:
        if argument.annotation is None:
            text = f"argument `{argument.name}` has no type annotation; add one, e.g. `{_guess(argument)}`"
            yield source.message(found.name, text, argument.node)
            continue
        for fault in faults(argument.annotation, source):
            yield source.message(found.name, f"argument `{argument.name}` {fault}", argument.node)
        if not _default_fits(argument):
            text = f"argument `{argument.text}` has a default of another type"
            yield source.message(found.name, text, argument.node)
    if found.kwargs:
        text = f"takes `**{found.kwargs.name}`; name each argument instead"
        yield source.message(found.name, text, found.kwargs.node)
    yield from _flag_problems(found, source)


def _default_fits(argument: Argument) -> bool:
    """Returns False if the default is a constant of another type; None fits every type."""
    default, kind = argument.default, argument.annotation
    if not isinstance(default, ast.Constant) or not isinstance(kind, ast.Name):
        return True
    return default.value is None or type(default.value) in _CONSTANTS.get(kind.id, (type(default.value),))


def return_problems(found: Outline, source: SourceFile) -> Iterator[LinterMessage]:
    """Yields the problems of a component's return annotation."""
    function = found.function
    if function is None:
        text = "is a class without a method `build`; add one that returns AppDef"
        yield source.message(found.name, text, found.node)
        return
    if isinstance(function, ast.AsyncFunctionDef):
        yield source.message(found.name, "is `async`; make it a plain function", found.node)
    if found.returns_appdef(source):
        return
    if function.returns is None:
        text = "has no return annotation; add `-> AppDef`"
    else:
        text = f"returns `{ast.unparse(function.returns)}`; a component returns AppDef"
    yield source.message(found.name, text, function)


def _flag_problems(found: Outline, source: SourceFile) -> Iterator[LinterMessage]:
    owners: Counter[str] = Counter()
    for argument in found.arguments:
        if argument.name == "help":
            text = "argument `help` conflicts with --help; rename it"
            yield source.message(found.name, text, argument.node)
        if len(argument.name) == 1:
            shorts = {"-" + argument.name}
        else:
            shorts = set()
        for short in sorted(shorts | set(_short_flags(argument, source))):
            owners[short] += 1
            if owners[short] > 1:
                text = f"argument `{argument.name}` uses the flag {short} of another argument"
                yield source.message(found.name, text, argument.node)


def _short_flags(argument: Argument, source: SourceFile) -> Iterator[str]:
    for node in ast.walk(argument.annotation) if argument.annotation else ():
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
            continue
        if dotted(node.value, source.imports).rpartition(".")[2] == "Annotated":
            extra = (each.value for each in node.slice.elts[1:] if isinstance(each, ast.Constant))
            yield from (str(each) for each in extra if str(each).startswith("-"))


def _guess(argument: Argument) -> str:
    """Returns the argument with a likely annotation."""
    kind = None
    if isinstance(argument.default, ast.Constant):
        kind = _GUESSES.get(type(argument.default.value))
    return f"{argument.name}: {kind or 'str'}"


_MODULES = ("typing", "collections.abc")


def _in_modules(names: str, modules: Sequence[str] = _MODULES) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module in modules for name in names.split())


CONTAINERS = (
    frozenset(["list", "dict", "tuple", "set", "frozenset"])
    | _in_modules("List Dict Tuple Set FrozenSet", ["typing"])
    | _in_modules("Sequence Iterable Collection MutableSequence Set Mapping MutableMapping")
)
_PLAIN = ("int", "float", "str", "bool", "None", "complex")
_UNWRITABLE = frozenset(["bytes", "bytearray", "memoryview", "type", "range", "slice"]) | _in_modules(
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
