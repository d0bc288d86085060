"""The one reader of data of other programs, users and machines: a table per format.

A value is checked by a function, such as :func:`text`. Plain data is checked by a :data:`Shape`, with
:func:`check` or :func:`drop_misfits`. A record is read into its class, whose annotations are its table, with
:func:`read`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from torchx.json_limits import Object
from torchx.suggestions import nearest

Check = Callable[[Any, str], Any]
"""Returns a checked value; takes the value and the name of its field."""

Shape = Any
"""A type; ``[shape]`` for a list; a dict for an object, with the shapes of its keys, where :data:`ANY_KEY` is
every other key and :data:`REQUIRED` lists those that must exist; a :class:`Limited`; or a tuple of
alternatives. ``float`` accepts whole numbers, too; ``object`` accepts everything but null."""

Kind = TypeVar("Kind")

ANY_KEY, REQUIRED = "*", "!"

LARGEST_NUMBER = 2**53
"""The largest number that fits: JSON numbers are exact up to here."""

LATEST = 250_000_000_000.0
"""Latest valid time in seconds since the epoch; later ones cannot be converted to every time zone."""

# characters that would break a line, a handle or a terminal
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_SIGNAL = r"SIG(?:[A-Z]{2,12}[0-9]{0,2}|[0-9]{1,3})"

_NAMES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
}


# --- single values -------------------------------------------------------------------------------


def _typed(value: Any, name: str, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` is not {_NAMES[kind]}")
    return value


def text(value: Any, name: str) -> str:
    """Returns a text for display; replaces lone surrogates.

    Raises:
        TypeError: it is not a string.
    """
    if type(value) is str and value.isascii():
        return value
    return printable(_typed(value, name, str))


def printable(string: str) -> str:
    """Returns a string that can be encoded: lone surrogates are replaced."""
    if string.isascii():
        return string
    return string.encode("utf-8", "replace").decode("utf-8")


def handle_text(value: Any, name: str) -> str:
    """Returns a text that is valid in a handle.

    Raises:
        TypeError: it is not a string.
        ValueError: it has line breaks or other control characters.
    """
    string = _typed(value, name, str)
    plain = string.isascii() and string.isprintable()
    if not plain and re.search(_CONTROL, string):
        raise ValueError(f"`{name}` has control characters")
    return string


def system_text(value: Any, name: str) -> str:
    """Returns a text that is valid as a path or an argument; it may have escaped bytes.

    Raises:
        TypeError: it is not a string.
        ValueError: it cannot be encoded.
    """
    string = _typed(value, name, str)
    if not string.isascii():
        try:
            string.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"`{name}` cannot be encoded") from None
    return string


def timestamp(value: Any, name: str) -> float:
    """Returns a time in seconds since the epoch, or a duration.

    Raises:
        TypeError: it is not a number.
        ValueError: it is out of range.
    """
    return number(value, name, LATEST)


def number(value: Any, name: str, maximum: float) -> float:
    """Returns a number from 0 to a maximum.

    Raises:
        TypeError: it is not a number.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` is not a number")
    if not 0 <= value <= maximum:  # or not a number
        raise ValueError(f"`{name}` is out of range")
    return value


def integer(value: Any, name: str, minimum: int = 0, maximum: int = LARGEST_NUMBER) -> int:
    """Returns an integer within bounds.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` is not an integer")
    if not minimum <= value <= maximum:
        raise ValueError(f"`{name}` is out of range")
    return value


def integer_or_null(value: Any, name: str) -> int | None:
    """Returns an integer from 0, or None.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if value is None:
        return None
    return integer(value, name)


def exit_code(value: Any, name: str) -> int | None:
    """Returns an exit code or None.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if value is None:
        return None
    return integer(value, name, -(1 << 31), (1 << 32) - 1)


def signal_name(value: Any, name: str) -> str | None:
    """Returns the name of a signal or None.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not the name of a signal.
    """
    if value is None:
        return None
    string = _typed(value, name, str)
    if not re.fullmatch(_SIGNAL, string):
        raise ValueError(f"`{name}` is not the name of a signal")
    return string


def mapping(value: Any, name: str) -> Object:
    """Returns a JSON object.

    Raises:
        TypeError: it is not an object.
    """
    return _typed(value, name, dict)


def sequence(value: Any, name: str) -> list[Any]:
    """Returns a JSON list.

    Raises:
        TypeError: it is not a list.
    """
    return _typed(value, name, list)


def flag(value: Any, name: str) -> bool:
    """Returns a truth value.

    Raises:
        TypeError: it is not true or false.
    """
    return _typed(value, name, bool)


def one_of(values: Sequence[Any]) -> Check:
    """Returns the check of a value that must be one of a sequence."""

    def checked(value: Any, name: str) -> Any:
        if value not in values:
            raise ValueError(f"`{name}` has an unknown value")
        return values[values.index(value)]

    return checked


# --- records -------------------------------------------------------------------------------------

HandleText = Annotated[str, handle_text]
SystemText = Annotated[str, system_text]
ExitCode = Annotated[int | None, exit_code]
Truth = Annotated[bool, lambda value, _: bool(value)]
Environment = dict[SystemText, SystemText]
"""Types of fields with a check of their own."""

_CHECKS: dict[Any, Check] = {str: text, int: integer, float: timestamp, bool: flag}
"""The checks of types without one of their own."""


def read(kind: Any, value: Any, name: str, optional: Collection[str] | None = None) -> Any:
    """Returns a record of the checked fields of a JSON object; ignores others.

    Args:
        kind: the class of the record, a named tuple.
        value: the object.
        name: its name.
        optional: the fields that may be missing (default: all that have a default).

    Raises:
        TypeError: a field has another type.
        ValueError: a field is missing or invalid.

    >>> class Point(NamedTuple):
    ...     x: int
    ...     at: float | None = None
    >>> read(Point, {"x": 1}, "point")
    Point(x=1, at=None)
    """
    if optional is None:
        optional = kind._field_defaults
    return kind(**fields_of(value, name, _checks_of(kind), optional))


def fields_of(value: Any, name: str, checks: Mapping[str, Check], optional: Collection[str] = ()) -> Object:
    """Returns the checked fields of a JSON object; ignores others.

    Args:
        value: the object.
        name: its name.
        checks: the check of each field.
        optional: the fields that may be missing; the result lacks them too.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is missing or invalid.

    >>> fields_of({"x": 1, "y": "?"}, "point", {"x": integer, "z": integer}, ["z"])
    {'x': 1}
    """
    data = mapping(value, name)
    fields = {}
    for field, each in checks.items():
        if field in data:
            fields[field] = each(data[field], field)
        elif field not in optional:
            raise ValueError(f"{field!r} is missing")
    return fields


@cache
def _checks_of(kind: Any) -> dict[str, Check]:
    """Returns the fields of a record, each with its check."""
    hints = get_type_hints(kind, include_extras=True)
    return {field: check_of(hints[field]) for field in kind._fields}


@cache
def check_of(hint: Any) -> Check:
    """Returns the check of a type.

    >>> check_of(dict[str, tuple[int, ...]])({"a": [1, 2]}, "x")
    {'a': (1, 2)}
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own: Check = parts[1]
        return own
    if hint == Object:
        return mapping
    if hasattr(hint, "_fields"):
        return partial(read, hint)
    inner = [check_of(part) for part in parts if part not in (NoneType, ...)]
    if not inner:
        return _CHECKS[hint]
    if NoneType in parts:
        return lambda value, name: None if value is None else inner[0](value, name)
    return partial(_ITEMS[origin, ... in parts], inner)


def _list_of(checks: list[Check], value: Any, name: str) -> list[Any]:
    return [checks[0](item, name) for item in sequence(value, name)]


def _tuple_of(checks: list[Check], value: Any, name: str) -> tuple[Any, ...]:
    return tuple(_list_of(checks, value, name))


def _row_of(checks: list[Check], value: Any, name: str) -> tuple[Any, ...]:
    items = sequence(value, name)
    if len(items) != len(checks):
        raise ValueError(f"`{name}` takes {len(checks)} items, got {len(items)}")
    return tuple([check(item, name) for check, item in zip(checks, items, strict=True)])


def _mapping_of(checks: list[Check], value: Any, name: str) -> Object:
    of_key, of_item = checks
    return {of_key(key, name): of_item(item, name) for key, item in mapping(value, name).items()}


_ITEMS: dict[tuple[Any, bool], Callable[[list[Check], Any, str], Any]] = {
    (list, False): _list_of,
    (Sequence, False): _tuple_of,
    (tuple, True): _tuple_of,
    (tuple, False): _row_of,
    (dict, False): _mapping_of,
    (Mapping, False): _mapping_of,
}
"""The reader of a collection by its type, and whether it has any number of equal items."""


# --- plain data ----------------------------------------------------------------------------------


class Limited(NamedTuple):
    """The shape of a value with limits beyond its type.

    Attributes:
        shape: the shape of its type.
        fits: returns True for a value within the limits.
    """

    shape: Shape
    fits: Callable[[Any], bool]


class Misfit(ValueError):
    """A value has another shape.

    Attributes:
        path: its path in the document.
        value: the value.
        shape: its shape.
    """

    def __init__(self, path: str, value: Any, shape: Shape) -> None:
        self.path, self.value, self.shape = path, value, shape
        expected = " or ".join(name_of(each) for each in alternatives(shape))
        super().__init__(f"`{path}` takes {expected}, got {kind_of(value)}")

    @property
    def is_limit(self) -> bool:
        """Whether the value has the type, and exceeds a limit."""
        return any(fits(self.value, _plain(each)) for each in alternatives(self.shape))


def check(value: Any, shape: Shape, path: str, *, closed: bool = False) -> None:
    """Checks the shape of data.

    Args:
        value: the data.
        shape: its shape.
        path: its path in the document, for the message.
        closed: reject the keys that the shape of an object does not list; ``{}`` allows all.

    Raises:
        ValueError: it has another shape.

    >>> check({"roles": [{"name": None}]}, {"roles": [{"name": str}]}, "app")
    Traceback (most recent call last):
    ...
    torchx.json_shape.Misfit: `app.roles[0].name` takes a string, got null
    """
    missing: list[str] = []
    for misfit in _misfits({path: value}, {path: shape}, "", closed, missing):
        raise misfit
    if missing:
        verb = "is"
        if missing[1:]:
            verb = "are"
        raise ValueError(f"{', '.join(f'`{name}`' for name in missing)} {verb} missing")


def drop_misfits(data: Any, shape: Shape) -> list[Misfit]:
    """Removes the parts of data that have another shape, in place, and makes its strings printable.

    Returns:
        The removed parts; a single one without a path if nothing of the data fits.

    >>> data = {"a": [1, "x"], "b": None}
    >>> [misfit.path for misfit in drop_misfits(data, {"a": [int], "b": str})], data
    (['a[1]', 'b'], {'a': [1]})
    """
    return list(_misfits({"": data}, {"": shape}, "", False, None))


def value_at(data: Any, *path: str) -> Any:
    """Returns the value at a path in data; None if a part of the path is absent or no object.

    >>> value_at({"a": {"b": 1}}, "a", "b"), value_at({"a": []}, "a", "b")
    (1, None)
    """
    for name in path:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def typed_at(data: Any, kind: type[Kind], *path: str) -> Kind:
    """Returns the value at a path in data; an empty one of its type if it is absent or has another type.

    >>> typed_at({"a": {"b": "x"}}, str, "a", "b"), typed_at({"a": 1}, dict, "a")
    ('x', {})
    """
    value = value_at(data, *path)
    if fits(value, kind):
        found: Kind = value
        return found
    return kind()


def items_at(data: Any, kind: type[Kind], *path: str) -> list[Kind]:
    """Returns the items of a type in the list at a path in data; none if it is absent or no list.

    >>> items_at({"a": ["x", 1]}, str, "a"), items_at([], str, "a")
    (['x'], [])
    """
    return [item for item in typed_at(data, list, *path) if fits(item, kind)]


def _misfits(
    value: Any, shape: Shape, path: str, closed: bool, missing: list[str] | None
) -> Iterator[Misfit]:
    """Yields the parts with another shape, and removes them then; adds the paths of missing keys."""
    removed: list[Any] = []
    for key, inner in _parts(value, shape, path, closed):
        item = value[key]
        fitting = inner
        if type(inner) is tuple or not fits(item, inner):  # most have one alternative, and fit
            fitting = next((each for each in alternatives(inner) if fits(item, each)), None)
        if fitting is None:
            removed.append(key)
            yield Misfit(_joined(path, key), item, inner)
        elif not isinstance(fitting, type):
            yield from _misfits(item, _plain(fitting), _joined(path, key), closed, missing)
        elif missing is None and type(item) is str:
            value[key] = printable(item)
    for key in reversed(removed):
        del value[key]
    if missing is not None and isinstance(shape, dict):
        missing += [_joined(path, key) for key in shape.get(REQUIRED, ()) if key not in value]


def _parts(value: Any, shape: Shape, path: str, closed: bool) -> Iterator[tuple[Any, Shape]]:
    """Yields the key and the shape of each part of a value that has one."""
    if isinstance(shape, list):
        yield from ((number, shape[0]) for number in range(len(value)))
    elif isinstance(shape, dict):
        every = shape.get(ANY_KEY)
        for key in value:
            inner = shape.get(ANY_KEY if key == REQUIRED else key, every)
            if inner is not None:
                yield key, inner
            elif closed and shape:
                close = nearest(key, [name for name in shape if name != REQUIRED])
                hint = f": did you mean `{close}`?" if close else ""
                raise ValueError(f"`{path}.{key}` is not known{hint}")


def _joined(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}".lstrip(".")


def alternatives(shape: Shape) -> tuple[Shape, ...]:
    """Returns the alternatives of a shape, which may be the only one."""
    if type(shape) is tuple:
        return shape
    return (shape,)


def _plain(shape: Shape) -> Shape:
    """Returns a shape without its limits."""
    if isinstance(shape, Limited):
        return shape.shape
    return shape


def _kind(shape: Shape) -> type:
    plain = _plain(shape)
    if isinstance(plain, type):
        return plain
    return type(plain)


def fits(value: Any, shape: Shape) -> bool:
    """Returns True if a value has the type of a shape and its limits; its parts are not checked."""
    if isinstance(shape, Limited):
        return fits(value, shape.shape) and shape.fits(value)
    kind = shape if isinstance(shape, type) else type(shape)
    if kind is object:
        return value is not None
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, (int, float)):
        return kind in (type(value), float) and abs(value) <= LARGEST_NUMBER  # or not a number
    return isinstance(value, kind)


def name_of(shape: Shape, names: Mapping[type, str] = _NAMES) -> str:
    """Returns the name of the type of a shape.

    Args:
        shape: the shape.
        names: the names of types, in the place of those of JSON.
    """
    kind = _kind(shape)
    return names.get(kind) or _NAMES.get(kind, kind.__name__)


def kind_of(value: Any) -> str:
    """Returns the JSON type of a value, as in ``a list``."""
    if type(value) in (int, float) and not abs(value) <= LARGEST_NUMBER:
        return "a number out of range"
    if type(value) is int:
        return _NAMES[float]
    return name_of(type(value))
