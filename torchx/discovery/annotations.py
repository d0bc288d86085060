"""From a resolved annotation to its shape: which types a component's arguments may have."""

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

from torchx.discovery.nested import Either, Field, Fixed, Group, Many, Pairs
from torchx.discovery.shapes import Anything, Choice, Made, Real, Shape, Text, Truth, Whole, makes_from_text

_PLAIN: dict[Any, type[Shape]] = {str: Text, int: Whole, float: Real, bool: Truth, Any: Anything}
_LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_SETS: dict[Any, Callable[[list[Any]], Any]] = {
    set: set, abc.Set: set, abc.MutableSet: set, frozenset: frozenset,
}  # fmt: skip
_WORDLESS = (bytes, bytearray, memoryview, object, type, range, slice)
# which member of a union has the first word: the choosier before what takes nearly any text
_CHOOSINESS = (Choice, Whole, Real, Truth, Group, Pairs, Fixed, Many, Made, Anything, Text)


class UnsupportedType(TypeError):
    """No word on a command line can stand for a value of this type; says why, as the end of a sentence."""


def shape_of(annotation: Any, within: tuple[type, ...] = ()) -> Shape:
    """Returns the shape of a type.

    Args:
        annotation: the type, resolved: no text and no forward reference.
        within: the dataclasses that it is a part of.

    Raises:
        UnsupportedType: words can't stand for its values.
    """
    annotation = plain(annotation)
    if annotation in _WORDLESS:
        raise _unsupported(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]()
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return Choice({str(value): value for value in args})
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, args, within)
    if (origin or annotation) in (tuple, *_LISTS, *_DICTS, *_SETS):
        return _container(origin or annotation, args, within)
    if (origin or annotation) is os.PathLike:
        return Made(Path)
    if isinstance(annotation, type) and origin is None:
        return _class(annotation, within)
    raise _unsupported(annotation)


def plain(annotation: Any) -> Any:
    """Takes off what says nothing of the values: ``Annotated``, ``NewType``, a named alias."""
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
    """Returns a type as it is written in a signature."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _union(annotation: Any, args: tuple[Any, ...], within: tuple[type, ...]) -> Shape:
    options = [shape_of(each, within) for each in args if each is not type(None)]
    if not options:
        raise _unsupported(annotation)
    options.sort(key=lambda o: _CHOOSINESS.index(type(o)) if type(o) in _CHOOSINESS else 0)
    return Either(options, optional=type(None) in args)


def _container(kind: Any, args: tuple[Any, ...], within: tuple[type, ...]) -> Shape:
    if kind in _DICTS:
        key, value = args or (str, str)
        return Pairs(shape_of(key, within), shape_of(value, within))
    if kind is tuple and args and args[-1] is not Ellipsis:
        return Fixed([shape_of(each, within) for each in args if each != ()])
    item = shape_of(args[0] if args else str, within)
    return Many(item, tuple if kind is tuple else _SETS.get(kind, list))


def _class(kind: type, within: tuple[type, ...]) -> Shape:
    if issubclass(kind, enum.Enum):
        if not len(kind):
            raise UnsupportedType(f"is a `{kind.__name__}`, an enum without members")
        return Choice.of_enum(kind)
    if dataclasses.is_dataclass(kind):
        return _group(kind, within)
    if kind is type(None) or inspect.isabstract(kind) or not makes_from_text(kind):
        raise _unsupported(kind)
    if hasattr(kind, "fromisoformat"):  # a date or a time
        return Made(kind.fromisoformat, kind)
    return Made(kind)


def _group(kind: type, within: tuple[type, ...]) -> Group:
    if kind in within:
        raise UnsupportedType(f"is a `{kind.__name__}`, which holds itself")
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise UnsupportedType(f"is a `{kind.__name__}`, whose types can't be resolved: {error}") from None
    fields = []
    for each in dataclasses.fields(kind):
        if not each.init:
            continue
        try:
            shape = shape_of(hints[each.name], (*within, kind))
        except UnsupportedType as error:
            raise UnsupportedType(f"is a `{kind.__name__}`, whose field `{each.name}` {error}") from None
        fields.append(Field(each.name, shape, hints[each.name], _default(each)))
    return Group(kind, fields)


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    return field.default_factory if field.default_factory is not dataclasses.MISSING else None


def _unsupported(annotation: Any) -> UnsupportedType:
    return UnsupportedType(f"is a `{type_text(annotation)}`, which no word on a command line can stand for")
