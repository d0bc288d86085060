"""Reads the parameters of an imported function: resolved types, defaults, flags, places."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from torchx.discovery.model import FLAG, REQUIRED, VARARGS, LinterMessage, Parameter
from torchx.discovery.source.docstrings import Docs
from torchx.discovery.source.outline import Outline
from torchx.discovery.types.annotations import UnsupportedType, converter_of, plain, short_flags, type_text
from torchx.discovery.types.containers import DataclassConverter, ListConverter, UnionConverter
from torchx.discovery.types.converters import Converter, TextConverter

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature(NamedTuple):
    """The signature of a component.

    Attributes:
        parameters: its parameters, in order.
        problems: what keeps it from being called from a command line.
        docs: its docstring.
    """

    parameters: tuple[Parameter, ...]
    problems: tuple[LinterMessage, ...]
    docs: Docs


def read_signature(target: Callable[..., Any], found: Outline | None = None, path: str = "") -> Signature:
    """Reads the signature of a function, or of a class's constructor.

    Args:
        target: the function or class.
        found: its outline in the source, for lines and columns, or None.
        path: its source file.
    """
    if found:
        name = found.name
    else:
        name = getattr(target, "__name__", type(target).__name__)
    reader = _Reader(name, found, path, hints_of(target))
    signature = inspect.signature(target)
    shapes = {p.name: reader.converter(p) for p in signature.parameters.values()}
    groups = {n: group for n, s in shapes.items() if (group := group_of(s))}
    # PYTHONOPTIMIZE=2 removes docstrings from functions
    text = _docstring(target) or (found.docstring if found else "")
    docs = Docs(text, {n: Docs(g.kind.__doc__ or "") for n, g in groups.items()})
    parameters = [reader.parameter(p, shapes[p.name], docs, signature) for p in signature.parameters.values()]
    return Signature(tuple(p for p in parameters if p), tuple(reader.problems), docs)


def hints_of(target: Callable[..., Any]) -> Mapping[str, Any]:
    """Resolves the annotations of a function, each for itself where one of them fails.

    Returns:
        The types by parameter name; for an annotation that can't be resolved the exception.
    """
    function = target
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function) and not dataclasses.is_dataclass(function):
        function = function.__init__
    elif not inspect.isclass(function) and not hasattr(function, "__annotations__"):
        function = type(function).__call__  # an object that can be called
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # evaluates what a person wrote: anything may happen
        return dict(_one_by_one(inspect.unwrap(function)))


def _one_by_one(function: Any) -> Iterator[tuple[str, Any]]:
    scope = getattr(function, "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = SimpleNamespace(__annotations__={name: annotation})
        try:
            yield name, typing.get_type_hints(holder, globalns=scope, include_extras=True)[name]
        except Exception as error:
            yield name, error


def group_of(converter: Converter) -> DataclassConverter | None:
    """Returns the dataclass of a converter, also of an optional one; None for any other type."""
    if isinstance(converter, UnionConverter) and len(converter.options) == 1:
        return group_of(converter.options[0])
    if isinstance(converter, DataclassConverter):
        return converter
    return None


def _docstring(target: Callable[..., Any]) -> str:
    text = target.__doc__ or ""
    made_up = dataclasses.is_dataclass(target) and text.startswith(f"{target.__name__}(")
    if isinstance(target, functools.partial):
        return _docstring(target.func)
    if inspect.isclass(target):
        init = None
        if "__init__" in vars(target):
            init = inspect.getdoc(target.__init__)
        return "\n\n".join(t for t in ("" if made_up else inspect.cleandoc(text), init or "") if t)
    return text


class _Reader:
    """Reads the parameters of one component and collects their problems."""

    def __init__(self, name: str, found: Outline | None, path: str, hints: Mapping[str, Any]) -> None:
        self.name = name
        self.path = path
        self.hints = hints
        self.problems: list[LinterMessage] = []
        every = []
        if found:
            every = [*found.arguments, found.varargs, found.kwargs]
        self.written = {a.name: a for a in every if a}
        self.line = found.node.lineno if found else 0

    def converter(self, parameter: inspect.Parameter) -> Converter:
        """Returns the converter of a parameter; a text converter if its type is unsupported."""
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            self._refuse(parameter.name, f"takes `**{parameter.name}`; name each argument instead")
        elif parameter.name not in self.hints:
            self._refuse(parameter.name, f"argument `{parameter.name}` has no type annotation")
        elif isinstance(self.hints[parameter.name], Exception):
            error = self.hints[parameter.name]
            reason = f"{type(error).__name__}: {error}"
            self._refuse(
                parameter.name, f"argument `{parameter.name}` has a type that can't be resolved: {reason}"
            )
        else:
            try:
                found = converter_of(self.hints[parameter.name])
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL and isinstance(found, ListConverter):
                    return found.item  # `*args: list[str]` is a frequent slip for `*args: str`
                return found
            except UnsupportedType as error:
                self._refuse(parameter.name, f"argument `{parameter.name}` {error}")
        return TextConverter()

    def parameter(
        self, given: inspect.Parameter, converter: Converter, docs: Docs, signature: inspect.Signature
    ) -> Parameter | None:
        """Returns a parameter for people, None for ``**kwargs``."""
        if given.kind is inspect.Parameter.VAR_KEYWORD:
            return None
        annotation = self.hints.get(given.name, str)
        default = REQUIRED if given.default is inspect.Parameter.empty else given.default
        written = self.written.get(given.name)
        if written:
            line, source = written.line, written.text
        else:
            line, source = self.line, _spelled_field(given.name, annotation, default)
        if given.kind is inspect.Parameter.VAR_POSITIONAL:
            return Parameter(given.name, annotation, converter, VARARGS, line=line, source=source, docs=docs)
        before_varargs = any(
            p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values()
        )
        by_position = given.kind is inspect.Parameter.POSITIONAL_ONLY or (
            before_varargs and given.kind in _BY_POSITION
        )
        group = group_of(converter)
        whole = Parameter(
            given.name,
            annotation,
            converter,
            FLAG,
            default,
            _flags(given.name, annotation),
            line,
            source,
            (),
            by_position,
            docs,
        )
        if group:
            return dataclasses.replace(whole, fields=tuple(_fields(whole, group)))
        return whole

    def _refuse(self, argument: str, text: str) -> None:
        written = self.written.get(argument)
        char = written.node.col_offset + 1 if written else 1
        line = written.line if written else self.line
        self.problems.append(LinterMessage(self.name, text, line, char, path=self.path))


def _fields(parent: Parameter, group: DataclassConverter) -> Iterator[Parameter]:
    """Yields the fields of a dataclass parameter, each with a dotted flag and the default it would get."""
    has_object = dataclasses.is_dataclass(parent.default) and not isinstance(parent.default, type)
    for field in group.fields:
        if has_object and hasattr(parent.default, field.name):
            default = getattr(parent.default, field.name)
        else:
            default = field.default() if field.default else REQUIRED
        name = f"{parent.name}.{field.name}"
        text = _spelled_field(name, field.annotation, default)
        flags = _flags(name, field.annotation)
        child = Parameter(
            name, field.annotation, field.converter, FLAG, default, flags, parent.line, text, docs=parent.docs
        )
        inner = group_of(field.converter)
        yield dataclasses.replace(child, fields=tuple(_fields(child, inner))) if inner else child


def _flags(name: str, annotation: Any) -> tuple[str, ...]:
    short = [f"-{name}"] if len(name) == 1 else []
    return (f"--{name}", *dict.fromkeys([*short, *short_flags(annotation)]))


def _spelled_field(name: str, annotation: Any, default: Any) -> str:
    text = f"{name}: {type_text(plain(annotation))}"
    if default is REQUIRED:
        return text
    return f"{text} = {default!r}"
