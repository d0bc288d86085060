"""Converters of annotations: the types that component arguments may have."""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import enum
import inspect
import os
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchx.discovery.types.containers import (
    DataclassConverter,
    Field,
    ListConverter,
    MappingConverter,
    TupleConverter,
    UnionConverter,
)
from torchx.discovery.types.converters import (
    AnyConverter,
    BoolConverter,
    ChoiceConverter,
    ClassConverter,
    Converter,
    FloatConverter,
    IntConverter,
    TextConverter,
    makes_from_text,
)

_PLAIN: dict[Any, type[Converter]] = {
    str: TextConverter,
    int: IntConverter,
    float: FloatConverter,
    bool: BoolConverter,
    Any: AnyConverter,
    object: AnyConverter,
}
_LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_SETS: dict[Any, Callable[[list[Any]], Any]] = {
    set: set, abc.Set: set, abc.MutableSet: set, frozenset: frozenset,
}  # fmt: skip
_UNWRITABLE = (bytes, bytearray, memoryview, type, range, slice)
# the order in which the members of a union are tried: those that accept few texts first
_TRY_ORDER = (
    ChoiceConverter,
    IntConverter,
    FloatConverter,
    BoolConverter,
    DataclassConverter,
    MappingConverter,
    TupleConverter,
    ListConverter,
    ClassConverter,
    AnyConverter,
    TextConverter,
)


class UnsupportedType(TypeError):
    """A value of this type cannot be written as text; the message ends a sentence about the argument."""


def converter_of(annotation: Any, within: tuple[type, ...] = ()) -> Converter:
    """Returns the converter of a type.

    Args:
        annotation: the type, resolved: no text and no forward reference.
        within: the dataclasses that contain it.

    Raises:
        UnsupportedType: its values cannot be written as text.
    """
    annotation = plain(annotation)
    if annotation in _UNWRITABLE:
        raise _unsupported(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]()
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ChoiceConverter({str(value): value for value in args})
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, args, within)
    if (origin or annotation) in (tuple, *_LISTS, *_DICTS, *_SETS):
        return _container(origin or annotation, args, within)
    if (origin or annotation) is os.PathLike:
        return ClassConverter(Path)
    if isinstance(annotation, type) and origin is None:
        return _class(annotation, within)
    raise _unsupported(annotation)


def plain(annotation: Any) -> Any:
    """Removes wrappers that do not change the values: ``Annotated``, ``NewType``, a named alias."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def short_flags(annotation: Any) -> list[str]:
    """Returns the short flags that ``Annotated`` adds to a type.

    >>> short_flags(typing.Annotated[str, "-cn"])
    ['-cn']
    """
    if typing.get_origin(annotation) is not typing.Annotated:
        return []
    extra = typing.get_args(annotation)[1:]
    return [each for each in extra if isinstance(each, str) and each.startswith("-") and len(each) > 1]


def type_text(annotation: Any) -> str:
    """Returns the spelling of a type in a signature."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _union(annotation: Any, args: tuple[Any, ...], within: tuple[type, ...]) -> Converter:
    options = [converter_of(each, within) for each in args if each is not type(None)]
    if not options:
        raise _unsupported(annotation)
    options.sort(key=lambda o: _TRY_ORDER.index(type(o)) if type(o) in _TRY_ORDER else 0)
    return UnionConverter(options, optional=type(None) in args)


def _container(kind: Any, args: tuple[Any, ...], within: tuple[type, ...]) -> Converter:
    if kind in _DICTS:
        key, value = args or (str, str)
        return MappingConverter(converter_of(key, within), converter_of(value, within))
    if kind is tuple and args and args[-1] is not Ellipsis:
        return TupleConverter([converter_of(each, within) for each in args if each != ()])
    item = converter_of(args[0] if args else str, within)
    return ListConverter(item, tuple if kind is tuple else _SETS.get(kind, list))


def _class(kind: type, within: tuple[type, ...]) -> Converter:
    if issubclass(kind, enum.Enum):
        if not len(kind):
            raise UnsupportedType(f"is a `{kind.__name__}`, an enum without members")
        return ChoiceConverter.of_enum(kind)
    if dataclasses.is_dataclass(kind):
        return _group(kind, within)
    if kind is type(None) or inspect.isabstract(kind) or not makes_from_text(kind):
        raise _unsupported(kind)
    if hasattr(kind, "fromisoformat"):  # a date or a time
        return ClassConverter(kind.fromisoformat, kind)
    return ClassConverter(kind)


def _group(kind: type, within: tuple[type, ...]) -> DataclassConverter:
    if kind in within:
        raise UnsupportedType(f"is a `{kind.__name__}`, which contains itself")
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise UnsupportedType(f"is a `{kind.__name__}`, whose types cannot be resolved: {error}") from None
    fields = []
    for each in dataclasses.fields(kind):
        if not each.init:
            continue
        try:
            converter = converter_of(hints[each.name], (*within, kind))
        except UnsupportedType as error:
            raise UnsupportedType(f"is a `{kind.__name__}`, whose field `{each.name}` {error}") from None
        fields.append(Field(each.name, converter, hints[each.name], _default(each)))
    return DataclassConverter(kind, fields)


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return None


def _unsupported(annotation: Any) -> UnsupportedType:
    return UnsupportedType(f"is a `{type_text(annotation)}`, which cannot be written on a command line")
